package keys_test

import (
	"bytes"
	"crypto/ecdh"
	"crypto/ed25519"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"

	"filippo.io/age"
	"filippo.io/age/armor"

	"hawser.dev/hawser/render/keys"
	"hawser.dev/hawser/schema"
	"hawser.dev/hawser/schema/fabric"
)

func newRoot(t testing.TB) *keys.Root {
	t.Helper()
	root, err := keys.ReadRoot(bytes.Repeat([]byte{7}, keys.RootSize))
	if err != nil {
		t.Fatal(err)
	}
	return root
}

func identity(t testing.TB) *age.X25519Identity {
	t.Helper()
	id, err := age.GenerateX25519Identity()
	if err != nil {
		t.Fatal(err)
	}
	return id
}

// topology returns clusters with two gateways each. The second gateway has a user-provided key.
func topology(recipients ...string) *schema.ClusterSet {
	top := &schema.ClusterSet{Metadata: schema.Metadata{Name: "demo"}}
	top.Spec.Keys.Epochs = []int{1, 2}
	for i, r := range recipients {
		top.Spec.Clusters = append(top.Spec.Clusters, schema.Cluster{Name: fmt.Sprintf("c%d", i), Recipient: r,
			Gateways: []schema.Gateway{{Name: "a"}, {Name: "b", PublicKey: "AQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQE="}}})
	}
	return top
}

