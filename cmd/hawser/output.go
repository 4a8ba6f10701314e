package main

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"sigs.k8s.io/yaml"
)

// outputFlag adds -o to a command, or to it and all below it. The first of the
// formats is the default; one may have a description behind a tab.
func outputFlag(cmd *cobra.Command, below bool, into *string, formats ...string) {
	flags := cmd.Flags()
	if below {
		flags = cmd.PersistentFlags()
	}
	texts := make([]string, len(formats))
	for i, f := range formats {
		name, about, described := strings.Cut(f, "\t")
		if texts[i] = name; described {
			texts[i] += " (" + about + ")"
		}
	}
	last := len(texts) - 1
	flags.StringVarP(into, "output", "o", formats[0], strings.Join(texts[:last], ", ")+" or "+texts[last])
	_ = cmd.RegisterFlagCompletionFunc("output", cobra.FixedCompletions(formats, cobra.ShellCompDirectiveNoFileComp)) // the flag exists
}

// checkOutput refuses a value of -o that a command does not have.
func checkOutput(have string, allowed ...string) error {
	names := make([]string, len(allowed))
	for i := range allowed {
		names[i], _, _ = strings.Cut(allowed[i], "\t")
	}
	if slices.Contains(names, have) {
		return nil
	}
	return fmt.Errorf("-o %q: it is %s", have, strings.Join(names, ", "))
}

// encode writes v as -o json or -o yaml asks.
func (a *app) encode(format string, v any) error {
	var raw []byte
	var err error
	if format == "yaml" {
		raw, err = yaml.Marshal(v)
	} else {
		raw, err = json.MarshalIndent(v, "", "  ")
		raw = append(raw, '\n')
	}
	if err != nil {
		return fmt.Errorf("write %s: %w", format, err)
	}
	_, err = a.out.Write(raw)
	return err
}

// counted gives a number of things, as in "1 cluster" and "2 clusters".
func counted(n int, thing string) string {
	if n == 1 {
		return "1 " + thing
	}
	return fmt.Sprintf("%d %ss", n, thing)
}
