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

// CheckLinks returns the relative links of Markdown pages that lead to no file or to no heading,
// one line each with file and line. Pages are paths below repository. It fails if a page cannot
// be read, or if the pages have no link.
func CheckLinks(repository string, pages []string) ([]string, error) {
	var wrong []string
	links := 0
	anchors := map[string]map[string]bool{} // per page
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
				target, anchor, _ := strings.Cut(found[1], "#")
				to := page
				if target != "" {
					to = path.Join(path.Dir(page), target)
				}
				if _, err := os.Stat(filepath.Join(repository, to)); err != nil {
					wrong = append(wrong, fmt.Sprintf("%s:%d: no file %s", page, number, to))
					continue
				}
				if anchor == "" {
					continue
				}
				if anchors[to] == nil {
					if anchors[to], err = headings(filepath.Join(repository, to)); err != nil {
						return nil, err
					}
				}
				if !anchors[to][anchor] {
					wrong = append(wrong, fmt.Sprintf("%s:%d: %s has no heading #%s", page, number, to, anchor))
				}
			}
		}
	}
	if links == 0 {
		return nil, fmt.Errorf("no link in %s", strings.Join(pages, ", "))
	}
	return wrong, nil
}

// headings returns the anchors of a page, as GitHub and GitLab form them.
func headings(page string) (map[string]bool, error) {
	text, err := os.ReadFile(page)
	if err != nil {
		return nil, fmt.Errorf("read document: %w", err)
	}
	out := map[string]bool{}
	for _, found := range heading.FindAllStringSubmatch(string(text), -1) {
		title := link.ReplaceAllString(found[1], "]") // the text of a link counts, its target does not
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
