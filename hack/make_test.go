package hack

import (
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"
)

// TestMakeHelp: make help lists each target of the Makefile in one line of at most 100 columns.
func TestMakeHelp(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../Makefile")
	if err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command("make", "-s", "-C", "..", "help").CombinedOutput()
	if err != nil {
		t.Fatalf("make help: %v\n%s", err, out)
	}
	help := map[string]bool{}
	for line := range strings.Lines(string(out)) {
		if len(line) > 101 {
			t.Errorf("longer than 100 columns: %s", line)
		}
		name, _, _ := strings.Cut(line, " ")
		help[name] = true
	}
	phony := strings.Fields(regexp.MustCompile(`(?m)^\.PHONY:(.*)`).FindStringSubmatch(string(text))[1])
	targets := regexp.MustCompile(`(?m)^([a-z0-9-]+):(?: |$)`).FindAllStringSubmatch(string(text), -1)
	for _, m := range targets {
		if !help[m[1]] {
			t.Errorf("make help lacks %s: write ## and what it does behind its dependencies", m[1])
		}
	}
	if len(targets) != len(phony) {
		t.Errorf("%d targets, and %d in .PHONY", len(targets), len(phony))
	}
}
