// Package kustomize builds directories of a tree in memory. A build reads only that tree: no
// kustomization can access a network, start a program or read a file of the machine.
//
// The kustomize library clones repositories and fetches URLs if an entry of resources refers to
// them. No option disables this. So Check checks every entry before a build. It accepts only
// relative paths of files and directories in the tree.
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

// Build builds the directory dir ("" = the root) of a tree of files by their slash-separated paths.
// It returns the findings of Check if there are any, without a build, or the error of kustomize.
func Build(tree map[string][]byte, dir string) (resmap.ResMap, error) {
	if err := Check(tree, dir).Err(); err != nil {
		return nil, fmt.Errorf("build %s: %w", displayPath(dir), err)
	}
	files := filesys.MakeFsInMemory()
	for name, raw := range tree {
		if !allowedPath.MatchString(name) || strings.Contains(name, "..") {
			continue // Check accepts no path to the file
		}
		if err := files.WriteFile("/"+name, raw); err != nil {
			return nil, fmt.Errorf("build %s: %w", displayPath(dir), err)
		}
	}
	built, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(files, "/"+dir)
	if err != nil {
		return nil, fmt.Errorf("build %s: %s", displayPath(dir), diag.ClipQuoted(err.Error()))
	}
	return built, nil
}

func displayPath(dir string) string {
	if dir == "" {
		return "."
	}
	return dir
}

// Codes of the findings of Check.
const (
	CodeRemote  = "kustomize-remote"  // an entry that is not an allowed relative path
	CodeMissing = "kustomize-missing" // a path that the tree does not have
	CodeField   = "kustomize-field"   // an unsupported field
	CodeSyntax  = "kustomize-syntax"  // not a kustomization
	CodeBound   = "kustomize-bound"   // a build that exceeds a limit
)

// Check checks the kustomization of a directory and all files to which it refers. Each finding is
// an error with its position in the tree.
func Check(tree map[string][]byte, dir string) diag.List {
	c := checker{tree: tree, dirs: map[string]bool{}, costs: map[string]buildCost{}, files: map[string]fileStats{}}
	for name := range tree {
		for at := path.Dir(name); at != "." && !c.dirs[at]; at = path.Dir(at) {
			c.dirs[at] = true
		}
	}
	c.checkDir(path.Clean("./"+dir), 1)
	c.list = append(c.list, c.tally.Overflow()...)
	c.list.Sort()
	return c.list
}

type checker struct {
	tree          map[string][]byte
	dirs          map[string]bool
	costs         map[string]buildCost // by directory
	files         map[string]fileStats
	list          diag.List
	tally         diag.Tally
	boundReported bool // the first exceeded limit was reported
}

// checkDir checks a directory once, and returns the cost of one build of it. depth is the number
// of nested directories from the first directory to this one, including both.
func (c *checker) checkDir(dir string, depth int) buildCost {
	if cached, ok := c.costs[dir]; ok {
		return cached
	}
	c.costs[dir] = buildCost{} // kustomize rejects a directory that refers to itself
	total := buildCost{dirBuilds: 1}
	for _, name := range konfig.RecognizedKustomizationFileNames() {
		raw, ok := c.tree[path.Join(dir, name)]
		switch {
		case !ok:
		case depth > maxDepth:
			c.addBound(path.Join(dir, name),
				fmt.Sprintf("is more than %d directories deep", maxDepth), "name the directories that are needed in the first kustomization")
		default:
			total = total.add(c.checkKustomization(dir, path.Join(dir, name), raw, depth))
		}
	}
	c.costs[dir] = total
	return total
}

// allowedPath matches allowed paths. The in-memory file system of kustomize supports only these
// characters and the colon. Of the matching paths kustomize treats only github.com/... as remote.
var allowedPath = regexp.MustCompile(`^[A-Za-z0-9._/-]+$`)

