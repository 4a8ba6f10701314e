package manpage

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/cobra"
)

func example() *cobra.Command {
	run := func(*cobra.Command, []string) {}
	root := &cobra.Command{Use: "tool", Short: "Does it", Version: "v1"}
	sub := &cobra.Command{Use: "make <name>", Short: "Make one", Run: run, Example: "  tool make a --dry-run",
		Long: "Writes clusters/<name>/ for hw-* and *, and snake_case_names into a directory:\n\n  .hawser-inventory\n\n'quoted' and C:\\path"}
	sub.Flags().Bool("dry-run", false, "change nothing")
	root.AddCommand(sub, &cobra.Command{Use: "secret", Hidden: true, Run: run})
	root.PersistentFlags().String("color", "auto", "colours")
	return root
}

// TestPages checks that Markdown and roff lose no character of a description. A release has the
// same pages every time. Hidden commands have no pages.
func TestPages(t *testing.T) {
	t.Setenv("SOURCE_DATE_EPOCH", "1795000000")
	pages := func() map[string]string {
		dir := t.TempDir()
		root := example()
		root.AddCommand(Command())
		root.SetArgs([]string{"man", dir})
		if err := root.Execute(); err != nil {
			t.Fatal(err)
		}
		out := map[string]string{}
		files, err := filepath.Glob(dir + "/*")
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range files {
			raw, err := os.ReadFile(f)
			if err != nil {
				t.Fatal(err)
			}
			out[filepath.Base(f)] = string(raw)
		}
		return out
	}
	got := pages()
	if diff := cmp.Diff(got, pages()); diff != "" {
		t.Errorf("a second run differs (-first +second):\n%s", diff)
	}
	if got["tool.1"] == "" || got["tool-man.1"] != "" || got["tool-secret.1"] != "" {
		t.Errorf("pages of hidden commands, or none of tool: %d pages", len(got))
	}
	want := `.nh
.TH "TOOL-MAKE" "1" "Nov 2026" "tool v1" "tool"

.SH NAME
tool-make - Make one


.SH SYNOPSIS
\fBtool make <name> [flags]\fP


.SH DESCRIPTION
Writes clusters/<name>/ for hw-* and *, and snake_case_names into a directory:

.EX
  .hawser-inventory
.EE

.PP
\&'quoted' and C:\\path
`
	if !strings.HasPrefix(got["tool-make.1"], want) {
		t.Errorf("(-want +got)\n%s", cmp.Diff(want, got["tool-make.1"]))
	}
}

// TestReference checks that the reference has each command with its texts and flags, and leaves out
// hidden commands.
func TestReference(t *testing.T) {
	t.Parallel()
	root := example()
	root.AddCommand(Command())
	want := `## tool make

Make one.

    tool make <name> [flags]

Writes clusters/\<name>/ for hw-\* and \*, and snake\_case\_names into a directory:

      .hawser-inventory

'quoted' and C:\\path

Examples:

    tool make a --dry-run

Flags:

        --dry-run   change nothing
`
	if diff := cmp.Diff(want, Reference(root)); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}
