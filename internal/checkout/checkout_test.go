package checkout_test

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"hawser.dev/hawser/internal/checkout"
)

const secret = "machine git.example.org login bot password hunter2-SECRET"

// tree creates files and links in a new directory and returns the directory. A value that begins
// with "-> " is the target of a link.
func tree(t *testing.T, files map[string]string) string {
	t.Helper()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range files {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		target, link := strings.CutPrefix(text, "-> ")
		if link {
			err = os.Symlink(target, path)
		} else {
			err = os.WriteFile(path, []byte(text), 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// TestRead checks which files of a repository, and of directories outside of one, are read.
func TestRead(t *testing.T) {
	dir := tree(t, map[string]string{
		"secret":                   secret,
		"outside/real.yaml":        "own",
		"outside/link.yaml":        "-> ../secret",
		"outside/file.yaml":        "-> ..data/file.yaml",
		"outside/..data":           "-> ..2026",
		"outside/..2026/file.yaml": "mounted",
		"repo/.git/config":         "token = " + secret,
		"repo/a.yaml":              "a",
		"repo/out.yaml":            "-> ../secret",
		"repo/absolute.yaml":       "-> /proc/self/environ",
		"repo/inside.yaml":         "-> a.yaml",
		"repo/envs/prod/a.yaml":    "b",
		"repo/envs/twice.yaml":     "-> ../out.yaml",
		"repo/envs/gone.yaml":      "-> nowhere",
		"repo/envs/git.yaml":       "-> ../.git/config",
		"repo/current":             "-> envs/prod",
		"repo/away":                "-> ../outside",
		"repo/nested/.git":         "gitdir: x",
		"repo/nested/a.yaml":       "-> ../../secret",
		"repo/tonested":            "-> nested",
		"way":                      "-> repo/envs",
	})
	if err := syscall.Mkfifo(filepath.Join(dir, "repo/fifo.yaml"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(filepath.Join(dir, "repo/a.yaml"), 1); err != nil {
		t.Fatal(err)
	}
	big, err := os.Create(filepath.Join(dir, "repo/big.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(big.Truncate(checkout.MaxFile+1), big.Close()); err != nil {
		t.Fatal(err)
	}
	const rule = `: Hawser does not follow links in a repository; commit the file itself, or name the directory that holds it`
	tests := []struct{ cwd, path, want string }{
		{"repo", "a.yaml", "a"},
		{"repo", "envs/prod/a.yaml", "b"},
		{"repo/envs", "../a.yaml", "a"},
		{"repo", dir + "/repo/a.yaml", "a"},
		{"way", "prod/a.yaml", "b"},
		{"", "way/prod/a.yaml", "b"},
		{"repo", "none.yaml", "error: open none.yaml: no such file or directory"},
		{"repo", "out.yaml", `error: out.yaml is a symbolic link to "../secret"` + rule},
		{"repo", "absolute.yaml", `error: absolute.yaml is a symbolic link to "/proc/self/environ"` + rule},
		{"repo", "inside.yaml", `error: inside.yaml is a symbolic link to "a.yaml"` + rule},
		{"repo", "current/a.yaml", `error: current is a symbolic link to "envs/prod"` + rule},
		{"repo/current", "a.yaml", `error: ` + dir + `/repo/current is a symbolic link to "envs/prod"` + rule},
		{"repo", "away/real.yaml", `error: away is a symbolic link to "../outside"` + rule},
		{"repo", "envs/twice.yaml", `error: envs/twice.yaml is a symbolic link to "../out.yaml"` + rule},
		{"repo", "envs/gone.yaml", `error: envs/gone.yaml is a symbolic link to "nowhere"` + rule},
		{"repo/envs", "git.yaml", `error: git.yaml is a symbolic link to "../.git/config"` + rule},
		{"repo/nested", "a.yaml", `error: a.yaml is a symbolic link to "../../secret"` + rule},
		{"repo", "tonested/a.yaml", `error: tonested is a symbolic link to "nested"` + rule},
		{"", "way/git.yaml", `error: way/git.yaml is a symbolic link to "../.git/config"` + rule},
		{"", dir + "/way/git.yaml", "error: " + dir + `/way/git.yaml is a symbolic link to "../.git/config"` + rule},
		{"", dir + "/repo/out.yaml", "error: " + dir + `/repo/out.yaml is a symbolic link to "../secret"` + rule},
		{"repo", ".git/config", "error: .git/config is in the directory .git, which is not part of the repository's content"},
		{"repo", "envs/../.GIT/config", "error: envs/../.GIT/config is in the directory .git, which is not part of the repository's content"},
		{"repo", "envs", "error: envs is a directory, not a regular file"},
		{"repo", "fifo.yaml", "error: fifo.yaml is a FIFO, not a regular file"},
		{"repo", "big.yaml", "error: big.yaml is larger than 32 MiB, the most that Hawser reads of one file"},

		{"", "outside/real.yaml", "own"},
		{"", "outside/link.yaml", `error: outside/link.yaml is a symbolic link to "../secret"` + rule},
		{"outside", "../outside/link.yaml", "error: " + dir + `/outside/link.yaml is a symbolic link to "../secret"` + rule},
		{"", dir + "/outside/file.yaml", "mounted"},
	}
	for _, c := range tests {
		t.Run(c.cwd+" "+c.path, func(t *testing.T) {
			t.Chdir(filepath.Join(dir, c.cwd))
			for how, read := range map[string]func(string) ([]byte, error){"ReadNamed": checkout.ReadNamed, "ReadFile": checkout.ReadFile} {
				raw, err := read(c.path)
				got := string(raw)
				if err != nil {
					got = "error: " + err.Error()
				}
				if got != c.want {
					t.Errorf("%s: %s\nwant %s", how, got, c.want)
				}
				if want := strings.HasSuffix(c.want, "no such file or directory"); errors.Is(err, fs.ErrNotExist) != want {
					t.Errorf("%s: errors.Is(err, fs.ErrNotExist) is %t", how, !want)
				}
				writes := checkout.CheckWrite(c.path)
				if link := strings.Contains(c.want, "symbolic link"); (writes != nil) != (link ||
					strings.Contains(c.want, "regular file") || strings.Contains(c.want, ".git,")) {
					t.Errorf("CheckWrite: %v", writes)
				}
			}
		})
	}
	// ReadNamed reads any file that the user names by an absolute path. ReadFile refuses a link
	// out of its directory.
	for _, path := range []string{dir + "/outside/link.yaml", dir + "/secret"} {
		if raw, err := checkout.ReadNamed(path); string(raw) != secret {
			t.Errorf("ReadNamed %s: %s %v", path, raw, err)
		}
	}
	if raw, err := checkout.ReadFile(dir + "/outside/link.yaml"); err == nil {
		t.Errorf("ReadFile followed a link out of its directory: %s", raw)
	}
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.WriteString("piped"); err != nil || w.Close() != nil {
		t.Fatal(err)
	}
	if raw, err := checkout.ReadNamed(fmt.Sprintf("/dev/fd/%d", r.Fd())); string(raw) != "piped" {
		t.Errorf("ReadNamed of a pipe: %s %v", raw, err)
	}
}

// TestReadTree checks that a directory is read as a whole, or refused.
func TestReadTree(t *testing.T) {
	dir := tree(t, map[string]string{
		".git/HEAD":            "ref: refs/heads/main",
		"patches/one.yaml":     "1",
		"patches/a/b/two.yaml": "2",
		"links/one.yaml":       "-> ../patches/one.yaml",
		"below/a":              "-> ../patches",
		"whole":                "-> patches",
		"file":                 "",
	})
	t.Chdir(dir)
	limits := checkout.Limits{Bytes: 1 << 20, Entries: 100}
	got, err := checkout.ReadTree("patches", limits)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(map[string][]byte{"one.yaml": []byte("1"), "a/b/two.yaml": []byte("2")}, got); d != "" {
		t.Error(d)
	}
	for name, want := range map[string]string{
		"none": "", "links": "links/one.yaml is a symbolic link", "below": "below/a is a symbolic link", "whole": "whole is a symbolic link",
		"file": "file is not a directory",
	} {
		got, err := checkout.ReadTree(name, limits)
		if want == "" && (err != nil || len(got) > 0) || want != "" && (err == nil || !strings.HasPrefix(err.Error(), want)) {
			t.Errorf("%s: %v %v, want %s", name, got, err, want)
		}
	}
	big := strings.Repeat("x", limits.Bytes)
	if err := os.WriteFile("patches/big", []byte(big), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := checkout.ReadTree("patches", limits); err == nil || err.Error() != "patches has more than 1 MiB of files" {
		t.Error(err)
	}
	for i := range limits.Entries {
		if err := os.MkdirAll(filepath.Join("many", fmt.Sprint(i%3), fmt.Sprint(i)), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := checkout.ReadTree("many", limits); err == nil || err.Error() != "many has more than 100 files and directories" {
		t.Error(err)
	}
}

// TestWrite checks that no write leads through a link in a repository.
func TestWrite(t *testing.T) {
	dir := tree(t, map[string]string{
		"secret":        secret,
		"outside/x":     "",
		"repo/.git":     "gitdir: x",
		"repo/out.yaml": "-> ../secret",
		"repo/away":     "-> ../outside",
		"repo/a.yaml":   "a",
		"own.yaml":      "-> secret",
	})
	t.Chdir(filepath.Join(dir, "repo"))
	for path, want := range map[string]string{
		"out.yaml": "out.yaml is a symbolic link", "away/new": "away is a symbolic link", "away/x": "away is a symbolic link",
		".git": ".git is in the directory .git", "new/directory/file": "", "a.yaml": "",
	} {
		err := errors.Join(checkout.MkdirAll(filepath.Dir(path), 0o755), checkout.Replace(path, []byte("new"), 0o644))
		again := checkout.Rewrite(path, []byte("newer"))
		for _, err := range []error{err, again} {
			if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
				t.Errorf("%s: %v, want %s", path, err, want)
			}
		}
	}
	if err := checkout.MkdirAll("away/directory/below", 0o755); err == nil {
		t.Error("made a directory outside of the repository")
	}
	if raw, err := os.ReadFile("a.yaml"); string(raw) != "newer" {
		t.Error(string(raw), err)
	}
	if err := checkout.Rewrite(dir+"/own.yaml", []byte("user's")); err != nil {
		t.Error(err)
	}
	if raw, err := os.ReadFile(dir + "/secret"); string(raw) != "user's" {
		t.Error("the user's own link was replaced", string(raw), err)
	}
	if list, err := os.ReadDir(dir + "/outside"); err != nil || len(list) != 1 {
		t.Error(list, err)
	}
}

// TestText checks that line ends change like in git with text=auto.
func TestText(t *testing.T) {
	t.Parallel()
	for have, want := range map[string]string{
		"": "", "a\n": "a\n", "a\r\nb\r\n": "a\nb\n", "a\r\nb\n": "a\nb\n", "a\r\nb": "a\nb",
		"a\rb\r\n": "a\rb\r\n", "a\r\r\n": "a\r\r\n", "\x00\r\n": "\x00\r\n", "\r": "\r",
	} {
		if got := string(checkout.Text([]byte(have))); got != want {
			t.Errorf("%q: %q, want %q", have, got, want)
		}
	}
}
