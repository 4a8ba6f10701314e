package input

import (
	"crypto/ed25519"
	"encoding/json"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/crypto/ssh"

	"hawser.dev/hawser/schema/fabric"
	"hawser.dev/hawser/schema/fabric/trust"
)

// signedNode is a node whose fabric is delivered as files.
type signedNode struct {
	t   *testing.T
	dir string
	in  *Inputs
}

func newSignedNode(t *testing.T) *signedNode {
	t.Helper()
	n := &signedNode{t: t, dir: t.TempDir()}
	for _, folder := range []string{"fabric", "state", "trust", "facts"} {
		if err := os.Mkdir(filepath.Join(n.dir, folder), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	n.restart()
	return n
}

// restart begins anew with what is on the disk.
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

// expect reads everything again and compares what is in force: the domain of the
// fabric, and the reason of a refusal.
func (n *signedNode) expect(what, domain, refused string) {
	n.t.Helper()
	n.in.Refresh()
	state := n.in.fabric.state
	have := ""
	if n.in.fabric.have {
		have = n.in.fabric.value.Domain
	}
	if have != domain || state.Refused != refused || (refused == "") != state.OK {
		n.t.Errorf("%s: fabric of %q in force, refused %q (%s), want %q, %q", what, have, state.Refused, state.Error, domain, refused)
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

// TestTrust walks an agent through what somebody may do who can write all that is
// delivered to it: whatever is refused, the last good fabric stays in force, over
// restarts too.
func TestTrust(t *testing.T) {
	t.Parallel()
	own, foreign := signerOf(t, "o"), signerOf(t, "f")
	pin := func(s ssh.Signer) []byte {
		return []byte(trust.PinFile("demo", "g1", []string{trust.Line(s.PublicKey())}, trust.Approvers{}))
	}
	first, second, evil := packedFor(t, "first"), packedFor(t, "second"), packedFor(t, "evil")

	n := newSignedNode(t)
	n.write("fabric/fabric.json.gz", first)
	n.expect("without pins", "first", "")
	if n.in.Trust() != nil {
		t.Error("trusts somebody without pins")
	}
	n.write("trust/signers", pin(own))
	n.expect("pinned, and unsigned", "first", "unsigned")
	n.write("fabric/fabric.sig", proofFor(t, first, 5, nil, own))
	n.expect("signed", "first", "")
	n.write("fabric/fabric.json.gz", evil)
	n.expect("another document under the signature", "first", "altered")
	n.write("fabric/fabric.sig", proofFor(t, evil, 6, nil, foreign))
	n.expect("signed by somebody else", "first", "unknown-signer")
	n.write("fabric/fabric.sig", nil)
	n.expect("the signature is gone", "first", "unsigned")
	n.write("fabric/fabric.json.gz", second)
	n.write("fabric/fabric.sig", proofFor(t, second, 7, nil, own))
	n.expect("a newer one", "second", "")
	n.write("fabric/fabric.json.gz", first)
	n.write("fabric/fabric.sig", proofFor(t, first, 5, nil, own))
	n.expect("the old one", "second", "older")
	n.restart()
	n.expect("the old one, after a restart", "second", "older")
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
	n.write("trust/signers", []byte(trust.PinFile("demo", "g2", []string{trust.Line(own.PublicKey())}, trust.Approvers{})))
	n.expect("pins of another cluster", "second", "other-cluster")

	// The way out when the signing key is lost: other pins, with which revisions begin
	// anew.
	n.write("trust/signers", pin(foreign))
	n.write("fabric/fabric.json.gz", first)
	n.write("fabric/fabric.sig", proofFor(t, first, 1, nil, foreign))
	n.expect("other pins", "first", "")
	if got := n.in.Trust(); got == nil || got.Fabric != 1 || got.Signers[0] != trust.Line(foreign.PublicKey()) {
		t.Errorf("trusts %+v", got)
	}
}

// TestTrustRotation: signers change by a chain that the old ones signed, and the
// agent remembers over a restart whom it trusts.
func TestTrustRotation(t *testing.T) {
	t.Parallel()
	one, two := signerOf(t, "1"), signerOf(t, "2")
	n := newSignedNode(t)
	n.write("trust/signers", []byte(trust.PinFile("demo", "*", []string{trust.Line(one.PublicKey())}, trust.Approvers{})))
	var chain []trust.Signed
	for i, today := range [][]ssh.Signer{{one}, {one, two}, {two}} {
		var err error
		if chain, err = trust.Extend("demo", chain, today, today); err != nil {
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

// TestTrustApprovals: what the signing key alone publishes changes nothing once a fabric
// named approvers, over a restart too, nor on a node that begins with pins of them; other
// pins are the way out when approvers lost their keys.
func TestTrustApprovals(t *testing.T) {
	t.Parallel()
	root, alice, bob, eve := signerOf(t, "r"), signerOf(t, "a"), signerOf(t, "b"), signerOf(t, "e")
	named := func(threshold int, of ...ssh.Signer) trust.Approvers {
		out := trust.Approvers{Threshold: threshold}
		for _, s := range of {
			out.Keys = append(out.Keys, trust.Line(s.PublicKey()))
		}
		return out
	}
	two := named(2, alice, bob)
	deliver := func(n *signedNode, domain string, revision int64, a trust.Approvers, by ...ssh.Signer) {
		t.Helper()
		packed := packedFor(t, domain)
		signed, err := trust.Sign(trust.Fabric, trust.Statement{Clusterset: "demo", Revision: revision, SHA256: trust.Hash(packed), Approvers: a}, root)
		if err != nil {
			t.Fatal(err)
		}
		for _, key := range by {
			armored, err := trust.Approve(signed.Statement, key)
			if err != nil {
				t.Fatal(err)
			}
			signed.Approvals = append(signed.Approvals, armored)
		}
		raw, err := json.Marshal(trust.Proof{Signed: signed})
		if err != nil {
			t.Fatal(err)
		}
		n.write("fabric/fabric.json.gz", packed)
		n.write("fabric/fabric.sig", raw)
	}
	pins := func(a trust.Approvers) []byte {
		return []byte(trust.PinFile("demo", "*", []string{trust.Line(root.PublicKey())}, a))
	}

	n := newSignedNode(t)
	n.write("trust/signers", pins(trust.Approvers{}))
	deliver(n, "first", 1, trust.Approvers{})
	n.expect("nobody has to approve", "first", "")
	deliver(n, "unable", 2, two)
	n.expect("approvers who have not shown that they can", "first", "unapproved")
	deliver(n, "second", 3, two, alice, bob)
	n.expect("approvers, with their approval", "second", "")
	n.expect("the same again", "second", "")
	if got := n.in.Trust(); got.Threshold != 2 || len(got.Approvers) != 2 {
		t.Errorf("trusts %+v", got)
	}
	deliver(n, "evil", 4, two)
	n.expect("the signing key alone", "second", "unapproved")
	n.restart()
	n.expect("the signing key alone, after a restart", "second", "unapproved")
	deliver(n, "evil", 5, trust.Approvers{}, alice)
	n.expect("approvers removed by one of them", "second", "unapproved")
	deliver(n, "evil", 6, named(1, eve), eve)
	n.expect("approvers of the attacker's", "second", "unapproved")
	deliver(n, "second", 3, two, alice, bob)
	n.expect("what was approved last", "second", "")
	deliver(n, "third", 7, two, bob, alice)
	n.expect("a newer one", "third", "")
	deliver(n, "second", 3, two, alice, bob)
	n.expect("the older one, as it was approved", "third", "older")

	young := newSignedNode(t)
	young.write("trust/signers", pins(two))
	deliver(young, "evil", 9, named(1, eve), eve)
	young.expect("a new node with pinned approvers", "", "unapproved")
	deliver(young, "third", 7, two, bob, alice)
	young.expect("the same, with approvals", "third", "")

	n.write("trust/signers", pins(named(1, eve)))
	deliver(n, "out", 8, named(1, eve), eve)
	n.expect("other pins", "out", "")
}
