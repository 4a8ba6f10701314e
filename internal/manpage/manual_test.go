package manpage

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/cobra"
)

func example() *cobra.Command {
	run := func(*cobra.Command, []string) {}
	root := &cobra.Command{Use: "tool", Short: "Does it", Version: "v1"}
	sub := &cobra.Command{Use: "make <name>", Short: "Make one", Run: run, Example: "  tool make a --dry-run",
		Long: "Writes clusters/<name>/ into a folder:\n\n  .hawser-inventory\n'quoted' and C:\\path"}
	sub.Flags().Bool("dry-run", false, "change nothing")
	root.AddCommand(sub, &cobra.Command{Use: "secret", Hidden: true, Run: run})
	root.PersistentFlags().String("color", "auto", "colours")
	return root
}

// TestPages: text stays as it is laid out, nothing in it is taken for a request of roff, and
// there is a page for what help lists.
func TestPages(t *testing.T) {
	t.Parallel()
	pages := Generate(example())
	want := `.TH "TOOL-MAKE" "1" "" "tool v1" "tool"
.SH NAME
tool\-make \- Make one
.SH SYNOPSIS
.nf
tool make <name> [flags]
.fi
.SH DESCRIPTION
.nf
Writes clusters/<name>/ into a folder:

  .hawser\-inventory
\&'quoted' and C:\epath
.fi
.SH OPTIONS
.nf
      \-\-dry\-run   change nothing
  \-h, \-\-help      help for make
.fi
.SH OPTIONS OF ALL COMMANDS
.nf
      \-\-color string   colours (default "auto")
.fi
.SH EXAMPLES
.nf
  tool make a \-\-dry\-run
.fi
.SH SEE ALSO
tool(1)
`
	if diff := cmp.Diff(want, string(pages["tool-make.1"])); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	names := slices.Sorted(maps.Keys(pages))
	if !slices.Contains(names, "tool.1") || slices.ContainsFunc(names, func(n string) bool { return strings.Contains(n, "secret") }) {
		t.Errorf("pages %v", names)
	}
}