func encrypted(t testing.TB, plain []byte, armored bool, to age.Recipient) []byte {
	t.Helper()
	var out bytes.Buffer
	var dst io.WriteCloser = nopCloser{&out}
	if armored {
		dst = armor.NewWriter(&out)
	}
	w, err := age.Encrypt(dst, to)
	if err != nil {
		t.Fatal(err)
	}
	_, err = w.Write(plain)
	if err := errors.Join(err, w.Close(), dst.Close()); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

type nopCloser struct{ io.Writer }

func (nopCloser) Close() error { return nil }

// TestReadRoot reads a root key in each form. Errors about invalid keys do not quote the key.
func TestReadRoot(t *testing.T) {
	t.Parallel()
	raw := []byte("0123456789abcdefghijklmnopqrstuv")
	text := []byte(base64.StdEncoding.EncodeToString(raw) + "\n")
	id, other := identity(t), identity(t)
	tests := []struct {
		name    string
		content []byte
		with    []age.Identity
		err     string
	}{
		{"raw", raw, nil, ""},
		{"base64", text, nil, ""},
		{"encrypted", encrypted(t, raw, false, id.Recipient()), []age.Identity{other, id}, ""},
		{"encrypted text, armored", encrypted(t, text, true, id.Recipient()), []age.Identity{id}, ""},
		{"no identity", encrypted(t, raw, true, id.Recipient()), nil, "no identity was given"},
		{"another's", encrypted(t, raw, true, id.Recipient()), []age.Identity{other}, "none of the identities opens it"},
		{"cut off", encrypted(t, raw, false, id.Recipient())[:150], []age.Identity{id}, "open root key"},
		{"short", raw[:31], nil, "not a root key"},
		{"short text", []byte("MDEyMzQ1Njc4OWFiY2RlZg=="), nil, "not a root key"},
		{"empty", nil, nil, "not a root key"},
	}
	want, err := keys.ReadRoot(raw)
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			have, err := keys.ReadRoot(tt.content, tt.with...)
			if tt.err != "" {
				if err == nil || !strings.Contains(err.Error(), tt.err) || strings.Contains(err.Error(), "0123456") {
					t.Errorf("error %v, want %q", err, tt.err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(have.Encode(), want.Encode()) {
				t.Error("another key")
			}
		})
	}
}

func TestNewRootIsRandom(t *testing.T) {
	t.Parallel()
	seen := map[string]bool{}
	for range 20 {
		root, err := keys.NewRoot()
		if err != nil {
			t.Fatal(err)
		}
		again, err := keys.ReadRoot(root.Encode())
		if err != nil || !bytes.Equal(again.Encode(), root.Encode()) {
			t.Fatalf("read back: %v", err)
		}
		seen[string(root.Encode())] = true
	}
	if len(seen) != 20 {
		t.Errorf("%d different keys of 20", len(seen))
	}
}

// TestDerivation checks the keys of a known root key. Other results would break every tunnel of
// every user.
func TestDerivation(t *testing.T) {
	t.Parallel()
	root := newRoot(t)
	public, err := root.Public("demo", "g1", "g1-a", 1)
	if err != nil {
		t.Fatal(err)
	}
	want := fabric.Key{Epoch: 1, Public: "FLgMbWsKfTSOStt/5Hd3cxcv7v6kncXTzCLQk2fDnT4=", Ed25519: "9rTLUXq3z5lWhO8WNGkgOlf0iBPV0Q8DyIyt3Z+2meo="}
	if public != want {
		t.Errorf("public keys %v, want %v", public, want)
	}
	seen := map[string]string{}
	for _, set := range []string{"demo", "dem"} {
		for _, cluster := range []string{"g1", "og1"} {
			for _, gateway := range []string{"a", "b"} {
				for epoch := 1; epoch <= 3; epoch++ {
					name := fmt.Sprintf("%s/%s/%s/%d", set, cluster, gateway, epoch)
					key, err := root.Public(set, cluster, gateway, epoch)
					if err != nil {
						t.Fatal(err)
					}
					for _, text := range []string{key.Public, key.Ed25519} {
						if other, dup := seen[text]; dup {
							t.Errorf("%s and %s have the same key", name, other)
						}
						seen[text] = name
					}
				}
			}
		}
	}
}

// TestKeys checks that private keys match the public ones and are clamped. A gateway with a
// user-provided key has none.
func TestKeys(t *testing.T) {
	t.Parallel()
	root, top := newRoot(t), topology("r0", "r1")
	var seeds []fabric.Secret
	for i := range top.Spec.Clusters {
		c := &top.Spec.Clusters[i]
		k, err := root.Keys(top, c)
		if err != nil {
			t.Fatal(err)
		}
		if len(k.Epochs) != 2 || k.Cluster != c.Name || k.Clusterset != "demo" {
			t.Fatalf("keys of %s: %d epochs", k.Cluster, len(k.Epochs))
		}
		for _, e := range k.Epochs {
			seeds = append(seeds, e.PSKSeed)
			if len(e.Gateways) != 1 {
				t.Errorf("%d private keys, want one", len(e.Gateways))
			}
			secret := e.Gateways["a"]
			if secret[0]&7 != 0 || secret[31]&128 != 0 || secret[31]&64 == 0 {
				t.Error("the key is not clamped")
			}
			key, err := ecdh.X25519().NewPrivateKey(secret[:])
			if err != nil {
				t.Fatal(err)
			}
			want, err := root.Public("demo", c.Name, "a", e.Epoch)
			if have := base64.StdEncoding.EncodeToString(key.PublicKey().Bytes()); have != want.Public || err != nil {
				t.Errorf("public key %s, want %s (%v)", have, want.Public, err)
			}
			checkIKE(t, e.Ed25519, want.Ed25519)
		}
	}
	if seeds[0] != seeds[2] || seeds[0] == seeds[1] {
		t.Error("the seed is not one for each epoch of the clusterset")
	}
}

// checkIKE checks that only gateways without a user-provided key have an IKE key, and that its
// public half matches.
func checkIKE(t *testing.T, seeds map[string]fabric.Secret, public string) {
	t.Helper()
	seed := seeds["a"]
	have := ed25519.NewKeyFromSeed(seed[:]).Public().(ed25519.PublicKey)
	if len(seeds) != 1 || base64.StdEncoding.EncodeToString(have) != public {
		t.Errorf("%d keys for IKE, want 1; public key %s", len(seeds), public)
	}
}

// TestSeal checks that only the recipient can decrypt the sealed keys. Unchanged keys keep their
// bytes.
func TestSeal(t *testing.T) {
	t.Parallel()
	root, ids := newRoot(t), []*age.X25519Identity{identity(t), identity(t), identity(t)}
	top := topology(ids[0].Recipient().String(), ids[1].Recipient().String())
	first := seal(t, root, top, nil)
	for i, s := range first {
		k, err := fabric.DecodeKeys(unseal(t, s.Ciphertext, ids[i]))
		if err != nil || k.Cluster != fmt.Sprintf("c%d", i) || len(k.Epochs) != 2 {
			t.Fatalf("opened: %v", err)
		}
		if _, err := age.Decrypt(armor.NewReader(strings.NewReader(s.Ciphertext)), ids[2]); err == nil {
			t.Error("another identity opens it")
		}
	}
	if again := seal(t, root, top, first); again[0] != first[0] || again[1] != first[1] {
		t.Error("sealing again changes bytes")
	}
	top.Spec.Clusters[1].Recipient = ids[2].Recipient().String()
	moved := seal(t, root, top, first)
	if moved[0] != first[0] || moved[1].Digest == first[1].Digest || moved[1].Ciphertext == first[1].Ciphertext {
		t.Error("a new recipient must change its cluster's bytes, and no other's")
	}
	unseal(t, moved[1].Ciphertext, ids[2])
	top.Spec.Clusters[0].Gateways = append(top.Spec.Clusters[0].Gateways, schema.Gateway{Name: "new"})
	if grown := seal(t, root, top, moved); grown[0].Digest == moved[0].Digest || grown[1] != moved[1] {
		t.Error("a new gateway must change its cluster's bytes, and no other's")
	}
}

// TestSealHybrid checks one cluster with a recipient of each kind, and a change from one kind to
// the other.
func TestSealHybrid(t *testing.T) {
	t.Parallel()
	classic := identity(t)
	hybrid, err := age.GenerateHybridIdentity()
	if err != nil {
		t.Fatal(err)
	}
	root, top := newRoot(t), topology(classic.Recipient().String(), hybrid.Recipient().String())
	first := seal(t, root, top, nil)
	for i, id := range []age.Identity{classic, hybrid} {
		if k, err := fabric.DecodeKeys(unseal(t, first[i].Ciphertext, id)); err != nil || k.Cluster != fmt.Sprintf("c%d", i) {
			t.Errorf("opened: %v", err)
		}
	}
	if !strings.Contains(headerOf(t, first[1].Ciphertext), "-> mlkem768x25519 ") {
		t.Errorf("header %q", headerOf(t, first[1].Ciphertext))
	}
	top.Spec.Clusters[0].Recipient = hybrid.Recipient().String()
	unseal(t, seal(t, root, top, first)[0].Ciphertext, hybrid)
}

// headerOf returns the text of an age file before its payload.
func headerOf(t testing.TB, ciphertext string) string {
	t.Helper()
	raw, err := io.ReadAll(armor.NewReader(strings.NewReader(ciphertext)))
	if err != nil {
		t.Fatal(err)
	}
	header, _, _ := bytes.Cut(raw, []byte("\n--- "))
	return string(header)
}

func seal(t testing.TB, root *keys.Root, top *schema.ClusterSet, previous []keys.SealedKeys) []keys.SealedKeys {
	t.Helper()
	out, err := root.Seal(top, func(cluster string) []keys.SealedKeys {
		for i := range previous {
			if top.Spec.Clusters[i].Name == cluster {
				return previous[i : i+1]
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func unseal(t testing.TB, ciphertext string, id age.Identity) []byte {
	t.Helper()
	r, err := age.Decrypt(armor.NewReader(strings.NewReader(ciphertext)), id)
	if err != nil {
		t.Fatal(err)
	}
	raw, err := io.ReadAll(r)
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

// TestBadRecipient checks a topology with an identity as the recipient. The error contains the name
// of the cluster and not the identity.
func TestBadRecipient(t *testing.T) {
	t.Parallel()
	secret := identity(t).String()
	_, err := newRoot(t).Seal(topology(secret), func(string) []keys.SealedKeys { return nil })
	if err == nil || !strings.Contains(err.Error(), "cluster c0") || strings.Contains(err.Error(), secret[:20]) {
		t.Errorf("error %v", err)
	}
}

func BenchmarkSeal1000(b *testing.B) {
	recipients := make([]string, 1000)
	for i := range recipients {
		recipients[i] = identity(b).Recipient().String()
	}
	root, top := newRoot(b), topology(recipients...)
	top.Spec.Keys.Epochs = []int{1}
	for b.Loop() {
		seal(b, root, top, nil)
	}
}
