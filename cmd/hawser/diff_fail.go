package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"hawser.dev/hawser/render/plan"
)

// What `hawser diff --fail-on` takes.
const (
	failAny        = "any"
	failDisruptive = "disruptive"
	failReach      = "reach"
)

func failOns() []string { return []string{failAny, failDisruptive, failReach} }

func failOnFlag(cmd *cobra.Command, into *[]string) {
	cmd.Flags().StringSliceVar(into, "fail-on", []string{failAny},
		"changes that end with exit code 1: "+strings.Join(failOns(), ", ")+"; may be repeated")
	_ = cmd.RegisterFlagCompletionFunc("fail-on", cobra.FixedCompletions(failOns(),
		cobra.ShellCompDirectiveNoFileComp)) // the flag exists
}

func checkFailOn(have []string) error {
	for _, v := range have {
		if !slices.Contains(failOns(), v) {
			return fmt.Errorf("--fail-on %q: it is %s", v, strings.Join(failOns(), ", "))
		}
	}
	return nil
}

// fails reports whether a plan has a change that counts.
func fails(p *plan.Plan, on []string) bool {
	return slices.Contains(on, failAny) && !p.Empty() ||
		slices.Contains(on, failDisruptive) && p.Summary.Disruptive > 0 ||
		slices.Contains(on, failReach) && len(p.Reach.Gained) > 0
}
