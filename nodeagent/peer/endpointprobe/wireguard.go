package endpointprobe

import (
	"crypto/ecdh"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/flynn/noise"
	"golang.org/x/crypto/blake2s"
	"golang.zx2c4.com/wireguard/device"
	"golang.zx2c4.com/wireguard/tai64n"

	"hawser.dev/hawser/schema/fabric"
)

// Keys are the WireGuard keys of one pair of gateways.
type Keys struct {
	Private fabric.Secret // of this gateway
	Public  [32]byte      // of the peer
	PSK     fabric.Secret
}

// initiation is a handshake initiation that waits for its response. A WireGuard handshake is
// Noise_IKpsk2 with a header before each message and two MACs after it (WireGuard paper, section
// 5.4).
type initiation struct {
	index   uint32 // of this handshake; the response repeats it
	static  *ecdh.PrivateKey
	noise   *noise.HandshakeState
	cookies device.CookieGenerator
}

// Lengths of the header before and the MACs after a Noise message, in bytes.
const (
	responseHeaderLength = 12 // type, sender, receiver
	macsLength           = 2 * blake2s.Size128
)

// newInitiation returns a new handshake and its first message.
func newInitiation(keys Keys) (*initiation, []byte, error) {
	i := &initiation{}
	var err error
	if i.static, err = ecdh.X25519().NewPrivateKey(keys.Private[:]); err != nil {
		return nil, nil, errors.New("create handshake initiation: invalid private key")
	}
	i.noise, err = noise.NewHandshakeState(noise.Config{
		CipherSuite:           noise.NewCipherSuite(noise.DH25519, noise.CipherChaChaPoly, noise.HashBLAKE2s),
		Pattern:               noise.HandshakeIK,
		Initiator:             true,
		Prologue:              []byte(device.WGIdentifier),
		PresharedKey:          keys.PSK[:],
		PresharedKeyPlacement: 2,
		StaticKeypair:         noise.DHKey{Private: keys.Private[:], Public: i.static.PublicKey().Bytes()},
		PeerStatic:            keys.Public[:],
	})
	if err != nil {
		return nil, nil, fmt.Errorf("create handshake initiation: %w", err)
	}
	var index [4]byte
	_, _ = rand.Read(index[:]) // never fails
	i.index = binary.LittleEndian.Uint32(index[:])

	message := make([]byte, 0, device.MessageInitiationSize)
	message = binary.LittleEndian.AppendUint32(message, device.MessageInitiationType)
	message = binary.LittleEndian.AppendUint32(message, i.index)
	now := tai64n.Now()
	if message, _, _, err = i.noise.WriteMessage(message, now[:]); err != nil {
		return nil, nil, fmt.Errorf("create handshake initiation: %w", err) // such as a public key of low order
	}
	message = append(message, make([]byte, macsLength)...)
	i.cookies.Init(keys.Public)
	i.cookies.AddMacs(message)
	return i, message, nil
}

// replyIndex returns the index of the handshake that a message replies to. ok is false unless the
// message is a response or a cookie reply.
func replyIndex(message []byte) (index uint32, ok bool) {
	switch {
	case len(message) == device.MessageResponseSize && binary.LittleEndian.Uint32(message) == device.MessageResponseType:
		return binary.LittleEndian.Uint32(message[8:]), true
	case len(message) == device.MessageCookieReplySize && binary.LittleEndian.Uint32(message) == device.MessageCookieReplyType:
		return binary.LittleEndian.Uint32(message[4:]), true
	}
	return 0, false
}

// isReply reports whether a message proves that its sender has the private key of the peer. It
// accepts only messages for which replyIndex returns true. A peer under load replies with a cookie.
// A forged message does not change the handshake.
func (i *initiation) isReply(message []byte) bool {
	if binary.LittleEndian.Uint32(message) == device.MessageCookieReplyType {
		var reply device.MessageCookieReply
		_, err := binary.Decode(message, binary.LittleEndian, &reply)
		return err == nil && i.cookies.ConsumeReply(&reply)
	}
	response := message[responseHeaderLength : len(message)-macsLength]
	// The library restores its state if decryption fails, but not if the ephemeral key is of
	// low order.
	ephemeral, err := ecdh.X25519().NewPublicKey(response[:device.NoisePublicKeySize])
	if err != nil {
		return false
	}
	if _, err := i.static.ECDH(ephemeral); err != nil {
		return false
	}
	_, _, _, err = i.noise.ReadMessage(nil, response)
	return err == nil
}
