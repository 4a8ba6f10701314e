package main

import (
	"bytes"
	"strings"
	"testing"

	"hawser.dev/hawser/nodeagent/status"
)

// TestNonePinned checks the report of an agent that verifies no signatures.
func TestNonePinned(t *testing.T) {
	t.Parallel()
	for want, trust := range map[string]*status.Trust{"signers: none pinned": nil, "signers: somebody;": {Signers: []string{"somebody"}}} {
		var out bytes.Buffer
		if err := printStatus(&out, status.Status{Trust: trust}); err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %q in\n%s", want, out.String())
		}
	}
}
