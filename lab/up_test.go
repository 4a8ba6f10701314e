package lab

import (
	"strings"
	"testing"
)

// TestAgentSource: users of a release have no make, so the error names the archive.
func TestAgentSource(t *testing.T) {
	t.Parallel()
	if got := agentSource("v0.2.0"); !strings.HasPrefix(got, "it is in hawser-agent_v0.2.0_linux_") {
		t.Errorf("release: %q", got)
	}
	if got := agentSource("dev"); got != "run make build" {
		t.Errorf("tree: %q", got)
	}
}
