//go:build kube

package kube

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"
)

// releaseEnv is the absolute path of a directory of make release. Without it the tests make a
// release of the tree for this machine's platform only.
const releaseEnv = "HAWSER_KUBE_RELEASE"

// release is an unpacked release: the archive for sites without internet access, and a directory of
// the programs for PATH.
type release struct {
	version string // v0.2.0
	site    string // of the unpacked archive
	bin     string // hawser of the archive, git and ssh
}

// madeRelease is built once for all tests.
var madeRelease struct {
	once sync.Once
	release
	err error
}

// needRelease returns the release. The first call builds it.
func needRelease(t *testing.T) release {
	t.Helper()
	needMachine(t)
	madeRelease.once.Do(func() {
		start := time.Now()
		madeRelease.release, madeRelease.err = unpackRelease()
		t.Logf("figure: a release is made and unpacked in %.1f s", time.Since(start).Seconds())
	})
	if madeRelease.err != nil {
		t.Fatal(madeRelease.err)
	}
	return madeRelease.release
}

func unpackRelease() (release, error) {
	raw, err := os.ReadFile("../../CHANGELOG.md")
	if err != nil {
		return release{}, fmt.Errorf("find the version: %w", err)
	}
	found := regexp.MustCompile(`(?m)^## (v\S+) - `).FindSubmatch(raw)
	if found == nil {
		return release{}, fmt.Errorf("find the version: CHANGELOG.md has none")
	}
	rel := release{version: string(found[1]), site: filepath.Join(built.dir, "site"), bin: filepath.Join(built.dir, "user")}
	dist := os.Getenv(releaseEnv)
	if dist == "" {
		dist = filepath.Join(built.dir, "dist", rel.version)
		defer func() { _ = os.RemoveAll(filepath.Dir(dist)) }() // the unpacked archive has all files
		script := exec.Command("../../hack/release.sh", rel.version, dist)
		script.Env = append(os.Environ(), "PLATFORMS=linux/"+runtime.GOARCH, "IPSEC=0")
		if out, err := script.CombinedOutput(); err != nil {
			return rel, fmt.Errorf("hack/release.sh: %w\n%s", err, out)
		}
	}
	// As in docs/install.md, without the checks that need cosign.
	unpack := exec.Command("sh", "-ec", `mkdir "$2" "$3" && tar -xf "$1/hawser_$4_airgap.tar" -C "$2" && cd "$2" && sha256sum -c --quiet --strict SHA256SUMS
tar -xzf "hawser_$4_linux_$5.tar.gz" -C "$3" hawser && ln -s "$(command -v git)" "$(command -v ssh)" "$3"`,
		"sh", dist, rel.site, rel.bin, rel.version, runtime.GOARCH)
	if out, err := unpack.CombinedOutput(); err != nil {
		return rel, fmt.Errorf("unpack the release: %w\n%s", err, out)
	}
	return rel, nil
}

// file returns the path of a file of the release.
func (rel release) file(name string) string { return filepath.Join(rel.site, name) }

// image returns a line of images.txt, NAME:VERSION@DIGEST.
func (rel release) image(t *testing.T, name string) string {
	t.Helper()
	raw, err := os.ReadFile(rel.file("images.txt"))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(raw)) {
		if strings.Contains(line, "/"+name+":") {
			return strings.TrimSpace(line)
		}
	}
	t.Fatalf("images.txt has no %s: %s", name, raw)
	return ""
}

// userShell is a user with the release, a git identity and a kubeconfig, and without this tree's programs
// in PATH.
type userShell struct {
	release
	home       string
	kubeconfig string
}

// newUserShell returns a user. names are the names of the contexts, by cluster.
func newUserShell(t *testing.T, pair *clusterPair, rel release, names map[string]string) userShell {
	t.Helper()
	u := userShell{release: rel, home: t.TempDir()}
	u.kubeconfig = filepath.Join(u.home, "kubeconfig")
	pair.must(t, "", "cp", pair.kubeconfig, u.kubeconfig)
	for from, to := range names {
		pair.must(t, "", "kubectl", "--kubeconfig", u.kubeconfig, "config", "rename-context", from, to)
	}
	if err := os.WriteFile(filepath.Join(u.home, ".gitconfig"), []byte("[user]\nname = t\nemail = t@example.org\n[init]\ndefaultBranch = main\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	return u
}

// try runs a command line in a directory, on a terminal with the given answers. Without answers it
// has no terminal.
func (u userShell) try(ctx context.Context, dir, answers, line string) (string, error) {
	cmd := exec.CommandContext(ctx, "/bin/sh", "-ec", line)
	if answers != "" {
		cmd = exec.CommandContext(ctx, "/usr/bin/script", "-qefc", line, os.DevNull)
		cmd.Stdin = strings.NewReader(answers)
	}
	cmd.Dir = cmp.Or(dir, u.home)
	cmd.Env = []string{"PATH=" + u.bin, "HOME=" + u.home, "KUBECONFIG=" + u.kubeconfig, "TERM=xterm", "SHELL=/bin/sh"}
	out, err := cmd.CombinedOutput()
	if err != nil {
		return string(out), fmt.Errorf("%s: %w\n%s", line, err, out)
	}
	return string(out), nil
}

// run runs a command line like try, which must succeed.
func (u userShell) run(t *testing.T, dir, answers, line string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*conditionTimeout)
	defer cancel()
	out, err := u.try(ctx, dir, answers, line)
	if err != nil {
		t.Fatal(err)
	}
	return out
}
