package doccheck

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
)

// CheckExcerpts checks the worked examples of a document, and returns the problems. A code block
// whose first line is a comment with a path (// render/services.go) is an excerpt of that file. The
// file must contain the lines of the block in the same order, without gaps except at a line "...".
// In a command line, the targets of make and the tests and scripts of go test -run must exist. It
// fails if the document has no excerpt.
func CheckExcerpts(repository, page string) ([]string, error) {
	text, err := os.ReadFile(filepath.Join(repository, page))
	if err != nil {
		return nil, fmt.Errorf("read document: %w", err)
	}
	known, err := listTests(repository)
	if err != nil {
		return nil, err
	}
	makefile, err := os.ReadFile(filepath.Join(repository, "Makefile"))
	if err != nil {
		return nil, fmt.Errorf("read Makefile: %w", err)
	}
	for _, m := range regexp.MustCompile(`(?m)^([a-z0-9-]+):`).FindAllStringSubmatch(string(makefile), -1) {
		known["make "+m[1]] = true
	}
	var out []string
	excerpts, number, file := 0, 0, ""
	var remaining []string // lines of file that are not shown yet
	begins := regexp.MustCompile(`^// ([a-z0-9_/-]+\.go)$`)
	for line := range strings.Lines(string(text)) {
		number++
		code, isCode := strings.CutPrefix(strings.TrimRight(line, "\n"), "    ")
		if code = strings.TrimSpace(code); !isCode || code == "" {
			file = ""
			continue
		}
		for _, name := range targetsOf(code) {
			if !known[name] {
				out = append(out, fmt.Sprintf("%s:%d: there is no %s", page, number, name))
			}
		}
		switch m := begins.FindStringSubmatch(code); {
		case m != nil:
			raw, err := os.ReadFile(filepath.Join(repository, m[1]))
			if err != nil {
				return nil, fmt.Errorf("%s:%d: read excerpt: %w", page, number, err)
			}
			file, remaining, excerpts = m[1], strings.Split(string(raw), "\n"), excerpts+1
			remaining = append([]string{"..."}, remaining...)
		case file == "":
		case code == "...":
			remaining = append([]string{"..."}, remaining...)
		default:
			after := linesAfter(remaining, code)
			if after == nil {
				out = append(out, fmt.Sprintf("%s:%d: not in %s, or not there: %s", page, number, file, code))
				file = ""
			}
			remaining = after
		}
	}
	if excerpts == 0 {
		return nil, fmt.Errorf("%s has no excerpt of code", page)
	}
	return out, nil
}

// linesAfter returns the lines after want, ignoring differences in white space. It returns nil
// unless want is the first line, or any line after a leading "...".
func linesAfter(lines []string, want string) []string {
	same := func(line string) bool {
		return strings.Join(strings.Fields(line), " ") == strings.Join(strings.Fields(want), " ")
	}
	anywhere := len(lines) > 0 && lines[0] == "..."
	if anywhere {
		lines = lines[1:]
	}
	for i, line := range lines {
		if same(line) {
			return lines[i+1:]
		}
		if !anywhere {
			break
		}
	}
	return nil
}

// targetsOf returns the make targets, tests and scripts that a command line runs.
func targetsOf(command string) []string {
	var out []string
	if target, ok := strings.CutPrefix(command, "make "); ok {
		for _, word := range strings.Fields(target) {
			if word == "#" {
				break
			}
			if !strings.Contains(word, "=") {
				out = append(out, "make "+word)
			}
		}
	}
	if strings.Contains(command, "go test") {
		for _, m := range regexp.MustCompile(`-run '?\^?(Test[A-Za-z]+)(?:/([a-z-]+))?`).FindAllStringSubmatch(command, -1) {
			out = append(out, m[1])
			if m[2] != "" {
				out = append(out, m[2])
			}
		}
	}
	return out
}
