package diag

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestSecretsAreHidden checks that no output format of a finding contains a text in the format of a
// secret.
func TestSecretsAreHidden(t *testing.T) {
	t.Parallel()
	for _, secret := range []string{"AGE-SECRET-KEY-1QQQQ", "ghp_0123456789abcdefghijABCDEFGHIJ012345", "github_pat_11ABCDEFG0123456789_x", "glpat-abcdefghij0123456789",
		"eyJhbGciOiJSUzI1NiJ9.eyJzdWIiOiJ4In0.c2ln", "https://bot:hunter2@git.example.org/x"} {
		d := Diagnostic{Severity: Error, Path: "a[" + secret + "]", Pos: Pos{"a.yaml", 1, 4, 9}, Summary: "bad " + Quote(secret), Hint: "not " + secret}
		var out bytes.Buffer
		if err := Print(&out, List{d}, map[string][]byte{"a.yaml": []byte("x: " + secret + "\n")}, false); err != nil {
			t.Fatal(err)
		}
		for _, text := range []string{out.String(), d.Error(), Line(secret)} {
			if part := secret[len(secret)/2-4 : len(secret)/2+4]; strings.Contains(text, part) && !strings.Contains(part, "@") {
				t.Errorf("%s in %s", part, text)
			}
		}
	}
}

func TestPrint(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("a", 300) + "WRONG" + strings.Repeat("b", 300)
	sources := map[string][]byte{
		"runner.yaml": []byte("a: \"##[set-output name=a;]b\"\n"),
		"plain.yaml":  []byte("one\n  - name: Berlin\r\nthree\n"),
		"odd.yaml":    []byte("x:\t\"Łódź 東京 e\u0301\" # 🚀 bad\n" + long + "\n\n\x1b[2Jboo\nr: AGE-SECRET-KEY-1ABC # no\n"),
	}
	tests := []struct {
		name  string
		give  Diagnostic
		color bool
		want  string
	}{
		{
			name: "all parts",
			give: Diagnostic{
				Severity: Error, Path: "clusters[Berlin]", Pos: Pos{"plain.yaml", 2, 11, 6}, Summary: "upper case", Hint: "write berlin",
				Related: []Related{{Pos: Pos{"plain.yaml", 1, 1, 3}}, {Path: "domain"}},
			},
			want: "plain.yaml:2:11: error: clusters[Berlin]: upper case\n    2 |   - name: Berlin\n                  ^^^^^^\n" +
				"   also plain.yaml:1:1\n   also domain\n   hint: write berlin\n",
		},
		{
			name: "no more than three other places",
			give: Diagnostic{Severity: Warning, Summary: "w", Related: []Related{{Path: "a"}, {Path: "b"}, {Path: "c"}, {Path: "d"}, {Path: "e"}}},
			want: "warning: w\n   also a\n   also b\n   also c\n   also in 2 more places\n",
		},
		{
			name: "file alone",
			give: Diagnostic{Severity: Error, Pos: Pos{File: "plain.yaml"}, Summary: "empty"},
			want: "plain.yaml: error: empty\n",
		},
		{
			name: "unknown source and line past the end",
			give: Diagnostic{Severity: Error, Pos: Pos{"other.yaml", 9, 1, 1}, Summary: "s"},
			want: "other.yaml:9:1: error: s\n",
		},
		{
			name: "tab, wide and combining characters before the place",
			give: Diagnostic{Severity: Error, Pos: Pos{"odd.yaml", 1, 21, 3}, Summary: "s"},
			want: "odd.yaml:1:21: error: s\n    1 | x:    \"Łódź 東京 e\u0301\" # 🚀 bad\n" + strings.Repeat(" ", 8+25) + "^^^\n",
		},
		{
			name: "wide characters underlined",
			give: Diagnostic{Severity: Error, Pos: Pos{"odd.yaml", 1, 10, 2}, Summary: "s"},
			want: "odd.yaml:1:10: error: s\n    1 | x:    \"Łódź 東京 e\u0301\" # 🚀 bad\n" + strings.Repeat(" ", 8+12) + "^^^^\n",
		},
		{
			name: "long line",
			give: Diagnostic{Severity: Error, Pos: Pos{"odd.yaml", 2, 301, 5}, Summary: "s"},
			want: "odd.yaml:2:301: error: s\n    2 | …" + strings.Repeat("a", 40) + "WRONG" + strings.Repeat("b", 40) + "…\n" +
				strings.Repeat(" ", 8+41) + "^^^^^\n",
		},
		{
			name: "blank line",
			give: Diagnostic{Severity: Error, Pos: Pos{"odd.yaml", 3, 1, 1}, Summary: "s"},
			want: "odd.yaml:3:1: error: s\n",
		},
		{
			name: "control characters cannot reach the terminal",
			give: Diagnostic{Severity: Error, Pos: Pos{"odd.yaml", 4, 1, 1}, Path: "a\x1bb", Summary: "s\x07", Hint: "h\r"},
			want: "odd.yaml:4:1: error: a\ufffdb: s\ufffd\n    4 | \ufffd[2Jboo\n        ^\n   hint: h\ufffd\n",
		},
		{
			name: "commands of a runner are escaped",
			give: Diagnostic{Severity: Error, Pos: Pos{"runner.yaml", 1, 4, 30}, Path: "a", Summary: `"##[add-mask]x" is no name`},
			want: "runner.yaml:1:4: error: a: \"##\ufffdadd-mask]x\" is no name\n    1 | a: \"##\ufffdset-output name=a;]b\"\n           " +
				strings.Repeat("^", 25) + "\n",
		},
		{
			name: "secrets are hidden",
			give: Diagnostic{Severity: Error, Pos: Pos{"odd.yaml", 5, 4, 19}, Summary: "bad age-secret-key-1qq x"},
			want: "odd.yaml:5:4: error: bad (sensitive) x\n    5 | r: (sensitive) # no\n           ^^^^^^^^^^^\n",
		},
		{
			name:  "colour",
			give:  Diagnostic{Severity: Warning, Pos: Pos{"plain.yaml", 1, 1, 3}, Summary: "s"},
			color: true,
			want:  bold + "plain.yaml:1:1:" + reset + " " + yellow + "warning:" + reset + " s\n    1 | one\n        " + yellow + "^^^" + reset + "\n",
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			var out strings.Builder
			if err := Print(&out, List{tt.give}, sources, tt.color); err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(tt.want, out.String()); d != "" {
				t.Errorf("(-want +got)\n%s", d)
			}
		})
	}
}

