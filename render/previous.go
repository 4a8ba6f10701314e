package render

import (
	"bytes"
	"encoding/base64"
	"errors"
	"fmt"

	"gopkg.in/yaml.v3"

	"hawser.dev/hawser/schema/fabric"
)

// ErrNoFabric is the error for a tree without a fabric.
var ErrNoFabric = errors.New("the tree holds no fabric")

// FabricOf reads the fabric of a rendered tree.
func FabricOf(tree Tree) (*fabric.Fabric, error) {
	packed, err := compressedFabric(tree)
	if err != nil {
		return nil, err
	}
	f, _, err := fabric.Decode(packed)
	return f, err
}

// FabricDigest returns the digest that agents report for the fabric of a tree.
func FabricDigest(tree Tree) (string, error) {
	packed, err := compressedFabric(tree)
	if err != nil {
		return "", err
	}
	raw, err := fabric.Decompress(packed)
	if err != nil {
		return "", err
	}
	return fabric.Digest(raw), nil
}

// compressedFabric joins the parts of the fabric's ConfigMaps.
func compressedFabric(tree Tree) ([]byte, error) {
	var out []byte
	for i := 0; ; i++ {
		name := "base/" + partName("fabric", i) + ".yaml"
		raw, ok := tree[name]
		if !ok {
			break
		}
		var m struct {
			BinaryData map[string]string `yaml:"binaryData"`
		}
		if err := yaml.Unmarshal(raw, &m); err != nil {
			return nil, fmt.Errorf("read %s: %w", name, err)
		}
		for _, text := range m.BinaryData { // exactly one
			part, err := base64.StdEncoding.DecodeString(text)
			if err != nil {
				return nil, fmt.Errorf("read %s: %w", name, err)
			}
			out = append(out, part...)
		}
	}
	if len(out) == 0 {
		return nil, ErrNoFabric
	}
	return out, nil
}

// publishedPacked returns the published gzip data if it contains exactly raw, otherwise nil. So
// another version of the compressor causes no change.
func publishedPacked(previous Tree, raw []byte) []byte {
	packed, err := compressedFabric(previous)
	if err != nil {
		return nil
	}
	published, err := fabric.Decompress(packed)
	if err != nil || !bytes.Equal(published, raw) {
		return nil
	}
	return packed
}
