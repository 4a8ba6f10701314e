package edit

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"

	"github.com/spf13/cobra"

	"hawser.dev/hawser/internal/checkout"
	"hawser.dev/hawser/internal/cli"
	"hawser.dev/hawser/internal/cli/topofile"
	"hawser.dev/hawser/internal/diag"
	"hawser.dev/hawser/internal/humanize"
	"hawser.dev/hawser/reconciler"
	"hawser.dev/hawser/schema"
	"hawser.dev/hawser/schema/load"
	"hawser.dev/hawser/schema/lockfile"
)

type validateFlags struct {
	output  string
	verbose bool
}

// validateResult is the JSON form of `hawser validate`.
type validateResult struct {
	File     string    `json:"file"`
	Valid    bool      `json:"valid"`
	Findings diag.List `json:"findings"`
}

func NewValidateCommand(env *cli.Env) *cobra.Command {
	var f validateFlags
	cmd := &cobra.Command{
		Use:   "validate [FILE|DIR|-]",
		Short: "Check a topology file",
		Long: `Check a topology file and the syntax of its lock, and print all findings with their line.
Without findings it prints nothing. hawser allocate --check tests whether the lock is
current.

Exit codes: 0 valid, maybe with warnings; 1 errors; 2 the file cannot be read.`,
		Example: `  hawser validate
  hawser validate -f infra/clusterset.yaml -o json`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(_ *cobra.Command, args []string) error { return runValidate(env, args, f) },
	}
	topofile.AddFlag(env, cmd)
	cli.OutputFlag(cmd, false, &f.output, "text", "json", "yaml")
	cmd.Flags().BoolVarP(&f.verbose, "verbose", "v", false, "print the number of clusters, exports and warnings")
	return cmd
}

func runValidate(env *cli.Env, args []string, f validateFlags) error {
	t, err := topofile.Read(env, args)
	if err != nil {
		return err
	}
	set, src, list := load.Topology(t.Path, t.Raw)
	if !list.HasErrors() {
		list = append(list, reconciler.WithPositions(checkAllowedSigners(t, set), src)...)
		list.Sort()
	}
	if _, wrong := lockfile.Read(t.LockPath, t.Lock); wrong.HasErrors() {
		list = append(list, wrong...)
	}
	if f.output != "text" {
		if err := env.Encode(f.output, validateResult{File: t.Path, Valid: !list.HasErrors(), Findings: cli.OrEmpty(list)}); err != nil {
			return err
		}
		if list.HasErrors() {
			return cli.ExitError{}
		}
		return nil
	}
	env.Findings(list, t.Texts())
	if list.HasErrors() {
		return cli.ExitError{}
	}
	if f.verbose {
		_, err = fmt.Fprintf(env.Err, "%s: clusterset %s is valid: %s, %s, %s\n", t.Path, set.Metadata.Name,
			humanize.Plural(len(set.Spec.Clusters), "cluster"), humanize.Plural(len(set.Spec.Exports), "export"), humanize.Plural(len(list), "warning"))
	}
	return err
}

// checkAllowedSigners checks the allowed_signers file of a topology, and whether it has the owners
// of the topology.
func checkAllowedSigners(t topofile.File, set *schema.ClusterSet) diag.List {
	if set.Spec.Trust.Commits == "" || t.LockPath == "" { // stdin has no directory
		return nil
	}
	file := filepath.Join(filepath.Dir(t.Path), set.Spec.Trust.Commits)
	raw, err := checkout.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return diag.List{{Severity: diag.Warning, Code: "no-signers", Path: "trust.commits",
			Summary: "there is no file " + file, Hint: "commit one with a line for each signer: PRINCIPALS KEYTYPE KEY"}}
	}
	var list diag.List
	if err == nil {
		list, err = reconciler.CheckOwners(set, file, raw)
	}
	if err != nil {
		list = diag.List{{Severity: diag.Error, Code: "bad-signers", Path: "trust.commits",
			Summary: fmt.Sprintf("%s: %v", file, err), Hint: "each line is PRINCIPALS [namespaces=\"git\"] KEYTYPE KEY, or of an OpenPGP key in armor"}}
	}
	return list
}
