package webpage

import (
	"crypto/sha256"
	"encoding/base64"
	"regexp"
	"strings"
	"testing"

	"hawser.dev/hawser/internal/svg"
)

const evil = "</td></title><script>alert(1)</script><img src=x onerror=alert(1)>\" onload=\"x\x1b[2J\u202e"

// TestPage: nothing of what others named becomes markup, and a browser may load and run
// nothing: each style of the page is one that its policy names.
func TestPage(t *testing.T) {
	t.Parallel()
	body := Table{Head: []string{evil}, Rows: [][]Cell{{{Text: evil, Small: evil, Class: evil, About: evil}}, Plain(evil)}}.String() +
		Paragraph("bad", "%s", evil) + Figure(&svg.Drawing{About: evil, Texts: []svg.Text{{Text: evil, Anchor: "start"}}})
	page := Page(evil, evil, []Section{{ID: evil, Title: evil, Body: body}, {ID: "b", Title: "B"}})
	for _, never := range []string{"<script", "<img", "\x1b", "\u202e", "http://", "https://", "url(", "@import", " style="} {
		if strings.Contains(page, never) {
			t.Errorf("the page has %q", never)
		}
	}
	if found := regexp.MustCompile(`<[a-z]+[^>]* on[a-z]+=`).FindString(strings.ReplaceAll(page, "&#34;", "")); strings.Contains(found, `onload="`) {
		t.Errorf("a handler: %s", found)
	}
	allowed := regexp.MustCompile(`http-equiv="Content-Security-Policy" content="([^"]*)"`).FindStringSubmatch(page)
	if allowed == nil || !strings.HasPrefix(allowed[1], "default-src 'none'; base-uri 'none'; form-action 'none'; style-src 'sha256-") || strings.Contains(allowed[1], "unsafe") {
		t.Fatalf("policy %v", allowed)
	}
	styles := regexp.MustCompile(`(?s)<style>(.*?)</style>`).FindAllStringSubmatch(page, -1)
	if len(styles) != 3 {
		t.Errorf("%d styles", len(styles))
	}
	for _, s := range styles {
		sum := sha256.Sum256([]byte(s[1]))
		if !strings.Contains(allowed[1], base64.StdEncoding.EncodeToString(sum[:])) {
			t.Errorf("a browser would not take the style that begins with %.40q", s[1])
		}
	}
	if strings.Index(page, "Content-Security-Policy") > strings.Index(page, "<style") || strings.Index(page, "Content-Security-Policy") > strings.Index(page, "<title") {
		t.Error("the policy stands behind what it is for")
	}
}

// TestEmptyTable: a table without rows is nothing.
func TestEmptyTable(t *testing.T) {
	t.Parallel()
	if got := (Table{Head: []string{"a"}}).String(); got != "" {
		t.Errorf("%q", got)
	}
}
