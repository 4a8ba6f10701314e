package yamlsize_test

import (
	"fmt"
	"strings"
	"testing"

	"gopkg.in/yaml.v3"

	"hawser.dev/hawser/internal/yamlsize"
)

// nodes returns the largest number of values in a document of a valid text.
func nodes(raw []byte) int {
	var count func(n *yaml.Node) int
	count = func(n *yaml.Node) int {
		total := 1
		for _, child := range n.Content {
			total += count(child)
		}
		return total
	}
	dec, most := yaml.NewDecoder(strings.NewReader(string(raw))), 0
	for {
		var doc yaml.Node
		if dec.Decode(&doc) != nil {
			return most
		}
		most = max(most, count(&doc))
	}
}

// FuzzValues checks that no document has more than 2*Values+3 values.
func FuzzValues(f *testing.F) {
	for _, text := range []string{
		"[a,a,a]", "{a,b,c}", "{a: ,b: }", `{"a":b,'c':d}`, "- - - a", "- a\n- b\r- c\u0085- d\u2028- e", "a:\nb:\n", "? a\n? b\n", "? - a\n: - b", "[[[[[]]]]]", "{{{a}}}",
		"[a: b, ? c, d]", "&a [*a, !x y]", "- !!seq\n- &b\n- ", "--- a\n---\n--- [b]\n", "a: |\n  - b\n  - c\n", "exports[a/b].clusters[c-d]: [10.0.0.1-10.0.0.9, fd00::1]",
		`["a","b"]`, "{a:b,c:d}", "{[a]:b}", "[\"a\":\"b\"]", "[?a,-b]", "- -\n-\t-\n", "\ufeff- a",
	} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		if have, bound := nodes(raw), 2*yamlsize.Values(raw)+3; have > bound {
			t.Errorf("%q has %d values, more than %d", raw, have, bound)
		}
	})
}

func TestExcess(t *testing.T) {
	t.Parallel()
	for name, text := range map[string]string{
		"a list":        "a: [" + strings.Repeat("a,", yamlsize.MaxValues),
		"a mapping":     "a: {" + strings.Repeat("a: b,", yamlsize.MaxValues/2+1),
		"a block":       "a:\n" + strings.Repeat("- a\n", yamlsize.MaxValues),
		"lists in list": "a: " + strings.Repeat("[", yamlsize.MaxValues),
	} {
		at, found := yamlsize.Excess("f.yaml", []byte(text))
		if want := map[bool]int{true: yamlsize.MaxValues + 1, false: 1}[name == "a block"]; !found || at.Line != want || at.File != "f.yaml" {
			t.Errorf("%s: found %v at %s, want line %d", name, found, at, want)
		}
		if at, found := yamlsize.Excess("f.yaml", []byte(text[:len(text)*9/10])); found {
			t.Errorf("%s: found at %s of nine tenths", name, at)
		}
	}
	list := 0
	for i := range 100_000 {
		list += yamlsize.Values(fmt.Appendf(nil, "  exports[ns-%d/web-app].clusters[eu-west-1].ips: [10.0.0.1-10.0.0.9]\n", i))
	}
	if list > 300_000 {
		t.Errorf("100,000 lines of a lock have %d indicators", list)
	}
}
