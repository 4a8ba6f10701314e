package termsvg

import (
	"encoding/xml"
	"io"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// TestDemo checks that the picture in the README shows the steps of hack/demo.sh, the script of
// make demo.
func TestDemo(t *testing.T) {
	t.Parallel()
	picture, err := os.ReadFile("../../docs/demo.svg")
	if err != nil {
		t.Fatal(err)
	}
	script, err := os.ReadFile("../../hack/demo.sh")
	if err != nil {
		t.Fatal(err)
	}
	want := ScriptSteps(string(script))
	if len(want) < 40 {
		t.Errorf("only %d steps of hack/demo.sh are understood", len(want))
	}
	if step := MissingStep(want, PictureSteps(string(picture))); step != "" {
		t.Errorf("docs/demo.svg lacks the step %q of hack/demo.sh: make picture", step)
	}
	readme, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(readme), "](docs/demo.svg)") {
		t.Error("the README does not show it")
	}
}

// TestMissingStep checks that steps of a script must be in the picture in their order.
func TestMissingStep(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		script, picture []string
		want            string
	}{
		{[]string{"# 1", "$ a"}, []string{"# 1", "$ git diff", "$ a"}, ""},
		{[]string{"# 1", "$ a"}, []string{"# 1", "$ b"}, "$ a"},
		{[]string{"# 1", "$ a"}, []string{"$ a", "# 1"}, "$ a"},
	} {
		if have := MissingStep(tt.script, tt.picture); have != tt.want {
			t.Errorf("script %q, picture %q: %q, want %q", tt.script, tt.picture, have, tt.want)
		}
	}
}

func TestWanted(t *testing.T) {
	t.Parallel()
	const script = `#!/bin/sh
say() { printf '# %s\n' "$*"; }
until_seen() {
  run not this
}
plan() { (cd "$repo" && run hawser diff) || true; } # not this either
url=web.shop.svc
# run nor this
say "1. It's there."
run hawser lab up \
 -w x
until_seen '"g2" or run' hawser lab exec -- curl -s $url
(cd "$repo" && run hawser validate a.yaml) || true
plan
until_seen 'No changes' plan
echo; echo done
`
	want := []string{"# 1. It's there.", "$ hawser lab up  -w x", "$ hawser lab exec -- curl -s web.shop.svc", "$ hawser validate a.yaml", "$ hawser diff", "$ plan", "$ hawser diff"}
	if d := cmp.Diff(want, ScriptSteps(script)); d != "" {
		t.Errorf("-want +got:\n%s", d)
	}
}

// TestSVG checks that output is drawn as text, steps are found again, and times increase.
func TestSVG(t *testing.T) {
	t.Parallel()
	lines := []Line{{0, ""}, {0, "# A heading <b>"}, {time.Hour, "$ run it\x1b[31m"}, {time.Hour, "<script>alert(1)</script>\t&"}, {time.Hour, strings.Repeat("w", 300)}}
	text := SVG("a title \"", lines)
	if strings.Contains(text, "<script") || strings.Contains(text, "\x1b") {
		t.Error(text)
	}
	d := xml.NewDecoder(strings.NewReader(text))
	for {
		if _, err := d.Token(); err == io.EOF {
			break
		} else if err != nil {
			t.Fatal(err)
		}
	}
	if d := cmp.Diff([]string{"# A heading <b>", "$ run it [31m"}, PictureSteps(text)); d != "" {
		t.Error(d)
	}
	at := adjustPace(lines)
	for i := range at {
		if i > 0 && (at[i].At <= at[i-1].At || at[i].At-at[i-1].At > maxPause) {
			t.Errorf("line %d comes at %s, the one before at %s", i, at[i].At, at[i-1].At)
		}
	}
	if SVG("nothing", nil) == "" {
		t.Error("nothing is no picture")
	}
}
