package cited

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
)

// CheckTests gives what is wrong with the tests that the last columns of a document's
// tables name, where their head is "test": a row that names none, and names of neither a
// test function of the repository nor a script of it. It fails when there is no such table.
func CheckTests(repository, page string) ([]string, error) {
	text, err := os.ReadFile(filepath.Join(repository, page))
	if err != nil {
		return nil, fmt.Errorf("read document: %w", err)
	}
	known, err := tests(repository)
	if err != nil {
		return nil, err
	}
	var out []string
	rows, number, within := 0, 0, false
	name := regexp.MustCompile("`([A-Za-z0-9_-]+)`")
	for line := range strings.Lines(string(text)) {
		number++
		cells := strings.Split(strings.TrimSuffix(strings.TrimSpace(line), "|"), "|")
		last := strings.TrimSpace(cells[len(cells)-1])
		switch {
		case !strings.HasPrefix(line, "|"):
			within = false
			continue
		case last == "test":
			within = true
			continue
		case !within || strings.Trim(last, "-") == "":
			continue
		}
		rows++
		names := name.FindAllStringSubmatch(last, -1)
		if len(names) == 0 {
			out = append(out, fmt.Sprintf("%s:%d: the row names no test", page, number))
		}
		for _, n := range names {
			if !known[n[1]] {
				out = append(out, fmt.Sprintf("%s:%d: there is no test %s", page, number, n[1]))
			}
		}
	}
	if rows == 0 {
		return nil, fmt.Errorf("%s has no table with a column of tests", page)
	}
	return out, nil
}

// tests gives the names of all test functions and scripts.
func tests(repository string) (map[string]bool, error) {
	out := map[string]bool{}
	function := regexp.MustCompile(`(?m)^func ((?:Test|Fuzz|Benchmark)\w+)\(`)
	err := filepath.WalkDir(repository, func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && d.Name() == ".git":
			return fs.SkipDir
		case strings.HasSuffix(path, ".txtar"):
			out[strings.TrimSuffix(d.Name(), ".txtar")] = true
		case strings.HasSuffix(path, "_test.go"):
			text, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			for _, m := range function.FindAllStringSubmatch(string(text), -1) {
				out[m[1]] = true
			}
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("look for tests: %w", err)
	}
	return out, nil
}
