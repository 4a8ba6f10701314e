package main

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"

	"github.com/spf13/cobra"

	"hawser.dev/hawser/internal/checkout"
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

func newValidateCommand(a *app) *cobra.Command {
	var f validateFlags
	cmd := &cobra.Command{
		Use:   "validate [FILE|DIR|-]",
		Short: "Check a topology file",
		Long: `Check a topology file, and that the lock beside it can be read, and print every
finding with its place. It says nothing when there is none. Whether the lock is
current is hawser allocate --check.

Exit codes: 0 valid (there may be warnings), 1 errors, 2 the file could not be read.`,
		Example: `  hawser validate
  hawser validate -f infra/clusterset.yaml -o json`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(_ *cobra.Command, args []string) error { return a.validate(args, f) },
	}
	a.topologyFlag(cmd)
	outputFlag(cmd, false, &f.output, "text", "json", "yaml")
	cmd.Flags().BoolVarP(&f.verbose, "verbose", "v", false, "say what was checked")
	return cmd
}

func (a *app) validate(args []string, f validateFlags) error {
	t, err := a.readTopology(args)
	if err != nil {
		return err
	}
	set, src, list := load.Topology(t.file, t.raw)
	if !list.HasErrors() {
		list = append(list, reconciler.WithPositions(signersBeside(t, set), src)...)
		list.Sort()
	}
	if _, wrong := lockfile.Read(t.lockFile, t.lock); wrong.HasErrors() {
		list = append(list, wrong...)
	}
	if f.output != "text" {
		if err := a.encode(f.output, validateResult{File: t.file, Valid: !list.HasErrors(), Findings: noFindings(list)}); err != nil {
			return err
		}
		if list.HasErrors() {
			return answer{}
		}
		return nil
	}
	a.printFindings(list, t.files())
	if list.HasErrors() {
		return answer{}
	}
	if f.verbose {
		_, err = fmt.Fprintf(a.err, "%s: clusterset %s is valid: %s, %s, %s\n", t.file, set.Metadata.Name,
			humanize.Plural(len(set.Spec.Clusters), "cluster"), humanize.Plural(len(set.Spec.Exports), "export"), humanize.Plural(len(list), "warning"))
	}
	return err
}

// signersBeside checks the allowed_signers file that a topology names, and whether it has
// the owners of the topology.
func signersBeside(t topology, set *schema.ClusterSet) diag.List {
	if set.Spec.Trust.Commits == "" || t.lockFile == "" { // from stdin it stands beside nothing
		return nil
	}
	file := filepath.Join(filepath.Dir(t.file), set.Spec.Trust.Commits)
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
