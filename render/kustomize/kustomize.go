// Package kustomize builds folders of a tree that is held in memory, from that
// tree alone: no kustomization can have it reach a network, start a program or
// read a file of the machine.
//
// kustomize itself clones what an entry of resources looks like and fetches URLs
// wherever it reads a file, with no option against it. So every entry that it
// would follow is looked at first, and only plain relative paths of files and
// folders that the tree has are left.
package kustomize

import (
	"fmt"
	"path"
	"reflect"
	"regexp"
	"slices"
	"strings"

	"gopkg.in/yaml.v3"
	"sigs.k8s.io/kustomize/api/konfig"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/api/resmap"
	"sigs.k8s.io/kustomize/api/types"
	"sigs.k8s.io/kustomize/kyaml/filesys"

	"hawser.dev/hawser/internal/diag"
	"hawser.dev/hawser/internal/yamlsize"
)

// Build builds the folder dir ("" = the root) of a tree of files by their
// slash-separated paths. It fails with the findings of Check, before kustomize
// runs, and with what kustomize says.
func Build(tree map[string][]byte, dir string) (resmap.ResMap, error) {
	if err := Check(tree, dir).Err(); err != nil {
		return nil, fmt.Errorf("build %s: %w", shown(dir), err)
	}
	files := filesys.MakeFsInMemory()
	for name, raw := range tree {
		if !plain.MatchString(name) || strings.Contains(name, "..") {
			continue // no path leads to it
		}
		if err := files.WriteFile("/"+name, raw); err != nil {
			return nil, fmt.Errorf("build %s: %w", shown(dir), err)
		}
	}
	built, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(files, "/"+dir)
	if err != nil {
		return nil, fmt.Errorf("build %s: %s", shown(dir), diag.ClipQuoted(err.Error()))
	}
	return built, nil
}

func shown(dir string) string {
	if dir == "" {
		return "."
	}
	return dir
}

// Codes of what Check finds.
const (
	CodeRemote  = "kustomize-remote"  // an entry that is no plain relative path
	CodeMissing = "kustomize-missing" // a path that the tree does not have
	CodeField   = "kustomize-field"   // a field that is not used here
	CodeSyntax  = "kustomize-syntax"  // not a kustomization
	CodeBound   = "kustomize-bound"   // more work than a build may be
)

// Check looks at the kustomization of a folder and at all that it leads to. Each
// finding is an error, at its place in the tree.
func Check(tree map[string][]byte, dir string) diag.List {
	c := checker{tree: tree, folders: map[string]bool{}, seen: map[string]work{}, files: map[string]content{}}
	for name := range tree {
		for at := path.Dir(name); at != "." && !c.folders[at]; at = path.Dir(at) {
			c.folders[at] = true
		}
	}
	c.folder(path.Clean("./"+dir), 1)
	c.list = append(c.list, c.tally.Overflow()...)
	c.list.Sort()
	return c.list
}

type checker struct {
	tree    map[string][]byte
	folders map[string]bool
	seen    map[string]work // by folder
	files   map[string]content
	list    diag.List
	tally   diag.Tally
	bounded bool // the first excess was reported
}

// folder checks a folder once, and returns what one build of it costs. The depth counts the
// folders on the way to it, with itself.
func (c *checker) folder(dir string, depth int) work {
	if done, ok := c.seen[dir]; ok {
		return done
	}
	c.seen[dir] = work{} // kustomize refuses a folder that leads to itself
	total := work{visits: 1}
	for _, name := range konfig.RecognizedKustomizationFileNames() {
		raw, ok := c.tree[path.Join(dir, name)]
		switch {
		case !ok:
		case depth > maxDepth:
			c.bound(path.Join(dir, name),
				fmt.Sprintf("is more than %d folders deep", maxDepth), "name the folders that are needed in the first kustomization")
		default:
			total = total.plus(c.file(dir, path.Join(dir, name), raw, depth))
		}
	}
	c.seen[dir] = total
	return total
}

// plain matches allowed paths. kustomize keeps no other names in memory,
// except with a colon. Of the allowed paths it treats only github.com/... as remote.
var plain = regexp.MustCompile(`^[A-Za-z0-9._/-]+$`)

