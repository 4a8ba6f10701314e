package ociimage

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"io"
	"slices"
	"strings"
	"testing"
)

func example() Image {
	return Image{
		Names: []string{"example.org/agent:v1", "example.org/agent:v2"}, Arch: "arm64", Entrypoint: []string{"/bin/agent"},
		Files: []File{
			{Path: "bin/agent", Mode: 0o755, Data: []byte("program")},
			{Path: "bin/a", Mode: 0o777, Link: "agent"},
			{Path: "tmp", Mode: 0o1777},
			{Path: "etc/empty", Mode: 0o644, Data: []byte{}},
		},
	}
}

func entries(t *testing.T, archive []byte) (names []string, files map[string][]byte) {
	t.Helper()
	files = map[string][]byte{}
	for in := tar.NewReader(bytes.NewReader(archive)); ; {
		h, err := in.Next()
		if err == io.EOF {
			return names, files
		}
		if err != nil {
			t.Fatal(err)
		}
		data, err := io.ReadAll(in)
		if err != nil {
			t.Fatal(err)
		}
		if !h.ModTime.IsZero() && h.ModTime.Unix() != 0 {
			t.Errorf("%s has a time: %s", h.Name, h.ModTime)
		}
		names, files[h.Name] = append(names, h.Name), data
	}
}

// TestWrite checks that both layouts of the archive have the same layer. It contains the files in
// order, with their directories.
func TestWrite(t *testing.T) {
	t.Parallel()
	var archive bytes.Buffer
	if err := Write(&archive, example()); err != nil {
		t.Fatal(err)
	}
	_, files := entries(t, archive.Bytes())

	var docker []struct {
		Config           string
		RepoTags, Layers []string
	}
	if err := json.Unmarshal(files["manifest.json"], &docker); err != nil || len(docker) != 1 {
		t.Fatalf("manifest.json: %v: %s", err, files["manifest.json"])
	}
	if !slices.Equal(docker[0].RepoTags, example().Names) {
		t.Errorf("names %v", docker[0].RepoTags)
	}
	var index ociIndex
	if err := json.Unmarshal(files["index.json"], &index); err != nil || len(index.Manifests) != 2 {
		t.Fatalf("index.json: %v: %s", err, files["index.json"])
	}
	var manifest ociManifest
	raw := files["blobs/sha256/"+index.Manifests[0].Digest[len("sha256:"):]]
	if err := json.Unmarshal(raw, &manifest); err != nil || len(manifest.Layers) != 1 || len(raw) != index.Manifests[0].Size {
		t.Fatalf("manifest: %v: %s", err, raw)
	}
	layer := files[docker[0].Layers[0]]
	if digest(layer) != manifest.Layers[0].Digest || digest(files[docker[0].Config]) != manifest.Config.Digest {
		t.Error("the two layouts name different blobs")
	}

	var config imageConfig
	if err := json.Unmarshal(files[docker[0].Config], &config); err != nil {
		t.Fatal(err)
	}
	zip, err := gzip.NewReader(bytes.NewReader(layer))
	if err != nil {
		t.Fatal(err)
	}
	plain, err := io.ReadAll(zip)
	if err != nil {
		t.Fatal(err)
	}
	if config.Architecture != "arm64" || config.RootFS.DiffIDs[0] != digest(plain) {
		t.Errorf("configuration %+v", config)
	}
	names, contents := entries(t, plain)
	want := []string{"bin/", "bin/a", "bin/agent", "etc/", "etc/empty", "tmp/"}
	if !slices.Equal(names, want) || string(contents["bin/agent"]) != "program" {
		t.Errorf("layer has %v, want %v", names, want)
	}
}

// TestWriteIndex checks that the archive of several architectures has one index with a manifest for
// each. Every blob has the digest and size of its descriptor.
func TestWriteIndex(t *testing.T) {
	t.Parallel()
	other := example()
	other.Arch, other.Files = "amd64", []File{{Path: "bin/agent", Mode: 0o755, Data: []byte("another program")}}
	var archive bytes.Buffer
	sum, err := WriteIndex(&archive, []Image{example(), other})
	if err != nil {
		t.Fatal(err)
	}
	_, files := entries(t, archive.Bytes())
	read := func(d descriptor, into any) {
		t.Helper()
		raw := files["blobs/"+strings.Replace(d.Digest, ":", "/", 1)]
		if digest(raw) != d.Digest || len(raw) != d.Size {
			t.Errorf("%s: %d bytes, want %d", d.Digest, len(raw), d.Size)
		}
		if into != nil {
			if err := json.Unmarshal(raw, into); err != nil {
				t.Fatal(err)
			}
		}
	}
	var top, index ociIndex
	if err := json.Unmarshal(files["index.json"], &top); err != nil || len(top.Manifests) != 2 {
		t.Fatalf("index.json: %v: %s", err, files["index.json"])
	}
	if d := top.Manifests[0]; d.Digest != sum || d.MediaType != indexType || d.Annotations["org.opencontainers.image.ref.name"] != "v1" {
		t.Errorf("it names %+v, want %s", d, sum)
	}
	read(top.Manifests[0], &index)
	var arches []string
	for _, d := range index.Manifests {
		var manifest ociManifest
		var config imageConfig
		read(d, &manifest)
		read(manifest.Config, &config)
		read(manifest.Layers[0], nil)
		if config.Architecture != d.Platform.Architecture || d.Platform.OS != "linux" {
			t.Errorf("platform %+v has the image of %s", d.Platform, config.Architecture)
		}
		arches = append(arches, d.Platform.Architecture)
	}
	if !slices.Equal(arches, []string{"arm64", "amd64"}) {
		t.Errorf("architectures %v", arches)
	}
}

// TestReproducible checks that equal content has equal bytes, in any order of the files.
func TestReproducible(t *testing.T) {
	t.Parallel()
	var first, second bytes.Buffer
	other := example()
	slices.Reverse(other.Files)
	if err := Write(&first, example()); err != nil {
		t.Fatal(err)
	}
	if err := Write(&second, other); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(first.Bytes(), second.Bytes()) {
		t.Error("the same image gave different bytes")
	}
}
