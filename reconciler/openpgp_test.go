//go:build !race

package reconciler

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/ProtonMail/go-crypto/openpgp"
	"github.com/ProtonMail/go-crypto/openpgp/armor"
	"github.com/ProtonMail/go-crypto/openpgp/packet"
)

// newOpenPGP writes a key to a file.
func newOpenPGP(t *testing.T, config *packet.Config, passphrase string) (*openpgp.Entity, string) {
	t.Helper()
	entity, err := openpgp.NewEntity("hawser", "", "h@h", config)
	if err != nil {
		t.Fatal(err)
	}
	if passphrase != "" {
		if err := entity.EncryptPrivateKeys([]byte(passphrase), config); err != nil {
			t.Fatal(err)
		}
	}
	return entity, armored(t, openpgp.PrivateKeyType, func(w *bytes.Buffer) error {
		if passphrase != "" {
			return entity.SerializePrivateWithoutSigning(w, config)
		}
		return entity.SerializePrivate(w, config)
	})
}

// armored writes the armored output of serialize to a file.
func armored(t *testing.T, kind string, serialize func(*bytes.Buffer) error) string {
	t.Helper()
	var raw, text bytes.Buffer
	if err := serialize(&raw); err != nil {
		t.Fatal(err)
	}
	w, err := armor.Encode(&text, kind, nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.Write(raw.Bytes()); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "key.asc")
	if err := os.WriteFile(file, text.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// signedBy reports whether the head of the publish branch has a signature by key.
func (g *testEnv) signedBy(key *openpgp.Entity) bool {
	g.t.Helper()
	newest := hash(git(g.t, g.repo, "rev-parse", DefaultPublishBranch))
	signed, err := (&openPGP{key: key, now: time.Now}).signed(g.publish, newest)
	if err != nil {
		g.t.Fatal(err)
	}
	return signed
}

// TestOpenPGP checks that an OpenPGP key signs published commits from the next pass on. If the key
// is added, changed or removed, earlier published commits stay valid.
func TestOpenPGP(t *testing.T) {
	t.Parallel()
	g := newTestEnv(t, false)
	g.commit(TopologyFile, topologyOf("g1", "g2"))
	first := g.mustPass()
	lock := g.file(DefaultPublishBranch, LockFile)
	same := func(what string) {
		t.Helper()
		if have := g.file(DefaultPublishBranch, LockFile); have != lock {
			t.Errorf("%s: addresses moved", what)
		}
	}
	one, oneFile := newOpenPGP(t, nil, "")
	two, twoFile := newOpenPGP(t, nil, "")
	for _, step := range []struct {
		name, file string
		key        *openpgp.Entity
	}{{"a key", oneFile, one}, {"another key", twoFile, two}} {
		g.cfg.OpenPGPKeyFile = step.file
		g.Reconciler = g.newReconciler()
		if out := g.mustPass(); !out.Changed || !g.signedBy(step.key) {
			t.Errorf("%s: the newest commit is not signed with the key, published again: %v", step.name, out.Changed)
		}
		same(step.name)
		g.Reconciler = g.newReconciler()
		if out := g.mustPass(); out.Changed {
			t.Errorf("%s: the same was published twice", step.name)
		}
	}
	if g.signedBy(one) {
		t.Error("the old key still signs")
	}

	// Signed commits stay valid without the key, even if their subject looks like the trailer.
	g.cfg.OpenPGPKeyFile = ""
	g.Reconciler = g.newReconciler()
	if out := g.mustPass(); out.Changed {
		t.Error("without the key it was published again")
	}
	g.cfg.OpenPGPKeyFile = twoFile
	g.Reconciler = g.newReconciler()
	g.commit("note", "x")
	git(t, g.work, "commit", "-q", "--allow-empty", "-m", TrailerSignature+": AAAA")
	g.commit(TopologyFile, topologyOf("g1", "g2", "g3"))
	git(t, g.work, "commit", "-q", "--amend", "-m", TrailerSignature+": AAAA")
	g.mustPass()
	for range 2 {
		if out := g.mustPass(); out.Changed || !g.signedBy(two) {
			t.Errorf("published again: %v, signed: %v", out.Changed, g.signedBy(two))
		}
		g.Reconciler = g.newReconciler()
	}
	if first.Published == g.mustPass().Published {
		t.Error("nothing was published")
	}
}

// TestNamedOpenPGPKeys checks a topology with OpenPGP keys. The reconciler publishes nothing with
// another key or without a key, and the published tree stays.
func TestNamedOpenPGPKeys(t *testing.T) {
	t.Parallel()
	one, oneFile := newOpenPGP(t, nil, "")
	two, twoFile := newOpenPGP(t, nil, "")
	g := newTestEnv(t, false, func(c *Config) { c.OpenPGPKeyFile = oneFile })
	named := func(keys ...*openpgp.Entity) string {
		var list []string
		for _, key := range keys {
			list = append(list, fmt.Sprintf("'%x'", key.PrimaryKey.Fingerprint))
		}
		return strings.Replace(topologyOf("g1", "g2"), "spec:\n", "spec:\n  trust: {openPGPKeys: ["+strings.Join(list, ", ")+"]}\n", 1)
	}
	g.commit(TopologyFile, named(one))
	first := g.mustPass().Published
	project := g.file(first, "argocd/project.yaml")
	if id := fmt.Sprintf("keyID: %X\n", one.PrimaryKey.Fingerprint[12:]); strings.Count(project, "keyID") != 1 || !strings.Contains(strings.NewReplacer("'", "", "\"", "").Replace(project), id) {
		t.Errorf("the project does not ask for %s:\n%s", id, project)
	}
	for file, want := range map[string]string{
		"":      "trust.openPGPKeys names keys, but the reconciler has none: Argo CD would reject all published commits; start the reconciler with --sign-openpgp FILE",
		twoFile: fmt.Sprintf("the key of %s signs with fingerprint %X, which is not in trust.openPGPKeys: ", twoFile, two.PrimaryKey.Fingerprint),
	} {
		g.cfg.OpenPGPKeyFile = file
		g.Reconciler = g.newReconciler()
		g.commit("note", "x"+file)
		if failure := g.mustFail(ReasonKeys); !strings.Contains(failure.Error(), want) {
			t.Errorf("with %q: %v", file, failure)
		}
		if g.published() != first {
			t.Errorf("with %q something was published", file)
		}
	}

	// To rotate a key, list both keys, publish with the old one, then with the new one.
	g.cfg.OpenPGPKeyFile = oneFile
	g.Reconciler = g.newReconciler()
	g.commit(TopologyFile, named(one, two))
	if out := g.mustPass(); !out.Changed || !g.signedBy(one) {
		t.Error("both named, the old key does not sign")
	}
	g.cfg.OpenPGPKeyFile = twoFile
	g.Reconciler = g.newReconciler()
	g.commit(TopologyFile, named(two))
	if out := g.mustPass(); !out.Changed || !g.signedBy(two) {
		t.Error("the new key does not sign")
	}
}

// TestForgedOpenPGP checks that a commit with another OpenPGP signature is not a published commit,
// even with the trailer of a valid commit. The reconciler also undoes an unsigned commit.
func TestForgedOpenPGP(t *testing.T) {
	t.Parallel()
	_, file := newOpenPGP(t, nil, "")
	g := newTestEnv(t, false, func(c *Config) { c.OpenPGPKeyFile = file })
	g.commit(TopologyFile, topologyOf("g1", "g2"))
	good := g.mustPass().Published
	want := g.file(good, LockFile)
	text := git(t, g.repo, "cat-file", "commit", good)
	_, trailer, found := strings.Cut(text, "\n"+TrailerSignature+": ")
	if !found {
		t.Fatalf("there is no trailer:\n%s", text)
	}
	clone := filepath.Join(t.TempDir(), "clone")
	git(t, g.work, "clone", "-q", "-b", DefaultPublishBranch, g.repo, clone)
	forged, err := readOpenPGP(file, time.Now) // even with the reconciler's own key
	if err != nil {
		t.Fatal(err)
	}
	forge := func(message string, change func()) {
		t.Helper()
		change()
		git(t, clone, "commit", "-q", "-a", "--allow-empty", "-m", message)
		git(t, clone, "reset", "-q", "--hard", withSignature(t, clone, forged.sign))
		git(t, clone, "push", "-q", "-f", "origin", "HEAD:"+DefaultPublishBranch)
	}
	empty := func() {
		lock := []byte("apiVersion: hawser.dev/v1alpha1\nkind: Lock\n")
		if err := os.WriteFile(filepath.Join(clone, LockFile), lock, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for name, message := range map[string]string{
		"no trailer": "forged", "another's trailer": "forged\n\n" + TrailerSignature + ": " + trailer,
	} {
		forge(message, empty)
		out := g.mustPass()
		if have := g.file(DefaultPublishBranch, LockFile); have != want || !out.Changed {
			t.Errorf("%s: the forged commit counts", name)
		}
		git(t, clone, "fetch", "-q")
		git(t, clone, "reset", "-q", "--hard", "origin/"+DefaultPublishBranch)
	}
	git(t, clone, "commit", "-q", "--allow-empty", "-m", "nothing")
	git(t, clone, "push", "-q", "origin", "HEAD:"+DefaultPublishBranch)
	if out := g.mustPass(); !out.Changed {
		t.Error("an unsigned commit without a change is still on top")
	}
	if out := g.mustPass(); out.Changed {
		t.Error("the same was published twice")
	}
}

// TestWrongOpenPGPKeys checks that errors about unusable keys contain the file and the next step.
func TestWrongOpenPGPKeys(t *testing.T) {
	t.Parallel()
	old := &packet.Config{KeyLifetimeSecs: 60, Time: func() time.Time { return time.Now().Add(-time.Hour) }}
	_, expired := newOpenPGP(t, old, "")
	_, locked := newOpenPGP(t, nil, "secret")
	entity, _ := newOpenPGP(t, nil, "")
	public := armored(t, openpgp.PublicKeyType, func(w *bytes.Buffer) error { return entity.Serialize(w) })
	text := filepath.Join(t.TempDir(), "text")
	if err := os.WriteFile(text, []byte("key"), 0o600); err != nil {
		t.Fatal(err)
	}
	for file, says := range map[string]string{
		expired: "it has expired", locked: "a passphrase protects it", public: "the private half",
		text:                               "gpg --armor --export-secret-keys",
		filepath.Join(t.TempDir(), "none"): "no such file",
	} {
		g := newTestEnv(t, false, func(c *Config) { c.OpenPGPKeyFile = file })
		g.commit(TopologyFile, topologyOf("g1", "g2"))
		_, failure := g.Once(t.Context())
		if failure == nil || failure.Reason != ReasonKeys ||
			!strings.Contains(failure.Message, says) || !strings.Contains(failure.Message, file) {
			t.Errorf("got %v, want %q of %s", failure, says, file)
		}
	}
}
