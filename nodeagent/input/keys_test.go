package input

import (
	"bytes"
	"crypto/ecdh"
	"crypto/ed25519"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"filippo.io/age"
	"filippo.io/age/armor"

	"hawser.dev/hawser/schema/fabric"
)

func seal(t *testing.T, keys fabric.Keys, to age.Recipient) []byte {
	t.Helper()
	raw, err := json.Marshal(keys)
	if err != nil {
		t.Fatal(err)
	}
	return sealRaw(t, raw, to)
}

func sealRaw(t testing.TB, raw []byte, to age.Recipient) []byte {
	t.Helper()
	var out bytes.Buffer
	armored := armor.NewWriter(&out)
	w, err := age.Encrypt(armored, to)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.Copy(w, bytes.NewReader(raw)); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if err := armored.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// TestOpenKeys opens keys that were sealed for this cluster. For other files it checks the
// error, which must contain no secret.
func TestOpenKeys(t *testing.T) {
	t.Parallel()
	mine, err := age.GenerateX25519Identity()
	if err != nil {
		t.Fatal(err)
	}
	other, err := age.GenerateX25519Identity()
	if err != nil {
		t.Fatal(err)
	}
	hybrid, err := age.GenerateHybridIdentity()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	quantum := filepath.Join(dir, "quantum.txt")
	identity, broken := filepath.Join(dir, "identity.txt"), filepath.Join(dir, "broken.txt")
	for path, text := range map[string]string{identity: mine.String(), broken: "AGE-SECRET-KEY-NOT", quantum: "# public key: x\n" + hybrid.String()} {
		if err := os.WriteFile(path, []byte(text+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	private := fabric.Secret{1, 2, 3}
	keys := fabric.Keys{APIVersion: fabric.KeysAPIVersion, Cluster: "g1",
		Epochs: []fabric.EpochKeys{{Epoch: 1, Gateways: map[string]fabric.Secret{"g1-a": private}}}}
	tests := []struct {
		name     string
		sealed   []byte
		identity string
		fails    string
	}{
		{name: "mine", sealed: seal(t, keys, mine.Recipient()), identity: identity},
		{name: "post-quantum", sealed: seal(t, keys, hybrid.Recipient()), identity: quantum},
		{name: "post-quantum, to another recipient", sealed: seal(t, keys, mine.Recipient()), identity: quantum, fails: "another recipient"},
		{name: "to another recipient", sealed: seal(t, keys, other.Recipient()), identity: identity, fails: "another recipient"},
		{name: "no identity file", sealed: seal(t, keys, mine.Recipient()), identity: filepath.Join(dir, "none"), fails: "read age identity"},
		{name: "broken identity file", sealed: seal(t, keys, mine.Recipient()), identity: broken, fails: "not an age identity file"},
		{name: "not age", sealed: []byte("hello"), identity: identity, fails: "open keys"},
		{name: "of a later version", sealed: seal(t, fabric.Keys{APIVersion: "keys.hawser.dev/v9"}, mine.Recipient()),
			identity: identity, fails: `apiVersion "keys.hawser.dev/v9"`},
		{name: "too large", sealed: sealRaw(t, bytes.Repeat([]byte(" "), fabric.MaxKeys+5), mine.Recipient()), identity: identity, fails: "too large"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			have, err := openKeys(tt.sealed, tt.identity)
			if tt.fails == "" {
				if err != nil || have.Epoch(1).Gateways["g1-a"] != private {
					t.Fatalf("keys not opened: %v", err)
				}
				return
			}
			if err == nil || !strings.Contains(err.Error(), tt.fails) {
				t.Fatalf("error %v, want one with %q", err, tt.fails)
			}
			if strings.Contains(err.Error(), "AGE-SECRET") {
				t.Errorf("error shows a secret: %v", err)
			}
		})
	}
}

// FuzzOpenKeys checks that a file that was not sealed never opens. A sealed file is decoded or
// refused, and no error contains the identity.
func FuzzOpenKeys(f *testing.F) {
	mine, err := age.GenerateX25519Identity()
	if err != nil {
		f.Fatal(err)
	}
	identity := filepath.Join(f.TempDir(), "identity.txt")
	if err := os.WriteFile(identity, []byte(mine.String()), 0o600); err != nil {
		f.Fatal(err)
	}
	good, err := json.Marshal(fabric.Keys{APIVersion: fabric.KeysAPIVersion, Cluster: "g1", Epochs: []fabric.EpochKeys{{Epoch: 1, Gateways: map[string]fabric.Secret{"a": {1}}}}})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(good)
	f.Add(sealRaw(f, []byte("from another run"), mine.Recipient()))
	f.Add([]byte(armor.Header + "\nYWdlLWVuY3J5cHRpb24ub3JnL3YxCi0+IFgyNTUxOSA=\n" + armor.Footer))
	f.Add([]byte("age-encryption.org/v1\n-> X25519 abc\nabc\n--- abc\n"))
	f.Fuzz(func(t *testing.T, raw []byte) {
		if _, err := openKeys(raw, identity); err == nil || strings.Contains(err.Error(), mine.String()) {
			t.Errorf("opened a file that was not sealed, or printed the identity: %v", err)
		}
		if len(raw) == 0 || raw[0] != '{' { // sealing is the slowest step
			return
		}
		have, err := openKeys(sealRaw(t, raw, mine.Recipient()), identity)
		want, wantErr := fabric.DecodeKeys(raw)
		if (err == nil) != (wantErr == nil) || !reflect.DeepEqual(have, want) {
			t.Errorf("sealed: %v, plain: %v", err, wantErr)
		}
	})
}

// TestOwnKeys reads private keys that were created on the host. They are used if the fabric has
// their public halves, or if no other key is known: for every order of fabric, keys and file,
// and over a restart.
func TestOwnKeys(t *testing.T) {
	t.Parallel()
	identity, err := age.GenerateX25519Identity()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	put := func(name string, raw []byte) {
		t.Helper()
		if err := os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), raw, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	put("identity", []byte(identity.String()))
	brought, derived := fabric.Secret{7, 1}, fabric.Secret{9, 1}
	publish := func(s fabric.Secret) { // fabrics with the public halves of a secret
		t.Helper()
		private, err := ecdh.X25519().NewPrivateKey(s[:])
		if err != nil {
			t.Fatal(err)
		}
		g := fabric.Gateway{Name: "a", Node: "gw", Port: 51820}
		for epoch := 1; epoch <= 2; epoch++ {
			g.Keys = append(g.Keys, fabric.Key{Epoch: epoch, Public: base64.StdEncoding.EncodeToString(private.PublicKey().Bytes()),
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
		put("fabric/fabric.json.gz", packed)
	}
	deliver := func(gateways map[string]fabric.Secret) { // rendered keys
		t.Helper()
		keys := fabric.Keys{APIVersion: fabric.KeysAPIVersion, Clusterset: "demo", Cluster: "g1"}
		for epoch := 1; epoch <= 2; epoch++ {
			keys.Epochs = append(keys.Epochs, fabric.EpochKeys{Epoch: epoch, Gateways: gateways, Ed25519: gateways})
		}
		put("keys/keys.age", seal(t, keys, identity.Recipient()))
	}
	der, err := x509.MarshalPKCS8PrivateKey(ed25519.NewKeyFromSeed(brought[:]))
	if err != nil {
		t.Fatal(err)
	}
	file := []byte(base64.StdEncoding.EncodeToString(brought[:]) + "\n")
	ikeFile := pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der})
	var in *Inputs
	restart := func() {
		t.Helper()
		in, err = Open(Config{
			Cluster: "g1", Node: "gw", FabricDir: filepath.Join(dir, "fabric"), StateDir: filepath.Join(dir, "state"), FactsDir: filepath.Join(dir, "facts"),
			KeysDir: filepath.Join(dir, "keys"), Identity: filepath.Join(dir, "identity"), Trust: filepath.Join(dir, "trust"),
			Log: slog.New(slog.DiscardHandler), Changed: func() {},
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	// expect checks the used key, before and after a restart; nil = none.
	expect := func(what string, want *fabric.Secret) {
		t.Helper()
		for _, when := range []string{"", ", after a restart"} {
			in.Refresh()
			for epoch := 1; epoch <= 2; epoch++ {
				e := epochOf(in.merged, epoch)
				key, has := e.Gateways["a"]
				ike, hasIKE := e.Ed25519["a"]
				if has != (want != nil) || hasIKE != has || has && (key != *want || ike != *want) {
					t.Errorf("%s%s, epoch %d: wrong key", what, when, epoch)
				}
			}
			restart()
		}
	}
	remove := func(name string) {
		t.Helper()
		if err := os.Remove(filepath.Join(dir, "keys", name)); err != nil {
			t.Fatal(err)
		}
	}
	restart()
	publish(derived)
	deliver(map[string]fabric.Secret{"a": derived})
	expect("derived", &derived)
	put("keys/a.key", file)
	put("keys/a.ike.key", ikeFile)
	expect("the files come before their commit", &derived)
	publish(brought)
	in.Refresh()
	deliver(nil)
	expect("the commit arrives", &brought)
	remove("a.key")
	remove("a.ike.key")
	expect("the files are gone", nil)
	in.Refresh()
	put("keys/a.key", file)
	put("keys/a.ike.key", ikeFile)
	expect("the files come after their commit", &brought)
	deliver(map[string]fabric.Secret{"a": derived})
	in.Refresh()
	publish(derived)
	expect("the host key is removed", &derived)

	deliver(nil)
	publish(brought)
	expect("brought again", &brought)
	for name, good := range map[string][]byte{"a.key": file, "a.ike.key": ikeFile} {
		for _, bad := range []string{"", "c2VjcmV0LXRleHQ=", "-----BEGIN PRIVATE KEY-----\nc2VjcmV0LXRleHQ=\n-----END PRIVATE KEY-----\n"} {
			in.Refresh()
			put("keys/"+name, []byte(bad))
			in.Refresh()
			if told := in.keys.state.Error; in.keys.state.OK || strings.Contains(told, "c2VjcmV0") || !strings.Contains(told, name) {
				t.Errorf("broken %s: %q", name, told)
			}
			if epochOf(in.merged, 1).Gateways["a"] != brought {
				t.Errorf("broken %s: the last good key is not used", name)
			}
			put("keys/"+name, good)
		}
	}
}

// epochOf returns the keys of an epoch; zero if absent.
func epochOf(keys *fabric.Keys, epoch int) fabric.EpochKeys {
	for _, e := range keys.Epochs {
		if e.Epoch == epoch {
			return e
		}
	}
	return fabric.EpochKeys{}
}
