package metricdoc

import (
	"os"
	"os/exec"
	"strings"
	"testing"
)

// Promtool runs promtool, which must succeed, and returns its output. Without promtool the
// test is skipped; with REQUIRE_KERNEL=1 it fails, as for all programs that make setup installs.
func Promtool(t testing.TB, dir, input string, args ...string) string {
	t.Helper()
	program, err := exec.LookPath("promtool")
	switch {
	case err == nil:
	case os.Getenv("REQUIRE_KERNEL") == "1":
		t.Fatal("needs promtool (make setup)")
	default:
		t.Skip("needs promtool (make setup)")
	}
	cmd := exec.Command(program, args...)
	cmd.Dir, cmd.Stdin = dir, strings.NewReader(input)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("promtool %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return string(out)
}
