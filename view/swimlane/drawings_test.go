package swimlane

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"hawser.dev/hawser/internal/svg"
)

// TestDrawings: each picture of docs/drawings is what its text draws, and some document
// shows it.
func TestDrawings(t *testing.T) {
	t.Parallel()
	const dir = "../../docs/drawings"
	files, err := filepath.Glob(filepath.Join(dir, "*.txt"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no drawings: %v", err)
	}
	documents, err := filepath.Glob("../../docs/*.md")
	if err != nil {
		t.Fatal(err)
	}
	shown := ""
	for _, name := range documents {
		raw, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		shown += string(raw)
	}
	for _, file := range files {
		raw, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		title, paths, err := parse(string(raw))
		if err != nil {
			t.Errorf("%s: %v", file, err)
			continue
		}
		got, picture := Draw(title, paths).String(), strings.TrimSuffix(file, ".txt")+".svg"
		if *update {
			if err := os.WriteFile(picture, []byte(got), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(picture)
		if err != nil {
			t.Fatal(err)
		}
		if string(want) != got {
			t.Errorf("%s is not what %s draws: make drawings", picture, file)
		}
		if !strings.Contains(shown, "](drawings/"+filepath.Base(picture)+")") {
			t.Errorf("no document shows %s", picture)
		}
	}
	if pictures, _ := filepath.Glob(filepath.Join(dir, "*.svg")); len(pictures) != len(files) {
		t.Errorf("%d pictures of %d texts", len(pictures), len(files))
	}
}

func TestParse(t *testing.T) {
	t.Parallel()
	title, got, err := parse("# what it is\ntitle: A title\n\npath: there\na: begins: here | and more\n  that goes on\n-> over it\nb!: ends\npath: back\na: again\n")
	if err != nil || title != "A title" {
		t.Fatalf("%q: %v", title, err)
	}
	want := []Path{
		{Title: "there", Events: []Event{{Swimlane: "a", Texts: []string{"begins: here", "and more that goes on"}}, {Swimlane: "b", Via: "over it", Tone: svg.Bad, Texts: []string{"ends"}}}},
		{Title: "back", Events: []Event{{Swimlane: "a", Texts: []string{"again"}}}},
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("-want +got:\n%s", d)
	}
}

func TestParseErrors(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"":                 "line 1: there is no step: write LANE: TEXT",
		"title: x\n":       "line 1: there is no step: write LANE: TEXT",
		"a: b\n\nno colon": `line 3: "no colon" has no colon: write LANE: TEXT, path: TEXT, title: TEXT or -> TEXT`,
		"a:b\n":            `line 1: "a:b" has no colon: write LANE: TEXT, path: TEXT, title: TEXT or -> TEXT`,
	} {
		if _, _, err := parse(text); err == nil || err.Error() != want {
			t.Errorf("%q: %v, want %s", text, err, want)
		}
	}
}

// parse reads paths as people write them, for drawings in documents:
//
//	# a comment
//	title: what the drawing is called
//	path: what the path is called
//	a lane: what happens there | more of it | and more
//	-> over what the next step is come to
//	a lane!: where it ends, in red
//
// A line that begins with white space continues the previous line. Errors name the line.
func parse(text string) (title string, paths []Path, err error) {
	via, number := "", 0
	var lines []string
	var numbers []int
	for line := range strings.Lines(text) {
		number++
		line = strings.TrimRight(line, "\n")
		switch trimmed := strings.TrimSpace(line); {
		case trimmed == "" || strings.HasPrefix(trimmed, "#"):
		case len(lines) > 0 && (line[0] == ' ' || line[0] == '\t'):
			lines[len(lines)-1] += " " + trimmed
		default:
			lines, numbers = append(lines, trimmed), append(numbers, number)
		}
	}
	for i, line := range lines {
		if over, is := strings.CutPrefix(line, "->"); is {
			via = strings.TrimSpace(over)
			continue
		}
		name, rest, found := strings.Cut(line, ": ")
		switch {
		case !found:
			return "", nil, fmt.Errorf("line %d: %q has no colon: write LANE: TEXT, path: TEXT, title: TEXT or -> TEXT", numbers[i], line)
		case name == "title":
			title = rest
		case name == "path":
			paths = append(paths, Path{Title: rest})
		default:
			if len(paths) == 0 {
				paths = append(paths, Path{})
			}
			s := Event{Via: via}
			if s.Swimlane = strings.TrimSuffix(name, "!"); s.Swimlane != name {
				s.Tone = svg.Bad
			}
			for part := range strings.SplitSeq(rest, "|") {
				s.Texts = append(s.Texts, strings.TrimSpace(part))
			}
			w := &paths[len(paths)-1]
			w.Events, via = append(w.Events, s), ""
		}
	}
	if len(paths) == 0 {
		return "", nil, fmt.Errorf("line %d: there is no step: write LANE: TEXT", max(number, 1))
	}
	return title, paths, nil
}
