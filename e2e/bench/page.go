package main

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"time"
	"unicode/utf8"

	"golang.org/x/sys/unix"
)

// row is one line of a table.
type row struct {
	metric    string
	figure    string
	reference string
	ratio     string
	target    string
	met       *bool // nil without a target
}

func (r row) String() string {
	target := r.target
	if r.met != nil {
		target += map[bool]string{true: ": met", false: ": **missed**"}[*r.met]
	}
	return "| " + strings.Join([]string{r.metric, r.figure, r.reference, r.ratio, target}, " | ") + " |\n"
}

// withTarget returns the row with a target.
func (r row) withTarget(target string, met bool) row {
	r.target, r.met = target, &met
	return r
}

// section is one section of the page, with its table.
type section struct {
	name   string
	title  string
	method string // description of the measurement
	rows   []row
	table  [][]string // used instead of rows for other columns; the first line is the head
	after  string     // interpretation of the figures
}

// String returns the section as Markdown, between the marks for update.
func (s section) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s\n## %s\n\n%s\n\n", beginMark(s.name), s.title, filled(s.method))
	b.WriteString(s.figures())
	if s.after != "" {
		fmt.Fprintf(&b, "\n%s\n", filled(s.after))
	}
	day := time.Now().UTC().Format(time.DateOnly)
	again := fmt.Sprintf("To repeat: `hack/bench.sh %s`. Measured %s on %s.", s.name, day, machine())
	fmt.Fprintf(&b, "\n%s\n%s\n", filled(again), endMark(s.name))
	return b.String()
}

// width is the number of columns of prose in documents.
const width = 100

// filled breaks prose into lines of that width. It keeps paragraphs and list items separate, and
// indents the further lines of an item.
func filled(prose string) string {
	var out strings.Builder
	column, indent := 0, ""
	for line := range strings.Lines(strings.TrimSpace(prose)) {
		words := strings.Fields(line)
		item := len(words) > 0 && words[0] == "-"
		if len(words) == 0 || item {
			if column > 0 {
				out.WriteByte('\n')
			}
			column, indent = 0, ""
		}
		if len(words) == 0 {
			out.WriteByte('\n')
		}
		for _, word := range words {
			size := utf8.RuneCountInString(word)
			switch {
			case column == 0:
			case column+1+size > width:
				out.WriteString("\n" + indent)
				column = len(indent)
			default:
				out.WriteByte(' ')
				column++
			}
			out.WriteString(word)
			column += size
		}
		if item {
			indent = "  "
		}
	}
	return out.String()
}

func (s section) figures() string {
	var b strings.Builder
	if len(s.rows) > 0 {
		b.WriteString("| what | figure | reference | ratio | target |\n|---|---|---|---|---|\n")
		for _, r := range s.rows {
			b.WriteString(r.String())
		}
	}
	if len(s.rows) > 0 && len(s.table) > 0 {
		b.WriteString("\n")
	}
	for i, cells := range s.table {
		fmt.Fprintf(&b, "| %s |\n", strings.Join(cells, " | "))
		if i == 0 {
			b.WriteString(strings.Repeat("|---", len(cells)) + "|\n")
		}
	}
	return b.String()
}

func beginMark(name string) string { return "<!-- begin " + name + " -->" }
func endMark(name string) string   { return "<!-- end " + name + " -->" }

const pageHead = `# Benchmarks

For engineers who compare: what Hawser costs, and how to measure it again. ` + "`make bench`" + ` measures most sections and writes this
page; ` + "`hack/bench.sh NAME`" + ` measures one. No test depends on a figure.

Compare **ratios**: both sides were measured in turn, many times, in one run on the machine named in the section. A figure is the
median. Clients, gateways and servers share two cores.

In *stall*, *stall-fast* and *survive* a figure is a time as a pod sees it. Failed repetitions stay in the table and are listed
below it. ` + "`REPS=3 hack/bench.sh stall`" + ` is a quick trial; ` + "`KEEP=directory`" + ` keeps every repetition and the agents' logs.
`

// update replaces the section in the page, or appends it.
func update(page string, s section) error {
	raw, err := os.ReadFile(page)
	if errors.Is(err, fs.ErrNotExist) {
		raw, err = []byte(filled(pageHead)+"\n"), nil
	}
	if err != nil {
		return fmt.Errorf("read page: %w", err)
	}
	return os.WriteFile(page, replaceSection(raw, s), 0o644)
}

func replaceSection(page []byte, s section) []byte {
	from := bytes.Index(page, []byte(beginMark(s.name)))
	to := bytes.Index(page, []byte(endMark(s.name)))
	if from < 0 || to < from {
		return append(append(page, '\n'), s.String()...)
	}
	to += len(endMark(s.name)) + 1
	return append(append(bytes.Clone(page[:from]), s.String()...), page[min(to, len(page)):]...)
}

// machine describes the measuring machine.
func machine() string {
	var u unix.Utsname
	_ = unix.Uname(&u) // the page shows an empty name on error
	kernel := unix.ByteSliceToString(u.Release[:])
	commit, err := exec.Command("git", "describe", "--always", "--dirty").Output()
	if err != nil {
		commit = []byte("unknown")
	}
	return fmt.Sprintf("%d cores (%s), Linux %s, %s, commit %s",
		runtime.NumCPU(), processor(), kernel, runtime.Version(), strings.TrimSpace(string(commit)))
}

func processor() string {
	raw, err := os.ReadFile("/proc/cpuinfo")
	if err != nil {
		return runtime.GOARCH
	}
	for line := range strings.Lines(string(raw)) {
		if name, value, found := strings.Cut(line, ":"); found && strings.TrimSpace(name) == "model name" {
			return strings.TrimSpace(value)
		}
	}
	return runtime.GOARCH
}
