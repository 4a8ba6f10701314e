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
		Long: `Make the root key, from which all tunnel keys are derived. It is replaced while keys
are rotated (hawser keys epochs), without a loss:

  hawser keys root FILE --from 2          adds another root key, for epoch 2 and later
  keys: {epochs: [1, 2]}, then [2]        the two commits of a rotation
  hawser keys root FILE --drop-before 2   removes the root key of epoch 1

Keys of earlier epochs stay what they are. FILE is replaced in one step; - reads from
stdin what there is and writes to stdout, for files that are encrypted with age:

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
				return putRoot(env, path, root, fmt.Sprintf("another root key serves epoch %d and later ones, nothing else changes: keep a copy offline", f.from))
			case drop:
				root, err := getRoot(env, path)
				if err != nil {
					return err
				}
				if root, err = root.Drop(f.before); err != nil {
					return fmt.Errorf("drop root key: %w", err)
				}
				return putRoot(env, path, root, fmt.Sprintf("no root key serves epochs before %d any more: destroy the copies of what was dropped", root.Epochs()[0]))
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

// getRoot reads a root key that is not encrypted; "-" is stdin.
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
		return nil, fmt.Errorf("read root key %s: it is encrypted with age: hawser keys root --help says how to change it", path)
	}
	if err != nil {
		return nil, fmt.Errorf("read root key %s: %w", path, err)
	}
	return root, nil
}

// putRoot writes a root key in place of what is there, and says what changed; "-" is
// stdout, and gets the key alone.
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
