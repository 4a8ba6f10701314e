// Package hack tests the scripts of this directory.
package hack

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestTest runs test.sh on modules that fail in every way.
func TestTest(t *testing.T) {
	t.Parallel()
	script, err := filepath.Abs("test.sh")
	if err != nil {
		t.Fatal(err)
	}
	const flaky, first = "flaky: passed the second time:", `if _, err := os.Stat("mark"); err != nil { os.WriteFile("mark", nil, 0o600); `
	const listed = flaky + "\n  example.org/m.TestIt\n"
	tests := []struct {
		name, ci, body string
		passes         bool
		tells          string
		hides          string
	}{
		{"all pass", "", ``, true, "slowest:", flaky},
		{"all pass in CI", "true", ``, true, "slowest:", flaky},
		{"fails once", "", first + `t.Error("once") }`, true, listed, "is a bug"},
		{"fails once in CI", "true", first + `t.Error("once") }`, false, listed + "a test that passes only the second time is a bug", ""},
		{"always fails", "", first + `}; t.Error("always")`, false, "always", flaky},
		{"always fails in CI", "true", first + `}; t.Error("always")`, false, "always", flaky},
		{"panics once", "", first + `panic("gone") }`, false, "panic: gone", flaky},
		{"races once", "", first + `n, done := 0, make(chan bool); go func() { n++; done <- true }(); n++; <-done; t.Log(n) }`, false, "WARNING: DATA RACE", flaky},
		{"does not build", "", `nothing()`, false, "undefined: nothing", flaky},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			test := "package m\n\nimport (\n\"os\"\n\"testing\"\n)\n\nfunc TestIt(t *testing.T) {\n_ = os.Args\n" + tt.body + "\n}\n"
			for name, text := range map[string]string{"go.mod": "module example.org/m\n\ngo 1.26\n", "m_test.go": test} {
				if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			cmd := exec.Command(script, "-race", "-count=1", "-p", "1", "./...")
			cmd.Dir, cmd.Env = dir, append(os.Environ(), "CI="+tt.ci)
			out, err := cmd.CombinedOutput()
			if failed := new(exec.ExitError); err != nil && !errors.As(err, &failed) {
				t.Fatal(err)
			}
			if tt.passes != (err == nil) || !strings.Contains(string(out), tt.tells) || tt.hides != "" && strings.Contains(string(out), tt.hides) {
				t.Errorf("%v\n%s", err, out)
			}
		})
	}
}

// TestAbsent tests the list of missing programs and files, by package.
func TestAbsent(t *testing.T) {
	t.Parallel()
	const ask = `. ./install.sh; absent sh=dash no-such-program=one /etc/passwd=passwd /no/such/file=two`
	out, err := exec.Command("bash", "-c", ask).CombinedOutput()
	if err != nil || string(out) != "one\ntwo\n" {
		t.Errorf("%v\n%s", err, out)
	}
}

// TestNothingToInstall asks for no rights and no apt-get.
func TestNothingToInstall(t *testing.T) {
	t.Parallel()
	out, err := exec.Command("bash", "-c", `set -euo pipefail; . ./install.sh; PATH=/nowhere; packages_for me a.service`).CombinedOutput()
	if err != nil || len(out) > 0 {
		t.Errorf("%v\n%s", err, out)
	}
}

// TestFuzz runs fuzz.sh on modules whose one target is fast, slow or wrong.
func TestFuzz(t *testing.T) {
	t.Parallel()
	script, err := os.ReadFile("fuzz.sh")
	if err != nil {
		t.Fatal(err)
	}
	cache, err := exec.Command("go", "env", "GOCACHE").Output()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { // inputs that Go keeps for the next time
		if err := os.RemoveAll(filepath.Join(strings.TrimSpace(string(cache)), "fuzz", "example.org", "fuzzed")); err != nil {
			t.Error(err)
		}
	})
	// A long input, of which no byte can go: Go's own way to make it smaller takes the whole time.
	const deep = `for i, c := range raw { if i%8 == int(c)%8 && c > 100 { sum += 1 } }; if err := json.Unmarshal(raw, new(any)); err == nil { sum += 2 }`
	for _, tt := range []struct {
		name, body string
		passes     bool
		tells      string
	}{
		{"fast", deep, true, "== ./inner FuzzIt"},
		{"slow", `sha256.Sum256(make([]byte, 64<<20))`, false, "times in a second of CPU time, not 170"},
		{"wrong", `if len(raw) > 3 { t.Error("long") }`, false, "./inner FuzzIt: failed"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			test := "package m\n\nimport (\n\"crypto/sha256\"\n\"encoding/json\"\n\"strings\"\n\"testing\"\n)\n\nvar sum int\n\nfunc FuzzIt(f *testing.F) {\n_, _ = sha256.New, json.Valid\n" +
				"f.Add([]byte(\"[\" + strings.Repeat(`{\"a\": 1.5, \"bc\": [true, null, \"\\u1234x\"]}, `, 200) + \"7]\"))\nf.Fuzz(func(t *testing.T, raw []byte) {\n" + tt.body + "\n})\n}\n"
			for name, text := range map[string]string{"hack/fuzz.sh": string(script), "go.mod": "module example.org/fuzzed/" + tt.name + "\n\ngo 1.26\n", "inner/m_test.go": test} {
				if err := os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o700); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o700); err != nil {
					t.Fatal(err)
				}
			}
			out, err := exec.Command(filepath.Join(dir, "hack/fuzz.sh"), "3s").CombinedOutput()
			if failed := new(exec.ExitError); err != nil && !errors.As(err, &failed) {
				t.Fatal(err)
			}
			if tt.passes != (err == nil) || !strings.Contains(string(out), tt.tells) {
				t.Errorf("%v\n%s", err, out)
			}
		})
	}
}

// TestImage: images come with their checksums, signed when asked, and a bill of what
// they are made of.
func TestImage(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	run := func(command string) string {
		t.Helper()
		cmd := exec.Command("bash", "-euo", "pipefail", "-c", command)
		cmd.Env = append(os.Environ(), "DIST="+dir, "VERSION=v0", "SIGN="+dir+"/key", "IPSEC=", "IMAGE=example.org/agent")
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%s: %v\n%s", command, err, out)
		}
		return string(out)
	}
	run(`ssh-keygen -q -t ed25519 -N "" -f $DIST/key; echo "builder $(cat $DIST/key.pub)" >$DIST/allowed`)
	run(`./image.sh amd64`)
	run(`cd $DIST; sha256sum -c hawser-agent-v0.sha256`)
	run(`cd $DIST; ssh-keygen -Y verify -f allowed -I builder -n hawser-image -s hawser-agent-v0.sha256.sig <hawser-agent-v0.sha256`)
	if bill := run(`cat $DIST/hawser-agent-v0-amd64.spdx.json`); !strings.Contains(bill, `"name": "filippo.io/age"`) || !strings.Contains(bill, "pkg:golang/filippo.io/age@v") {
		t.Errorf("no filippo.io/age in\n%s", bill)
	}
	if sums := run(`cat $DIST/hawser-agent-v0.sha256`); strings.Count(sums, "\n") != 2 || !strings.Contains(sums, "hawser-agent-v0-amd64.tar\n") {
		t.Errorf("sums of\n%s", sums)
	}
}
