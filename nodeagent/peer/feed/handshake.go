package feed

import (
	"crypto/ecdh"
	"crypto/hmac"
	"crypto/rand"
	"crypto/tls"
	"errors"
	"fmt"
	"io"

	"hawser.dev/hawser/schema/fabric"
)

// errRefused means that one end did not accept the name, epoch or key of the other end: it is not
// in the fabric. The next attempt uses another epoch.
var errRefused = errors.New("refused")

func peerName(cluster, gateway string) string { return cluster + "/" + gateway }

func privateKey(secret fabric.Secret) (*ecdh.PrivateKey, error) {
	key, err := ecdh.X25519().NewPrivateKey(secret[:])
	if err != nil {
		return nil, errors.New("private key is not usable")
	}
	return key, nil
}

func publicKey(public PublicKey) (*ecdh.PublicKey, error) {
	key, err := ecdh.X25519().NewPublicKey(public[:])
	if err != nil {
		return nil, errors.New("public key is not usable")
	}
	return key, nil
}

// clientHandshake authenticates this agent to the server, and checks that the server is peer.
func clientHandshake(conn *tls.Conn, id Identity, peer Peer, epoch int) error {
	h, proof, err := newHello(conn, id, peer, epoch)
	if err != nil {
		server := peerName(peer.Cluster, peer.Gateway)
		return fmt.Errorf("handshake with %s: %w", server, err)
	}
	if err := writeFrame(conn, h); err != nil {
		return fmt.Errorf("send hello to %s: %w", h.Server, err)
	}
	return verifyWelcome(conn, h, proof)
}

// newHello returns the hello of this agent and the proof that the server must return.
func newHello(conn *tls.Conn, id Identity, peer Peer, epoch int) (h hello, serverProof []byte, err error) {
	material, err := exportKeyingMaterial(conn)
	if err != nil {
		return h, nil, err
	}
	c := handshakeContext{
		mode: modePeer, client: peerName(id.Cluster, id.Gateway), server: peerName(peer.Cluster, peer.Gateway),
		epoch: epoch, exporter: material,
	}
	h = hello{Protocol: protocol, Cluster: id.Cluster, Gateway: id.Gateway, Server: c.server, Epoch: epoch}
	public, err := publicKey(peer.Keys[epoch])
	if err != nil {
		return h, nil, err
	}
	var private *ecdh.PrivateKey
	if peer.Device != "" {
		c.mode, c.client = modeNode, peerName(id.Cluster, id.Node)
		h.Gateway, h.Node = "", id.Node
		if private, err = ecdh.X25519().GenerateKey(rand.Reader); err != nil {
			return h, nil, err
		}
		h.Ephemeral = private.PublicKey().Bytes()
	} else {
		if private, err = privateKey(id.Keys[epoch]); err != nil {
			return h, nil, err
		}
		if h.Proof, err = c.proof(roleClient, private, public); err != nil {
			return h, nil, err
		}
	}
	serverProof, err = c.proof(roleServer, private, public)
	return h, serverProof, err
}

// verifyWelcome reads the reply to a hello and checks the server's proof.
func verifyWelcome(r io.Reader, h hello, proof []byte) error {
	var w welcome
	if err := readFrame(r, maxSmallFrame, &w); err != nil {
		return fmt.Errorf("wait for welcome of %s: %w", h.Server, err)
	}
	switch {
	case w.Refused != "":
		return fmt.Errorf("%s replied %q: %w", h.Server, w.Refused, errRefused)
	case w.Protocol != protocol:
		return fmt.Errorf("%s uses version %d of the feed, not %d", h.Server, w.Protocol, protocol)
	case !hmac.Equal(proof, w.Proof):
		return fmt.Errorf("%s does not have the key of epoch %d in the fabric: %w", h.Server, h.Epoch, errRefused)
	}
	return nil
}

// newWelcome returns the welcome for an admitted or refused hello.
func newWelcome(proof []byte, refused error) welcome {
	if refused != nil {
		// Only the log of the server has the reason: an unknown client must not learn it.
		return welcome{Protocol: protocol, Refused: "unknown name, epoch or key"}
	}
	return welcome{Protocol: protocol, Proof: proof}
}

// admission checks which clients may subscribe at one listener.
type admission struct {
	id    Identity
	peers map[string]Peer // gateways of other clusters by cluster/gateway
	node  bool            // the listener is on the device between the nodes of this cluster
}

// admit checks a hello. It returns the proof of the server and the name of the client.
func (a admission) admit(conn *tls.Conn, h hello) (proof []byte, client string, err error) {
	server := peerName(a.id.Cluster, a.id.Gateway)
	if h.Protocol != protocol || h.Server != server {
		return nil, "", fmt.Errorf("hello is for %q in version %d: %w", truncate(h.Server), h.Protocol, errRefused)
	}
	secret, known := a.id.Keys[h.Epoch]
	if !known {
		return nil, "", fmt.Errorf("hello names epoch %d, this gateway has no key of it: %w", h.Epoch, errRefused)
	}
	private, err := privateKey(secret)
	if err != nil {
		return nil, "", err
	}
	material, err := exportKeyingMaterial(conn)
	if err != nil {
		return nil, "", err
	}
	c := handshakeContext{mode: modePeer, client: peerName(h.Cluster, h.Gateway), server: server, epoch: h.Epoch, exporter: material}
	if a.node {
		return a.admitNode(c, h, private)
	}
	public, err := publicKey(a.peers[c.client].Keys[h.Epoch])
	if _, known := a.peers[c.client].Keys[h.Epoch]; !known || err != nil || h.Node != "" {
		return nil, "", fmt.Errorf("the fabric has no gateway %q with a key of epoch %d: %w", truncate(c.client), h.Epoch, errRefused)
	}
	want, err := c.proof(roleClient, private, public)
	if err != nil || !hmac.Equal(want, h.Proof) {
		return nil, "", fmt.Errorf("%s does not have the key of epoch %d in the fabric: %w", c.client, h.Epoch, errRefused)
	}
	proof, err = c.proof(roleServer, private, public)
	return proof, c.client, err
}

// admitNode checks the hello of a node of this cluster, which has no key. The proof authenticates
// only the gateway. A node may receive but not publish.
func (a admission) admitNode(c handshakeContext, h hello, private *ecdh.PrivateKey) ([]byte, string, error) {
	if h.Cluster != a.id.Cluster || h.Node == "" || h.Gateway != "" {
		return nil, "", fmt.Errorf("%q is no node of this cluster: %w", truncate(peerName(h.Cluster, h.Node)), errRefused)
	}
	public, err := ecdh.X25519().NewPublicKey(h.Ephemeral)
	if err != nil {
		return nil, "", fmt.Errorf("ephemeral key of %q is not usable: %w", truncate(h.Node), errRefused)
	}
	c.mode, c.client = modeNode, peerName(h.Cluster, h.Node)
	proof, err := c.proof(roleServer, private, public)
	return proof, c.client, err
}

// truncate bounds text of an unauthenticated client in a log.
func truncate(text string) string { return text[:min(len(text), 130)] }
