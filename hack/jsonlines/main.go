// Command objects reads Kubernetes manifests and prints each object as a line of JSON, sorted:
// two streams with the same objects give the same lines.
package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"

	"k8s.io/apimachinery/pkg/util/yaml"
	syaml "sigs.k8s.io/yaml"
)

func main() {
	if err := run(os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "objects:", err)
		os.Exit(1)
	}
}

func run(in io.Reader, out io.Writer) error {
	var lines []string
	documents := yaml.NewYAMLReader(bufio.NewReader(in))
	for {
		raw, err := documents.Read()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return fmt.Errorf("read manifests: %w", err)
		}
		object, err := syaml.YAMLToJSON(raw)
		if err != nil {
			return fmt.Errorf("read manifest %d: %w", len(lines)+1, err)
		}
		if string(object) != "null" {
			lines = append(lines, string(object))
		}
	}
	slices.Sort(lines)
	for _, line := range lines {
		if _, err := fmt.Fprintln(out, line); err != nil {
			return err
		}
	}
	return nil
}
