package kustomize_test

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"

	"hawser.dev/hawser/render/kustomize"
)

const configMap = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: one}\ndata: {a: b}\n"

func tree(kustomization string) map[string][]byte {
	return map[string][]byte{
		"base/kustomization.yaml":              []byte("resources: [one.yaml]\n"),
		"base/one.yaml":                        []byte(configMap),
		"clusters/a/kustomization.yaml":        []byte(kustomization),
		"clusters/a/patch.yaml":                []byte(configMap),
		"clusters/a/https:/evil/two.yaml":      []byte(configMap),
		"clusters/a/github.com/x/y/two.yaml":   []byte(configMap),
		"clusters/a/part/kustomization.yml":    []byte("kind: Component\napiVersion: kustomize.config.k8s.io/v1alpha1\nnamePrefix: p-\n"),
		"clusters/a/remote/Kustomization":      []byte("resources:\n- https://evil.example/x\n"),
		"clusters/a/file with spaces, ü.yaml":  []byte(strings.Replace(configMap, "one", "two", 1)),
		"clusters/a/round/kustomization.yaml":  []byte("components: [../round2]\n"),
		"clusters/a/round2/kustomization.yaml": []byte("components: [../round]\n"),
	}
}

// TestCheck holds what is refused, with the exact message, and what is not.
func TestCheck(t *testing.T) {
	t.Parallel()
	const at = "clusters/a/kustomization.yaml:"
	notPath := func(field, value string) string {
		return fmt.Sprintf("error: %s: %q is not a path in this tree", field, value)
	}
	for _, c := range []struct{ name, text, want string }{
		{"a base", "resources: [../../base]\n", ""},
		{"a file", "resources: [../../base]\npatches: [{path: patch.yaml}]\n", ""},
		{"a component", "resources: [../../base]\ncomponents: [part]\n", ""},
		{"values of a generator", "configMapGenerator:\n- {name: x, files: [key=patch.yaml, patch.yaml], literals: [url=https://example.org]}\n", ""},
		{"a patch with a URL in it", "resources: [../../base]\npatches:\n- patch: |-\n    apiVersion: v1\n    kind: ConfigMap\n    metadata: {name: one}\n    data: {u: 'https://x'}\n", ""},
		{"a round", "resources: [../../base]\ncomponents: [round]\n", ""},

		{"a program by the reference", "resources: [\"file:///x?ref=--upload-pack=id>/tmp/y;\"]\n", at + "1:13: " + notPath("resources", "file:///x?ref=--upload-pack=id>/tmp/y;")},
		{"other letters", "resources: [\"file with spaces, ü.yaml\"]\n", at + "1:13: " + notPath("resources", "file with spaces, ü.yaml")},
		{"a URL", "resources:\n- ../../base\n- https://evil.example/x.yaml\n", at + "3:3: " + notPath("resources", "https://evil.example/x.yaml")},
		{"a URL that is a folder too", "resources:\n- https://evil/two.yaml\n", at + "2:3: " + notPath("resources", "https://evil/two.yaml")},
		{"a host that is a folder too", "resources:\n- github.com/x/y\n", at + "2:3: " + notPath("resources", "github.com/x/y")},
		{"a host in other letters", "resources:\n- GitHub.com/x/y\n", at + "2:3: " + notPath("resources", "GitHub.com/x/y")},
		{"scp-like", "resources:\n- git@evil.example:x/y\n", at + "2:3: " + notPath("resources", "git@evil.example:x/y")},
		{"forced git", "resources:\n- git::https://evil.example/x\n", at + "2:3: " + notPath("resources", "git::https://evil.example/x")},
		{"a field in other letters", "Resources:\n- ssh://evil.example/x\n", at + "2:3: " + notPath("resources", "ssh://evil.example/x")},
		{"an old name of resources", "bases:\n- http://evil.example/x\n", at + "2:3: " + notPath("resources", "http://evil.example/x")},
		{"a component", "components:\n- https://evil.example/x\n", at + "2:3: " + notPath("components", "https://evil.example/x")},
		{"crds", "crds: [http://evil.example/x]\n", at + "1:8: " + notPath("crds", "http://evil.example/x")},
		{"configurations", "configurations: [http://evil.example/x]\n", at + "1:18: " + notPath("configurations", "http://evil.example/x")},
		{"openapi", "openapi: {path: \"http://evil.example/x\"}\n", at + "1:17: " + notPath("openapi: path", "http://evil.example/x")},
		{"openapi's version", "openapi: {version: v1.20.4}\n", at + "1:11: error: openapi: version is not used here"},
		{"a patch", "patches: [{Path: \"http://evil.example/x\"}]\n", at + "1:18: " + notPath("patches: path", "http://evil.example/x")},
		{"an old patch", "patchesJson6902: [{path: \"http://evil.example/x\"}]\n", at + "1:26: " + notPath("patches: path", "http://evil.example/x")},
		{"an older patch", "patchesStrategicMerge: [http://evil.example/x]\n", at + "1:25: " + notPath("patchesStrategicMerge", "http://evil.example/x")},
		{"a replacement", "replacements: [{path: \"http://evil.example/x\"}]\n", at + "1:23: " + notPath("replacements: path", "http://evil.example/x")},
		{"a file of a generator", "configMapGenerator: [{name: x, files: [\"a=http://evil.example/x\"]}]\n", at + "1:40: " + notPath("configMapGenerator: files", "http://evil.example/x")},
		{"an environment", "secretGenerator: [{name: x, envs: [\"http://evil.example/x\"]}]\n", at + "1:36: " + notPath("secretGenerator: envs", "http://evil.example/x")},
		{"an old environment", "secretGenerator: [{name: x, env: \"http://evil.example/x\"}]\n", at + "1:34: " + notPath("secretGenerator: envs", "http://evil.example/x")},
		{"a file of the machine", "resources: [/etc/passwd]\n", at + "1:13: " + notPath("resources", "/etc/passwd")},
		{"a file above", "resources: [../../../etc/passwd]\n", at + "1:13: " + `error: resources: "../../../etc/passwd" is outside of this tree`},
		{"no such file", "patches: [{path: nowhere.yaml}]\n", at + "1:18: error: patches: path: there is no clusters/a/nowhere.yaml"},
		{"generators", "generators: [patch.yaml]\n", at + "1:1: error: generators is not used here"},
		{"transformers", "transformers: [patch.yaml]\n", at + "1:1: error: transformers is not used here"},
		{"validators", "validators: [patch.yaml]\n", at + "1:1: error: validators is not used here"},
		{"charts", "helmCharts: [{name: x, repo: \"https://evil.example\"}]\n", at + "1:1: error: helmCharts is not used here"},
		{"old charts", "helmChartInflationGenerator: [{chartName: x}]\n", at + "1:1: error: helmCharts is not used here"},
		{"through another folder", "resources: [remote]\n", "clusters/a/remote/Kustomization:2:3: " + notPath("resources", "https://evil.example/x")},
		{"no kustomization", "resources: 7\n", at + "1:1: error: is not a kustomization: "},
	} {
		list := kustomize.Check(tree(c.text), "clusters/a")
		switch {
		case c.want == "" && len(list) > 0:
			t.Errorf("%s: refused: %v", c.name, list)
		case c.want != "" && (len(list) == 0 || !strings.HasPrefix(list[0].Error(), c.want)):
			t.Errorf("%s: %v, want %s", c.name, list, c.want)
		}
	}
}

