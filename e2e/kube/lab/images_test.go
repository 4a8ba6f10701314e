package main

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"hawser.dev/hawser/internal/ociimage"
)

// TestFillStore imports an image into the store that nodes link. The archive is deleted, and its
// mark and layer are in the store.
func TestFillStore(t *testing.T) {
	needMachine(t)
	if _, err := exec.LookPath("containerd"); err != nil {
		t.Skip("needs containerd (hack/setup-kube.sh)")
	}
	l := &Lab{Dir: t.TempDir()}
	if err := os.Mkdir(l.path("images"), 0o755); err != nil {
		t.Fatal(err)
	}
	archive, err := l.writeImage("sample", ociimage.Image{Names: []string{"docker.io/hawser/sample:lab"},
		Files: []ociimage.File{{Path: "program", Mode: 0o755, Data: []byte("content")}}})
	if err != nil {
		t.Fatal(err)
	}
	l.Images = []string{archive}
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	if err := l.fillStore(ctx); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(archive); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the archive is left: %v", err)
	}
	if _, err := os.Stat(l.path("images", "lib", "sample.tar")); err != nil {
		t.Error(err)
	}
	layer, err := filepath.Glob(l.path("images", "lib", "containerd", "io.containerd.snapshotter.v1.overlayfs", "snapshots", "*", "fs", "program"))
	if err != nil || len(layer) != 1 {
		t.Errorf("%d layers have the program, want 1: %v", len(layer), err)
	}
}
