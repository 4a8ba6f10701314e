// Package offline has the commands that only read the topology: render, diff, explain, graph and
// firewall.
package offline

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"hawser.dev/hawser/internal/cli"
	"hawser.dev/hawser/internal/cli/topofile"
)

func NewRenderCommand(env *cli.Env) *cobra.Command {
	var f topofile.BuildFlags
	var out string
	cmd := &cobra.Command{
		Use:   "render [FILE|DIR] --out DIR",
		Short: "Write the manifests of a topology",
		Long: `Write the tree that the reconciler would publish for this topology: base/,
clusters/<name>/, flux/ and argocd/. Patches come from the directory patches next to the
topology. The command removes files of an earlier rendering that left the tree, and keeps
all other files of the directory. Without a root key, the keys of an earlier rendering stay.

Exit codes: 0 written; 1 errors in the topology; 2 error.`,
		Example: `  hawser render --out rendered/ --root-key root.key`,
		Args:    cobra.MaximumNArgs(1),
		RunE:    func(_ *cobra.Command, args []string) error { return runRender(env, args, out, f) },
	}
	topofile.AddFlag(env, cmd)
	f.Add(cmd)
	cmd.Flags().StringVar(&out, "out", "", "directory to write to")
	return cmd
}

func runRender(env *cli.Env, args []string, out string, f topofile.BuildFlags) error {
	if out == "" {
		return errors.New("say where to write to: hawser render --out DIR")
	}
	t, err := topofile.Read(env, args)
	if err != nil {
		return err
	}
	dir, err := topofile.ReadRendered(out)
	if err != nil {
		return err
	}
	defer env.Progress("rendering " + t.Path)()
	built, err := topofile.Build(env, t, dir.Tree, f)
	if err != nil {
		return err
	}
	changes, err := dir.Write(built.Tree)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(env.Err, "%s: %d files, %d written, %d removed; fabric %s\n",
		out, len(built.Tree), changes.Written, changes.Removed, built.Digest)
	return err
}
