package feed

import (
	"crypto/tls"
	"encoding/base64"
	"io"
	"net"
	"strings"
	"testing"

	"hawser.dev/hawser/schema/fabric"
)

func TestRefusals(t *testing.T) {
	t.Parallel()
	a, b, stranger := newGateway(t, "a"), newGateway(t, "b"), newGateway(t, "x")
	wrongKey := newGateway(t, "a")
	old := newGateway(t, "a")
	old.id.Keys = map[int]fabric.Secret{9: a.id.Keys[1]}
	node := a.id
	node.Gateway = ""
	anotherB := b.peer
	anotherB.Keys = map[int]PublicKey{1: wrongKey.peer.Keys[1]}
	renamed := b.peer
	renamed.Gateway = "b-other"
	tests := []struct {
		name string
		id   Identity
		peer Peer
		why  string // in the client's state
	}{
		{"gateway that is not in the fabric", stranger.id, b.peer, "refused"},
		{"wrong private key", wrongKey.id, b.peer, "refused"},
		{"no epoch in common", old.id, b.peer, "no key epoch"},
		{"server with another key", a.id, anotherB, "refused"},
		{"server with another name", a.id, renamed, "refused"},
		{"node on the tunnel address", node, b.peer, "refused"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			server := *b
			server.peer = tt.peer
			server.peer.Addr = newGateway(t, "b").peer.Addr
			s := startServer(t, &gateway{id: b.id, peer: server.peer}, "", a.peer)
			publish(t, s, stateOf("b", ready("one")))
			c := startClient(t, tt.id, testTiming, server.peer)
			await(t, "a refusal", func() bool { return strings.Contains(c.States()[0].Err, tt.why) })
			if have := c.Snapshot(); len(have) != 0 {
				t.Errorf("data came through: %v", have)
			}
			if c.count("feed lost") > 3 {
				t.Error("the same refusal is logged repeatedly")
			}
		})
	}
}

func TestEpochsRotate(t *testing.T) {
	t.Parallel()
	a, b := newGateway(t, "a", 1, 2), newGateway(t, "b", 1, 2)
	// b's fabric is one step behind: it knows a's key of epoch 1 only.
	behind := a.peer
	behind.Keys = map[int]PublicKey{1: a.peer.Keys[1]}
	s := startServer(t, b, "", behind)
	publish(t, s, stateOf("b", ready("one")))
	c := startClient(t, a.id, testTiming, b.peer)
	c.awaitState(t, stateOf("b", ready("one")))
	// When epoch 1 ends, its connection is closed; the next one uses epoch 2.
	ahead := a.peer
	ahead.Keys = map[int]PublicKey{2: a.peer.Keys[2]}
	s.SetPeers([]Peer{ahead})
	await(t, "a second connection", func() bool { return c.count("feed connected") == 2 })
	s.SetPeers(nil)
	await(t, "the end", func() bool { return !c.States()[0].Connected })
}

// TestMachineInTheMiddle terminates both TLS connections and relays the data inside them.
func TestMachineInTheMiddle(t *testing.T) {
	t.Parallel()
	a, b := newGateway(t, "a"), newGateway(t, "b")
	s := startServer(t, b, "", a.peer)
	publish(t, s, stateOf("b", ready("one")))
	straight := startClient(t, a.id, testTiming, b.peer)
	straight.awaitState(t, stateOf("b", ready("one")))
	straight.stop()

	secure, err := serverTLS()
	if err != nil {
		t.Fatal(err)
	}
	middle, err := tls.Listen("tcp4", "127.0.0.1:0", secure)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = middle.Close() }()
	var passed logBuffer
	go func() {
		for {
			in, err := middle.Accept()
			if err != nil {
				return
			}
			go relayBytes(in, b.peer.Addr.String(), &passed)
		}
	}()
	through := b.peer
	through.Addr = middle.Addr().(*net.TCPAddr).AddrPort()
	c := startClient(t, a.id, testTiming, through)
	await(t, "a refusal", func() bool { return strings.Contains(c.States()[0].Err, "refused") })
	if passed.count(`"server":"b/b-a"`) == 0 {
		t.Error("the hello did not go through the middle: the test is void")
	}
	if passed.count("sample") > 0 || len(c.Snapshot()) > 0 {
		t.Error("data went through the middle")
	}
}

func relayBytes(in net.Conn, to string, seen io.Writer) {
	defer func() { _ = in.Close() }()
	out, err := tls.Dial("tcp4", to, clientTLS())
	if err != nil {
		return
	}
	defer func() { _ = out.Close() }()
	// Written before it is relayed: the reply may arrive earlier than the copy.
	go func() { _, _ = io.Copy(io.MultiWriter(seen, out), in) }()
	_, _ = io.Copy(io.MultiWriter(seen, in), out)
}

func TestPublicKeys(t *testing.T) {
	t.Parallel()
	_, public := newKeyPair(t)
	good := fabric.Key{Epoch: 2, Public: base64.StdEncoding.EncodeToString(public[:])}
	if have, err := PublicKeys([]fabric.Key{good}); err != nil || have[2] != public {
		t.Errorf("got %v, %v", have, err)
	}
	if _, err := PublicKeys([]fabric.Key{good, {Epoch: 3, Public: "AAAA"}}); err == nil {
		t.Error("a short key was accepted")
	}
}
