package input

import (
	"bytes"
	"crypto/ed25519"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"io"
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

// TestOpenKeys opens what was sealed for this cluster, and says without any
// secret why it cannot open something else.
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
		{name: "post-quantum, of another recipient", sealed: seal(t, keys, mine.Recipient()), identity: quantum, fails: "another recipient"},
		{name: "of another recipient", sealed: seal(t, keys, other.Recipient()), identity: identity, fails: "another recipient"},
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

// FuzzOpenKeys: a file that nobody sealed opens for nobody, and whatever is sealed is
// read, or refused without the identity.
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
	f.Add(sealRaw(f, []byte("one of another run"), mine.Recipient()))
	f.Add([]byte(armor.Header + "\nYWdlLWVuY3J5cHRpb24ub3JnL3YxCi0+IFgyNTUxOSA=\n" + armor.Footer))
	f.Add([]byte("age-encryption.org/v1\n-> X25519 abc\nabc\n--- abc\n"))
	f.Fuzz(func(t *testing.T, raw []byte) {
		if _, err := openKeys(raw, identity); err == nil || strings.Contains(err.Error(), mine.String()) {
			t.Errorf("opened what was not sealed, or showed the identity: %v", err)
		}
		if len(raw) == 0 || raw[0] != '{' { // sealing takes longer than all else
			return
		}
		have, err := openKeys(sealRaw(t, raw, mine.Recipient()), identity)
		want, wantErr := fabric.DecodeKeys(raw)
		if (err == nil) != (wantErr == nil) || !reflect.DeepEqual(have, want) {
			t.Errorf("sealed: %v, plain: %v", err, wantErr)
		}
	})
}

// TestOwnKeys adds the keys that a host brought itself.
func TestOwnKeys(t *testing.T) {
	t.Parallel()
	private, ike := fabric.Secret{7}, fabric.Secret{8}
	der, err := x509.MarshalPKCS8PrivateKey(ed25519.NewKeyFromSeed(ike[:]))
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	put := func(name, text string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	keys := fabric.Keys{Epochs: []fabric.EpochKeys{{Epoch: 1}, {Epoch: 2}}}
	if err := ownKeys(&keys, dir, "a"); err != nil || keys.Epochs[0].Gateways != nil || keys.Epochs[0].Ed25519 != nil {
		t.Fatalf("no file: %v, %v", err, keys.Epochs[0])
	}
	put("a.key", base64.StdEncoding.EncodeToString(private[:])+"\n")
	put("a.ike.key", string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der})))
	if err := ownKeys(&keys, dir, "a"); err != nil {
		t.Fatal(err)
	}
	for _, e := range keys.Epochs {
		if e.Gateways["a"] != private || e.Ed25519["a"] != ike {
			t.Errorf("epoch %d has other keys", e.Epoch)
		}
	}
	for _, name := range []string{"a.key", "a.ike.key"} {
		good, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		for _, bad := range []string{"", "c2VjcmV0LXRleHQ=", "-----BEGIN PRIVATE KEY-----\nc2VjcmV0LXRleHQ=\n-----END PRIVATE KEY-----\n"} {
			put(name, bad)
			if err := ownKeys(&keys, dir, "a"); err == nil || strings.Contains(err.Error(), "c2VjcmV0") || !strings.Contains(err.Error(), name) {
				t.Errorf("broken %s: %v", name, err)
			}
		}
		put(name, string(good))
	}
}
