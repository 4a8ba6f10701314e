// Package ociimage writes container images with one layer as archives. Equal files result in equal
// bytes. An archive for one architecture has two layouts: the OCI image layout (OCI image-spec 1.1,
// image-layout.md), and the manifest.json of docker save.
package ociimage

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"path"
	"slices"
	"strings"
)

// File is one file of an image.
type File struct {
	Path string // in the image, without a leading slash
	Mode int64  // permissions
	Data []byte
	Link string // target of a symbolic link; Data is then empty
}

// Image is a container image for one architecture.
type Image struct {
	Names      []string // including tags, as registry/name:tag
	Arch       string   // a value of GOARCH
	Entrypoint []string
	Cmd        []string
	Labels     map[string]string
	Files      []File
}

// Write writes the archive of an image.
func Write(w io.Writer, img Image) error {
	b, err := build(img)
	if err != nil {
		return err
	}
	docker, err := json.Marshal([]struct {
		Config   string
		RepoTags []string
		Layers   []string
	}{{blobPath(b.config), img.Names, []string{blobPath(b.layer)}}})
	if err != nil {
		return fmt.Errorf("write manifest.json: %w", err)
	}
	return writeLayout(w, img.Names, describe(manifestType, b.manifest), b.blobs(), File{Path: "manifest.json", Mode: 0o644, Data: docker})
}

// WriteIndex writes an archive with one image for several architectures, and returns the digest of
// its index. The archive has the names of the first image. It has only the OCI image layout,
// because manifest.json supports a single architecture.
func WriteIndex(w io.Writer, images []Image) (string, error) {
	var blobs []File
	index := ociIndex{SchemaVersion: 2, MediaType: indexType}
	for _, img := range images {
		b, err := build(img)
		if err != nil {
			return "", err
		}
		d := describe(manifestType, b.manifest)
		d.Platform = &platform{Architecture: img.Arch, OS: "linux"}
		index.Manifests = append(index.Manifests, d)
		blobs = append(blobs, b.blobs()...)
	}
	raw, err := json.Marshal(index)
	if err != nil {
		return "", fmt.Errorf("write index: %w", err)
	}
	blobs = append(blobs, File{Path: blobPath(raw), Mode: 0o644, Data: raw})
	return digest(raw), writeLayout(w, images[0].Names, describe(indexType, raw), blobs)
}

// imageBlobs has the blobs of an image.
type imageBlobs struct{ manifest, config, layer []byte }

func build(img Image) (imageBlobs, error) {
	layer, diff, err := buildLayer(img.Files)
	if err != nil {
		return imageBlobs{}, err
	}
	config, err := json.Marshal(imageConfig{
		Created: "1970-01-01T00:00:00Z", Architecture: img.Arch, OS: "linux",
		Config: runConfig{
			Env:        []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"},
			Entrypoint: img.Entrypoint, Cmd: img.Cmd, WorkingDir: "/", Labels: img.Labels,
		},
		RootFS: rootFS{Type: "layers", DiffIDs: []string{diff}},
	})
	if err != nil {
		return imageBlobs{}, fmt.Errorf("write image configuration: %w", err)
	}
	manifest, err := json.Marshal(ociManifest{
		SchemaVersion: 2, MediaType: manifestType,
		Config: describe(configType, config), Layers: []descriptor{describe(layerType, layer)},
	})
	if err != nil {
		return imageBlobs{}, fmt.Errorf("write image manifest: %w", err)
	}
	return imageBlobs{manifest, config, layer}, nil
}

func (b imageBlobs) blobs() []File {
	return []File{
		{Path: blobPath(b.config), Mode: 0o644, Data: b.config},
		{Path: blobPath(b.layer), Mode: 0o644, Data: b.layer},
		{Path: blobPath(b.manifest), Mode: 0o644, Data: b.manifest},
	}
}

// writeLayout writes blobs as an OCI image layout. named describes the blob that index.json lists,
// once for each name.
func writeLayout(w io.Writer, names []string, named descriptor, blobs []File, extra ...File) error {
	index := ociIndex{SchemaVersion: 2, MediaType: indexType}
	for _, name := range names {
		d := named
		// containerd reads the full name from the first annotation; other programs read the
		// tag from the second.
		d.Annotations = map[string]string{
			"io.containerd.image.name":          name,
			"org.opencontainers.image.ref.name": name[strings.LastIndex(name, ":")+1:],
		}
		index.Manifests = append(index.Manifests, d)
	}
	raw, err := json.Marshal(index)
	if err != nil {
		return fmt.Errorf("write index: %w", err)
	}
	files := append([]File{{Path: "blobs", Mode: 0o755}, {Path: "blobs/sha256", Mode: 0o755}}, blobs...)
	files = append(files, File{Path: "index.json", Mode: 0o644, Data: raw})
	files = append(files, extra...)
	return writeTar(w, append(files, File{Path: "oci-layout", Mode: 0o644, Data: []byte(`{"imageLayoutVersion":"1.0.0"}`)}))
}

