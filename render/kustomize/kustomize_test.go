package kustomize_test

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"

	"hawser.dev/hawser/internal/diag"
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

// TestCheck checks accepted files, and rejected ones with the exact message.
func TestCheck(t *testing.T) {
	t.Parallel()
	const at = "clusters/a/kustomization.yaml:"
	notPath := func(field, value string) string {
		return fmt.Sprintf("error: %s: %s is not a path in this tree", field, diag.Quote(value))
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
		{"a URL that is a directory too", "resources:\n- https://evil/two.yaml\n", at + "2:3: " + notPath("resources", "https://evil/two.yaml")},
		{"a host that is a directory too", "resources:\n- github.com/x/y\n", at + "2:3: " + notPath("resources", "github.com/x/y")},
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
		{"a replacement", "replacements: [{path: \"http://evil.example/x\"}]\n", at + "1:1: error: replacements is not used here"},
		{"a long value", "resources: [\"https://" + strings.Repeat("SECRET", 20) + "\"]\n", at + "1:13: error: resources: \"https://SECRETSECRETSECRETSECRETSECRETSE…\" is not a path in this tree"},
		{"a file of a generator", "configMapGenerator: [{name: x, files: [\"a=http://evil.example/x\"]}]\n", at + "1:40: " + notPath("configMapGenerator: files", "http://evil.example/x")},
		{"an environment", "secretGenerator: [{name: x, envs: [\"http://evil.example/x\"]}]\n", at + "1:36: " + notPath("secretGenerator: envs", "http://evil.example/x")},
		{"an old environment", "secretGenerator: [{name: x, env: \"http://evil.example/x\"}]\n", at + "1:34: " + notPath("secretGenerator: envs", "http://evil.example/x")},
		{"a file of the machine", "resources: [/etc/passwd]\n", at + "1:13: " + notPath("resources", "/etc/passwd")},
		{"a file above", "resources: [../../../etc/passwd]\n", at + "1:13: " + `error: resources: "../../../etc/passwd" is outside of this tree`},
		{"no such file", "patches: [{path: nowhere.yaml}]\n", at + "1:18: error: patches: path: clusters/a/nowhere.yaml does not exist"},
		{"generators", "generators: [patch.yaml]\n", at + "1:1: error: generators is not used here"},
		{"transformers", "transformers: [patch.yaml]\n", at + "1:1: error: transformers is not used here"},
		{"validators", "validators: [patch.yaml]\n", at + "1:1: error: validators is not used here"},
		{"charts", "helmCharts: [{name: x, repo: \"https://evil.example\"}]\n", at + "1:1: error: helmCharts is not used here"},
		{"old charts", "helmChartInflationGenerator: [{chartName: x}]\n", at + "1:1: error: helmCharts is not used here"},
		{"through another directory", "resources: [remote]\n", "clusters/a/remote/Kustomization:2:3: " + notPath("resources", "https://evil.example/x")},
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

// TestBounds checks that trees whose build grows without bound are refused fast.
func TestBounds(t *testing.T) {
	t.Parallel()
	const component = "apiVersion: kustomize.config.k8s.io/v1alpha1\nkind: Component\n"
	doubled := func(depth int) map[string][]byte {
		out := map[string][]byte{"kustomization.yaml": []byte("resources: [cm.yaml]\ncomponents: [c0]\n"), "cm.yaml": []byte(configMap)}
		for i := range depth {
			out[fmt.Sprintf("c%d/kustomization.yaml", i)] = fmt.Appendf(nil, "%scomponents: [../c%d, ../c%d]\n", component, i+1, i+1)
		}
		out[fmt.Sprintf("c%d/kustomization.yaml", depth)] = []byte(component + "commonAnnotations: {a: b}\n")
		return out
	}
	chain := doubled(0)
	for i := range 40 {
		chain[fmt.Sprintf("c%d/kustomization.yaml", i)] = fmt.Appendf(nil, "%scomponents: [../c%d]\n", component, i+1)
	}
	chain["c40/kustomization.yaml"] = []byte(component)
	one := func(kustomization, file string) map[string][]byte {
		return map[string][]byte{"kustomization.yaml": []byte(kustomization), "cm.yaml": []byte(file)}
	}
	laughs, copies := configMap+"x0: &x0 [a, b]\n", "[{op: add, path: /data, value: {}}"
	for i := range 30 {
		laughs += fmt.Sprintf("x%d: &x%[1]d [*x%d, *x%[2]d]\n", i+1, i)
		copies += fmt.Sprintf(", {op: copy, from: /data, path: /data/x%d}", i)
	}
	copies += "]"
	many := "resources: [cm.yaml]\npatches:\n" + strings.Repeat("- {target: {kind: ConfigMap}, patch: 'data: {a: b}'}\n", 30)
	for _, c := range []struct {
		name, want string
		tree       map[string][]byte
	}{
		{"a diamond", "", doubled(3)},
		{"doubled 12 times", "c4/kustomization.yaml:1:1: error: is too large to build: it builds more than 256 directories", doubled(12)},
		{"doubled 30 times", "c22/kustomization.yaml:1:1: error: is too large to build: it builds more than 256 directories", doubled(30)},
		{"doubled 3000 times", "c31/kustomization.yaml:1:1: error: is more than 32 directories deep", doubled(3000)},
		{"a chain of 40", "c31/kustomization.yaml:1:1: error: is more than 32 directories deep", chain},
		{"aliases", "cm.yaml:1:1: error: has YAML aliases that expand to more than 10000 values", one("resources: [cm.yaml]\n", laughs)},
		{"aliases in a patch", "cm.yaml:1:1: error: has YAML aliases", one("patches: [{path: cm.yaml}]\n", laughs)},
		{"an alias of itself", "cm.yaml:1:1: error: has YAML aliases", one("resources: [cm.yaml]\n", configMap+"x: &x [*x]\n")},
		{"an alias", "", one("resources: [cm.yaml]\n", configMap+"x: &x [a]\ny: *x\n")},
		{"copies", "cm.yaml:1:1: error: is a JSON patch with the operation copy", one("patches: [{path: cm.yaml}]\n", copies)},
		{"copies in an alias", "cm.yaml:1:1: error: is a JSON patch", one("patches: [{path: cm.yaml}]\n", "- {op: &c copy, from: /a, path: /b}\n")},
		{"copies as JSON", "cm.yaml:1:1: error: is a JSON patch", one("patches: [{path: cm.yaml}]\n", "[{\"op\": \"c\\u006fpy\", \"from\": \"/a\", \"path\": \"/b\"}]\n")},
		{"copies inline", "kustomization.yaml:1:19: error: is a JSON patch", one("patches: [{patch: '"+copies+"', target: {kind: ConfigMap}}]\n", "")},
		{"patches of all objects", "", one(many, configMap)},
		{"patches of many objects", "kustomization.yaml:1:1: error: is too large to build: 1000 objects, 1 directories and 30 patches with a target", one(many, strings.Repeat("---\n"+configMap, 1000))},
		{"many patches", "kustomization.yaml:1:1: error: is too large to build: it has more than 2000 patches", one("patches:\n"+strings.Repeat("- {path: cm.yaml}\n", 2001), configMap)},
		{"many values", "kustomization.yaml:1:1: error: is too large to build: it reads more than 1000000 YAML values", one("resources: [cm.yaml]\n", "a: ["+strings.Repeat("a,", 1_000_000)+"]\n")},
		{"many values in two files", "kustomization.yaml:1:1: error: is too large to build: it reads more than 1000000 YAML values", one("patches: [{path: cm.yaml}, {path: cm.yaml}]\n", "a: ["+strings.Repeat("a,", 600_000)+"]\n")},
		{"many values in a kustomization", "kustomization.yaml:1:1: error: is too large to build: it reads more than 1000000 YAML values", one("resources: ["+strings.Repeat("a,", 1_000_000)+"]\n", "")},
		{"many reads", "kustomization.yaml:1:1: error: is too large to build: it reads more than 64 MiB", one("configMapGenerator: [{name: x, files: ["+strings.Repeat("cm.yaml, ", 65)+"]}]\n", strings.Repeat("x", 1<<20))},
	} {
		startedAt := time.Now()
		list := kustomize.Check(c.tree, "")
		if time.Since(startedAt) > 20*time.Second {
			t.Errorf("%s: took %v", c.name, time.Since(startedAt))
		}
		switch {
		case c.want == "" && len(list) > 0:
			t.Errorf("%s: refused: %v", c.name, list)
		case c.want != "" && (len(list) != 1 || !strings.HasPrefix(list[0].Error(), c.want)):
			t.Errorf("%s: %d findings, first %.300v, want %s", c.name, len(list), list, c.want)
		}
	}
	list := kustomize.Check(one("resources:\n"+strings.Repeat("- 'a b'\n", 100_000), ""), "")
	if len(list) != 201 {
		t.Errorf("%d findings", len(list))
	}
}

// TestBuildErrors checks that an error of kustomize quotes only a short part of a file.
func TestBuildErrors(t *testing.T) {
	t.Parallel()
	secret := strings.Repeat("SECRET", 20)
	for _, text := range []string{
		"patches: [{patch: '" + secret + "', target: {kind: ConfigMap}}]\nresources: [../../base]\n",
		"patches: [{patch: '{a: \"" + secret + "\"}'}]\n",
		"resources: [../../base]\npatches: [{patch: '[{op: replace, path: /" + secret + ", value: x}]', target: {kind: ConfigMap}}]\n",
		secret + ": x\n",
	} {
		_, err := kustomize.Build(tree(text), "clusters/a")
		if err == nil || strings.Contains(err.Error(), secret[:diag.MaxQuoted+1]) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s\n%v", text, err)
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

// outside records HTTP requests and runs of the program git.
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

// TestWatch checks that outside detects what kustomize does without Check. FuzzOutside depends on
// this.
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

// FuzzBounds checks that Check ends with few findings for any files of a tree. Build is fast for an
// accepted tree.
func FuzzBounds(f *testing.F) {
	const component = "apiVersion: kustomize.config.k8s.io/v1alpha1\nkind: Component\n"
	f.Add("resources: [cm.yaml]\ncomponents: [part]\n", component+"components: [../part, ../part]\n", configMap)
	f.Add("resources: [part, part]\n", "resources: [../cm.yaml]\n", configMap+"x: &x [*x]\n")
	f.Add("patches: [{path: cm.yaml, target: {kind: ConfigMap}}]\n", component, "[{op: copy, from: /a, path: /b}]\n")
	f.Add("configMapGenerator: [{name: x, files: [cm.yaml]}]\n", "x: &a [b, c]\ny: [*a, *a]\n", "[[[[")
	f.Fuzz(func(t *testing.T, top, part, file string) {
		tree := map[string][]byte{"kustomization.yaml": []byte(top), "part/kustomization.yaml": []byte(part), "cm.yaml": []byte(file)}
		list := kustomize.Check(tree, "")
		if len(list) > diag.MaxFindings+1 {
			t.Fatalf("%d findings", len(list))
		}
		for _, d := range list {
			if d.Code != "too-many-findings" && (tree[d.Pos.File] == nil || !d.Pos.IsValid()) {
				t.Errorf("%v is at no place", d)
			}
		}
		if len(list) > 0 {
			return
		}
		startedAt := time.Now()
		_, _ = kustomize.Build(tree, "")
		if d := time.Since(startedAt); d > 20*time.Second {
			t.Errorf("the build took %s", d)
		}
	})
}

// FuzzOutside checks that no kustomization opens a connection, or a file outside of the tree.
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
