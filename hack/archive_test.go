package hack

import (
	"bytes"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

// archived returns what hack/release.sh copies from the repository to the archive of the command line.
func archived(t *testing.T) []string {
	t.Helper()
	raw, err := os.ReadFile("release.sh")
	if err != nil {
		t.Fatal(err)
	}
	m := regexp.MustCompile(`(?m)^cp -r (.+) "\$work/doc-hawser/"$`).FindSubmatch(raw)
	if m == nil {
		t.Fatal("release.sh copies no documents to the archive of hawser")
	}
	return append(strings.Fields(string(m[1])), "LICENSE", "CHANGELOG.md", "e2e/README.md")
}

// TestArchiveLinks: relative links of the documents in the archive of the command line lead to files in it.
func TestArchiveLinks(t *testing.T) {
	t.Parallel()
	roots := archived(t)
	link := regexp.MustCompile(`\]\(([^)#:\s]+)(#[^)\s]*)?\)`)
	found := 0
	for _, root := range roots {
		err := filepath.WalkDir(filepath.Join("..", root), func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() || filepath.Ext(path) != ".md" {
				return err
			}
			raw, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			for _, m := range link.FindAllSubmatch(raw, -1) {
				found++
				target, err := filepath.Rel("..", filepath.Join(filepath.Dir(path), string(m[1])))
				if err != nil {
					return err
				}
				if !slices.ContainsFunc(roots, func(r string) bool { return target == r || strings.HasPrefix(target, r+"/") }) {
					t.Errorf("%s links %s, which is not in the archive", path, m[1])
				}
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if found < 100 {
		t.Errorf("only %d links found", found)
	}
}

// TestMessagesNameArchivedDocuments: each file of docs that the Go code names exists, so it is in the archive.
func TestMessagesNameArchivedDocuments(t *testing.T) {
	t.Parallel()
	if !slices.Contains(archived(t), "docs") {
		t.Fatal("docs is not in the archive")
	}
	page := regexp.MustCompile(`docs/[a-z-]+\.md`)
	found := 0
	for _, root := range []string{"discover", "render", "internal/cli", "lab", "nodeagent", "reconciler", "schema"} {
		err := filepath.WalkDir("../"+root, func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() || filepath.Ext(path) != ".go" || strings.HasSuffix(path, "_test.go") {
				return err
			}
			raw, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			for _, name := range page.FindAll(raw, -1) {
				found++
				if _, err := os.Stat(filepath.Join("..", string(name))); err != nil {
					t.Errorf("%s names %s: %v", path, name, err)
				}
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if found < 5 {
		t.Errorf("only %d names of documents found", found)
	}
}

// TestChartSchemas: the schema of each chart has exactly the values of values.yaml, and refuses others.
func TestChartSchemas(t *testing.T) {
	t.Parallel()
	type schema struct {
		Type       any                `json:"type"`
		Additional *bool              `json:"additionalProperties"`
		Properties map[string]*schema `json:"properties"`
	}
	var compare func(t *testing.T, at string, s *schema, values map[string]any)
	compare = func(t *testing.T, at string, s *schema, values map[string]any) {
		t.Helper()
		if s.Additional == nil || *s.Additional {
			t.Errorf("%s accepts unknown values", at)
		}
		for name, value := range values {
			of := s.Properties[name]
			if of == nil {
				t.Errorf("%s.%s is not in the schema", at, name)
				continue
			}
			if inner, ok := value.(map[string]any); ok && of.Properties != nil {
				compare(t, at+"."+name, of, inner)
			}
		}
		for name := range s.Properties {
			if _, found := values[name]; !found {
				t.Errorf("%s.%s is in the schema, but not in values.yaml", at, name)
			}
		}
	}
	for _, chart := range []string{"hawser-reconciler", "hawser-cluster"} {
		var s schema
		values := map[string]any{}
		for name, into := range map[string]any{"values.schema.json": &s, "values.yaml": &values} {
			raw, err := os.ReadFile("../deploy/charts/" + chart + "/" + name)
			if err == nil {
				err = yaml.Unmarshal(raw, into)
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		compare(t, chart, &s, values)
	}
}

// TestSecretKeys: the base of kustomize reads the keys of the Secret hawser-git that the chart reads.
func TestSecretKeys(t *testing.T) {
	t.Parallel()
	base, err := os.ReadFile("../deploy/kustomize/reconciler/reconciler.yaml")
	if err != nil {
		t.Fatal(err)
	}
	values, err := os.ReadFile("../deploy/charts/hawser-reconciler/values.yaml")
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Contains(values, []byte(`gitToken: {secret: "", key: token,`)) || !bytes.Contains(base, []byte(`"secretKeyRef":{"key":"token","name":"hawser-git"`)) {
		t.Error("the key of the token differs between chart and base")
	}
	if bytes.Contains(base, []byte("secretRef")) {
		t.Error("the base reads variables from a whole Secret")
	}
}
