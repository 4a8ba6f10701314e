// Package endpointprobe asks gateways whether they answer at an address, without any change
// to the tunnel. For WireGuard a question is the first message of a handshake, sent
// from the port of this gateway's own device; the answer is read beside the device
// and the handshake goes no further, so the session in use stays. The other end
// takes the address that the question came from for this gateway's, which is right
// wherever the answer arrives. For VXLAN see Carry, for IPsec AskIKE.
package endpointprobe

import (
	"crypto/ecdh"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"

	"golang.org/x/crypto/blake2s"
	"golang.org/x/crypto/chacha20poly1305"
	"golang.zx2c4.com/wireguard/device"
	"golang.zx2c4.com/wireguard/tai64n"

	"hawser.dev/hawser/schema/fabric"
)

// Keys are those of one pair of gateways.
type Keys struct {
	Private fabric.Secret // of this end
	Public  [32]byte      // of the other end
	PSK     fabric.Secret
}

// handshake is one that was begun (the WireGuard paper, section 5.4; the names of
// the values are those of the paper).
type handshake struct {
	keys   Keys
	static *ecdh.PrivateKey
	own    *ecdh.PrivateKey // ephemeral
	c, h   [blake2s.Size]byte
	index  uint32
	mac1   [blake2s.Size128]byte
}

// newInitiation makes the first message.
func newInitiation(keys Keys) (*handshake, []byte, error) {
	s := &handshake{keys: keys}
	var err error
	if s.static, err = ecdh.X25519().NewPrivateKey(keys.Private[:]); err == nil {
		s.own, err = ecdh.X25519().GenerateKey(rand.Reader)
	}
	if err != nil {
		return nil, nil, errors.New("begin handshake: a key is bad")
	}
	var index [4]byte
	_, _ = rand.Read(index[:]) // never fails
	s.index = binary.LittleEndian.Uint32(index[:])
	s.c = blake2s.Sum256([]byte(device.NoiseConstruction))
	s.h = s.c
	s.mixHash([]byte(device.WGIdentifier))
	s.mixHash(keys.Public[:])

	m := device.MessageInitiation{Type: device.MessageInitiationType, Sender: s.index}
	copy(m.Ephemeral[:], s.own.PublicKey().Bytes())
	device.KDF1(&s.c, s.c[:], m.Ephemeral[:])
	s.mixHash(m.Ephemeral[:])
	if err := s.seal(m.Static[:], s.own, s.static.PublicKey().Bytes()); err != nil {
		return nil, nil, err
	}
	now := tai64n.Now()
	if err := s.seal(m.Timestamp[:], s.static, now[:]); err != nil {
		return nil, nil, err
	}
	raw, err := binary.Append(nil, binary.LittleEndian, &m)
	if err != nil {
		return nil, nil, fmt.Errorf("begin handshake: %w", err)
	}
	s.sign(raw[:len(raw)-2*blake2s.Size128])
	copy(raw[len(raw)-2*blake2s.Size128:], s.mac1[:])
	return s, raw, nil
}

// seal mixes in what one of our keys and the other's static one have in common,
// and encrypts a field.
func (s *handshake) seal(out []byte, with *ecdh.PrivateKey, plain []byte) error {
	shared, err := with.ECDH(s.remote())
	if err != nil {
		return errors.New("begin handshake: the other end's key is bad")
	}
	var key [chacha20poly1305.KeySize]byte
	device.KDF2(&s.c, &key, s.c[:], shared)
	aead, err := chacha20poly1305.New(key[:])
	if err != nil {
		return fmt.Errorf("begin handshake: %w", err)
	}
	aead.Seal(out[:0], make([]byte, aead.NonceSize()), plain, s.h[:])
	s.mixHash(out)
	return nil
}

func (s *handshake) remote() *ecdh.PublicKey {
	key, _ := ecdh.X25519().NewPublicKey(s.keys.Public[:]) // any 32 bytes are one
	return key
}

func (s *handshake) mixHash(data []byte) {
	sum, _ := blake2s.New256(nil) // fails with a key that is too long only
	sum.Write(s.h[:])
	sum.Write(data)
	sum.Sum(s.h[:0])
}

// sign makes the first message authentication code of a message.
func (s *handshake) sign(raw []byte) {
	key := blake2s.Sum256(append([]byte(device.WGLabelMAC1), s.keys.Public[:]...))
	mac, _ := blake2s.New128(key[:]) // as above
	mac.Write(raw)
	mac.Sum(s.mac1[:0])
}

// replyIndex gives the index in an answer; not ok for what is none.
func replyIndex(raw []byte) (index uint32, ok bool) {
	switch {
	case len(raw) == device.MessageResponseSize && binary.LittleEndian.Uint32(raw) == device.MessageResponseType:
		return binary.LittleEndian.Uint32(raw[8:]), true
	case len(raw) == device.MessageCookieReplySize && binary.LittleEndian.Uint32(raw) == device.MessageCookieReplyType:
		return binary.LittleEndian.Uint32(raw[4:]), true
	}
	return 0, false
}

// verifies reports whether an answer comes from the holder of the other end's key:
// the second message of the handshake, or a cookie, which one sends that is busy.
func (s *handshake) verifies(raw []byte) bool {
	if binary.LittleEndian.Uint32(raw) == device.MessageCookieReplyType {
		return s.provesCookie(raw)
	}
	var m device.MessageResponse
	if _, err := binary.Decode(raw, binary.LittleEndian, &m); err != nil {
		return false
	}
	end := *s // a wrong answer changes nothing
	far, err := ecdh.X25519().NewPublicKey(m.Ephemeral[:])
	if err != nil {
		return false
	}
	end.mixHash(m.Ephemeral[:])
	device.KDF1(&end.c, end.c[:], m.Ephemeral[:])
	for _, own := range []*ecdh.PrivateKey{s.own, s.static} {
		shared, err := own.ECDH(far)
		if err != nil {
			return false
		}
		device.KDF1(&end.c, end.c[:], shared)
	}
	var t, key [blake2s.Size]byte
	device.KDF3(&end.c, &t, &key, end.c[:], s.keys.PSK[:])
	end.mixHash(t[:])
	aead, err := chacha20poly1305.New(key[:])
	if err != nil {
		return false
	}
	_, err = aead.Open(nil, make([]byte, aead.NonceSize()), m.Empty[:], end.h[:])
	return err == nil
}

func (s *handshake) provesCookie(raw []byte) bool {
	var m device.MessageCookieReply
	if _, err := binary.Decode(raw, binary.LittleEndian, &m); err != nil {
		return false
	}
	key := blake2s.Sum256(append([]byte(device.WGLabelCookie), s.keys.Public[:]...))
	aead, err := chacha20poly1305.NewX(key[:])
	if err != nil {
		return false
	}
	_, err = aead.Open(nil, m.Nonce[:], m.Cookie[:], s.mac1[:])
	return err == nil
}
