package e2e

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
)

// formerEnv names the commit or tag of the former release. Without it, TestFormer uses the newest
// release before the checked-out commit.
const formerEnv = "HAWSER_FORMER"

// TestFormer runs the programs of the former release together with the programs of this tree, in
// the scenarios of testdata/former. It is skipped if the clone has no former release.
func TestFormer(t *testing.T) {
	needs(t)
	commit := os.Getenv(formerEnv)
	if commit == "" {
		out, err := exec.Command("git", "describe", "--tags", "--abbrev=0", "--match=v[0-9]*", "HEAD^").CombinedOutput()
		if err != nil {
			t.Skipf("no former release in this clone, and %s names none: %s", formerEnv, strings.TrimSpace(string(out)))
		}
		commit = strings.TrimSpace(string(out))
	}
	dir := t.TempDir()
	for _, version := range []struct{ name, source, stamp string }{
		{"former", filepath.Join(dir, "source"), "v0.98.0"},
		{"present", "..", "v0.99.0"},
	} {
		build := `mkdir -p "$2"
[ "$1" = .. ] || { mkdir "$1"; git -C .. archive "$4" | tar -x -C "$1"; }
cd "$1" && go build -trimpath -ldflags "-X main.version=$3" -o "$2/" ./cmd/hawser ./cmd/hawser-agent`
		cmd := exec.Command("sh", "-ec", build, "sh", version.source, filepath.Join(dir, version.name), version.stamp, commit)
		cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("build %s of %s: %v\n%s", version.name, commit, err, out)
		}
	}
	t.Logf("former: %s", commit)
	p := params(filepath.Join("testdata", "former"))
	p.Setup = func(env *testscript.Env) error {
		if err := setup(env); err != nil {
			return err
		}
		env.Setenv("FORMER", filepath.Join(dir, "former"))
		env.Setenv("PRESENT", filepath.Join(dir, "present"))
		env.Setenv("PATH", filepath.Join(dir, "present")+":"+env.Getenv("PATH"))
		return nil
	}
	testscript.RunT(sequential{t}, p)
}