const (
	manifestType = "application/vnd.oci.image.manifest.v1+json"
	configType   = "application/vnd.oci.image.config.v1+json"
	layerType    = "application/vnd.oci.image.layer.v1.tar+gzip"
	indexType    = "application/vnd.oci.image.index.v1+json"
)

type descriptor struct {
	MediaType   string            `json:"mediaType"`
	Digest      string            `json:"digest"`
	Size        int               `json:"size"`
	Platform    *platform         `json:"platform,omitempty"`
	Annotations map[string]string `json:"annotations,omitempty"`
}

type platform struct {
	Architecture string `json:"architecture"`
	OS           string `json:"os"`
}

type ociManifest struct {
	SchemaVersion int          `json:"schemaVersion"`
	MediaType     string       `json:"mediaType"`
	Config        descriptor   `json:"config"`
	Layers        []descriptor `json:"layers"`
}

type ociIndex struct {
	SchemaVersion int          `json:"schemaVersion"`
	MediaType     string       `json:"mediaType"`
	Manifests     []descriptor `json:"manifests"`
}

type runConfig struct {
	Env        []string          `json:"Env"`
	Entrypoint []string          `json:"Entrypoint,omitempty"`
	Cmd        []string          `json:"Cmd,omitempty"`
	WorkingDir string            `json:"WorkingDir"`
	Labels     map[string]string `json:"Labels,omitempty"`
}

type rootFS struct {
	Type    string   `json:"type"`
	DiffIDs []string `json:"diff_ids"`
}

type imageConfig struct {
	Created      string    `json:"created"`
	Architecture string    `json:"architecture"`
	OS           string    `json:"os"`
	Config       runConfig `json:"config"`
	RootFS       rootFS    `json:"rootfs"`
}

// buildLayer returns the compressed layer, and the digest of the uncompressed layer. The layer
// contains the files sorted by path, with their parent directories.
func buildLayer(files []File) (layer []byte, diff string, err error) {
	all := map[string]File{}
	for _, f := range files {
		all[f.Path] = f
		for dir := path.Dir(f.Path); dir != "."; dir = path.Dir(dir) {
			if _, ok := all[dir]; !ok {
				all[dir] = File{Path: dir, Mode: 0o755}
			}
		}
	}
	sorted := slices.SortedFunc(maps.Values(all), func(a, b File) int { return strings.Compare(a.Path, b.Path) })
	var uncompressed, compressed bytes.Buffer
	if err := writeTar(&uncompressed, sorted); err != nil {
		return nil, "", err
	}
	gz, err := gzip.NewWriterLevel(&compressed, gzip.BestSpeed)
	if err == nil {
		_, err = gz.Write(uncompressed.Bytes())
	}
	if err == nil {
		err = gz.Close()
	}
	if err != nil {
		return nil, "", fmt.Errorf("compress layer: %w", err)
	}
	return compressed.Bytes(), digest(uncompressed.Bytes()), nil
}

// writeTar writes a tar archive of files that root owns, without times. A file with neither data
// nor a link target is a directory.
func writeTar(w io.Writer, files []File) error {
	out := tar.NewWriter(w)
	for _, f := range files {
		header := &tar.Header{Name: f.Path, Mode: f.Mode, Size: int64(len(f.Data)), Typeflag: tar.TypeReg, Format: tar.FormatPAX}
		switch {
		case f.Link != "":
			header.Typeflag, header.Linkname = tar.TypeSymlink, f.Link
		case f.Data == nil:
			header.Typeflag, header.Name = tar.TypeDir, f.Path+"/"
		}
		if err := out.WriteHeader(header); err != nil {
			return fmt.Errorf("archive %s: %w", f.Path, err)
		}
		if _, err := out.Write(f.Data); err != nil {
			return fmt.Errorf("archive %s: %w", f.Path, err)
		}
	}
	if err := out.Close(); err != nil {
		return fmt.Errorf("end archive: %w", err)
	}
	return nil
}

func describe(mediaType string, data []byte) descriptor {
	return descriptor{MediaType: mediaType, Digest: digest(data), Size: len(data)}
}

func digest(data []byte) string {
	sum := sha256.Sum256(data)
	return "sha256:" + hex.EncodeToString(sum[:])
}

func blobPath(data []byte) string {
	return "blobs/sha256/" + strings.TrimPrefix(digest(data), "sha256:")
}
