package main

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"hawser.dev/hawser/internal/checkout"
	"hawser.dev/hawser/internal/diag"
	"hawser.dev/hawser/reconciler"
	"hawser.dev/hawser/schema"
	"hawser.dev/hawser/schema/document"
	"hawser.dev/hawser/schema/load"
)

// topology is a topology file and its lock, as they are on disk.
type topology struct {
	file, lockFile string
	raw, lock      []byte // lock is nil when there is no such file
}

// files gives the texts for printing findings.
func (t topology) files() map[string][]byte {
	return map[string][]byte{t.file: t.raw, t.lockFile: t.lock}
}

// fileFlag adds -f to a command, or to it and all below it. In every command that reads
// a topology it names that. What into holds is the default.
func fileFlag(cmd *cobra.Command, below bool, into *string, about string) {
	flags := cmd.Flags()
	if below {
		flags = cmd.PersistentFlags()
	}
	flags.StringVarP(into, "file", "f", *into, about)
}

// topologyFlag adds -f to a command that takes the topology as its argument, too.
func (a *app) topologyFlag(cmd *cobra.Command) {
	fileFlag(cmd, false, &a.file, "topology: a file, a folder, or - for stdin; the same as the argument")
}

func isError(d diag.Diagnostic) bool { return d.Severity == diag.Error }

// readTopology reads the topology that -f or the arguments name: a file, a folder, -
// for stdin, or nothing for the one in this folder.
func (a *app) readTopology(args []string) (topology, error) {
	t := topology{file: reconciler.TopologyFile}
	switch {
	case len(args) > 0 && a.file != "":
		return t, fmt.Errorf("%s and -f %s: name one topology", args[0], a.file)
	case len(args) > 0:
		t.file = args[0]
	case a.file != "":
		t.file = a.file
	}
	if t.file == "-" {
		raw, err := io.ReadAll(a.in)
		if err != nil {
			return t, fmt.Errorf("read stdin: %w", err)
		}
		return topology{file: "<stdin>", raw: raw}, nil
	}
	return openTopology(t.file)
}

// openTopology reads a topology file, or that of a folder, and the lock beside it.
func openTopology(file string) (topology, error) {
	t := topology{file: file}
	read := checkout.ReadNamed
	if info, err := os.Stat(t.file); err == nil && info.IsDir() {
		t.file, read = filepath.Join(t.file, reconciler.TopologyFile), checkout.ReadFile
	}
	raw, err := read(t.file)
	if errors.Is(err, fs.ErrNotExist) {
		return t, fmt.Errorf("%s: no such file (hawser init writes one to start from)", t.file)
	}
	if err != nil {
		return t, fmt.Errorf("read topology: %w", err)
	}
	t.raw, t.lockFile = raw, filepath.Join(filepath.Dir(t.file), reconciler.LockFile)
	lock, err := checkout.ReadFile(t.lockFile)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return t, fmt.Errorf("read lock: %w", err)
	}
	t.lock = checkout.Text(lock) // Hawser writes LF
	return t, nil
}

// load checks the topology; with errors it gives found. Warnings are printed.
func (a *app) load(t topology) (*schema.ClusterSet, *document.Source, error) {
	set, src, list := load.Topology(t.file, t.raw)
	if list.HasErrors() {
		return nil, nil, found{list: list, sources: t.files()}
	}
	a.printFindings(list, t.files())
	return set, src, nil
}

// noFindings makes an empty list print as [] in JSON.
func noFindings(list diag.List) diag.List {
	if list == nil {
		return diag.List{}
	}
	return list
}

// clusters gives the clusters that flags select, and all of the topology.
func (t topology) clusters(f clusterFlags) (names, all []string, err error) {
	set, _, list := load.Topology(t.file, t.raw)
	if list.HasErrors() {
		return nil, nil, found{list: list, sources: t.files()}
	}
	all = set.ClusterNames()
	names, err = f.names(all)
	return names, all, err
}
