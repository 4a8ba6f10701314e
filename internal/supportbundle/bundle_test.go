package supportbundle

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

func newBundle(t *testing.T) *Bundle {
	t.Helper()
	b, err := New()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := b.Close(); err != nil {
			t.Error(err)
		}
		if _, err := os.Stat(b.dir); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s is left: %v", b.dir, err)
		}
	})
	return b
}

// TestWrite checks that order, modes and owners do not depend on the order of the texts.
func TestWrite(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 1, 2, 3, 4, 5, 6, time.UTC)
	names := []string{"clusters/g2/a.json", "z.txt", Errors, "clusters/g1/b.json", Summary}
	var archives [][]byte
	for range 2 {
		b := newBundle(t)
		slices.Reverse(names)
		for _, name := range names {
			b.Add(name, []byte("before"))
			b.Add(name, []byte("text of "+name))
		}
		if b.Len() != len(names) {
			t.Errorf("%d texts, want %d", b.Len(), len(names))
		}
		var out bytes.Buffer
		if err := b.Write(&out, "x", at); err != nil {
			t.Fatal(err)
		}
		archives = append(archives, out.Bytes())
	}
	if !bytes.Equal(archives[0], archives[1]) {
		t.Error("the same texts are other bytes")
	}
	unpacked, err := gzip.NewReader(bytes.NewReader(archives[0]))
	if err != nil {
		t.Fatal(err)
	}
	var have []string
	for r := tar.NewReader(unpacked); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		have = append(have, fmt.Sprintf("%s %o %d:%d %s %s: %s", h.Name, h.Mode, h.Uid, h.Gid, h.Uname+h.Gname, h.ModTime.UTC().Format(time.RFC3339Nano), text))
	}
	var want []string
	for _, name := range []string{Summary, Errors, "clusters/g1/b.json", "clusters/g2/a.json", "z.txt"} {
		want = append(want, "x/"+name+" 644 0:0  2026-01-02T03:04:05Z: text of "+name)
	}
	if !slices.Equal(have, want) {
		t.Errorf("have\n%s\nwant\n%s", strings.Join(have, "\n"), strings.Join(want, "\n"))
	}
}

func TestFailures(t *testing.T) {
	t.Parallel()
	b := newBundle(t)
	b.Fail("g2", errors.New("one\ntwo\n"))
	b.Fail("g1", errors.New("dial https://joe:hush@example.org: no"))
	b.Add("../up", []byte("x"))
	want := []string{`"../up": not a name for a file`, "g1: dial https://(not shown)@example.org: no", "g2: one; two"}
	if have := b.Failures(); !slices.Equal(have, want) {
		t.Errorf("have %q, want %q", have, want)
	}
	if b.Len() != 0 {
		t.Errorf("%d texts", b.Len())
	}
}

func TestRedact(t *testing.T) {
	t.Parallel()
	pem := "-----BEGIN EC PRIVATE KEY-----\nMHc\nCAQ\n-----END EC PRIVATE KEY-----"
	tests := []struct{ name, text, want string }{
		{"nothing", "a public key: fE/wdxzl0klVp/IR8UcaoGUMjqaWi3jAd7KzHKFS6Ds=", ""},
		{"age identity", "# public key: age1abc\nAGE-SECRET-KEY-1QQPQ2Z\nx", "# public key: age1abc\n(not shown)\nx"},
		{"post-quantum age identity", "AGE-SECRET-KEY-PQ-1QQ", "(not shown)"},
		{"PEM", "a\n" + pem + "\nb\n" + pem, "a\n(not shown)\nb\n(not shown)"},
		{"PEM in JSON", `{"k":"` + strings.ReplaceAll(pem, "\n", `\n`) + `"}`, `{"k":"(not shown)"}`},
		{"PEM without an end", "a -----BEGIN PRIVATE KEY-----\nMHc\nCAQ", "a (not shown)"},
		{"a certificate stays", "-----BEGIN CERTIFICATE-----\nMHc\n-----END CERTIFICATE-----", ""},
		{"token", "token: eyJhbGciOiJSUzI1NiJ9.eyJpc3MiOiJrOHMifQ.c2ln-_x end", "token: (not shown) end"},
		{"bearer", "Authorization: Bearer 0123456789abcdef", "Authorization: Bearer (not shown)"},
		{"login", "proxy=http://joe:hush@10.0.0.1:3128/ and http://:x@y", "proxy=http://(not shown)@10.0.0.1:3128/ and http://(not shown)@y"},
		{"key of WireGuard", "PrivateKey = cLmxTyfdSfPvCDAFWzVpLPTpqDyFBqXRuJaLhIDsrGQ=\nport 1", "PrivateKey = (not shown)\nport 1"},
		{"in hexadecimal", `"preshared_key":"` + strings.Repeat("0a", 32) + `"`, `"preshared_key":"(not shown)"`},
		{"no login", "http://10.0.0.1:3128/a@b https://joe@example.org udp://[::1]:53", ""},
	}
	for _, tt := range tests {
		want := tt.want
		if want == "" {
			want = tt.text
		}
		if have := string(Redact([]byte(tt.text))); have != want {
			t.Errorf("%s: have %q, want %q", tt.name, have, want)
		}
	}
}

