// Package planview prints the plan between two trees in the output formats of hawser diff.
package planview

import (
	"fmt"
	"slices"

	"hawser.dev/hawser/internal/cli"
	"hawser.dev/hawser/internal/diag"
	"hawser.dev/hawser/reconciler"
	"hawser.dev/hawser/render"
	"hawser.dev/hawser/render/plan"
	"hawser.dev/hawser/schema/document"
)

// Input is two trees to compare.
type Input struct {
	Want, Have render.Tree
	Source     *document.Source
	Output     string
	FailOn     []string
	Baseline   *plan.Baseline      // nil = no line about the baseline
	Refused    *reconciler.Failure // why a reconciler would refuse the tree; nil = it would publish it
	Warnings   diag.List           // of the topology, for formats that report them
}

// Print prints the plan from have to want. It returns an ExitError if the plan has changes that
// FailOn selects.
func Print(env *cli.Env, in Input) error {
	p, err := plan.Compute(in.Want, in.Have)
	if err != nil {
		return err
	}
	p.Locate(func(path string) string {
		pos := in.Source.Pos(path)
		if !pos.IsValid() {
			return ""
		}
		return fmt.Sprintf("%s:%d", pos.File, pos.Line)
	})
	p.Baseline = in.Baseline
	if in.Refused != nil {
		p.Rejected = in.Refused.Message
	}
	switch in.Output {
	case "text":
		err = p.Print(env.Out, env.Colored(env.Out))
	case "manifests":
		err = printManifests(env, in.Want, in.Have)
	case Markdown, GitHub:
		err = PrintReport(env, in.Output, plan.Report{Plan: p, Want: in.Want, Have: in.Have, Findings: in.Warnings, File: in.Source.File})
	default:
		err = env.Encode(in.Output, p)
	}
	if err == nil && in.Refused != nil {
		if len(in.Refused.Diagnostics) == 0 {
			return cli.ExitError{Msg: "error: " + in.Refused.Error()}
		}
		env.Findings(in.Refused.Diagnostics, in.Refused.Files())
		return cli.ExitError{Msg: "error: a reconciler would refuse this"}
	}
	counts := slices.Contains(in.FailOn, FailAny) && !p.Empty() ||
		slices.Contains(in.FailOn, failDisruptive) && p.Summary.Disruptive > 0 ||
		slices.Contains(in.FailOn, failAccess) && len(p.Access.Added) > 0
	if err != nil || !counts {
		return err
	}
	return cli.ExitError{}
}

// printManifests prints the changed files with their new content. It omits files that only repeat
// other files in readable form.
func printManifests(env *cli.Env, want, have render.Tree) error {
	for _, name := range want.Paths() {
		before, exists := have[name]
		if exists && string(before) == string(want[name]) ||
			slices.Contains([]string{render.FabricText, render.TopologyText, render.MapPicture, render.MapText}, name) {
			continue
		}
		if _, err := fmt.Fprintf(env.Out, "---\n# Source: %s\n%s", name, want[name]); err != nil {
			return err
		}
	}
	for _, name := range have.Paths() {
		if _, found := want[name]; !found {
			if _, err := fmt.Fprintf(env.Out, "---\n# Removed: %s\n", name); err != nil {
				return err
			}
		}
	}
	return nil
}

// Values of hawser diff --fail-on.
const (
	FailAny        = "any"
	failDisruptive = "disruptive"
	failAccess     = "access"
	failNone       = "none" // only errors and refusals
)

// FailOns returns the values of hawser diff --fail-on.
func FailOns() []string { return []string{FailAny, failDisruptive, failAccess, failNone} }
