package cited

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
)

// limits is the heading of what a document does not promise.
const limits = "## Known limits"

// testName finds what a document may cite: a test function or a script.
var testName = regexp.MustCompile("`([A-Za-z0-9_-]+)`")

// CheckTests gives what is wrong with the tests that a document names. Each row of a
// table whose last column is headed "test" names one there, and so does each paragraph
// and each item of a list, but for those below the heading of its known limits. What
// stands in such a column, or looks like a test function, is one of the repository or a
// script of it. It fails when there is no such table.
func CheckTests(repository, page string) ([]string, error) {
	text, err := os.ReadFile(filepath.Join(repository, page))
	if err != nil {
		return nil, fmt.Errorf("read document: %w", err)
	}
	known, err := tests(repository)
	if err != nil {
		return nil, err
	}
	c := citations{page: page, known: known}
	for line := range strings.Lines(string(text)) {
		c.number++
		switch line = strings.TrimSpace(line); {
		case strings.HasPrefix(line, "|"):
			c.endBlock()
			c.row(line)
			continue
		case line == "" || strings.HasPrefix(line, "#"):
			c.endBlock()
			c.limited = line == limits || c.limited && !strings.HasPrefix(line, "#")
		case strings.HasPrefix(line, "- "):
			c.endBlock()
			fallthrough
		default:
			if c.block == "" {
				c.begun = c.number
			}
			c.block += line + "\n"
		}
		c.within = false
	}
	c.endBlock()
	if c.rows == 0 {
		return nil, fmt.Errorf("%s has no table with a column of tests", page)
	}
	return c.wrong, nil
}

// citations is how far a document was read.
type citations struct {
	page         string
	known        map[string]bool
	wrong        []string
	number, rows int
	within       bool   // a table with a column of tests
	limited      bool   // below the heading of the known limits
	block        string // the paragraph or item so far
	begun        int    // its first line
}

func (c *citations) row(line string) {
	cells := strings.Split(strings.TrimSuffix(line, "|"), "|")
	last := strings.TrimSpace(cells[len(cells)-1])
	switch {
	case last == "test":
		c.within = true
		return
	case !c.within || strings.Trim(last, "-") == "":
		return
	}
	c.rows++
	names := testName.FindAllStringSubmatch(last, -1)
	if len(names) == 0 {
		c.say(c.number, "the row names no test")
	}
	for _, n := range names {
		if !c.known[n[1]] {
			c.say(c.number, "there is no test "+n[1])
		}
	}
}

// endBlock looks at a paragraph or an item that ended.
func (c *citations) endBlock() {
	found := c.block == "" || c.limited
	for _, n := range testName.FindAllStringSubmatch(c.block, -1) {
		found = found || c.known[n[1]]
		if isTest.MatchString(n[1]) && !c.known[n[1]] {
			c.say(c.begun, "there is no test "+n[1])
			found = true
		}
	}
	if !found {
		c.say(c.begun, "this names no test")
	}
	c.block = ""
}

// isTest tells names of test functions.
var isTest = regexp.MustCompile(`^(Test|Fuzz|Benchmark)[A-Z]`)

func (c *citations) say(line int, what string) {
	c.wrong = append(c.wrong, fmt.Sprintf("%s:%d: %s", c.page, line, what))
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
