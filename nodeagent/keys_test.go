package nodeagent

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
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
	dir := t.TempDir()
	identity, broken := filepath.Join(dir, "identity.txt"), filepath.Join(dir, "broken.txt")
	for path, text := range map[string]string{identity: mine.String(), broken: "AGE-SECRET-KEY-NOT"} {
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
		{name: "of another recipient", sealed: seal(t, keys, other.Recipient()), identity: identity, fails: "another recipient"},
		{name: "no identity file", sealed: seal(t, keys, mine.Recipient()), identity: filepath.Join(dir, "none"), fails: "read age identity"},
		{name: "broken identity file", sealed: seal(t, keys, mine.Recipient()), identity: broken, fails: "not an age identity file"},
		{name: "not age", sealed: []byte("hello"), identity: identity, fails: "open keys"},
		{name: "of a later version", sealed: seal(t, fabric.Keys{APIVersion: "keys.hawser.dev/v9"}, mine.Recipient()),
			identity: identity, fails: `apiVersion "keys.hawser.dev/v9"`},
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

// TestOwnKeys adds the key that a host brought itself.
func TestOwnKeys(t *testing.T) {
	t.Parallel()
	private := fabric.Secret{7}
	dir := t.TempDir()
	put := func(text string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, "a.key"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	keys := fabric.Keys{Epochs: []fabric.EpochKeys{{Epoch: 1}, {Epoch: 2}}}
	if err := ownKeys(&keys, dir, "a"); err != nil || keys.Epochs[0].Gateways != nil {
		t.Fatalf("no file: %v, %v", err, keys.Epochs[0].Gateways)
	}
	put(base64.StdEncoding.EncodeToString(private[:]) + "\n")
	if err := ownKeys(&keys, dir, "a"); err != nil {
		t.Fatal(err)
	}
	for _, e := range keys.Epochs {
		if e.Gateways["a"] != private {
			t.Errorf("epoch %d has another key", e.Epoch)
		}
	}
	put("c2VjcmV0LXRleHQ=")
	if err := ownKeys(&keys, dir, "a"); err == nil || strings.Contains(err.Error(), "c2VjcmV0") {
		t.Errorf("broken key: %v", err)
	}
}
