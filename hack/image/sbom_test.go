package main

import (
	"bytes"
	"encoding/json"
	"os"
	"strings"
	"testing"

	"hawser.dev/hawser/internal/ociimage"
)

// TestBill: the bill of an image names the modules of its programs and the packages of
// its other files, once each, and is the same each time.
func TestBill(t *testing.T) {
	t.Parallel()
	own, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	program, err := os.ReadFile(own)
	if err != nil {
		t.Fatal(err)
	}
	img := ociimage.Image{
		Names: []string{"example.org/agent:v1"}, Arch: "amd64",
		Labels: map[string]string{packagesLabel: "libc6=2.36-9 /own/file", "org.opencontainers.image.version": "v1"},
		Files:  []ociimage.File{{Path: "a", Data: program}, {Path: "b", Data: program}, {Path: "c", Data: []byte("text")}},
	}
	raw, err := writeSBOM(img)
	if err != nil {
		t.Fatal(err)
	}
	var doc struct {
		Packages []spdxPackage `json:"packages"`
	}
	if err := json.Unmarshal(raw, &doc); err != nil {
		t.Fatal(err)
	}
	count := map[string]int{}
	for _, p := range doc.Packages {
		count[p.Name]++
		if p.Version == "" && p.Name != "/own/file" {
			t.Errorf("%s has no version", p.Name)
		}
	}
	for _, name := range []string{"stdlib", "hawser.dev/hawser", "libc6", "/own/file"} {
		if count[name] != 1 {
			t.Errorf("%s occurs %d times", name, count[name])
		}
	}
	if !strings.Contains(string(raw), `"pkg:deb/debian/libc6@2.36-9"`) {
		t.Errorf("no package URL in\n%s", raw)
	}
	if again, err := writeSBOM(img); err != nil || !bytes.Equal(raw, again) {
		t.Errorf("another bill the second time (%v)", err)
	}
	if _, err := writeSBOM(ociimage.Image{Names: []string{"a"}}); err == nil {
		t.Error("a bill of nothing")
	}
}
