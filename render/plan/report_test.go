package plan_test

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"testing"
	"unicode"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/tools/txtar"

	"hawser.dev/hawser/internal/diag"
	"hawser.dev/hawser/internal/diff"
	"hawser.dev/hawser/render/plan"
)

// formatJSON returns a report in every format, by the name of the format.
func formatJSON(t testing.TB, r *plan.Report) map[string]string {
	t.Helper()
	out := map[string]string{}
	for name, write := range map[string]func(*bytes.Buffer) error{
		"md":     func(b *bytes.Buffer) error { return r.Markdown(b) },
		"github": func(b *bytes.Buffer) error { return r.GitHub(b) },
	} {
		var text bytes.Buffer
		if err := write(&text); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		out[name] = text.String()
	}
	return out
}

// TestReportGoldens runs testdata/report/*.txtar, like TestGoldens.
func TestReportGoldens(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("testdata/report/*.txtar")
	if err != nil || len(files) == 0 {
		t.Fatalf("no goldens: %v", err)
	}
	for _, file := range files {
		archive, err := txtar.ParseFile(file)
		if err != nil {
			t.Fatal(err)
		}
		have := &txtar.Archive{Comment: archive.Comment}
		var at stage
		for _, f := range archive.Files {
			name, ok := strings.CutSuffix(f.Name, ".yaml")
			if !ok {
				continue
			}
			before := at
			at = next(t, before, string(f.Data))
			have.Files = append(have.Files, f)
			texts := formatJSON(t, &plan.Report{Plan: compute(t, at, before), Want: at.tree, Have: before.tree, File: "clusterset.yaml"})
			for _, format := range []string{"md", "github"} {
				have.Files = append(have.Files, txtar.File{Name: name + "." + format, Data: []byte(texts[format])})
			}
		}
		if *update {
			if err := os.WriteFile(file, txtar.Format(have), 0o644); err != nil {
				t.Fatal(err)
			}
			continue
		}
		if diff := cmp.Diff(string(txtar.Format(archive)), string(txtar.Format(have))); diff != "" {
			t.Errorf("%s (-want +got)\n%s", file, diff)
		}
	}
}

// hostile returns texts with which the author of a pull request could command a CI or forge
// messages.
func hostile() []string {
	return []string{
		"x\n::set-output name=a::b", "\r\n::add-mask::y", "::error::boo", "##[set-output name=a;]b", "a%0A::stop-commands::t", "%25",
		"file=x,line=9::y", "x::y,z", "</code></details><script>alert(1)</script>", "<img src=x onerror=alert(1)>", "--> <b>", "<!-- hawser-plan demo -->",
		"```\n# heading", "`` a `` b ```", "`", " `x", "[text](https://evil.example)", "![i](https://evil.example/i.png)", "@everyone see #1", "https://evil.example",
		"| a | b |", "**bold** `code` ~~x~~", "&lt;b&gt;", "\u202egnp.exe", "\u2028::error::x", "\x1b[2J", "\"]; click n0 \"javascript:alert(1)\"", "{0} {{x}}",
		"$(id) ${{ secrets.TOKEN }} `id`",
	}
}

// poisoned returns a report in which every text is hostile.
func poisoned(text string) *plan.Report {
	p := &plan.Plan{}
	for i, op := range []diff.Op{diff.Create, diff.Update, diff.Replace, diff.Delete} {
		p.Entries = append(p.Entries, plan.Entry{Op: op, Fields: []plan.Field{{}}, Cluster: fmt.Sprint(i)})
	}
	list := diag.List{{Severity: diag.Error}, {Severity: diag.Warning, Related: []diag.Related{{}}}}
	r := &plan.Report{Plan: p, Findings: list, File: text}
	fill(reflect.ValueOf(p), text)
	fill(reflect.ValueOf(list), text)
	for i := range p.Entries {
		p.Entries[i].Source = text + ":7"
	}
	return r
}

// fill sets every string in v to text, except strings with a fixed set of values.
func fill(v reflect.Value, text string) {
	switch v.Kind() {
	case reflect.Pointer:
		if !v.IsNil() {
			fill(v.Elem(), text)
		}
	case reflect.Slice:
		for i := range v.Len() {
			fill(v.Index(i), text)
		}
	case reflect.Struct:
		for i := range v.NumField() {
			if v.Type().Field(i).IsExported() {
				fill(v.Field(i), text)
			}
		}
	case reflect.String:
		if v.Type() == reflect.TypeFor[string]() {
			v.SetString(text)
		}
	}
}

var (
	commandLine = regexp.MustCompile(`^::(error|warning|notice) file=([^:,\r\n]*),line=[0-9]+(,col=[0-9]+)?,title=[^:,\r\n]*::[^\r\n]*$`)
	// markdownLine matches the text outside of code spans. C replaces each code span.
	markdownLine = regexp.MustCompile(`^(|### Clusterset C: [0-9a-z, ]+|### The topology has errors: nothing was compared|\*\*Disruptive changes:\*\*` +
		`|- \*\*(error|warning|note)\*\* C: C(<br>C)?|- (\*\*)?(add|change|replace|destroy)(\*\*)? C(: C)?( \(C\))?|  - C(: C( → C)?)?` +
		`|<details><summary>As text</summary>|<details><summary>Cluster <code>[^<>]*</code>: 4 changes</summary>|</details>|<!-- hawser-plan [a-z0-9._-]+ -->)$`)
)

