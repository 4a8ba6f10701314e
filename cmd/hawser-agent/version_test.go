package main

import (
	"bytes"
	"testing"
)

// TestVersion checks that --version prints the output of the command version.
func TestVersion(t *testing.T) {
	t.Parallel()
	var texts []string
	for _, arg := range []string{"version", "--version"} {
		var out bytes.Buffer
		root := newRoot()
		root.SetArgs([]string{arg})
		root.SetOut(&out)
		if err := root.Execute(); err != nil {
			t.Fatalf("%s: %v", arg, err)
		}
		texts = append(texts, out.String())
	}
	if texts[0] != version+"\n" || texts[1] != texts[0] {
		t.Errorf("version prints %q, --version %q", texts[0], texts[1])
	}
}
