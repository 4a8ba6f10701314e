package input

import (
	"crypto/ecdh"
	"crypto/ed25519"
	"encoding/base64"
	"encoding/json"
	"log/slog"
	"os"
	"path/filepath"
	"testing"

	"filippo.io/age"

	"hawser.dev/hawser/schema/fabric"
	"hawser.dev/hawser/schema/fabric/trust"
)

// TestKeysFitTheFabric: once a fabric has to be approved, the signing key alone gets no
// keys into a gateway that are not those of the fabric, over a restart too. Keys that
// belong to a newer fabric count when that does.
func TestKeysFitTheFabric(t *testing.T) {
	t.Parallel()
	root, alice := signerOf(t, "r"), signerOf(t, "a")
	identity, err := age.GenerateX25519Identity()
	if err != nil {
		t.Fatal(err)
	}
	n := newSignedNode(t)
	for name, raw := range map[string]string{
		"identity": identity.String(), "trust/signers": trust.PinFile("demo", "*", []string{trust.Line(root.PublicKey())}, trust.Approvers{}),
	} {
		n.write(name, []byte(raw))
	}
	if err := os.Mkdir(filepath.Join(n.dir, "keys"), 0o700); err != nil {
		t.Fatal(err)
	}
	restart := func() {
		t.Helper()
		n.in, err = Open(Config{
			Cluster: "g1", Node: "gw", FabricDir: filepath.Join(n.dir, "fabric"), StateDir: filepath.Join(n.dir, "state"), FactsDir: filepath.Join(n.dir, "facts"),
			KeysDir: filepath.Join(n.dir, "keys"), Identity: filepath.Join(n.dir, "identity"), Trust: filepath.Join(n.dir, "trust", "signers"),
			Log: slog.New(slog.DiscardHandler), Changed: func() {},
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	restart()
	secret := func(b byte) (s fabric.Secret) {
		for i := range s {
			s[i] = b
		}
		return s
	}
	publish := func(revision int64, a trust.Approvers, byEpoch ...byte) {
		t.Helper()
		g := fabric.Gateway{Name: "a", Node: "gw", Port: 51820}
		for i, b := range byEpoch {
			s := secret(b)
			private, err := ecdh.X25519().NewPrivateKey(s[:])
			if err != nil {
				t.Fatal(err)
			}
			g.Keys = append(g.Keys, fabric.Key{Epoch: i + 1, Public: base64.StdEncoding.EncodeToString(private.PublicKey().Bytes()),
				Ed25519: base64.StdEncoding.EncodeToString(ed25519.NewKeyFromSeed(s[:])[ed25519.SeedSize:])})
		}
		raw, err := fabric.Encode(&fabric.Fabric{APIVersion: fabric.APIVersion, Name: "demo", Domain: "d", Clusters: []fabric.Cluster{{Name: "g1", Gateways: []fabric.Gateway{g}}}})
		if err != nil {
			t.Fatal(err)
		}
		packed, err := fabric.Compress(raw)
		if err != nil {
			t.Fatal(err)
		}
		signed, err := trust.Sign(trust.Fabric, trust.Statement{Clusterset: "demo", Revision: revision, SHA256: trust.Hash(packed), Approvers: a}, root)
		if err != nil {
			t.Fatal(err)
		}
		armored, err := trust.Approve(signed.Statement, alice)
		if err != nil {
			t.Fatal(err)
		}
		signed.Approvals = []string{armored}
		proof, err := json.Marshal(trust.Proof{Signed: signed})
		if err != nil {
			t.Fatal(err)
		}
		n.write("fabric/fabric.json.gz", packed)
		n.write("fabric/fabric.sig", proof)
	}
	revision := int64(0)
	give := func(epochs ...fabric.EpochKeys) {
		t.Helper()
		sealed := seal(t, fabric.Keys{APIVersion: fabric.KeysAPIVersion, Clusterset: "demo", Cluster: "g1", Epochs: epochs}, identity.Recipient())
		revision++
		signed, err := trust.Sign(trust.Keys, trust.Statement{Clusterset: "demo", Cluster: "g1", Revision: revision, SHA256: trust.Hash(sealed)}, root)
		if err != nil {
			t.Fatal(err)
		}
		proof, err := json.Marshal(trust.Proof{Signed: signed})
		if err != nil {
			t.Fatal(err)
		}
		n.write("keys/keys.age", sealed)
		n.write("keys/keys.sig", proof)
	}
	epoch := func(e int, key, seed byte) fabric.EpochKeys {
		return fabric.EpochKeys{Epoch: e, PSKSeed: secret(seed), Gateways: map[string]fabric.Secret{"a": secret(key)}, Ed25519: map[string]fabric.Secret{"a": secret(key)}}
	}
	// expect tells the keys of epochs 1 and 2 that are in force, and why others are refused.
	expect := func(what string, one, two byte, refused string) {
		t.Helper()
		n.in.Refresh()
		have := [2]fabric.EpochKeys{epochOf(n.in.keys.value, 1), epochOf(n.in.keys.value, 2)}
		state := n.in.keys.state
		if have[0].Gateways["a"] != secret(one) || have[1].Gateways["a"] != secret(two) || state.Refused != refused {
			t.Errorf("%s: keys of %d and %d wanted, refused %q (%s), want %q", what, one, two, state.Refused, state.Error, refused)
		}
		if have[0].PSKSeed != secret(7) {
			t.Errorf("%s: another seed is in force", what)
		}
	}
	asked := trust.Approvers{Keys: []string{trust.Line(alice.PublicKey())}, Threshold: 1}

	publish(1, trust.Approvers{}, 1)
	give(epoch(1, 9, 7))
	expect("nobody has to approve", 9, 0, "")
	publish(2, asked, 1)
	give(epoch(1, 1, 7))
	expect("the keys of the fabric", 1, 0, "")
	give(epoch(1, 9, 7))
	expect("other keys", 1, 0, "unapproved")
	give(fabric.EpochKeys{Epoch: 1, PSKSeed: secret(7), Gateways: epoch(1, 1, 7).Gateways, Ed25519: epoch(1, 9, 7).Ed25519})
	expect("another key for IKE", 1, 0, "unapproved")
	give(epoch(1, 1, 8))
	expect("another seed", 1, 0, "unapproved")
	restart()
	expect("another seed, after a restart", 1, 0, "unapproved")
	give()
	expect("no keys", 1, 0, "unapproved")
	give(fabric.EpochKeys{Epoch: 1, PSKSeed: secret(7)})
	expect("no key of the gateway", 1, 0, "unapproved")
	give(epoch(1, 1, 7), epoch(2, 2, 7))
	expect("a new epoch, before the fabric has it", 1, 2, "")
	publish(3, asked, 1, 2)
	expect("the fabric has it", 1, 2, "")

	// Another root key in place of a lost one: keys count when the fabric does.
	give(epoch(1, 3, 7), epoch(2, 3, 7))
	expect("keys before their fabric", 1, 2, "unapproved")
	publish(4, asked, 3, 3)
	expect("and with it", 3, 3, "")

	// A key that the host brought is in no document, so that none lacks it.
	own := secret(5)
	n.write("keys/a.key", []byte(base64.StdEncoding.EncodeToString(own[:])))
	publish(5, asked, 5, 5)
	give(fabric.EpochKeys{Epoch: 1, PSKSeed: secret(7)}, fabric.EpochKeys{Epoch: 2, PSKSeed: secret(7)})
	expect("brought", 0, 0, "")
	give(fabric.EpochKeys{Epoch: 1, PSKSeed: secret(7)}, fabric.EpochKeys{Epoch: 2, PSKSeed: secret(7)})
	expect("brought, sealed anew", 0, 0, "")
	if epochOf(n.in.held, 1).Gateways["a"] != own {
		t.Error("the key that the host brought is not in force")
	}
}
