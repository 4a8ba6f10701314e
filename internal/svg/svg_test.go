package svg

import (
	"encoding/xml"
	"io"
	"strings"
	"testing"
)

// evil is a name with markup, control characters and terminal escapes.
const evil = "</text><script>alert(1)</script>\"'&\x1b[31m\x00\u202eabc\u200b\xff]]>"

// hostile returns a drawing with evil in every text.
func hostile() *Drawing {
	return &Drawing{Width: 10, Height: 10, Title: evil, Bands: []Box{{Title: evil}}, Lines: []Line{{Arrow: true, Title: evil, Tone: Bad}},
		Boxes: []Box{{Title: evil, Tone: Good}}, Dots: []Dot{{Title: evil, Tone: Fair}}, Texts: []Text{{Text: evil, Anchor: "start", Mono: true, Faint: true, Tone: Dim}}}
}

// TestHostileTexts checks that the texts of a drawing stay text in a document.
func TestHostileTexts(t *testing.T) {
	t.Parallel()
	for name, text := range map[string]string{"document": hostile().String()} {
		if strings.ContainsAny(text, "\x1b\x00\u202e\u200b") || strings.Contains(text, "<script") {
			t.Errorf("%s:\n%q", name, text)
		}
		d := xml.NewDecoder(strings.NewReader(text))
		for {
			token, err := d.Token()
			if err == io.EOF {
				break
			}
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			e, ok := token.(xml.StartElement)
			if !ok {
				continue
			}
			switch e.Name.Local {
			case "svg", "style", "rect", "line", "circle", "title", "text", "polygon":
			default:
				t.Errorf("%s: element %s", name, e.Name.Local)
			}
			for _, a := range e.Attr {
				if strings.HasPrefix(a.Name.Local, "on") || a.Name.Local == "href" || a.Name.Local == "style" {
					t.Errorf("%s: attribute %s", name, a.Name.Local)
				}
			}
		}
	}
}

// TestEscape checks that texts contain only printable characters.
func TestEscape(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		"shop/web":          "shop/web",
		"<b>&\"'":           "&lt;b&gt;&amp;&#34;&#39;",
		"a\x1b[31mb":        "a [31mb",
		"a\u202eb\u200bc\n": "a b c ",
		"größer 東京":         "größer 東京",
	} {
		if got := Escape(in); got != want {
			t.Errorf("Escape(%q) = %q, want %q", in, got, want)
		}
	}
}
