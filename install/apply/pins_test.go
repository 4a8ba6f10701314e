package apply

import (
	"crypto/ed25519"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"golang.org/x/crypto/ssh"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"hawser.dev/hawser/kubeclient"
	"hawser.dev/hawser/kubeclient/fakeapi"
	"hawser.dev/hawser/render/keys"
	"hawser.dev/hawser/schema/fabric/trust"
)

// TestPinsRise: an apply raises the floors of the pins to the revisions of the documents that
// it brings, and only to revisions that a pinned signer signed.
func TestPinsRise(t *testing.T) {
	t.Parallel()
	own, foreign := pinSigner(t, "o"), pinSigner(t, "f")
	pins := []byte(trust.PinFile("demo", "*", []string{trust.Line(own.PublicKey())}))
	want := func(signer ssh.Signer, fabric, sealed int64) Desired { return pinWant(t, signer, fabric, sealed) }
	raised, err := want(own, 100, 50).raiseFloors(pins)
	if err != nil || string(raised) != "# revision: 100\n# keys revision: 50\n"+string(pins) {
		t.Fatalf("got %s, %v", raised, err)
	}
	if same, err := want(own, 100, 50).raiseFloors(raised); err != nil || string(same) != string(raised) {
		t.Errorf("again: %s, %v", same, err)
	}
	if _, err := want(own, 99, 50).raiseFloors(raised); err == nil || !strings.Contains(err.Error(), "is revision 99, older than revision 100") {
		t.Errorf("an older fabric: %v", err)
	}
	if next, err := want(own, 101, 40).raiseFloors(raised); err != nil || !strings.HasPrefix(string(next), "# revision: 101\n# keys revision: 50\n") {
		t.Errorf("older keys: %s, %v", next, err)
	}
	if _, err := want(foreign, 1<<60, 1<<60).raiseFloors(raised); err == nil || !strings.Contains(err.Error(), "is not signed by a signer") {
		t.Errorf("a foreign signer: %v", err)
	}
}

// pinWant returns a tree whose fabric and sealed keys have these revisions.
func pinWant(t *testing.T, signer ssh.Signer, fabric, sealed int64) Desired {
	t.Helper()
	document, ciphertext := []byte("fabric"), "ciphertext"
	return Desired{Cluster: "g1", encoded: document, proof: pinProof(t, signer, trust.Fabric, trust.Statement{Revision: fabric, SHA256: trust.Hash(document)}),
		sealed: keys.SealedKeys{Ciphertext: ciphertext, Proof: string(pinProof(t, signer, trust.Keys,
			trust.Statement{Cluster: "g1", Revision: sealed, SHA256: trust.Hash([]byte(ciphertext))}))}}
}

// TestFirstPins: the Secret that an apply creates has the floors already, so that the next plan
// does not change it.
func TestFirstPins(t *testing.T) {
	t.Parallel()
	_, c := fakeapi.New(t, "g1")
	own := pinSigner(t, "o")
	want := pinWant(t, own, 100, 50)
	want.Pins = trust.PinFile("demo", "*", []string{trust.Line(own.PublicKey())})
	namespace := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "Namespace", "metadata": map[string]any{"name": "hawser-system"}}}
	if _, err := c.Apply(t.Context(), namespace, false); err != nil {
		t.Fatal(err)
	}
	first := &Plan{want: want}
	if err := planPins(t.Context(), c, first); err != nil || len(first.Changes) != 1 {
		t.Fatalf("%v, changes %v", err, first.Changes)
	}
	if _, err := c.Apply(t.Context(), first.Changes[0].Object, false); err != nil {
		t.Fatal(err)
	}
	second := &Plan{want: want}
	if err := planPins(t.Context(), c, second); err != nil || len(second.Changes) != 0 || len(second.Skipped) != 0 {
		t.Errorf("again: %v, changes %v, skipped %v", err, second.Changes, second.Skipped)
	}
}

func pinSigner(t *testing.T, seed string) ssh.Signer {
	t.Helper()
	out, err := ssh.NewSignerFromKey(ed25519.NewKeyFromSeed([]byte(strings.Repeat(seed, ed25519.SeedSize))))
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func pinProof(t *testing.T, signer ssh.Signer, kind trust.Kind, s trust.Statement) []byte {
	t.Helper()
	s.Clusterset = "demo"
	signed, err := trust.Sign(kind, s, signer)
	if err != nil {
		t.Fatal(err)
	}
	raw, err := json.Marshal(trust.Proof{Signed: signed})
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

// TestVerifiedApply: a cluster whose pins do not accept the source of the tree does not change.
func TestVerifiedApply(t *testing.T) {
	t.Parallel()
	f, c := fakeapi.New(t, "g1")
	pins := []byte(trust.PinFile("demo", "*", []string{trust.Line(pinSigner(t, "o").PublicKey())}))
	namespace := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "Namespace", "metadata": map[string]any{"name": "hawser-system"}}}
	if _, err := c.Apply(t.Context(), namespace, false); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Apply(t.Context(), PinSecret(string(pins)), false); err != nil {
		t.Fatal(err)
	}
	if found := PinsIn(t.Context(), []*kubeclient.Client{c}); len(found) != 1 || string(found[0].Raw) != string(pins) {
		t.Fatalf("pins %v", found)
	}
	before := len(f.Log)
	var question string
	want := Desired{Cluster: "g1", verify: func(cluster string, raw []byte) error {
		question = cluster + " " + string(raw)
		return errors.New("not signed")
	}}
	if err := planPins(t.Context(), c, &Plan{want: want}); err == nil || err.Error() != "not signed" {
		t.Errorf("err %v", err)
	}
	if question != "g1 "+string(pins) || len(f.Log) != before {
		t.Errorf("asked %q, changes %v", question, f.Log[before:])
	}
}
