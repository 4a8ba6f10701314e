package keys_test

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"slices"
	"strings"
	"testing"

	"hawser.dev/hawser/render/keys"
)

// key returns the base64 of a root key of one repeated byte.
func key(b byte) string {
	return base64.StdEncoding.EncodeToString(bytes.Repeat([]byte{b}, keys.RootSize))
}

func read(t testing.TB, text string) *keys.Root {
	t.Helper()
	root, err := keys.ReadRoot([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return root
}

// TestReadSeveral reads files of several root keys, and encodes each again.
func TestReadSeveral(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name, text, want string
		epochs           []int
	}{
		{"one", key(7), key(7) + "\n", []int{1}},
		{"one of the first epoch", "1 " + key(7), key(7) + "\n", []int{1}},
		{"one of a later epoch", "2 " + key(7) + "\n", "2 " + key(7) + "\n", []int{2}},
		{"two", "1 " + key(7) + "\n2 " + key(8) + "\n", "1 " + key(7) + "\n2 " + key(8) + "\n", []int{1, 2}},
		{"blanks and other ends of lines", "\n 3\t" + key(7) + "\r\n\n12  " + key(8), "3 " + key(7) + "\n12 " + key(8) + "\n", []int{3, 12}},
	} {
		root := read(t, tt.text)
		if have := string(root.Encode()); have != tt.want {
			t.Errorf("%s: wrote %q, want %q", tt.name, have, tt.want)
		}
		if !slices.Equal(root.Epochs(), tt.epochs) {
			t.Errorf("%s: epochs %v, want %v", tt.name, root.Epochs(), tt.epochs)
		}
	}
}

// TestReadSeveralEncrypted checks that a file above the size limit is rejected and not truncated:
// the newest root key is the last one.
func TestReadSeveralEncrypted(t *testing.T) {
	t.Parallel()
	id := identity(t)
	text := []byte("1 " + key(7) + "\n2 " + key(8) + "\n")
	root, err := keys.ReadRoot(encrypted(t, text, true, id.Recipient()), id)
	if err != nil || !bytes.Equal(root.Encode(), text) {
		t.Fatalf("opened: %v", err)
	}
	text = append(text, bytes.Repeat([]byte("\n"), 1<<16)...)
	_, err = keys.ReadRoot(encrypted(t, text, false, id.Recipient()), id)
	if err == nil || err.Error() != "open root key: more than 65536 bytes" {
		t.Errorf("error %v", err)
	}
}

// TestBadRootFiles checks that each error contains the wrong line's number and the expected
// content, but does not quote the line.
func TestBadRootFiles(t *testing.T) {
	t.Parallel()
	const (
		not   = "not a root key: want 32 bytes, the same in base64, lines of an epoch and such a key, or an age file of one of them"
		words = "want the first epoch that the root key serves, a space, and the key in base64"
		epoch = "the first word is not an epoch: want a number of 1 or more"
		size  = "the root key is not 32 bytes in base64"
	)
	for _, tt := range []struct{ name, text, err string }{
		{"empty", "", not},
		{"blank", "\n \n", not},
		{"two keys without epochs", key(7) + "\n" + key(8) + "\n", not},
		{"an epoch alone", "1\n", not},
		{"a key with an epoch after one without", key(7) + "\n2 " + key(8) + "\n", not},
		{"a key without an epoch after one with", "1 " + key(7) + "\n" + key(8) + "\n", "line 2: " + words},
		{"three words", "1 " + key(7) + " new\n", "line 1: " + words},
		{"a comment", "# root keys\n1 " + key(7) + "\n", "line 1: " + words},
		{"the wrong order", key(7) + " 1\n", "line 1: " + epoch},
		{"epoch 0", "0 " + key(7) + "\n", "line 1: " + epoch},
		{"less", "-1 " + key(7) + "\n", "line 1: " + epoch},
		{"a sign", "+1 " + key(7) + "\n", "line 1: " + epoch},
		{"zeros", "01 " + key(7) + "\n", "line 1: " + epoch},
		{"no end", "99999999999999999999 " + key(7) + "\n", "line 1: " + epoch},
		{"a colon", "1: " + key(7) + "\n", "line 1: " + epoch},
		{"short", "1 " + key(7) + "\n2 MDEyMzQ1Njc4OWFiY2RlZg==\n", "line 2: " + size},
		{"not base64", "\n1 " + strings.Repeat("!", 44) + "\n", "line 2: " + size},
		{"the same epoch", "2 " + key(7) + "\n2 " + key(8) + "\n", "line 2: epoch 2 does not follow on 2: list each first epoch once, in ascending order"},
		{"descending", "2 " + key(7) + "\n\n1 " + key(8) + "\n", "line 3: epoch 1 does not follow on 2: list each first epoch once, in ascending order"},
		{"the same key", "1 " + key(7) + "\n2 " + key(8) + "\n3 " + key(7) + "\n", "line 3: the same root key as in line 1: each line wants a key of its own"},
	} {
		_, err := keys.ReadRoot([]byte(tt.text))
		if err == nil || err.Error() != tt.err {
			t.Errorf("%s: error %v, want %q", tt.name, err, tt.err)
		}
	}
}

// TestAddAndDrop replaces a root key. Other epochs keep their root keys.
func TestAddAndDrop(t *testing.T) {
	t.Parallel()
	one := read(t, key(7))
	two, err := one.Add(2)
	if err != nil {
		t.Fatal(err)
	}
	three, err := two.Add(5)
	if err != nil {
		t.Fatal(err)
	}
	serves(t, "one", one, "1 1 1 1 1 1")
	serves(t, "two", two, "1 2 2 2 2 2")
	serves(t, "three", three, "1 2 2 2 5 5")
	if !strings.HasPrefix(string(three.Encode()), string(two.Encode())) || !strings.HasPrefix(string(two.Encode()), "1 "+key(7)+"\n") {
		t.Error("another root key changes those before it")
	}
	if have, err := three.Drop(4); err != nil || string(have.Encode()) != strings.TrimPrefix(string(three.Encode()), "1 "+key(7)+"\n") {
		t.Errorf("dropped before 4: %v", err)
	} else {
		serves(t, "dropped before 4", have, "- 2 2 2 5 5")
	}
	if have, err := three.Drop(9); err != nil {
		t.Error(err)
	} else {
		serves(t, "dropped before 9", have, "- - - - 5 5")
	}
	serves(t, "three", three, "1 2 2 2 5 5")
}

// serves checks which root key serves each of the first epochs.
func serves(t *testing.T, name string, root *keys.Root, want string) {
	t.Helper()
	var have []string
	for epoch := 1; epoch <= 6; epoch++ {
		from, err := root.EpochRoot(epoch)
		if err != nil {
			have = append(have, "-")
			continue
		}
		have = append(have, fmt.Sprint(from))
	}
	if strings.Join(have, " ") != want {
		t.Errorf("%s: served by %v, want %s", name, have, want)
	}
}

// TestWrongSteps checks the errors about impossible steps and about epochs that no root key serves.
// Each error contains the epochs that are possible or served.
func TestWrongSteps(t *testing.T) {
	t.Parallel()
	one, several, later := read(t, key(7)), read(t, "1 "+key(7)+"\n2 "+key(8)+"\n5 "+key(9)), read(t, "3 "+key(7))
	for _, tt := range []struct {
		do   func() (*keys.Root, error)
		want string
	}{
		{func() (*keys.Root, error) { return one.Add(0) }, "epoch 0 is less than 1"},
		{func() (*keys.Root, error) { return one.Add(1) }, "the newest root key serves from epoch 1 on already: the next one can begin at 2"},
		{func() (*keys.Root, error) { return several.Add(4) }, "the newest root key serves from epoch 5 on already: the next one can begin at 6"},
		{func() (*keys.Root, error) { return one.Drop(2) }, "no root key serves only epochs before 2: the oldest one serves from epoch 1 on"},
		{func() (*keys.Root, error) { return several.Drop(1) }, "no root key serves only epochs before 1: the oldest one serves epoch 1"},
		{func() (*keys.Root, error) { return read(t, "2 "+key(8)+"\n5 "+key(9)).Drop(4) }, "no root key serves only epochs before 4: the oldest one serves epochs 2 to 4"},
		{func() (*keys.Root, error) { return later.Drop(-1) }, "no root key serves only epochs before -1: the oldest one serves from epoch 3 on"},
		{func() (*keys.Root, error) { _, err := later.EpochRoot(2); return nil, err }, "no root key serves epoch 2: the oldest one serves from epoch 3 on"},
		{func() (*keys.Root, error) { _, err := later.Public("demo", "c", "g", 1); return nil, err }, "no root key serves epoch 1: the oldest one serves from epoch 3 on"},
		{func() (*keys.Root, error) {
			top := topology("r0")
			_, err := later.Keys(top, &top.Spec.Clusters[0])
			return nil, err
		}, "no root key serves epoch 1: the oldest one serves from epoch 3 on"},
		{func() (*keys.Root, error) {
			_, err := later.Seal(topology("r0"), func(string) []keys.SealedKeys { return nil })
			return nil, err
		}, "no root key serves epoch 2: the oldest one serves from epoch 3 on"},
	} {
		if _, err := tt.do(); err == nil || err.Error() != tt.want {
			t.Errorf("error %v, want %q", err, tt.want)
		}
	}
}

// TestKeysOfSeveral checks that the secrets of an epoch depend only on the root key of that epoch.
func TestKeysOfSeveral(t *testing.T) {
	t.Parallel()
	top := topology("r0")
	both := read(t, "1 "+key(7)+"\n2 "+key(8))
	have, err := both.Keys(top, &top.Spec.Clusters[0])
	if err != nil {
		t.Fatal(err)
	}
	for i, b := range []byte{7, 8} {
		want, err := read(t, key(b)).Keys(top, &top.Spec.Clusters[0])
		if err != nil {
			t.Fatal(err)
		}
		h, w := have.Epochs[i], want.Epochs[i]
		if h.PSKSeed != w.PSKSeed || h.Gateways["a"] != w.Gateways["a"] || h.Ed25519["a"] != w.Ed25519["a"] {
			t.Errorf("epoch %d has keys of another root key", i+1)
		}
	}
}

// TestSealOverRoots checks that ciphertexts change with the keys, and not if a root key is added or
// dropped.
func TestSealOverRoots(t *testing.T) {
	t.Parallel()
	id := identity(t)
	top := topology(id.Recipient().String())
	top.Spec.Keys.Epochs = []int{1}
	old, both, young := read(t, key(7)), read(t, "1 "+key(7)+"\n2 "+key(8)), read(t, "2 "+key(8))
	first := seal(t, old, top, nil)
	if added := seal(t, both, top, first); added[0] != first[0] {
		t.Error("another root key changes the sealed keys")
	}
	top.Spec.Keys.Epochs = []int{1, 2}
	during := seal(t, both, top, first)
	if during[0] == first[0] || seal(t, both, top, during)[0] != during[0] {
		t.Error("one more epoch must change the sealed keys once")
	}
	top.Spec.Keys.Epochs = []int{2}
	after := seal(t, both, top, during)
	if after[0] == during[0] || seal(t, young, top, after)[0] != after[0] {
		t.Error("a dropped root key changes the sealed keys")
	}
}

// FuzzReadRoot checks that an accepted file survives a round trip. The error about a rejected file
// does not contain its text.
func FuzzReadRoot(f *testing.F) {
	f.Add([]byte(key(7)))
	f.Add(bytes.Repeat([]byte{' '}, keys.RootSize))
	f.Add([]byte("1 " + key(7) + "\n2 " + key(8) + "\n"))
	f.Add([]byte("2 " + key(7) + "\r\n\n 7 " + key(8)))
	f.Add([]byte("2 " + key(7) + "\n1 " + key(8)))
	f.Add([]byte("age-encryption.org/v1\n-> X25519 "))
	f.Add([]byte("1 secretsecret\n"))
	f.Fuzz(func(t *testing.T, raw []byte) {
		root, err := keys.ReadRoot(raw)
		if err != nil {
			for _, word := range strings.Fields(string(raw)) {
				if len(word) > 20 && strings.Contains(err.Error(), word) {
					t.Fatalf("the error quotes the file: %v", err)
				}
			}
			return
		}
		again, err := keys.ReadRoot(root.Encode())
		if err != nil || !bytes.Equal(again.Encode(), root.Encode()) || !slices.Equal(again.Epochs(), root.Epochs()) {
			t.Fatalf("read again: %v", err)
		}
		if epochs := root.Epochs(); len(epochs) == 0 || epochs[0] < 1 || !slices.IsSorted(epochs) {
			t.Fatalf("epochs %v", epochs)
		}
	})
}
