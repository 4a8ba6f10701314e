package main

import (
	"bytes"
	"fmt"

	"github.com/spf13/cobra"

	"hawser.dev/hawser/internal/checkout"
	"hawser.dev/hawser/schema/load"
)

func newFmtCommand(a *app) *cobra.Command {
	var check bool
	cmd := &cobra.Command{
		Use:   "fmt [FILE|DIR|-]",
		Short: "Format a topology file",
		Long: `Format a topology file in place: keys in the order of the reference, two spaces a
level, items right below their key, one empty line at most. Comments stay with what
they stand above, and what is written on one line stays as it is. What the file says
does not change, and that is checked before it is written. - formats stdin to stdout.

Exit codes: 0 done, or nothing to do, 1 findings, or with --check a file that is not
formatted, which is printed, 2 error.`,
		Example: `  hawser fmt
  hawser fmt --check infra/`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(_ *cobra.Command, args []string) error { return a.format(args, check) },
	}
	a.topologyFlag(cmd)
	cmd.Flags().BoolVar(&check, "check", false, "change nothing, print the name of the file if it is not formatted")
	return cmd
}

func (a *app) format(args []string, check bool) error {
	t, err := a.readTopology(args)
	if err != nil {
		return err
	}
	stdin := t.lockFile == ""
	out, list := load.Format(t.file, t.raw)
	if lines := bytes.Count(t.raw, []byte("\n")); lines > 0 && lines == bytes.Count(t.raw, []byte("\r\n")) {
		out = bytes.ReplaceAll(out, []byte("\n"), []byte("\r\n")) // as git checked the file out
	}
	same := bytes.Equal(out, t.raw)
	switch {
	case list.HasErrors():
		return found{list: list, sources: t.files()}
	case check && !same:
		if _, err := fmt.Fprintln(a.out, t.file); err != nil {
			return err
		}
		return answer{}
	case check:
		return nil
	case stdin:
		_, err := a.out.Write(out)
		return err
	case same:
		return nil
	}
	if err := checkout.Replace(t.file, out, 0o644); err != nil {
		return err
	}
	_, err = fmt.Fprintln(a.err, "formatted", t.file)
	return err
}
