package input

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestDocument checks a good, a broken and a missing input in sequence, and a restart in each
// state.
func TestDocument(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path, backup := filepath.Join(dir, "in"), filepath.Join(dir, "backup")
	open := func() *cachedDocument[string] {
		return &cachedDocument[string]{
			name: "fabric", backup: backup,
			read:  func() ([]byte, []byte, error) { raw, err := os.ReadFile(path); return raw, nil, err },
			admit: func(_, _ []byte) error { return nil },
			decode: func(raw []byte) (string, error) {
				if strings.HasPrefix(string(raw), "bad") {
					return "", errors.New("bad document")
				}
				return string(raw), nil
			},
		}
	}
	put := func(text string) {
		t.Helper()
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	check := func(d *cachedDocument[string], changed bool, want, from string, ok bool) {
		t.Helper()
		got, err := d.refresh()
		if err != nil {
			t.Fatalf("problem: %v", err)
		}
		if got != changed || d.value != want || d.state.From != from || d.state.OK != ok {
			t.Errorf("changed %t value %q from %q ok %t, want %t %q %q %t (%s)",
				got, d.value, d.state.From, d.state.OK, changed, want, from, ok, d.state.Error)
		}
	}

	d := open()
	check(d, false, "", "", false)
	put("one")
	check(d, true, "one", "file", true)
	check(d, false, "one", "file", true)
	put("bad")
	check(d, false, "one", "file", false)

	d = open() // a new start with a broken file
	check(d, true, "one", "last good copy", false)
	put("two")
	check(d, true, "two", "file", true)
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	check(d, false, "two", "file", false)

	if err := os.WriteFile(backup, []byte("bad too"), 0o600); err != nil {
		t.Fatal(err)
	}
	d = open() // neither file nor copy is usable
	check(d, false, "", "", false)
	if !strings.Contains(d.state.Error, "last good copy") {
		t.Errorf("error %q does not name the copy", d.state.Error)
	}
}

// TestDocumentWithoutDisk uses an input although its copy cannot be written, and
// writes the copy when it can.
func TestDocumentWithoutDisk(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "missing")
	d := cachedDocument[string]{
		name: "fabric", backup: filepath.Join(dir, "copy"),
		read:   func() ([]byte, []byte, error) { return []byte("one"), nil, nil },
		admit:  func(_, _ []byte) error { return nil },
		decode: func(raw []byte) (string, error) { return string(raw), nil },
	}
	changed, problem := d.refresh()
	if !changed || d.value != "one" || problem == nil {
		t.Errorf("changed %t, value %q, problem %v", changed, d.value, problem)
	}
	if changed, problem = d.refresh(); changed || problem == nil {
		t.Errorf("still without a directory: changed %t, problem %v", changed, problem)
	}
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if changed, problem = d.refresh(); changed || problem != nil {
		t.Errorf("with a directory: changed %t, problem %v", changed, problem)
	}
	if have, err := os.ReadFile(d.backup); string(have) != "one" {
		t.Errorf("copy %q, %v", have, err)
	}
}

// TestReadParts joins a document that consists of parts.
func TestReadParts(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name  string
		files map[string]string
		want  string
		fails bool
	}{
		{name: "whole", files: map[string]string{"f": "abc"}, want: "abc"},
		{name: "parts", files: map[string]string{"f.0": "ab", "f.1": "c"}, want: "abc"},
		{name: "whole before parts", files: map[string]string{"f": "abc", "f.0": "x"}, want: "abc"},
		{name: "nothing", files: nil, fails: true},
		{name: "no first part", files: map[string]string{"f.1": "c"}, fails: true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			for name, text := range tt.files {
				if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			have, err := readParts(dir, "f")
			if (err != nil) != tt.fails || string(have) != tt.want {
				t.Errorf("have %q, %v; want %q, fails %t", have, err, tt.want, tt.fails)
			}
		})
	}
}
