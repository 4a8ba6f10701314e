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

// errRefused means that the server did not accept this end, or that it is not
// who the fabric says it is. The next attempt tries another epoch.
var errRefused = errors.New("refused")

func name(cluster, gateway string) string { return cluster + "/" + gateway }

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

// clientHandshake proves to a server who this end is, and checks that the server is peer.
func clientHandshake(conn *tls.Conn, id Identity, peer Peer, epoch int) error {
	material, err := exporter(conn)
	if err != nil {
		return err
	}
	c := handshakeContext{
		mode: modePeer, client: name(id.Cluster, id.Gateway), server: name(peer.Cluster, peer.Gateway),
		epoch: epoch, exporter: material,
	}
	h := hello{Protocol: protocol, Cluster: id.Cluster, Gateway: id.Gateway, Server: c.server, Epoch: epoch}
	public, err := publicKey(peer.Keys[epoch])
	if err != nil {
		return fmt.Errorf("greet %s: %w", c.server, err)
	}
	var private *ecdh.PrivateKey
	if peer.Device != "" {
		c.mode, c.client = modeNode, name(id.Cluster, id.Node)
		h.Gateway, h.Node = "", id.Node
		if private, err = ecdh.X25519().GenerateKey(rand.Reader); err != nil {
			return fmt.Errorf("greet %s: %w", c.server, err)
		}
		h.Ephemeral = private.PublicKey().Bytes()
	} else {
		if private, err = privateKey(id.Keys[epoch]); err != nil {
			return fmt.Errorf("greet %s: %w", c.server, err)
		}
		if h.Proof, err = c.proof(roleClient, private, public); err != nil {
			return err
		}
	}
	want, err := c.proof(roleServer, private, public)
	if err != nil {
		return err
	}
	raw, err := pack(h)
	if err != nil {
		return err
	}
	if _, err := conn.Write(raw); err != nil {
		return fmt.Errorf("send hello to %s: %w", h.Server, err)
	}
	return verifyWelcome(conn, h, want)
}

// verifyWelcome reads the answer to a hello, and checks the server's proof.
func verifyWelcome(r io.Reader, h hello, want []byte) error {
	var w welcome
	if err := readFrame(r, maxHello, &w); err != nil {
		return fmt.Errorf("wait for welcome of %s: %w", h.Server, err)
	}
	switch {
	case w.Refused != "":
		return fmt.Errorf("%s says %q: %w", h.Server, w.Refused, errRefused)
	case w.Protocol != protocol:
		return fmt.Errorf("%s speaks version %d of the feed, not %d", h.Server, w.Protocol, protocol)
	case !hmac.Equal(want, w.Proof):
		return fmt.Errorf("%s does not hold the key of epoch %d that the fabric names: %w", h.Server, h.Epoch, errRefused)
	}
	return nil
}

// admission is what the server knows of its side when a hello comes in.
type admission struct {
	id    Identity
	peers map[string]Peer // gateways of other clusters by cluster/gateway
	node  bool            // the connection came over the link between the nodes of this cluster
}

// admit checks a hello and gives the server's proof and the name of the client.
func (a admission) admit(conn *tls.Conn, h hello) (proof []byte, client string, err error) {
	own := name(a.id.Cluster, a.id.Gateway)
	if h.Protocol != protocol || h.Server != own {
		return nil, "", fmt.Errorf("hello is for %q in version %d: %w", clip(h.Server), h.Protocol, errRefused)
	}
	secret, known := a.id.Keys[h.Epoch]
	if !known {
		return nil, "", fmt.Errorf("hello names epoch %d, of which there is no key: %w", h.Epoch, errRefused)
	}
	private, err := privateKey(secret)
	if err != nil {
		return nil, "", err
	}
	material, err := exporter(conn)
	if err != nil {
		return nil, "", err
	}
	c := handshakeContext{mode: modePeer, client: name(h.Cluster, h.Gateway), server: own, epoch: h.Epoch, exporter: material}
	if a.node {
		return a.admitNode(c, h, private)
	}
	public, err := publicKey(a.peers[c.client].Keys[h.Epoch])
	if _, known := a.peers[c.client].Keys[h.Epoch]; !known || err != nil || h.Node != "" {
		return nil, "", fmt.Errorf("no gateway %q with a key of epoch %d: %w", clip(c.client), h.Epoch, errRefused)
	}
	want, err := c.proof(roleClient, private, public)
	if err != nil || !hmac.Equal(want, h.Proof) {
		return nil, "", fmt.Errorf("%s does not hold the key of epoch %d that the fabric names: %w", c.client, h.Epoch, errRefused)
	}
	proof, err = c.proof(roleServer, private, public)
	return proof, c.client, err
}

// admitNode: a node of this cluster has no key. It learns that the gateway is
// the right one, and may only listen.
func (a admission) admitNode(c handshakeContext, h hello, private *ecdh.PrivateKey) ([]byte, string, error) {
	if h.Cluster != a.id.Cluster || h.Node == "" || h.Gateway != "" {
		return nil, "", fmt.Errorf("%q is no node of this cluster: %w", clip(name(h.Cluster, h.Node)), errRefused)
	}
	public, err := ecdh.X25519().NewPublicKey(h.Ephemeral)
	if err != nil {
		return nil, "", fmt.Errorf("ephemeral key of %q is not usable: %w", clip(h.Node), errRefused)
	}
	c.mode, c.client = modeNode, name(h.Cluster, h.Node)
	proof, err := c.proof(roleServer, private, public)
	return proof, c.client, err
}

// clip bounds what a stranger gets into a log.
func clip(text string) string { return text[:min(len(text), 130)] }