// unfenced removes the only fenced block of a text. The block must not end before its closing
// fence.
func unfenced(t *testing.T, text string) string {
	t.Helper()
	open := regexp.MustCompile("(?m)^(`{3,})text\n").FindStringSubmatchIndex(text)
	if open == nil {
		t.Fatalf("no block of text in\n%s", text)
	}
	fence, rest := text[open[2]:open[3]], text[open[1]:]
	closing := regexp.MustCompile("(?m)^ {0,3}" + fence + "`*[ \t]*$").FindStringIndex(rest)
	if closing == nil || !strings.HasPrefix(rest[closing[1]:], "\n\n</details>\n\n<!--") {
		t.Fatalf("the block of text ends elsewhere:\n%s", text)
	}
	return text[:open[0]] + rest[closing[1]+1:]
}

// outside replaces each code span of a line by C (CommonMark 0.31, section 6.1).
func outside(t *testing.T, line string) string {
	t.Helper()
	var out strings.Builder
	for rest := line; rest != ""; {
		at := strings.IndexByte(rest, '`')
		if at < 0 {
			return out.String() + rest
		}
		out.WriteString(rest[:at])
		rest = rest[at:]
		fence := rest[:len(rest)-len(strings.TrimLeft(rest, "`"))]
		rest = rest[len(fence):]
		closing := -1
		for _, run := range regexp.MustCompile("`+").FindAllStringIndex(rest, -1) {
			if run[1]-run[0] == len(fence) {
				closing = run[0]
				break
			}
		}
		if closing < 0 {
			t.Errorf("a code span of %q does not end", line)
			return out.String()
		}
		out.WriteString("C")
		rest = rest[closing+len(fence):]
	}
	return out.String()
}

// TestHostileReport checks that texts of a topology remain texts. They must not command a CI, or
// open or close an element.
func TestHostileReport(t *testing.T) {
	t.Parallel()
	for _, text := range hostile() {
		texts := formatJSON(t, poisoned(text))
		for line := range strings.Lines(texts["github"]) {
			line = strings.TrimSuffix(line, "\n")
			if !commandLine.MatchString(line) && !strings.HasPrefix(line, "Plan: ") {
				t.Errorf("%q: the line %q is not one of ours", text, line)
			}
		}
		if n := strings.Count(texts["github"], "\n"); n > 2+4+1 {
			t.Errorf("%q: %d lines", text, n)
		}
		for line := range strings.Lines(unfenced(t, texts["md"])) {
			line = strings.TrimSuffix(line, "\n")
			bare := line // a line that begins with an element is HTML without Markdown
			if !strings.HasPrefix(line, "<") {
				bare = outside(t, line)
			}
			if !markdownLine.MatchString(bare) {
				t.Errorf("%q: the line %q is not one of ours", text, bare)
			}
		}
		for format, whole := range texts {
			if strings.ContainsFunc(whole, func(r rune) bool { return r != '\n' && unicode.IsControl(r) || unicode.Is(unicode.Bidi_Control, r) }) {
				t.Errorf("%q: %s holds control characters", text, format)
			}
		}
	}
}

// TestReportIsBounded checks that a plan of any size fits into a comment.
func TestReportIsBounded(t *testing.T) {
	t.Parallel()
	p := &plan.Plan{Name: "demo"}
	for i := range 20000 {
		p.Entries = append(p.Entries, plan.Entry{Op: diff.Delete, Kind: "export", Key: fmt.Sprintf("shop/web-%d", i),
			Cluster: fmt.Sprintf("g%d", i/10), Disruptive: "the name is gone for every cluster"})
	}
	for i := range p.Entries {
		p.Entries[i].Source = fmt.Sprintf("clusterset.yaml:%d", i+1)
	}
	texts := formatJSON(t, &plan.Report{Plan: p, File: "clusterset.yaml"})
	text := texts["md"]
	if n := strings.Count(texts["github"], "::warning "); n != 50 || !strings.Contains(texts["github"], "\n19950 more annotations of level warning are not written.\n") {
		t.Errorf("%d annotations", n)
	}
	if len(text) > 65536 {
		t.Errorf("%d bytes, GitHub takes 65536 characters", len(text))
	}
	if !strings.Contains(text, "more changes are not shown") || !strings.HasSuffix(text, plan.Marker("demo")+"\n") {
		t.Errorf("neither how many are left out nor the marker is there:\n%s", text[len(text)-300:])
	}
	if open, closed := strings.Count(text, "<details>"), strings.Count(text, "</details>"); open != closed {
		t.Errorf("%d sections begin, %d end", open, closed)
	}
}
