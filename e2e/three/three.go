// Package three is the clusterset that scenarios, chaos and benchmarks of several
// gateways have in common: g1 and g2 with three gateways each, g3 with one, all
// with the same ranges. Scripts use its files where they are.
package three

import (
	"embed"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

//go:embed clusterset.yaml workloads
var files embed.FS

// Clusterset is the topology with mapped egress: each pod has a global address.
func Clusterset() string { return read("clusterset.yaml") }

// Shared is the topology with shared egress: the pods of a cluster share a few
// global addresses.
func Shared() string {
	return strings.Replace(Clusterset(), "\nspec:\n", "\nspec:\n  globalnet: {egress: shared}\n", 1)
}

// Fast is a topology that notices a dead gateway sooner.
func Fast(topology string) string {
	return strings.Replace(topology, "\nspec:\n", "\nspec:\n  health: {interval: 50ms, misses: 3}\n", 1)
}

// Write puts a topology (clusterset.yaml) and the workloads (workloads/) into a
// folder, for hawser lab up.
func Write(dir, topology string) error {
	if err := os.CopyFS(dir, files); err != nil {
		return fmt.Errorf("write the clusterset: %w", err)
	}
	if err := os.WriteFile(filepath.Join(dir, "clusterset.yaml"), []byte(topology), 0o644); err != nil {
		return fmt.Errorf("write the clusterset: %w", err)
	}
	return nil
}

func read(name string) string {
	raw, err := fs.ReadFile(files, name)
	if err != nil {
		panic(err) // it is part of the program
	}
	return string(raw)
}
