package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"hawser.dev/hawser/internal/diag"
	"hawser.dev/hawser/schema"
)

type validateFlags struct {
	output  string
	verbose bool
}

// verdict is the JSON form of `hawser validate`.
type verdict struct {
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
		Args: cobra.MaximumNArgs(1),
		RunE: func(_ *cobra.Command, args []string) error { return a.validate(args, f) },
	}
	a.topologyFlag(cmd)
	outputFlag(cmd, false, &f.output, "text", "json", "yaml")
	cmd.Flags().BoolVarP(&f.verbose, "verbose", "v", false, "say what was checked")
	return cmd
}

func (a *app) validate(args []string, f validateFlags) error {
	if err := checkOutput(f.output, "text", "json", "yaml"); err != nil {
		return err
	}
	t, err := a.readTopology(args)
	if err != nil {
		return err
	}
	set, _, list := schema.Load(t.file, t.raw)
	if _, wrong := schema.ReadLock(t.lockFile, t.lock); wrong.HasErrors() {
		list = append(list, wrong...)
	}
	if f.output != "text" {
		if err := a.encode(f.output, verdict{File: t.file, Valid: !list.HasErrors(), Findings: noFindings(list)}); err != nil {
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
			counted(len(set.Spec.Clusters), "cluster"), counted(len(set.Spec.Exports), "export"), counted(len(list), "warning"))
	}
	return err
}