func TestBuild(t *testing.T) {
	t.Parallel()
	built, err := kustomize.Build(tree("resources: [../../base]\ncomponents: [part]\n"), "clusters/a")
	if err != nil {
		t.Fatal(err)
	}
	if got := built.Resources(); len(got) != 1 || got[0].GetName() != "p-one" {
		t.Errorf("built %v", got)
	}
	_, err = kustomize.Build(tree("resources: [https://evil.example/x]\n"), "clusters/a")
	if err == nil || !strings.Contains(err.Error(), `build clusters/a: clusters/a/kustomization.yaml:1:13: error: resources: "https://evil.example/x" is not a path`) {
		t.Errorf("err %v", err)
	}
}

// outside counts what leaves the process: requests by HTTP, and programs by the
// name git.
type outside struct {
	requests atomic.Int64
	mark     string
}

func (o *outside) RoundTrip(*http.Request) (*http.Response, error) {
	o.requests.Add(1)
	return nil, http.ErrNotSupported
}

func (o *outside) seen() bool {
	_, err := os.Stat(o.mark)
	return o.requests.Load() > 0 || err == nil
}

func watch(tb testing.TB) *outside {
	tb.Helper()
	dir := tb.TempDir()
	o := &outside{mark: filepath.Join(dir, "ran")}
	if err := os.WriteFile(filepath.Join(dir, "git"), []byte("#!/bin/sh\n: >"+o.mark+"\nexit 1\n"), 0o755); err != nil {
		tb.Fatal(err)
	}
	tb.Setenv("PATH", dir+":/bin")
	before := http.DefaultTransport
	http.DefaultTransport = o
	tb.Cleanup(func() { http.DefaultTransport = before })
	return o
}

