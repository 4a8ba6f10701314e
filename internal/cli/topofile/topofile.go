// Package topofile reads the topology that a command line selects with its lock, and compiles or
// builds it.
package topofile

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"hawser.dev/hawser/internal/checkout"
	"hawser.dev/hawser/internal/cli"
	"hawser.dev/hawser/reconciler"
	"hawser.dev/hawser/schema"
	"hawser.dev/hawser/schema/document"
	"hawser.dev/hawser/schema/load"
)

// File is a topology file and its lock on disk.
type File struct {
	Path, LockPath string
	Raw, Lock      []byte // Lock is nil if the file does not exist
}

// Texts returns the file contents by path, for printing findings.
func (t File) Texts() map[string][]byte {
	return map[string][]byte{t.Path: t.Raw, t.LockPath: t.Lock}
}

// AddFileFlag adds -f to a command; if persistent, also to its subcommands. In every command that
// reads a topology, -f names the topology. The initial value is the default.
func AddFileFlag(cmd *cobra.Command, persistent bool, value *string, usage string) {
	flags := cmd.Flags()
	if persistent {
		flags = cmd.PersistentFlags()
	}
	flags.StringVarP(value, "file", "f", *value, usage)
	cli.CompleteFlag(cmd, "file", CompleteFile)
}

// AddFlag adds -f to a command that also accepts the topology as its argument.
func AddFlag(env *cli.Env, cmd *cobra.Command) {
	AddFileFlag(cmd, false, &env.File, "topology: a file, a directory, or - for stdin; the same as the argument")
}

// Read reads the topology that -f or the argument names: a file, a directory, or - for stdin.
// Without a name it reads the topology in the current directory.
func Read(env *cli.Env, args []string) (File, error) {
	t := File{Path: reconciler.TopologyFile}
	switch {
	case len(args) > 0 && env.File != "":
		return t, fmt.Errorf("%s and -f %s: name one topology", args[0], env.File)
	case len(args) > 0:
		t.Path = args[0]
	case env.File != "":
		t.Path = env.File
	}
	if t.Path == "-" {
		raw, err := io.ReadAll(env.In)
		if err != nil {
			return t, fmt.Errorf("read stdin: %w", err)
		}
		return File{Path: "<stdin>", Raw: raw}, nil
	}
	return Open(t.Path)
}

// Open reads a topology file, or the topology in a directory, and the lock next to it.
func Open(file string) (File, error) {
	t := File{Path: file}
	read := checkout.ReadNamed
	if info, err := os.Stat(t.Path); err == nil && info.IsDir() {
		t.Path, read = filepath.Join(t.Path, reconciler.TopologyFile), checkout.ReadFile
	}
	raw, err := read(t.Path)
	if errors.Is(err, fs.ErrNotExist) {
		return t, fmt.Errorf("%s: no such file (hawser init writes one to start from)", t.Path)
	}
	if err != nil {
		return t, fmt.Errorf("read topology: %w", err)
	}
	t.Raw, t.LockPath = raw, filepath.Join(filepath.Dir(t.Path), reconciler.LockFile)
	lock, err := checkout.ReadFile(t.LockPath)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return t, fmt.Errorf("read lock: %w", err)
	}
	t.Lock = checkout.Text(lock) // Hawser writes LF
	return t, nil
}

// Load checks the topology and prints warnings. Errors in the topology return a cli.FindingsError.
func Load(env *cli.Env, t File) (*schema.ClusterSet, *document.Source, error) {
	set, src, list := load.Topology(t.Path, t.Raw)
	if list.HasErrors() {
		return nil, nil, cli.FindingsError{List: list, Files: t.Texts()}
	}
	env.Findings(list, t.Texts())
	return set, src, nil
}
