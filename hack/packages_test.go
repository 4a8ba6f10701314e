package hack

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestPackages runs packages.sh on a module of packages that are concurrent or not.
func TestPackages(t *testing.T) {
	t.Parallel()
	script, err := filepath.Abs("packages.sh")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	files := map[string]string{
		"go.mod":             "module example.org/m\n\ngo 1.26\n",
		"closure/a.go":       "package p\n\nfunc F() {\n\tgo func() {}()\n}\n",
		"method/a.go":        "package p\n\ntype t struct{ n interface{ Run() } }\n\nfunc (t t) F() {\n\tgo t.n.Run()\n}\n",
		"group/a.go":         "package p\n\nimport \"sync\"\n\nvar Wait sync.WaitGroup\n",
		"atomic/a.go":        "package p\n\nimport (\n\t\"os\"\n\t\"sync/atomic\"\n)\n\nvar N atomic.Int64\nvar _ = os.Args\n",
		"renamed/a.go":       "package p\n\nimport s \"sync\"\n\nvar Once s.Once\n",
		"channel/a.go":       "package p\n\nfunc F(c chan int) {}\n",
		"receive/a.go":       "package p\n\nfunc F(c <-chan struct{}) {}\n",
		"second/a.go":        "package p\n",
		"second/b.go":        "package p\n\nvar C = make(chan struct{})\n",
		"pure/a.go":          "package p\n\n// F says go and is no chance to go far: sync.yaml.\nfunc F() { println(\"sync.yaml\") }\n",
		"intest/a.go":        "package p\n",
		"intest/a_test.go":   "package p\n\nimport \"testing\"\n\nfunc TestF(t *testing.T) { go t.Log() }\n",
		"onlytest/a_test.go": "package p\n",
		"long/a.go":          "package p\n\nfunc F(c chan int) {}\n",
		"long/a_test.go":     "//go:build !race\n\npackage p\n",
		"outside/a.go":       "package p\n\nfunc F(c chan int) {}\n",
		"outside/a_test.go":  "//go:build !race\n\npackage p_test\n",
		"tagged/a.go":        "package p\n",
		"tagged/a_test.go":   "//go:build !race\n\npackage p\n",
	}
	for name, text := range files {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	list := func(dir, kind string) []string {
		cmd := exec.Command(script, kind, "./...")
		cmd.Dir = dir
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		return strings.Fields(string(out))
	}
	for kind, names := range map[string][]string{
		"concurrent": {"atomic", "channel", "closure", "group", "long", "method", "outside", "receive", "renamed", "second"},
		"sequential": {"intest", "long", "onlytest", "outside", "pure", "tagged"},
	} {
		var want []string
		for _, name := range names {
			want = append(want, "example.org/m/"+name)
		}
		if have := list(dir, kind); !slices.Equal(have, want) {
			t.Errorf("%s: %s, want %s", kind, have, want)
		}
	}

	concurrent, sequential := list("..", "concurrent"), list("..", "sequential")
	for _, name := range []string{"nodeagent", "nodeagent/kernel", "lab", "reconciler", "render"} {
		if !slices.Contains(concurrent, "hawser.dev/hawser/"+name) {
			t.Errorf("%s starts goroutines, and is tested without -race", name)
		}
	}
	out, err := exec.Command("go", "list", "hawser.dev/hawser/...").Output()
	if err != nil {
		t.Fatal(err)
	}
	both := slices.Compact(slices.Sorted(slices.Values(append(concurrent, sequential...))))
	if all := strings.Fields(string(out)); !slices.Equal(both, slices.Sorted(slices.Values(all))) {
		t.Errorf("packages missing:\n%s\n%s", both, all)
	}
}
