package doccheck

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
)

// limitsHeading is the heading of the section about known limits.
const limitsHeading = "## Known limits"

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
	known, err := listTests(repository)
	if err != nil {
		return nil, err
	}
	var problems []string
	report := func(b block, what string) { problems = append(problems, fmt.Sprintf("%s:%d: %s", page, b.line, what)) }
	anyTest := false     // the document names a test
	last := 0            // line of the previous block
	inTestTable := false // in a table with a column "test"
	inLimits := false    // below the heading of the known limits
	for _, b := range blocks(string(text)) {
		names := b.text
		row := strings.HasPrefix(b.text, "|")
		inTestTable = inTestTable && row && b.line == last+1
		last = b.line
		switch {
		case row:
			cells := strings.Split(strings.TrimSuffix(b.text, "|"), "|")
			if names = strings.TrimSpace(cells[len(cells)-1]); names == "test" {
				inTestTable = true
				continue
			}
			if !inTestTable || strings.Trim(names, "-") == "" {
				continue
			}
		case strings.HasPrefix(b.text, "#"):
			inLimits = b.text == limitsHeading
			continue
		}
		namesTest := !row && (inLimits || strings.HasSuffix(b.text, "Tests: none."))
		for _, n := range testName.FindAllStringSubmatch(names, -1) {
			namesTest = namesTest || row || known[n[1]]
			anyTest = anyTest || known[n[1]]
			if !known[n[1]] && (row || isTest.MatchString(n[1])) {
				report(b, "there is no test "+n[1])
				namesTest = true
			}
		}
		switch {
		case namesTest:
		case row:
			report(b, "the row names no test")
		default:
			report(b, "this names no test")
		}
	}
	if !anyTest {
		return nil, fmt.Errorf("%s names no test", page)
	}
	return problems, nil
}

// isTest matches names of test functions.
var isTest = regexp.MustCompile(`^(Test|Fuzz|Benchmark)[A-Z]`)

// listTests returns the names of all test functions and scripts.
func listTests(repository string) (map[string]bool, error) {
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
