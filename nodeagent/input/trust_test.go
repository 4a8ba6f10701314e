package input

import (
	"context"
	"crypto/ed25519"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/crypto/ssh"

	"hawser.dev/hawser/schema/fabric"
	"hawser.dev/hawser/schema/fabric/trust"
)

// signedNode is a node whose fabric is delivered in files.
type signedNode struct {
	t   *testing.T
	dir string
	in  *Inputs
}

func newSignedNode(t *testing.T) *signedNode {
	t.Helper()
	n := &signedNode{t: t, dir: t.TempDir()}
	for _, name := range []string{"fabric", "state", "trust", "facts"} {
		if err := os.Mkdir(filepath.Join(n.dir, name), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	n.restart()
	return n
}

// restart opens new inputs from the state directory.
func (n *signedNode) restart() {
	n.t.Helper()
	in, err := Open(Config{
		Cluster: "g1", Node: "w1", FabricDir: filepath.Join(n.dir, "fabric"), StateDir: filepath.Join(n.dir, "state"), FactsDir: filepath.Join(n.dir, "facts"),
		Trust: filepath.Join(n.dir, "trust", "signers"),
		Log:   slog.New(slog.DiscardHandler), Changed: func() {},
	})
	if err != nil {
		n.t.Fatal(err)
	}
	n.in = in
}

func (n *signedNode) write(name string, raw []byte) {
	n.t.Helper()
	path := filepath.Join(n.dir, name)
	if raw == nil {
		if err := os.Remove(path); err != nil {
			n.t.Fatal(err)
		}
		return
	}
	if err := os.WriteFile(path, raw, 0o600); err != nil {
		n.t.Fatal(err)
	}
}

// expect reads everything again and compares the result: the domain of the accepted fabric, and
// the reason of a refusal.
func (n *signedNode) expect(what, domain, refused string) {
	n.t.Helper()
	n.in.Refresh()
	state := n.in.fabric.state
	have := ""
	if n.in.fabric.have {
		have = n.in.fabric.value.Domain
	}
	if have != domain || state.Refused != refused || (refused == "") != state.OK {
		n.t.Errorf("%s: accepted fabric of %q, refused %q (%s), want %q, %q", what, have, state.Refused, state.Error, domain, refused)
	}
}

func packedFor(t *testing.T, domain string) []byte {
	t.Helper()
	raw, err := fabric.Encode(&fabric.Fabric{APIVersion: fabric.APIVersion, Name: "demo", Domain: domain, Clusters: []fabric.Cluster{{Name: "g1"}}})
	if err != nil {
		t.Fatal(err)
	}
	packed, err := fabric.Compress(raw)
	if err != nil {
		t.Fatal(err)
	}
	return packed
}

func signerOf(t *testing.T, seed string) ssh.Signer {
	t.Helper()
	out, err := ssh.NewSignerFromKey(ed25519.NewKeyFromSeed([]byte(strings.Repeat(seed, ed25519.SeedSize))))
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func proofFor(t *testing.T, packed []byte, revision int64, chain []trust.Signed, with ...ssh.Signer) []byte {
	t.Helper()
	signed, err := trust.Sign(trust.Fabric, trust.Statement{Clusterset: "demo", Revision: revision, SHA256: trust.Hash(packed)}, with...)
	if err != nil {
		t.Fatal(err)
	}
	raw, err := json.Marshal(trust.Proof{Chain: chain, Signed: signed})
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

// TestTrust attacks as a writer of all delivered files. After each refusal the last good fabric
// stays valid, also after a restart.
func TestTrust(t *testing.T) {
	t.Parallel()
	own, foreign := signerOf(t, "o"), signerOf(t, "f")
	pin := func(s ssh.Signer) []byte {
		return []byte(trust.PinFile("demo", "g1", []string{trust.Line(s.PublicKey())}))
	}
	first, second, evil := packedFor(t, "first"), packedFor(t, "second"), packedFor(t, "evil")

	n := newSignedNode(t)
	n.write("fabric/fabric.json.gz", first)
	n.expect("without pins", "first", "")
	if n.in.Trust() != nil {
		t.Error("trusts signers without pins")
	}
	n.write("trust/signers", pin(own))
	n.expect("pinned, and unsigned", "first", "unsigned")
	n.write("fabric/fabric.sig", proofFor(t, first, 5, nil, own))
	n.expect("signed", "first", "")
	n.write("fabric/fabric.json.gz", evil)
	n.expect("another document under the signature", "first", "altered")
	n.write("fabric/fabric.sig", proofFor(t, evil, 6, nil, foreign))
	n.expect("signed by an unknown signer", "first", "unknown-signer")
	n.write("fabric/fabric.sig", nil)
	n.expect("the signature is gone", "first", "unsigned")
	n.write("fabric/fabric.json.gz", second)
	n.write("fabric/fabric.sig", proofFor(t, second, 7, nil, own))
	n.expect("a newer fabric", "second", "")
	n.write("fabric/fabric.json.gz", first)
	n.write("fabric/fabric.sig", proofFor(t, first, 5, nil, own))
	n.expect("the old fabric", "second", "older")
	n.restart()
	n.expect("the old fabric, after a restart", "second", "older")
	n.write("trust/signers", nil)
	n.write("fabric/fabric.json.gz", evil)
	n.write("fabric/fabric.sig", proofFor(t, evil, 9, nil, foreign))
	n.restart()
	n.expect("the pins are gone", "second", "unknown-signer")
	n.write("trust/signers", []byte("nonsense"))
	n.in.Refresh()
	if text := n.in.fabric.state.Error; !strings.HasSuffix(text, "signers: line 1: not CLUSTERSET/CLUSTER KEYTYPE KEY") {
		t.Errorf("error %q", text)
	}
	n.write("trust/signers", []byte(trust.PinFile("demo", "g2", []string{trust.Line(own.PublicKey())})))
	n.expect("pins of another cluster", "second", "other-cluster")

	// Recovery from a lost signing key: new pins, with which revisions start again.
	n.write("trust/signers", pin(foreign))
	n.write("fabric/fabric.json.gz", first)
	n.write("fabric/fabric.sig", proofFor(t, first, 1, nil, foreign))
	n.expect("other pins", "first", "")
	if got := n.in.Trust(); got == nil || got.Fabric != 1 || got.Signers[0] != trust.Line(foreign.PublicKey()) {
		t.Errorf("trusts %+v", got)
	}
}

// TestTrustRotation checks that signers change by a chain that the old signers signed. The agent
// stores its trusted signers over a restart.
func TestTrustRotation(t *testing.T) {
	t.Parallel()
	one, two := signerOf(t, "1"), signerOf(t, "2")
	n := newSignedNode(t)
	n.write("trust/signers", []byte(trust.PinFile("demo", "*", []string{trust.Line(one.PublicKey())})))
	var chain []trust.Signed
	for i, today := range [][]ssh.Signer{{one}, {one, two}, {two}} {
		var err error
		if chain, err = trust.ExtendChain("demo", chain, today, today); err != nil {
			t.Fatal(err)
		}
		domain := string(rune('a' + i))
		packed := packedFor(t, domain)
		n.write("fabric/fabric.json.gz", packed)
		n.write("fabric/fabric.sig", proofFor(t, packed, int64(i+1), chain, today...))
		n.expect("rotation", domain, "")
		n.restart()
	}
	late := packedFor(t, "late")
	n.write("fabric/fabric.json.gz", late)
	n.write("fabric/fabric.sig", proofFor(t, late, 99, chain[:1], one))
	n.expect("the first signer again", "c", "unknown-signer")
}

// TestNewNodeReports checks that a node with an empty state directory lists the HawserNodes before
// it acts on its first fabric. It refuses a fabric older than their proofs.
func TestNewNodeReports(t *testing.T) {
	t.Parallel()
	own, evil := signerOf(t, "o"), signerOf(t, "e")
	old, current := packedFor(t, "old"), packedFor(t, "current")
	n := newSignedNode(t)
	n.write("trust/signers", []byte(trust.PinFile("demo", "g1", []string{trust.Line(own.PublicKey())})))
	n.write("fabric/fabric.json.gz", old)
	n.write("fabric/fabric.sig", proofFor(t, old, 10, nil, own))
	var failure error
	proofs := []string{
		string(proofFor(t, current, 1000, nil, own)), string(proofFor(t, current, math.MaxInt64, nil, evil)), "{",
	}
	lists := 0
	start := func() {
		n.restart()
		n.in.signers.list = func(_ context.Context, kind trust.Kind) ([]string, error) {
			if lists++; kind != trust.Fabric {
				return nil, fmt.Errorf("list of %s", kind)
			}
			return proofs, failure
		}
	}
	start()
	waits := func(what, text string) {
		t.Helper()
		n.in.Refresh()
		if n.in.fabric.have || !strings.Contains(n.in.fabric.state.Error, text) || n.in.fabric.state.Refused != "" {
			t.Errorf("%s: accepted: %t, error %q, want %q", what, n.in.fabric.have, n.in.fabric.state.Error, text)
		}
	}
	waits("before the list", "newest revision unknown: waiting for the HawserNodes of the cluster")
	if failure = errors.New("forbidden"); n.in.readProofs(t.Context()) {
		t.Error("a failed list counts as done")
	}
	waits("the list fails", "newest revision unknown: forbidden")
	start()
	waits("after a restart", "newest revision unknown")
	if failure = nil; !n.in.readProofs(t.Context()) {
		t.Error("the list failed")
	}
	n.expect("a replayed fabric", "", "older")
	if text := n.in.fabric.state.Error; !strings.Contains(text, "is revision 10, but other nodes of the cluster had revision 1000") {
		t.Error(text)
	}
	before := lists
	start()
	n.expect("a replayed fabric after a restart", "", "older")
	n.write("fabric/fabric.json.gz", current)
	n.write("fabric/fabric.sig", proofFor(t, current, 1000, nil, own))
	n.expect("the newest fabric", "current", "")
	if n.in.readProofs(t.Context()); lists != before {
		t.Errorf("a node with stored revisions listed HawserNodes %d times", lists-before)
	}
	if fabric, keys := n.in.Proofs(); fabric != proofs[0] || keys != "" {
		t.Errorf("the node reports %s and %q", fabric, keys)
	}

	// New pins start without stored revisions.
	proofs = []string{string(proofFor(t, current, 5000, nil, evil))}
	n.write("trust/signers", []byte(trust.PinFile("demo", "g1", []string{trust.Line(own.PublicKey()), trust.Line(evil.PublicKey())})))
	n.in.Refresh()
	if !n.in.fabric.have || !strings.Contains(n.in.fabric.state.Error, "newest revision unknown") {
		t.Errorf("with other pins: accepted: %t, error %q", n.in.fabric.have, n.in.fabric.state.Error)
	}
	n.in.readProofs(t.Context())
	n.expect("with other pins", "current", "older")
}

// TestNewNodeListsOnce checks that a new node that only plans also lists HawserNodes.
func TestNewNodeListsOnce(t *testing.T) {
	t.Parallel()
	own := signerOf(t, "o")
	n := newSignedNode(t)
	n.write("trust/signers", []byte(trust.PinFile("demo", "g1", []string{trust.Line(own.PublicKey())})))
	n.write("fabric/fabric.json.gz", packedFor(t, "first"))
	n.write("fabric/fabric.sig", proofFor(t, packedFor(t, "first"), 10, nil, own))
	proofs := []string{string(proofFor(t, packedFor(t, "second"), 11, nil, own))}
	list := func(context.Context, trust.Kind) ([]string, error) { return proofs, nil }
	n.in.signers.list = list
	if n.in.RefreshOnce(t.Context()); n.in.fabric.have || n.in.fabric.state.Refused != "older" {
		t.Errorf("accepted: %t, %+v", n.in.fabric.have, n.in.fabric.state)
	}
	if err := os.Remove(filepath.Join(n.dir, "state", trustFile)); err != nil {
		t.Fatal(err)
	}
	n.restart()
	n.in.signers.list, proofs = list, nil
	if n.in.RefreshOnce(t.Context()); !n.in.fabric.have {
		t.Errorf("not accepted: %+v", n.in.fabric.state)
	}
}

// TestNewNodeListsInRun checks that Run lists again until it succeeds.
func TestNewNodeListsInRun(t *testing.T) {
	t.Parallel()
	own := signerOf(t, "o")
	n := newSignedNode(t)
	n.write("trust/signers", []byte(trust.PinFile("demo", "g1", []string{trust.Line(own.PublicKey())})))
	n.write("fabric/fabric.json.gz", packedFor(t, "first"))
	n.write("fabric/fabric.sig", proofFor(t, packedFor(t, "first"), 10, nil, own))
	changed, failures := make(chan struct{}, 100), 1
	n.in.changed = func() { changed <- struct{}{} }
	n.in.signers.list = func(context.Context, trust.Kind) ([]string, error) {
		if failures > 0 {
			failures--
			return nil, errors.New("unreachable")
		}
		return nil, nil
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- n.in.Run(ctx) }()
	end := time.After(60 * time.Second)
	for {
		if n.in.mu.Lock(); n.in.fabric.have {
			n.in.mu.Unlock()
			break
		}
		n.in.mu.Unlock()
		select {
		case <-changed:
		case <-end:
			t.Fatal("the fabric is not accepted")
		}
	}
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// TestNewNodeFloor checks that a node with an empty state directory, such as a replaced gateway,
// starts at the revision of its pins.
func TestNewNodeFloor(t *testing.T) {
	t.Parallel()
	own := signerOf(t, "o")
	pins, err := trust.RaiseFloors([]byte(trust.PinFile("demo", "*", []string{trust.Line(own.PublicKey())})), trust.Revisions{Fabric: 5})
	if err != nil {
		t.Fatal(err)
	}
	n := newSignedNode(t)
	n.write("trust/signers", pins)
	old, current := packedFor(t, "old"), packedFor(t, "current")
	n.write("fabric/fabric.json.gz", old)
	n.write("fabric/fabric.sig", proofFor(t, old, 4, nil, own))
	n.expect("an older revision", "", "older")
	n.write("fabric/fabric.json.gz", current)
	n.write("fabric/fabric.sig", proofFor(t, current, 5, nil, own))
	n.expect("the revision of the floor", "current", "")

	// Higher floors do not delete an agent's last good state.
	if pins, err = trust.RaiseFloors(pins, trust.Revisions{Fabric: 9}); err != nil {
		t.Fatal(err)
	}
	n.write("trust/signers", pins)
	n.expect("a floor above the current revision", "current", "older")
}
