package feed

import (
	"bytes"
	"crypto/tls"
	"net"
	"testing"
)

// tlsPair returns both ends of a connection after the TLS handshake.
func tlsPair(t testing.TB) (client, server *tls.Conn) {
	t.Helper()
	clientConn, serverConn := net.Pipe()
	t.Cleanup(func() { _, _ = clientConn.Close(), serverConn.Close() })
	tlsConfig, err := serverTLS()
	if err != nil {
		t.Fatal(err)
	}
	client, server = tls.Client(clientConn, clientTLS()), tls.Server(serverConn, tlsConfig)
	done := make(chan error, 1)
	go func() { done <- server.Handshake() }()
	if err := client.Handshake(); err != nil {
		t.Fatal(err)
	}
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	return client, server
}

// helloOf returns the hello of a gateway on a connection, or of a node if the peer has a device.
func helloOf(t testing.TB, conn *tls.Conn, id Identity, peer Peer) []byte {
	t.Helper()
	material, err := exportKeyingMaterial(conn)
	if err != nil {
		t.Fatal(err)
	}
	h := hello{Protocol: protocol, Cluster: id.Cluster, Gateway: id.Gateway, Server: peerName(peer.Cluster, peer.Gateway), Epoch: 1}
	c := handshakeContext{mode: modePeer, client: peerName(id.Cluster, id.Gateway), server: h.Server, epoch: 1, exporter: material}
	public, err := publicKey(peer.Keys[1])
	if err != nil {
		t.Fatal(err)
	}
	private, err := privateKey(id.Keys[1])
	if err != nil {
		t.Fatal(err)
	}
	if peer.Device != "" {
		h.Gateway, h.Node, h.Ephemeral = "", "worker", private.PublicKey().Bytes()
	} else if h.Proof, err = c.proof(roleClient, private, public); err != nil {
		t.Fatal(err)
	}
	raw, err := encodeFrame(h)
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

// FuzzHello checks that tunnel addresses accept only a hello with the proof of a gateway in the
// fabric, as that gateway. Between nodes only a node of the own cluster is accepted.
func FuzzHello(f *testing.F) {
	a, b, stranger := newGateway(f, "a"), newGateway(f, "b"), newGateway(f, "x")
	client, server := tlsPair(f)
	node := b.peer
	node.Device = "hw-vx0"
	valid := helloOf(f, client, a.id, b.peer)
	f.Add(valid, false)
	f.Add(helloOf(f, client, stranger.id, b.peer), false)
	f.Add(helloOf(f, client, Identity{Cluster: "b", Keys: a.id.Keys}, node), true)
	f.Add(helloOf(f, client, Identity{Cluster: "a", Keys: a.id.Keys}, node), true)
	other, _ := tlsPair(f)
	f.Add(helloOf(f, other, a.id, b.peer), false) // a proof that is valid on another connection
	f.Add([]byte{0, 0, 0, 2, '{', '}'}, false)
	f.Add([]byte{0xff, 0xff, 0xff, 0xff}, true)
	var real hello
	if err := readFrame(bytes.NewReader(valid), maxSmallFrame, &real); err != nil {
		f.Fatal(err)
	}
	if _, _, err := (admission{id: b.id, peers: map[string]Peer{peerName("a", "a-a"): a.peer}}).admit(server, real); err != nil {
		f.Fatalf("the genuine hello is refused, the test is void: %v", err)
	}
	f.Fuzz(func(t *testing.T, raw []byte, fromNode bool) {
		var h hello
		if readFrame(bytes.NewReader(raw), maxSmallFrame, &h) != nil {
			return
		}
		admit := admission{id: b.id, peers: map[string]Peer{peerName("a", "a-a"): a.peer}, node: fromNode}
		proof, client, err := admit.admit(server, h)
		switch {
		case err != nil && (proof != nil || client != ""):
			t.Fatalf("refused, but returned %q and %q", proof, client)
		case err != nil:
		case fromNode && (h.Cluster != "b" || h.Gateway != "" || h.Node == "" || client != peerName("b", h.Node)):
			t.Fatalf("%+v was accepted as node %q", h, client)
		case !fromNode && (client != "a/a-a" || !bytes.Equal(h.Proof, real.Proof) || h.Epoch != 1 || h.Server != "b/b-a" || h.Node != ""):
			t.Fatalf("%+v was accepted as gateway %q", h, client)
		}
	})
}

// FuzzWelcome checks that a welcome is accepted only with the right proof.
func FuzzWelcome(f *testing.F) {
	want := bytes.Repeat([]byte{7}, 32)
	for _, w := range []welcome{
		{Protocol: protocol, Proof: want}, {Protocol: protocol, Refused: "no", Proof: want}, {Protocol: 2, Proof: want}, {Protocol: protocol}, {},
	} {
		raw, err := encodeFrame(w)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(raw)
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		err := verifyWelcome(bytes.NewReader(raw), hello{Server: "b/b-a", Epoch: 1}, want)
		var w welcome
		if parsed := readFrame(bytes.NewReader(raw), maxSmallFrame, &w); err == nil && (parsed != nil || w.Protocol != protocol || w.Refused != "" || !bytes.Equal(w.Proof, want)) {
			t.Fatalf("%+v is accepted", w)
		}
	})
}
