package doccheck

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
)

// limits is the heading of the section about known limits.
const limits = "## Known limits"

// testName matches a citation of a test function or script.
var testName = regexp.MustCompile("`([A-Za-z0-9_-]+)`")

// CheckTests checks the tests that a document names, and returns the problems. Each row of a table
// whose last column is "test" must name a test there. Each paragraph and each list item must name a
// test, too, unless it ends with "Tests: none." or is in the section about known limits. Names in
// such a column, and names that look like a test function, must exist as tests or scripts. It fails
// if the document names no test.
func CheckTests(repository, page string) ([]string, error) {
	text, err := os.ReadFile(filepath.Join(repository, page))
	if err != nil {
		return nil, fmt.Errorf("read document: %w", err)
	}
	known, err := tests(repository)
	if err != nil {
		return nil, err
	}
	var wrong []string
	say := func(b block, what string) { wrong = append(wrong, fmt.Sprintf("%s:%d: %s", page, b.line, what)) }
	cites := false   // the document names a test
	last := 0        // line of the previous block
	within := false  // in a table with a column "test"
	limited := false // below the heading of the known limits
	for _, b := range blocks(string(text)) {
		names := b.text
		row := strings.HasPrefix(b.text, "|")
		within = within && row && b.line == last+1
		last = b.line
		switch {
		case row:
			cells := strings.Split(strings.TrimSuffix(b.text, "|"), "|")
			if names = strings.TrimSpace(cells[len(cells)-1]); names == "test" {
				within = true
				continue
			}
			if !within || strings.Trim(names, "-") == "" {
				continue
			}
		case strings.HasPrefix(b.text, "#"):
			limited = b.text == limits
			continue
		}
		named := !row && (limited || strings.HasSuffix(b.text, "Tests: none."))
		for _, n := range testName.FindAllStringSubmatch(names, -1) {
			named = named || row || known[n[1]]
			cites = cites || known[n[1]]
			if !known[n[1]] && (row || isTest.MatchString(n[1])) {
				say(b, "there is no test "+n[1])
				named = true
			}
		}
		switch {
		case named:
		case row:
			say(b, "the row names no test")
		default:
			say(b, "this names no test")
		}
	}
	if !cites {
		return nil, fmt.Errorf("%s names no test", page)
	}
	return wrong, nil
}

// isTest matches names of test functions.
var isTest = regexp.MustCompile(`^(Test|Fuzz|Benchmark)[A-Z]`)

// tests returns the names of all test functions and scripts.
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