type brokenPipe struct{}

func (brokenPipe) Write([]byte) (int, error) { return 0, errors.New("broken pipe") }

func TestPrintReportsWriteError(t *testing.T) {
	t.Parallel()
	if err := Print(brokenPipe{}, List{{Severity: Error, Summary: "s"}}, nil, false); err == nil {
		t.Error("want the error of the writer, got nil")
	}
}

// TestCutSecret checks that no part of an identity is shown, wherever a long line is cut.
func TestCutSecret(t *testing.T) {
	t.Parallel()
	const secret = "QQPZRY9X8GF2TVDW0S3JN54KHCE6MUA7LQQPZRY9X8GF2TVDW0S3JN54KH"
	for gap := range 60 {
		line := "clusters: [{recipient: age-secret-key-1" + secret + strings.Repeat(" ", gap) + "}, {name: bad}, " + strings.Repeat("x", 200)
		var out bytes.Buffer
		at := Pos{File: "f", Line: 1, Column: strings.Index(line, "bad") + 1, Width: 3}
		if err := Print(&out, List{{Severity: Error, Code: "c", Pos: at, Summary: "s"}}, map[string][]byte{"f": []byte(line)}, false); err != nil {
			t.Fatal(err)
		}
		for i := range len(secret) - 5 {
			if strings.Contains(out.String(), secret[i:i+5]) {
				t.Fatalf("gap %d: a part of the identity is shown:\n%s", gap, out.String())
			}
		}
		lines := strings.Split(out.String(), "\n")
		if i, j := strings.Index(lines[1], "bad"), strings.Index(lines[2], "^^^"); i < 0 || width(lines[1][:i]) != j {
			t.Fatalf("gap %d: another place is underlined:\n%s", gap, out.String())
		}
	}
}