// file checks one kustomization, and returns what one build of it costs without its own visit.
func (c *checker) file(dir, name string, raw []byte, depth int) work {
	var k types.Kustomization
	total := work{values: yamlsize.Values(raw)}
	if what := total.excess(); what != "" {
		c.bound(name, "is too large to build: "+what, "")
		return total
	}
	// This is kustomize's own decoder, which ignores the case of field names. Another decoder
	// would read other fields than kustomize.
	if err := k.Unmarshal(raw); err != nil {
		c.add(diag.Pos{File: name, Line: 1, Column: 1}, CodeSyntax, "is not a kustomization: "+diag.ClipQuoted(err.Error()), "")
		return total
	}
	k.FixKustomization()
	at := places(name, raw)

	entry := func(field, value string, folders bool) {
		clean := path.Join(dir, value)
		switch {
		case !plain.MatchString(value) || strings.Contains(value, "//") || path.IsAbs(value) ||
			strings.HasPrefix(strings.ToLower(value), "github.com/"):
			c.add(at(value), CodeRemote, fmt.Sprintf("%s: %s is not a path in this tree", field, diag.Quote(value)),
				"copy the file into the folder of this kustomization and name it by its relative path, of letters, digits, '.', '_' and '-'")
		case clean == ".." || strings.HasPrefix(clean, "../"):
			c.add(at(value), CodeRemote, fmt.Sprintf("%s: %s is outside of this tree", field, diag.Quote(value)),
				"copy the file into the folder of this kustomization")
		case folders && c.folders[clean] && c.tree[clean] == nil:
			total = total.plus(c.folder(clean, depth+1))
		case c.tree[clean] == nil:
			c.add(at(value), CodeMissing, fmt.Sprintf("%s: %s does not exist", field, diag.Clip(clean)), "")
		default:
			read := c.read(clean)
			total.bytes = saturated(total.bytes + len(c.tree[clean]))
			total.values = saturated(total.values + read.values)
			if field == "resources" {
				total.objects = saturated(total.objects + read.objects)
			}
			c.checkContent(diag.Pos{File: clean, Line: max(read.copies, 1), Column: 1}, read, field == "patches: path")
		}
	}
	inline := func(value, text string) {
		total.bytes = saturated(total.bytes + len(text))
		read := inspect([]byte(text))
		total.values = saturated(total.values + read.values)
		c.checkContent(at(value), read, true)
	}
	each := func(field string, values []string, folders bool) {
		for _, value := range values {
			entry(field, value, folders)
		}
	}
	file := func(field, value string) {
		if value != "" {
			entry(field, value, false)
		}
	}
	each("resources", k.Resources, true)
	each("components", k.Components, true)
	each("crds", k.Crds, false)
	each("configurations", k.Configurations, false)
	//lint:ignore SA1019 kustomize still reads it
	for _, p := range slices.Concat(k.Patches, k.PatchesJson6902) {
		total.patches++
		if p.Target != nil {
			total.targeted++
		}
		file("patches: path", p.Path)
		inline(p.Patch, p.Patch)
	}
	//lint:ignore SA1019 kustomize still reads it
	for _, p := range k.PatchesStrategicMerge {
		total.patches++
		if strings.Contains(string(p), "\n") { // it is the patch itself
			inline(string(p), string(p))
		} else {
			entry("patchesStrategicMerge", string(p), false)
		}
	}
	for key, value := range k.OpenAPI {
		if key != "path" {
			c.add(at(key), CodeField, "openapi: "+diag.Clip(key)+" is not used here", "openapi has the field path")
			continue
		}
		file("openapi: path", value)
	}
	sources := func(field string, s types.KvPairSources) {
		for _, value := range s.FileSources {
			if _, source, named := strings.Cut(value, "="); named {
				value = source
			}
			entry(field+": files", value, false)
		}
		each(field+": envs", s.EnvSources, false)
		file(field+": env", s.EnvSource)
	}
	for _, g := range k.ConfigMapGenerator {
		sources("configMapGenerator", g.KvPairSources)
	}
	for _, g := range k.SecretGenerator {
		sources("secretGenerator", g.KvPairSources)
	}
	// Their entries are programs, charts or files with paths of their own.
	for _, field := range []struct {
		name  string
		value any
	}{
		{"replacements", k.Replacements}, // can double an object each time
		{"generators", k.Generators},
		{"transformers", k.Transformers},
		{"validators", k.Validators},
		{"helmGlobals", k.HelmGlobals},
		{"helmCharts", k.HelmCharts},
	} {
		if !reflect.ValueOf(field.value).IsZero() {
			c.add(at(field.name), CodeField, field.name+" is not used here",
				"patches, components and resources of this tree do the same; put what a chart makes into a file")
		}
	}
	if what := (work{visits: 1}).plus(total).excess(); what != "" {
		c.bound(name, "is too large to build: "+what, "a component that several others name is built once for each of them: name it once")
	}
	return total
}

// bound adds a finding about a kustomization that is too much work, once for a build.
func (c *checker) bound(name, summary, hint string) {
	if !c.bounded {
		c.add(diag.Pos{File: name, Line: 1, Column: 1}, CodeBound, summary, hint)
	}
	c.bounded = true
}

func (c *checker) add(at diag.Pos, code, summary, hint string) {
	if c.tally == nil {
		c.tally = diag.Tally{}
	}
	c.tally[diag.Error]++
	if c.tally[diag.Error] > diag.MaxFindings {
		return
	}
	c.list = append(c.list, diag.Diagnostic{Severity: diag.Error, Code: code, Pos: at, Summary: summary, Hint: hint})
}

// places returns where a file has a value or a name of a field: the file alone
// where it cannot be found, as kustomize reads some things that YAML does not say.
func places(name string, raw []byte) func(string) diag.Pos {
	var root yaml.Node
	_ = yaml.Unmarshal(raw, &root)
	found := 0
	return func(value string) diag.Pos {
		if found++; found > diag.MaxFindings {
			return diag.Pos{File: name, Line: 1, Column: 1} // not reported
		}
		out := diag.Pos{File: name, Line: 1, Column: 1}
		var walk func(n *yaml.Node) bool
		walk = func(n *yaml.Node) bool {
			if n.Kind == yaml.ScalarNode && (strings.EqualFold(n.Value, value) || strings.HasSuffix(n.Value, "="+value)) {
				out.Line, out.Column, out.Width = n.Line, n.Column, len([]rune(value))
				return true
			}
			return slices.ContainsFunc(n.Content, walk)
		}
		walk(&root)
		return out
	}
}
