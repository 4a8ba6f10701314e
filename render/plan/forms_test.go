package plan_test

import (
	"encoding/json"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/tools/txtar"

	"hawser.dev/hawser/internal/diff"
	"hawser.dev/hawser/render/plan"
)

// TestFormsAgree checks every plan of testdata. Text, Markdown and JSON list the same items with
// the same fields. Text and JSON list the same disruptions and effects on connections.
func TestFormsAgree(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("testdata/*.txtar")
	if err != nil || len(files) == 0 {
		t.Fatalf("%d goldens: %v", len(files), err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txtar"), func(t *testing.T) {
			t.Parallel()
			archive, err := txtar.ParseFile(file)
			if err != nil {
				t.Fatal(err)
			}
			var at stage
			for _, f := range archive.Files {
				if !strings.HasSuffix(f.Name, ".yaml") {
					continue
				}
				before := at
				at = next(t, before, string(f.Data))
				p := compute(t, at, before)
				raw, err := json.Marshal(p)
				if err != nil {
					t.Fatal(err)
				}
				var back plan.Plan
				if err := json.Unmarshal(raw, &back); err != nil {
					t.Fatal(err)
				}
				printed, markdown := text(t, p, false), formatJSON(t, &plan.Report{Plan: p})["md"]
				if want, have := ofJSON(&back, true), ofText(t, printed); !cmp.Equal(want, have) {
					t.Errorf("%s: text (-JSON +text)\n%s", f.Name, cmp.Diff(want, have))
				}
				if want, have := ofJSON(&back, false), ofMarkdown(t, markdown); !cmp.Equal(want, have) {
					t.Errorf("%s: Markdown (-JSON +Markdown)\n%s", f.Name, cmp.Diff(want, have))
				}
			}
		})
	}
}

// sign returns the operation of a verb in the Markdown report.
func sign(verb string) diff.Op {
	return map[string]diff.Op{"add": diff.Create, "change": diff.Update, "replace": diff.Replace, "destroy": diff.Delete}[verb]
}

// ofJSON returns the items and fields of a plan. With all it also returns disruptions and effects.
func ofJSON(p *plan.Plan, all bool) []string {
	none := func(text string) string {
		if text == "" {
			return "(none)"
		}
		return text
	}
	var out []string
	for _, e := range p.Entries {
		item := string(e.Op) + " " + e.Kind + " " + e.Key
		out = append(out, item)
		for _, f := range e.Fields {
			switch e.Op {
			case diff.Create:
				out = append(out, item+": "+f.Name+": "+f.Want)
			case diff.Update, diff.Replace:
				out = append(out, item+": "+f.Name+": "+none(f.Have)+" -> "+none(f.Want))
			}
		}
		if all && e.Disruptive != "" {
			out = append(out, item+" breaks: "+e.Disruptive)
		}
	}
	if all {
		for _, e := range p.Impact.Breaks {
			verb := map[bool]string{false: "break", true: "may break"}[e.Uncertain]
			out = append(out, verb+": "+e.What)
		}
		for _, e := range p.Impact.Pauses {
			out = append(out, "pause: "+e.What)
		}
		for _, e := range p.Impact.Continues {
			out = append(out, "continue: "+e.What)
		}
		for i := range p.Impact.Loads {
			out = append(out, "gateway load: "+p.Impact.Loads[i].Text())
		}
	}
	slices.Sort(out)
	return out
}

var (
	itemLine  = regexp.MustCompile(`^  ([-+~±]) (.*?)(?:  # .*)?$`)
	fieldLine = regexp.MustCompile(`^      ([^(].*?)(?:  # .*)?$`)
	fateLine  = regexp.MustCompile(`^  (may break|break|pause|continue|gateway load)[^:]*: (.*?)(?:  # .*)?$`)
)

// ofText returns the same from the text. A line about several items counts for each of them.
func ofText(t *testing.T, text string) []string {
	t.Helper()
	var out, items []string
	section := ""
	for line := range strings.Lines(text) {
		line = strings.TrimSuffix(line, "\n")
		if line != "" && !strings.HasPrefix(line, " ") {
			section, items = line, nil
		}
		item, field, fate := itemLine.FindStringSubmatch(line), fieldLine.FindStringSubmatch(line), fateLine.FindStringSubmatch(line)
		switch {
		case section == "Disruptive changes:" && item != nil:
			title, breaks := item[2], ""
			if several.MatchString(title) {
				names, rest, _ := strings.Cut(title, ": ") // colons after number and names
				list, why, _ := strings.Cut(rest, ": ")
				title, breaks = names+": "+list, why
			} else {
				title, breaks, _ = strings.Cut(title, ": ")
			}
			for _, one := range titles(t, title) {
				out = append(out, item[1]+" "+one+" breaks: "+breaks)
			}
		case section == "Impact on open connections:" && fate != nil:
			out = append(out, fate[1]+": "+fate[2])
		case strings.HasSuffix(section, ":"):
		case item != nil:
			items = nil
			for _, one := range titles(t, item[2]) {
				items = append(items, item[1]+" "+one)
			}
			out = append(out, items...)
		case field != nil:
			for _, one := range items {
				out = append(out, one+": "+field[1])
			}
		}
	}
	slices.Sort(out)
	return out
}

var several = regexp.MustCompile(`^(\d+) (pairs|clusters|gateways|links|egress rules|keys|exports|exports in clusters|settings|files): (.*)$`)

// titles returns the items in a title of the text.
func titles(t *testing.T, title string) []string {
	t.Helper()
	many := several.FindStringSubmatch(title)
	if many == nil {
		return []string{title}
	}
	if strings.Contains(many[3], " more") {
		t.Fatalf("%q does not name all: use a smaller golden", title)
	}
	kind := strings.TrimSuffix(many[2], "s")
	switch many[2] {
	case "keys":
		kind = "keys"
	case "exports in clusters":
		kind = "export in cluster"
	}
	var out []string
	for name := range strings.SplitSeq(many[3], ", ") {
		out = append(out, kind+" "+name)
	}
	return out
}

var (
	markdownItem  = regexp.MustCompile("^- \\*\\*(\\w+)\\*\\* `([^`]*)`")
	markdownField = regexp.MustCompile("^  - `([^`]*)`: `([^`]*)`(?: → `([^`]*)`)?$")
)

// ofMarkdown returns the items and fields of the folded sections.
func ofMarkdown(t *testing.T, text string) []string {
	t.Helper()
	var out []string
	item := ""
	for line := range strings.Lines(text) {
		line = strings.TrimSuffix(line, "\n")
		if strings.Contains(line, "<summary>As text</summary>") {
			break
		}
		if m := markdownItem.FindStringSubmatch(line); m != nil {
			item = string(sign(m[1])) + " " + m[2]
			out = append(out, item)
		}
		if m := markdownField.FindStringSubmatch(line); m != nil {
			value := m[2]
			switch {
			case m[3] != "":
				value += " -> " + m[3]
			case value == "(none)":
				value = ""
			}
			out = append(out, item+": "+m[1]+": "+value)
		}
	}
	slices.Sort(out)
	return out
}