// checkKustomization checks one kustomization. It returns the cost of one build, without the directory
// itself.
func (c *checker) checkKustomization(dir, name string, raw []byte, depth int) buildCost {
	var k types.Kustomization
	total := buildCost{values: yamlsize.Values(raw)}
	if limit := total.exceededLimit(); limit != "" {
		c.addBound(name, "is too large to build: "+limit, "")
		return total
	}
	// Use kustomize's own decoder, which ignores the case of field names. Another decoder would
	// read other fields.
	if err := k.Unmarshal(raw); err != nil {
		c.add(diag.Pos{File: name, Line: 1, Column: 1}, CodeSyntax, "is not a kustomization: "+diag.ClipQuoted(err.Error()), "")
		return total
	}
	k.FixKustomization()
	position := positions(name, raw)

	checkEntry := func(field, value string, allowDirs bool) {
		clean := path.Join(dir, value)
		switch {
		case !allowedPath.MatchString(value) || strings.Contains(value, "//") || path.IsAbs(value) ||
			strings.HasPrefix(strings.ToLower(value), "github.com/"):
			c.add(position(value), CodeRemote, fmt.Sprintf("%s: %s is not a path in this tree", field, diag.Quote(value)),
				"copy the file into the directory of this kustomization and name it by its relative path, of letters, digits, '.', '_' and '-'")
		case clean == ".." || strings.HasPrefix(clean, "../"):
			c.add(position(value), CodeRemote, fmt.Sprintf("%s: %s is outside of this tree", field, diag.Quote(value)),
				"copy the file into the directory of this kustomization")
		case allowDirs && c.dirs[clean] && c.tree[clean] == nil:
			total = total.add(c.checkDir(clean, depth+1))
		case c.tree[clean] == nil:
			summary := fmt.Sprintf("%s: %s does not exist", field, diag.Clip(clean))
			c.add(position(value), CodeMissing, summary, "")
		default:
			stats := c.stats(clean)
			total.bytes = saturate(total.bytes + len(c.tree[clean]))
			total.values = saturate(total.values + stats.values)
			if field == "resources" {
				total.objects = saturate(total.objects + stats.objects)
			}
			c.checkStats(diag.Pos{File: clean, Line: max(stats.copyLine, 1), Column: 1}, stats, field == "patches: path")
		}
	}
	checkInline := func(value, text string) {
		total.bytes = saturate(total.bytes + len(text))
		stats := inspect([]byte(text))
		total.values = saturate(total.values + stats.values)
		c.checkStats(position(value), stats, true)
	}
	checkEntries := func(field string, values []string, allowDirs bool) {
		for _, value := range values {
			checkEntry(field, value, allowDirs)
		}
	}
	checkOptional := func(field, value string) {
		if value != "" {
			checkEntry(field, value, false)
		}
	}
	checkEntries("resources", k.Resources, true)
	checkEntries("components", k.Components, true)
	checkEntries("crds", k.Crds, false)
	checkEntries("configurations", k.Configurations, false)
	//lint:ignore SA1019 kustomize still reads it
	for _, p := range slices.Concat(k.Patches, k.PatchesJson6902) {
		total.patches++
		if p.Target != nil {
			total.targetedPatches++
		}
		checkOptional("patches: path", p.Path)
		checkInline(p.Patch, p.Patch)
	}
	//lint:ignore SA1019 kustomize still reads it
	for _, p := range k.PatchesStrategicMerge {
		total.patches++
		if strings.Contains(string(p), "\n") { // it is the patch itself
			checkInline(string(p), string(p))
		} else {
			checkEntry("patchesStrategicMerge", string(p), false)
		}
	}
	for key, value := range k.OpenAPI {
		if key != "path" {
			c.add(position(key), CodeField, "openapi: "+diag.Clip(key)+" is not used here", "openapi has the field path")
			continue
		}
		checkOptional("openapi: path", value)
	}
	sources := func(field string, s types.KvPairSources) {
		for _, value := range s.FileSources {
			if _, source, named := strings.Cut(value, "="); named {
				value = source
			}
			checkEntry(field+": files", value, false)
		}
		checkEntries(field+": envs", s.EnvSources, false)
		checkOptional(field+": env", s.EnvSource)
	}
	for _, g := range k.ConfigMapGenerator {
		sources("configMapGenerator", g.KvPairSources)
	}
	for _, g := range k.SecretGenerator {
		sources("secretGenerator", g.KvPairSources)
	}
	// Reject these fields: their entries are programs, charts or files with further paths.
	for _, field := range []struct {
		name  string
		value any
	}{
		{"replacements", k.Replacements}, // each one can double an object
		{"generators", k.Generators},
		{"transformers", k.Transformers},
		{"validators", k.Validators},
		{"helmGlobals", k.HelmGlobals},
		{"helmCharts", k.HelmCharts},
	} {
		if !reflect.ValueOf(field.value).IsZero() {
			c.add(position(field.name), CodeField, field.name+" is not used here",
				"patches, components and resources of this tree do the same; put what a chart makes into a file")
		}
	}
	if limit := (buildCost{dirBuilds: 1}).add(total).exceededLimit(); limit != "" {
		c.addBound(name, "is too large to build: "+limit, "a component that several others name is built once for each of them: name it once")
	}
	return total
}

// addBound adds a finding about a kustomization that exceeds a limit, once per Check.
func (c *checker) addBound(name, summary, hint string) {
	if !c.boundReported {
		c.add(diag.Pos{File: name, Line: 1, Column: 1}, CodeBound, summary, hint)
	}
	c.boundReported = true
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

// positions returns a function that returns the position of a value or field name in a file. If the
// file lacks the text, because kustomize has transformed the value, the position is line 1.
func positions(name string, raw []byte) func(string) diag.Pos {
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
