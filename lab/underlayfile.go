package lab

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"os"
	"strings"

	"hawser.dev/hawser/internal/checkout"
	"hawser.dev/hawser/lab/underlayspec"
)

// readUnderlay reads the lab's underlay file. Without a file, the underlay is one network. known is
// as in underlayspec.Parse.
func (l Layout) readUnderlay(known func(string) bool) (underlayspec.File, error) {
	raw, err := os.ReadFile(l.underlay())
	if errors.Is(err, os.ErrNotExist) {
		return underlayspec.File{}, nil
	}
	if err != nil {
		return underlayspec.File{}, fmt.Errorf("read underlay of the lab: %w", err)
	}
	return parseUnderlay(l.underlay(), raw, known)
}

func parseUnderlay(path string, raw []byte, known func(string) bool) (underlayspec.File, error) {
	f, list := underlayspec.Parse(path, raw, known)
	if list.HasErrors() {
		return f, &InvalidError{File: path, Raw: raw, List: list}
	}
	return f, nil
}

// makeUnderlay checks an underlay file against the topology, and copies it into the lab's
// directory.
func (l Layout) makeUnderlay(path, topologyPath string) error {
	if path == "" {
		return nil
	}
	raw, err := checkout.ReadNamed(path)
	if err != nil {
		return fmt.Errorf("read underlay: %w", err)
	}
	text, err := checkout.ReadNamed(topologyPath)
	if err != nil {
		return fmt.Errorf("read topology: %w", err)
	}
	t, err := parseTopology(text)
	if err != nil {
		return invalid(topologyPath, text, err)
	}
	if _, err := parseUnderlay(path, raw, t.has); err != nil {
		return err
	}
	_, err = writeFile(l.underlay(), raw, 0o644)
	return err
}

// sameUnderlay returns an error if the underlay file differs from the file of the existing lab.
// Only faults can change the network between its nodes.
func (l Layout) sameUnderlay(path string) error {
	if path == "" {
		return nil
	}
	want, err := checkout.ReadNamed(path)
	if err != nil {
		return fmt.Errorf("read underlay: %w", err)
	}
	have, err := os.ReadFile(l.underlay())
	if err != nil || !bytes.Equal(want, have) {
		return fmt.Errorf("the lab in %s has another underlay, and keeps it: hawser lab down first, or change it with hawser lab fault", l.Dir)
	}
	return nil
}

// has reports whether the topology has a cluster, or the node of a gateway as cluster/node.
func (t topology) has(target string) bool {
	name, node, two := strings.Cut(target, "/")
	c, known := t.cluster(name)
	if !known || !two {
		return known
	}
	for _, g := range gatewaysWithNodes(c) {
		if cmp.Or(g.Node, g.Name) == node {
			return true
		}
	}
	return false
}
