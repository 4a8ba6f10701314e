package observe

import (
	"slices"
	"strings"
	"testing"

	"hawser.dev/hawser/nodeagent/converge"
)

// TestUnderstand checks the summary of the collected answers.
func TestUnderstand(t *testing.T) {
	t.Parallel()
	g := &collector{}
	all := topics()
	at := func(dir string) topic {
		return all[slices.IndexFunc(all, func(t topic) bool { return t.dir == dir })]
	}
	g.recordSummary(at("plan"), "g1/a", []byte(converge.NoChanges+"\n"))
	g.recordSummary(at("plan"), "g1/b", []byte("~ link hw-vx0 mtu: 1 -> 2\nPlan: 0 to create, 1 to update, 0 to replace, 0 to delete.\n"))
	g.recordSummary(at("status"), "g1/b", []byte(`{"cluster":"g1","node":"b","version":"v1","ready":true}`))
	g.recordSummary(at("status"), "g1/c", []byte(`no JSON`))
	g.recordSummary(at("metrics"), "g1/b", []byte("x 1\n"))
	g.recordAPI("g1", []byte(`{"gitVersion":"v1.34.0"}`))
	g.recordAPI("g2", []byte(`{}`))
	text := g.summary("g1", []string{"clusters/g2: cannot be reached"})
	for _, want := range []string{
		"queried: g1\ng1 Kubernetes v1.34.0\n1 agent answered, versions: v1 (1)\nfabrics: none (1)\n",
		"report:\n  g1/b: its kernel is not as it should be. Plan: 0 to create, 1 to update, 0 to replace, 0 to delete.\n\n",
		"Not collected:\n  clusters/g2: cannot be reached\n",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("lacks %q in\n%s", want, text)
		}
	}
}

func TestElement(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]string{"g1": "g1", "a/b": "a_b", "..": "_..", "": "_", "../x": ".._x", "n.example.org": "n.example.org"} {
		if have := safeFileName(name); have != want {
			t.Errorf("%q: have %q, want %q", name, have, want)
		}
	}
}
