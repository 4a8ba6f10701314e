// Package termsvg renders the output of a terminal session as an SVG for documents, which is
// animated with CSS only. It also returns the steps of a demo script, to find outdated pictures. It
// does no I/O.
package termsvg

import (
	"fmt"
	"html"
	"regexp"
	"slices"
	"strings"
	"time"

	"hawser.dev/hawser/internal/svg"
)

// Line is a line of output and the time when it was written.
type Line struct {
	At   time.Duration // since the beginning
	Text string
}

// Dimensions of a picture, in characters and pixels.
const (
	columns    = 108
	rows       = 30
	charWidth  = 8.0
	lineHeight = 18.0
	padding    = 16.0
	titleBar   = 30.0 // title bar above the text
)

const (
	// maxPause limits the pauses of a recording.
	maxPause = 1200 * time.Millisecond
	// lineInterval is the time between lines that were written at once.
	lineInterval = 60 * time.Millisecond
	// commandPause is the pause after a command, for the reader.
	commandPause = 450 * time.Millisecond
	// headingPause is the pause after a heading.
	headingPause = 900 * time.Millisecond
	// endPause is the pause before the animation restarts.
	endPause = 5 * time.Second
)

// adjustPace returns the lines at a readable pace: long pauses are shortened, and lines that were
// written at once appear one by one.
func adjustPace(lines []Line) []Line {
	out := make([]Line, len(lines))
	var at time.Duration
	for i, l := range lines {
		if i > 0 {
			pause := min(max(l.At-lines[i-1].At, lineInterval), maxPause)
			switch {
			case strings.HasPrefix(lines[i-1].Text, "$ "):
				pause = max(pause, commandPause)
			case strings.HasPrefix(lines[i-1].Text, "# "):
				pause = max(pause, headingPause)
			}
			at += pause
		}
		out[i] = Line{at, l.Text}
	}
	return out
}

const style = `
text{font:13px ui-monospace,SFMono-Regular,Menlo,Consolas,"DejaVu Sans Mono",monospace;fill:#d1d7e0}
.screen{fill:#151b23}.bar{fill:#262c36}.title{fill:#9198a1;font-family:system-ui,sans-serif}
.say{fill:#3fb950;font-weight:600}.cmd{fill:#f0f6fc;font-weight:600}
`

// SVG returns a picture that shows the lines one after another in a loop. With
// prefers-reduced-motion it shows only the first lines.
func SVG(title string, lines []Line) string {
	lines = adjustPace(lines)
	width, height := columns*charWidth+2*padding, rows*lineHeight+2*padding+titleBar
	var total time.Duration
	if len(lines) > 0 {
		total = lines[len(lines)-1].At + endPause
	}
	var out strings.Builder
	fmt.Fprintf(&out, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %.0f %.0f" width="%.0f" height="%.0f" role="img" aria-label="%s">`+"\n",
		width, height, width, height, svg.Escape(title))
	out.WriteString("<style>" + style)
	fmt.Fprintf(&out, "@media (prefers-reduced-motion:no-preference){.roll{animation:roll %.2fs step-end infinite}}\n@keyframes roll{\n", total.Seconds())
	last := -1.0
	for i, l := range lines {
		at := 0.0
		if total > 0 {
			at = 100 * l.At.Seconds() / total.Seconds()
		}
		if i == 0 || at-last >= 0.001 {
			fmt.Fprintf(&out, "%.3f%%{transform:translateY(%.0fpx)}\n", at, (rows-float64(i+1))*lineHeight)
			last = at
		}
	}
	out.WriteString("}\n</style>\n")
	fmt.Fprintf(&out, `<clipPath id="screen"><rect x="0" y="%.0f" width="%.0f" height="%.0f"/></clipPath>`+"\n", titleBar+padding, width, rows*lineHeight)
	fmt.Fprintf(&out, `<rect class="screen" width="%.0f" height="%.0f" rx="8"/><rect class="bar" width="%.0f" height="%.0f" rx="8"/>`+"\n", width, height, width, titleBar)
	fmt.Fprintf(&out, `<text class="title" x="%.0f" y="20" text-anchor="middle">%s</text>`+"\n", width/2, svg.Escape(title))
	out.WriteString(`<g clip-path="url(#screen)"><g class="roll">` + "\n")
	for i, l := range lines {
		text := truncate(strings.ReplaceAll(l.Text, "\t", "    "), columns)
		if strings.TrimSpace(text) == "" {
			continue
		}
		class := ""
		switch {
		case strings.HasPrefix(text, "# "):
			class = ` class="say"`
		case strings.HasPrefix(text, "$ "):
			class = ` class="cmd"`
		}
		fmt.Fprintf(&out, `<text%s x="%.0f" y="%.0f" xml:space="preserve">%s</text>`+"\n", class, padding, titleBar+padding+float64(i+1)*lineHeight-5, svg.Escape(text))
	}
	out.WriteString("</g></g>\n</svg>\n")
	return out.String()
}

