package load

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/tools/txtar"
)

// formatSeeds returns all topologies of the repository.
func formatSeeds(tb testing.TB) [][]byte {
	tb.Helper()
	var out [][]byte
	for _, pattern := range []string{"../../*.example.yaml", "../../docs/*.yaml", "../../examples/*/clusterset.yaml"} {
		files, err := filepath.Glob(pattern)
		if err != nil {
			tb.Fatal(err)
		}
		for _, file := range files {
			raw, err := os.ReadFile(file)
			if err != nil {
				tb.Fatal(err)
			}
			out = append(out, raw)
		}
	}
	for _, file := range archives(tb) {
		archive, err := txtar.ParseFile(file)
		if err != nil {
			tb.Fatal(err)
		}
		for _, section := range archive.Files {
			if strings.HasSuffix(section.Name, ".yaml") {
				out = append(out, section.Data)
			}
		}
	}
	return out
}

// checkFormatted checks that Format changes only the format of a text. It reports whether Format
// accepted the text.
func checkFormatted(t *testing.T, raw []byte) bool {
	t.Helper()
	before, _, _ := Decode("x", raw)
	out, list := Format("x", raw)
	if list.HasErrors() {
		return false
	}
	after, _, wrong := Decode("x", out)
	if wrong.HasErrors() {
		t.Fatalf("the result has errors: %v\n%s", wrong, out)
	}
	if diff := cmp.Diff(before, after, equalSets); diff != "" {
		t.Errorf("the result says something else (-before +after):\n%s\n%s", diff, out)
	}
	again, list := Format("x", out)
	if list.HasErrors() {
		t.Fatalf("the result cannot be formatted: %v\n%s", list, out)
	}
	if !bytes.Equal(out, again) {
		t.Errorf("formatting twice changes the text:\n%s", cmp.Diff(string(out), string(again)))
	}
	if a, b := bytes.Count(raw, []byte("#")), bytes.Count(out, []byte("#")); a != b {
		t.Errorf("%d marks of comments before, %d after:\n%s", a, b, out)
	}
	return true
}

// TestFormatKeeps formats every topology of the repository. The result has the same meaning and all
// comments, and does not change if it is formatted again.
func TestFormatKeeps(t *testing.T) {
	t.Parallel()
	seen := 0
	for _, raw := range formatSeeds(t) {
		if checkFormatted(t, raw) {
			seen++
		}
	}
	if seen < 30 {
		t.Errorf("only %d topologies were formatted", seen)
	}
}

func FuzzFormat(f *testing.F) {
	for _, raw := range formatSeeds(f) {
		f.Add(raw)
	}
	f.Fuzz(func(t *testing.T, raw []byte) { checkFormatted(t, raw) })
}

func TestFormat(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ name, in, want, wrong string }{
		{
			name: "order, levels and comments",
			in: `# at the top

# also
spec:
    # what follows
    clusters:
      # of g1
      - serviceCIDRs: [10.77.0.0/16]   # aligned

        podCIDRs:
            - 10.7.0.0/16
            # another one
            - 10.8.0.0/16
        # the name
        name: g1
      # of g2


      - name: g2
        # gateways: []
      # nothing else
    domain: example.org
# what
metadata: {name: demo}   
kind: ClusterSet
apiVersion: hawser.dev/v1alpha1
# the end
`,
			want: `# at the top

# also
apiVersion: hawser.dev/v1alpha1
kind: ClusterSet
# what
metadata: {name: demo}
spec:
  domain: example.org
  # what follows
  clusters:
  # of g1
  # the name
  - name: g1

    podCIDRs:
    - 10.7.0.0/16
    # another one
    - 10.8.0.0/16
    serviceCIDRs: [10.77.0.0/16]   # aligned
  # of g2

  - name: g2
    # gateways: []
  # nothing else
# the end
`,
		},
		{name: "texts of several lines", in: "metadata:\n    name: |\n      a\n\n\n      # no comment  \nkind: \"ClusterSet\n\n  # text\"\n",
			want: "kind: \"ClusterSet\n\n  # text\"\nmetadata:\n  name: |\n    a\n\n\n    # no comment  \n"},
		{name: "errors", in: "spec: [\n", wrong: "yaml-syntax"},
		{name: "unknown keys", in: "spce: {}\n", wrong: "unknown-key"},
		{name: "odd keys", in: "? spec\n: {}\n", wrong: "not-formatted"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			out, list := Format("x", []byte(tt.in))
			if tt.wrong != "" {
				if len(list) == 0 || list[0].Code != tt.wrong {
					t.Errorf("findings %v, want %s", list, tt.wrong)
				}
				return
			}
			if list.HasErrors() {
				t.Fatal(list)
			}
			if diff := cmp.Diff(tt.want, string(out)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			checkFormatted(t, []byte(tt.in))
		})
	}
}
