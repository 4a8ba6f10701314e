package main

import (
	"slices"
	"strings"
	"testing"
)

// TestCleanupFlags checks that help shows only the relevant flags, and that cleanup accepts the
// other flags of run.
func TestCleanupFlags(t *testing.T) {
	t.Parallel()
	cmd := cleanupCommand()
	var shown []string
	for line := range strings.Lines(cmd.Flags().FlagUsages()) {
		name, _, _ := strings.Cut(strings.TrimLeft(line, " -"), " ")
		shown = append(shown, name)
	}
	if want := []string{"log-format", "log-level", "proc-sys", "state", "vici"}; !slices.Equal(shown, want) {
		t.Errorf("shows %q, want %q", shown, want)
	}
	if err := cmd.ParseFlags([]string{"--cluster", "a", "--fabric", "/nowhere", "--resync", "1s"}); err != nil {
		t.Error(err)
	}
}
