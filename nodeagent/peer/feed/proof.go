package feed

import (
	"crypto/ecdh"
	"crypto/ed25519"
	"crypto/hkdf"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/binary"
	"fmt"
	"math/big"
	"strconv"
	"time"
)

// exporterLabel is the label of the TLS keying material (RFC 8446, 7.5) that every proof includes.
// It makes a proof invalid on another connection.
const exporterLabel = "hawser feed"

// Roles in a proof: the proof of one end is invalid for the other.
const (
	roleClient = "client"
	roleServer = "server"
)

// handshakeContext has the fields that a proof authenticates.
type handshakeContext struct {
	mode     string // peer | node
	client   string // cluster/gateway, or cluster/node of a node
	server   string // cluster/gateway
	epoch    int
	exporter []byte
}

const (
	modePeer = "peer"
	modeNode = "node"
)

// proof returns the proof that an end knows the shared secret. It is an HMAC-SHA256 over all fields
// that both ends must agree on. Its key is the HKDF-SHA256 of the X25519 result.
func (c handshakeContext) proof(role string, private *ecdh.PrivateKey, public *ecdh.PublicKey) ([]byte, error) {
	shared, err := private.ECDH(public) // refuses low-order points
	if err != nil {
		return nil, fmt.Errorf("compute shared key with %s: %w", c.server, err)
	}
	key, err := hkdf.Key(sha256.New, shared, nil, "hawser feed "+c.mode, sha256.Size)
	if err != nil {
		return nil, fmt.Errorf("derive proof key: %w", err)
	}
	mac := hmac.New(sha256.New, key)
	for _, field := range [][]byte{
		[]byte(role), []byte(c.mode), []byte(c.client), []byte(c.server), []byte(strconv.Itoa(c.epoch)), c.exporter,
	} {
		var length [4]byte
		binary.BigEndian.PutUint32(length[:], uint32(len(field)))
		mac.Write(length[:])
		mac.Write(field)
	}
	return mac.Sum(nil), nil
}

func exportKeyingMaterial(conn *tls.Conn) ([]byte, error) {
	state := conn.ConnectionState()
	material, err := state.ExportKeyingMaterial(exporterLabel, nil, 32)
	if err != nil {
		return nil, fmt.Errorf("export keying material: %w", err)
	}
	return material, nil
}

// serverTLS returns the configuration of a server with a new self-signed certificate. The proofs
// inside the connection authenticate the ends; the certificate does not.
func serverTLS() (*tls.Config, error) {
	public, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("make feed certificate: %w", err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1),
		// Clients do not check the times. A clock that jumps must not break the feed.
		NotBefore: time.Unix(0, 0),
		NotAfter:  time.Date(9999, 12, 31, 23, 59, 59, 0, time.UTC),
	}
	certificate, err := x509.CreateCertificate(rand.Reader, template, template, public, private)
	if err != nil {
		return nil, fmt.Errorf("make feed certificate: %w", err)
	}
	return &tls.Config{
		MinVersion:             tls.VersionTLS13,
		Certificates:           []tls.Certificate{{Certificate: [][]byte{certificate}, PrivateKey: private}},
		SessionTicketsDisabled: true,
	}, nil
}

// clientTLS returns the configuration of a client. It accepts every certificate; see serverTLS.
func clientTLS() *tls.Config {
	return &tls.Config{MinVersion: tls.VersionTLS13, InsecureSkipVerify: true}
}