func entries() []string {
	return []string{
		"https://evil.example/x", "http:x", "HTTPS://evil.example/x//y", "file:///x?ref=--upload-pack=id;", "git@evil.example:x/y", "git::ssh://x/y",
		"github.com/x/y", "gh:x/y", "_git/x", "x.git", "../../base", "part", "patch.yaml", "./github.com/x/y", "ssh://x", "%68ttp://x", "\thttps://x/y",
	}
}

// TestWatch shows that what FuzzOutside looks at sees something where kustomize
// runs without a look at its input.
func TestWatch(t *testing.T) {
	for _, entry := range entries()[:5] {
		o := watch(t)
		files := filesys.MakeFsInMemory()
		for name, raw := range tree(fmt.Sprintf("resources: [%q]\n", entry)) {
			if strings.Contains(name, " ") {
				continue
			}
			if err := files.WriteFile("/"+name, raw); err != nil {
				t.Fatal(err)
			}
		}
		_, _ = krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(files, "/clusters/a")
		if !o.seen() && entry != "http:x" {
			t.Errorf("%s: nothing was seen", entry)
		}
	}
}

// FuzzOutside: whatever a kustomization says, nothing leaves the process.
func FuzzOutside(f *testing.F) {
	for _, entry := range entries() {
		for _, field := range []string{
			"resources: [%q]\n", "Bases: [%q]\n", "components: [%q]\n", "crds: [%q]\n", "configurations: [%q]\n", "openapi: {path: %q}\n",
			"patches: [{path: %q}]\n", "patchesStrategicMerge: [%q]\n", "patchesJson6902: [{path: %q, target: {kind: ConfigMap, version: v1, name: one}}]\n",
			"replacements: [{path: %q}]\n", "configMapGenerator: [{name: x, files: [%q]}]\n", "secretGenerator: [{name: x, env: %q}]\n",
			"generators: [%q]\n", "transformers: [%q]\n", "validators: [%q]\n", "helmCharts: [{name: x, repo: %q}]\n",
			"resources: [remote]\n# %q\n",
		} {
			f.Add([]byte("resources: [../../base]\n" + fmt.Sprintf(field, entry)))
			f.Add([]byte(fmt.Sprintf(field, entry)))
		}
	}
	o := watch(f)
	f.Fuzz(func(t *testing.T, kustomization []byte) {
		_, _ = kustomize.Build(tree(string(kustomization)), "clusters/a")
		if o.seen() {
			t.Fatalf("something left the process for\n%s", kustomization)
		}
	})
}