func TestCreate(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path := filepath.Join(dir, "a.tar.gz")
	hello := func(w io.Writer) error { _, err := io.WriteString(w, "hello"); return err }
	no := errors.New("no")
	if err := Create(path, func(w io.Writer) error { return errors.Join(hello(w), no) }); !errors.Is(err, no) {
		t.Errorf("a write that failed: %v", err)
	}
	if err := Create(path, hello); err != nil {
		t.Fatal(err)
	}
	if err := Create(path, func(io.Writer) error { return nil }); err == nil || !strings.Contains(err.Error(), "already exists") {
		t.Errorf("overwritten: %v", err)
	}
	info, err := os.Stat(path)
	if err != nil || info.Mode() != 0o600 {
		t.Errorf("mode %v (%v)", info.Mode(), err)
	}
	if text, err := os.ReadFile(path); err != nil || string(text) != "hello" {
		t.Errorf("holds %q (%v)", text, err)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) != 1 {
		t.Errorf("left behind: %v (%v)", left, err)
	}
}

// TestCreateRace checks that only one of several processes creates a file.
func TestCreateRace(t *testing.T) {
	t.Parallel()
	for round := range 50 {
		path := filepath.Join(t.TempDir(), "a.tar.gz")
		var created atomic.Int32
		var running sync.WaitGroup
		for n := range 8 {
			running.Go(func() {
				if Create(path, func(w io.Writer) error { _, err := fmt.Fprint(w, n); return err }) == nil {
					created.Add(1)
				}
			})
		}
		running.Wait()
		if n := created.Load(); n != 1 {
			t.Fatalf("round %d: %d of 8 created the file", round, n)
		}
	}
}

func TestTail(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("0123456789\n", 300_000)
	tests := []struct {
		name, text string
		most       int
		want       string
		left       int64
	}{
		{"nothing", "", 10, "", 0},
		{"all", "a\nb\n", 10, "a\nb\n", 0},
		{"just so", "a\nb\n", 4, "a\nb\n", 0},
		{"whole lines", "aaaa\nbbbb\ncccc\n", 8, "cccc\n", 10},
		{"no line", "aaaabbbb", 4, "bbbb", 4},
		{"long", long, 25, "0123456789\n0123456789\n", int64(len(long) - 22)},
	}
	for _, tt := range tests {
		have, left, err := Tail(strings.NewReader(tt.text), tt.most)
		if string(have) != tt.want || left != tt.left || err != nil {
			t.Errorf("%s: %q, %d left, %v; want %q, %d left", tt.name, have, left, err, tt.want, tt.left)
		}
	}
	no := errors.New("no")
	have, _, err := Tail(io.MultiReader(strings.NewReader("a\n"), failing{no}), 10)
	if string(have) != "a\n" || !errors.Is(err, no) {
		t.Errorf("cut short: %q %v", have, err)
	}
}

type failing struct{ err error }

func (f failing) Read([]byte) (int, error) { return 0, f.err }
