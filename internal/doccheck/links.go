package doccheck

import (
	"fmt"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strings"
)

var (
	link    = regexp.MustCompile(`\]\(([^)\s:]+)\)`)
	heading = regexp.MustCompile("(?m)^#+ (.*)$")
	dropped = regexp.MustCompile(`[^\p{L}\p{N} _-]`)
)

// CheckLinks returns the relative links of Markdown pages whose file or heading does not exist,
// each with file and line. Pages are paths below repository. It fails if a page cannot be read, or
// if the pages have no link.
func CheckLinks(repository string, pages []string) ([]string, error) {
	var problems []string
	links := 0
	anchors := map[string]map[string]bool{} // per page
	// problem returns the fault of a link from a page; empty if it is valid.
	problem := func(page, to string) (string, error) {
		file, anchor, _ := strings.Cut(to, "#")
		if file == "" {
			file = page
		} else {
			file = path.Join(path.Dir(page), file)
		}
		if _, err := os.Stat(filepath.Join(repository, file)); err != nil {
			return "no file " + file, nil
		}
		if anchor == "" {
			return "", nil
		}
		if anchors[file] == nil {
			var err error
			if anchors[file], err = headings(filepath.Join(repository, file)); err != nil {
				return "", err
			}
		}
		if !anchors[file][anchor] {
			return file + " has no heading #" + anchor, nil
		}
		return "", nil
	}
	for _, page := range pages {
		text, err := os.ReadFile(filepath.Join(repository, page))
		if err != nil {
			return nil, fmt.Errorf("read document: %w", err)
		}
		number := 0
		for line := range strings.Lines(string(text)) {
			number++
			for _, found := range link.FindAllStringSubmatch(line, -1) {
				links++
				text, err := problem(page, found[1])
				if err != nil {
					return nil, err
				}
				if text != "" {
					problems = append(problems, fmt.Sprintf("%s:%d: %s", page, number, text))
				}
			}
		}
	}
	if links == 0 {
		return nil, fmt.Errorf("no link in %s", strings.Join(pages, ", "))
	}
	return problems, nil
}

// headings returns the anchors of a page, as GitHub and GitLab form them.
func headings(page string) (map[string]bool, error) {
	text, err := os.ReadFile(page)
	if err != nil {
		return nil, fmt.Errorf("read document: %w", err)
	}
	out := map[string]bool{}
	for _, found := range heading.FindAllStringSubmatch(string(text), -1) {
		title := link.ReplaceAllString(found[1], "]") // anchors contain the text of a link, but not its target
		anchor := strings.ReplaceAll(dropped.ReplaceAllString(strings.ToLower(title), ""), " ", "-")
		for n, unique := 1, anchor; ; n++ {
			if !out[unique] {
				out[unique] = true
				break
			}
			unique = fmt.Sprintf("%s-%d", anchor, n)
		}
	}
	return out, nil
}
