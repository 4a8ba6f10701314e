package keys

import (
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"

	"hawser.dev/hawser/internal/atomicfile"
	"hawser.dev/hawser/internal/cli"
	"hawser.dev/hawser/internal/cli/keyfile"
	"hawser.dev/hawser/render/keys"
)

type keysRootFlags struct{ from, before int }

func newKeysRootCommand(env *cli.Env) *cobra.Command {
	var f keysRootFlags
	cmd := &cobra.Command{
		Use:               "root FILE",
		ValidArgsFunction: cli.FirstArgument(nil),
		Short:             "Create or replace the root key",
		Long: `Create the root key, from which all tunnel keys are derived.

To replace it without downtime, do it during a rotation of keys (hawser keys epochs):

  hawser keys root FILE --from 2          adds a root key for epoch 2 and later
  keys: {epochs: [1, 2]}, then [2]        the two commits of the rotation
  hawser keys root FILE --drop-before 2   removes the root key of epoch 1

Keys of earlier epochs do not change. The command replaces FILE atomically. With - it reads
the old content from stdin and writes the new one to stdout, for files encrypted with age:

  age -d -i IDENTITY root.age | hawser keys root --from 2 - | age -r RECIPIENT >new.age`,
		Example: `  hawser keys root root.key
  hawser keys root root.key --from 2`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			path := args[0]
			add, drop := cmd.Flags().Changed("from"), cmd.Flags().Changed("drop-before")
			switch {
			case add && drop:
				return errors.New("--from and --drop-before are two steps, with a rotation of keys between them")
			case add:
				root, err := getRoot(env, path)
				if err != nil {
					return err
				}
				if root, err = root.Add(f.from); err != nil {
					return fmt.Errorf("add root key: %w", err)
				}
				return putRoot(env, path, root, fmt.Sprintf("added a root key for epoch %d and later: keep a copy offline", f.from))
			case drop:
				root, err := getRoot(env, path)
				if err != nil {
					return err
				}
				if root, err = root.Drop(f.before); err != nil {
					return fmt.Errorf("drop root key: %w", err)
				}
				return putRoot(env, path, root, fmt.Sprintf("removed root keys of epochs before %d: destroy their copies", root.Epochs()[0]))
			}
			if path == "-" {
				root, err := keys.NewRoot()
				if err != nil {
					return err
				}
				return putRoot(env, path, root, "")
			}
			if err := keyfile.WriteRoot(path); err != nil {
				return err
			}
			_, err := fmt.Fprintf(env.Out, "wrote %s: keep it with the reconciler only, and keep a copy offline\n", path)
			return err
		},
	}
	cmd.Flags().IntVar(&f.from, "from", 0, "add a root key that serves this epoch and later ones")
	cmd.Flags().IntVar(&f.before, "drop-before", 0, "remove root keys that serve only epochs before this one")
	return cmd
}

// getRoot reads an unencrypted root key; "-" is stdin.
func getRoot(env *cli.Env, path string) (*keys.Root, error) {
	var raw []byte
	var err error
	if path == "-" {
		raw, err = io.ReadAll(env.In)
	} else {
		raw, err = os.ReadFile(path)
	}
	if err != nil {
		return nil, fmt.Errorf("read root key: %w", err)
	}
	root, err := keys.ReadRoot(raw)
	if errors.Is(err, keys.ErrEncrypted) {
		return nil, fmt.Errorf("read root key %s: encrypted with age: decrypt it in a pipe (see hawser keys root --help)", path)
	}
	if err != nil {
		return nil, fmt.Errorf("read root key %s: %w", path, err)
	}
	return root, nil
}

// putRoot replaces the file with a root key and prints the change. With "-" it only writes the key,
// to stdout.
func putRoot(env *cli.Env, path string, root *keys.Root, what string) error {
	if path != "-" {
		if err := atomicfile.Rewrite(path, root.Encode()); err != nil {
			return err
		}
		_, err := fmt.Fprintf(env.Out, "wrote %s: %s\n", path, what)
		return err
	}
	if cli.IsTerminal(env.Out) {
		return errors.New("the root key is not shown on a terminal: send stdout to a program or a file")
	}
	_, err := env.Out.Write(root.Encode())
	return err
}