func truncate(text string, limit int) string {
	runes := []rune(text)
	if len(runes) <= limit {
		return text
	}
	return string(runes[:limit-1]) + "…"
}

var stepText = regexp.MustCompile(`<text class="(?:say|cmd)"[^>]*>([^<]*)</text>`)

// MissingStep returns the first step of a script that a picture does not show after the steps
// before it; empty if it shows all. Steps that functions of the script print are only in the
// picture.
func MissingStep(script, picture []string) string {
	for _, step := range script {
		i := slices.Index(picture, step)
		if i < 0 {
			return step
		}
		picture = picture[i+1:]
	}
	return ""
}

// PictureSteps returns the headings (# ...) and commands ($ ...) that a picture shows, cut to its
// width.
func PictureSteps(picture string) []string {
	var out []string
	for _, m := range stepText.FindAllStringSubmatch(picture, -1) {
		out = append(out, html.UnescapeString(m[1]))
	}
	return out
}

var (
	assignment = regexp.MustCompile(`^([a-z]+)=([a-z0-9.-]+)$`)
	heading    = regexp.MustCompile(`^say "(.*)"$`)
	command    = regexp.MustCompile(`\b(?:run|until_seen (?:'[^']*'|\S+)) (.+)$`)
	function   = regexp.MustCompile(`^([a-z_]+)\(\) *\{`)
)

// ScriptSteps returns the headings and commands that a script prints. It knows the functions of
// hack/demo.sh: say TEXT, run COMMAND, until_seen PATTERN COMMAND, and plan, which runs hawser
// diff.
func ScriptSteps(script string) []string {
	var out []string
	values := map[string]string{}
	inFunction := false // a multi-line function
	joined := strings.ReplaceAll(script, "\\\n", "")
	for line := range strings.Lines(joined) {
		line = strings.TrimRight(line, "\n")
		switch {
		case inFunction:
			inFunction = line != "}"
			continue
		case function.MatchString(line):
			inFunction = !strings.Contains(line, "}")
			continue
		case strings.HasPrefix(strings.TrimSpace(line), "#"):
			continue
		}
		line = strings.TrimSpace(line)
		if m := assignment.FindStringSubmatch(line); m != nil {
			values[m[1]] = m[2]
		}
		text := ""
		if m := heading.FindStringSubmatch(line); m != nil {
			text = "# " + m[1]
		} else if line == "plan" {
			text = "$ hawser diff"
		} else if m := command.FindStringSubmatch(line); m != nil {
			commandLine := strings.TrimSuffix(m[1], ") || true")
			if pipeline, ok := strings.CutPrefix(commandLine, "sh -c '"); ok {
				commandLine = strings.TrimSuffix(pipeline, "'")
			}
			for name, value := range values {
				commandLine = strings.ReplaceAll(commandLine, "$"+name, value)
			}
			text = "$ " + commandLine
			if commandLine == "plan" { // it prints its commands too
				out = append(out, text)
				text = "$ hawser diff"
			}
		}
		if text != "" {
			out = append(out, truncate(text, columns))
		}
	}
	return out
}
