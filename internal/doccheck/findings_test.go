package doccheck_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestFindings checks that docs/findings.md has each code of hawser discover and hawser preflight.
func TestFindings(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../docs/findings.md")
	if err != nil {
		t.Fatal(err)
	}
	code := regexp.MustCompile(`(?:\.warn\(|\.fail\(|add\(diag\.[A-Z][a-z]+, |Code: )"([a-z-]+)"`)
	found := 0
	for _, pattern := range []string{"discover/*.go", "kubeclient/discover.go", "internal/cli/install/preflight*.go"} {
		files, err := filepath.Glob("../../" + pattern)
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range files {
			if strings.HasSuffix(file, "_test.go") {
				continue
			}
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			for _, match := range code.FindAllStringSubmatch(string(text), -1) {
				found++
				if !strings.Contains(string(page), "`"+match[1]+"`") {
					t.Errorf("docs/findings.md lacks the code %s of %s", match[1], file)
				}
			}
		}
	}
	if found < 30 {
		t.Errorf("found %d codes in the code, want at least 30", found)
	}
}
