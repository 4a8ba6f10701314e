package edit

import (
	"bytes"
	"fmt"

	"github.com/spf13/cobra"

	"hawser.dev/hawser/internal/checkout"
	"hawser.dev/hawser/internal/cli"
	"hawser.dev/hawser/internal/cli/topofile"
	"hawser.dev/hawser/schema/load"
)

func NewFmtCommand(env *cli.Env) *cobra.Command {
	var check bool
	cmd := &cobra.Command{
		Use:   "fmt [FILE|DIR|-]",
		Short: "Format a topology file",
		Long: `Format a topology file in place: keys in the order of the reference, two spaces a
level, items right below their key, one empty line at most. Comments stay with the
key or item below them. Lines such as {name: a} keep their form. The command checks
that the content does not change before it writes. - formats stdin to stdout.

Exit codes: 0 formatted; 1 findings, or with --check: the file is not formatted;
2 error.`,
		Example: `  hawser fmt
  hawser fmt --check infra/`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(_ *cobra.Command, args []string) error { return runFmt(env, args, check) },
	}
	topofile.AddFlag(env, cmd)
	cmd.Flags().BoolVar(&check, "check", false, "change nothing, print the name of the file if it is not formatted")
	return cmd
}

func runFmt(env *cli.Env, args []string, check bool) error {
	t, err := topofile.Read(env, args)
	if err != nil {
		return err
	}
	stdin := t.LockPath == ""
	out, list := load.Format(t.Path, t.Raw)
	if lines := bytes.Count(t.Raw, []byte("\n")); lines > 0 && lines == bytes.Count(t.Raw, []byte("\r\n")) {
		out = bytes.ReplaceAll(out, []byte("\n"), []byte("\r\n")) // keep the line ends of the checkout
	}
	same := bytes.Equal(out, t.Raw)
	switch {
	case list.HasErrors():
		return cli.FindingsError{List: list, Files: t.Texts()}
	case check && !same:
		if _, err := fmt.Fprintln(env.Out, t.Path); err != nil {
			return err
		}
		return cli.ExitError{}
	case check:
		return nil
	case stdin:
		_, err := env.Out.Write(out)
		return err
	case same:
		return nil
	}
	if err := checkout.Replace(t.Path, out, 0o644); err != nil {
		return err
	}
	_, err = fmt.Fprintln(env.Err, "formatted", t.Path)
	return err
}
