package keys_test

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"hawser.dev/hawser/render/keys"
	"hawser.dev/hawser/schema/fabric"
)

// TestSecretsNeverPrint formats each type that contains a key, with every verb that calls a
// Formatter. fmt handles %p and %T before.
func TestSecretsNeverPrint(t *testing.T) {
	t.Parallel()
	root, err := newRoot(t).Add(2)
	if err != nil {
		t.Fatal(err)
	}
	top := topology("r0")
	k, err := root.Keys(top, &top.Spec.Clusters[0])
	if err != nil {
		t.Fatal(err)
	}
	nested := struct {
		Root  *keys.Root
		inner *keys.Root
		value keys.Root
		Keys  *fabric.Keys
	}{root, root, *root, k}
	var out bytes.Buffer
	for _, v := range []any{root, *root, k, *k, k.Epochs, k.Epochs[0].Gateways, nested, &nested} {
		for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%X", "%d", "%o", "%b", "%c", "%U", "%e"} {
			_, _ = fmt.Fprintf(&out, verb+"\n", v)
		}
		slog.New(slog.NewTextHandler(&out, nil)).Info("text", "v", v)
	}
	for _, v := range []any{root, *root} { // fabric.Keys has a JSON form, which is sealed
		raw, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		out.Write(raw)
		slog.New(slog.NewJSONHandler(&out, nil)).Info("json", "v", v)
	}
	secrets := [][]byte{k.Epochs[0].PSKSeed[:], k.Epochs[1].PSKSeed[:]}
	for line := range strings.Lines(string(root.Encode())) {
		raw, err := base64.StdEncoding.DecodeString(strings.Fields(line)[1])
		if err != nil {
			t.Fatal(err)
		}
		secrets = append(secrets, raw)
	}
	for _, e := range k.Epochs {
		for _, g := range e.Gateways {
			secrets = append(secrets, g[:])
		}
	}
	for _, s := range secrets {
		for _, form := range forms(s) {
			for line := range strings.Lines(out.String()) {
				if strings.Contains(line, form) {
					t.Fatalf("a key was printed: %.60s...", line)
				}
			}
		}
	}
}

// forms returns the encodings in which a key can appear in text.
func forms(key []byte) []string {
	decimal := strings.Trim(fmt.Sprint(key), "[]")
	return []string{string(key), hex.EncodeToString(key), strings.ToUpper(hex.EncodeToString(key)),
		base64.StdEncoding.EncodeToString(key)[:42],
		base64.RawURLEncoding.EncodeToString(key), decimal, strings.ReplaceAll(decimal, " ", ", ")}
}
