package kustomize

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"math"

	"gopkg.in/yaml.v3"

	"hawser.dev/hawser/internal/diag"
	"hawser.dev/hawser/internal/yamlsize"
)

// Limits of one build. kustomize rebuilds a directory for each entry that refers to it. It matches
// every object against every patch with a target, which takes about 1 ms per match.
const (
	maxDirBuilds     = 256      // a directory counts once per build
	maxDepth         = 32       // levels of nested directories
	maxReadBytes     = 64 << 20 // a file counts once per read
	maxPatches       = 2_000
	maxMatches       = 20_000 // objects times the sum of directories and patches with a target
	maxExpandedNodes = 10_000 // YAML nodes that the aliases of a document add
	maxValues        = yamlsize.MaxValues
)

// buildCost is the cost of a build.
type buildCost struct{ dirBuilds, bytes, values, objects, patches, targetedPatches int }

func (w buildCost) add(o buildCost) buildCost {
	return buildCost{
		dirBuilds: saturate(w.dirBuilds + o.dirBuilds), bytes: saturate(w.bytes + o.bytes), values: saturate(w.values + o.values), objects: saturate(w.objects + o.objects),
		patches:         saturate(w.patches + o.patches),
		targetedPatches: saturate(w.targetedPatches + o.targetedPatches),
	}
}

// saturate returns the minimum of n and math.MaxInt32. Sums and products of two such counts do not
// overflow.
func saturate(n int) int { return min(n, math.MaxInt32) }

// exceededLimit returns a message about the first limit that the build exceeds, or "".
func (w buildCost) exceededLimit() string {
	switch matches := w.objects * (w.dirBuilds + w.targetedPatches); {
	case w.dirBuilds > maxDirBuilds:
		return fmt.Sprintf("it builds more than %d directories", maxDirBuilds)
	case w.bytes > maxReadBytes:
		return fmt.Sprintf("it reads more than %d MiB", maxReadBytes>>20)
	case w.values > maxValues:
		return fmt.Sprintf("it reads more than %d YAML values", maxValues)
	case w.patches > maxPatches:
		return fmt.Sprintf("it has more than %d patches", maxPatches)
	case matches > maxMatches:
		return fmt.Sprintf("%d objects, %d directories and %d patches with a target", w.objects, w.dirBuilds, w.targetedPatches)
	}
	return ""
}

// fileStats contains the properties of a YAML file that count towards the limits.
type fileStats struct {
	values         int  // indicators of YAML values, see yamlsize.Values
	objects        int  // upper bound of Kubernetes objects
	tooManyAliases bool // aliases add more than maxExpandedNodes nodes
	copyLine       int  // line of the first JSON patch operation "copy", or 0
}

// stats returns the fileStats of a file of the tree. It inspects each file once.
func (c *checker) stats(name string) fileStats {
	cached, ok := c.files[name]
	if !ok {
		cached = inspect(c.tree[name])
		c.files[name] = cached
	}
	return cached
}

// inspect returns the fileStats of a YAML text. It detects two causes of exponential growth:
// aliases of aliases, and JSON patches that copy a value into itself.
func inspect(raw []byte) fileStats {
	out := fileStats{values: yamlsize.Values(raw)}
	if out.values > maxValues {
		return out // exceededLimit rejects the build
	}
	dec := yaml.NewDecoder(bytes.NewReader(raw))
	for {
		var doc yaml.Node
		err := dec.Decode(&doc)
		if errors.Is(err, io.EOF) {
			return out
		}
		if err != nil {
			return out // kustomize reports the error if it reads the file as YAML
		}
		out.objects += countObjects(&doc)
		added := countExpandedNodes(&doc, map[*yaml.Node]int{}) - countNodes(&doc)
		out.tooManyAliases = out.tooManyAliases || added > maxExpandedNodes
		out.copyLine = cmp.Or(out.copyLine, copyLine(&doc))
	}
}

// checkStats adds findings about the content of a file or of an inline patch. patch means that
// kustomize reads the content as a patch.
func (c *checker) checkStats(at diag.Pos, stats fileStats, patch bool) {
	if stats.tooManyAliases {
		c.add(at, CodeBound, fmt.Sprintf("has YAML aliases that expand to more than %d values", maxExpandedNodes), "write the values out")
	}
	if patch && stats.copyLine > 0 {
		c.add(at, CodeBound, "is a JSON patch with the operation copy, which is not used here", "write the value out with the operation add")
	}
}

// countNodes counts a node and the nodes below it, without expanding aliases.
func countNodes(n *yaml.Node) int {
	total := 1
	for _, child := range n.Content {
		total += countNodes(child)
	}
	return total
}

// countObjects counts the mappings with a key "kind". The result is an upper bound of the objects.
func countObjects(n *yaml.Node) int {
	count := 0
	if n.Kind == yaml.MappingNode {
		for i := 0; i+1 < len(n.Content); i += 2 {
			if n.Content[i].Value == "kind" {
				count = 1
			}
		}
	}
	for _, child := range n.Content {
		count += countObjects(child)
	}
	return count
}

// copyLine returns the line of the first JSON patch operation that copies a value, or 0.
func copyLine(n *yaml.Node) int {
	if n.Kind == yaml.DocumentNode && len(n.Content) == 1 {
		n = resolveAlias(n.Content[0])
	}
	if n.Kind != yaml.SequenceNode {
		return 0
	}
	for _, item := range n.Content {
		item = resolveAlias(item)
		for i := 0; item.Kind == yaml.MappingNode && i+1 < len(item.Content); i += 2 {
			key, value := resolveAlias(item.Content[i]), resolveAlias(item.Content[i+1])
			if key.Value == "op" && value.Value == "copy" {
				return max(item.Line, 1)
			}
		}
	}
	return 0
}

// resolveAlias returns the target of an alias. It returns any other node unchanged.
func resolveAlias(n *yaml.Node) *yaml.Node {
	if n.Kind == yaml.AliasNode && n.Alias != nil {
		return n.Alias
	}
	return n
}

// countExpandedNodes counts a node and the nodes below it, with all aliases expanded. An alias of
// its own ancestor counts as math.MaxInt32.
func countExpandedNodes(n *yaml.Node, counts map[*yaml.Node]int) int {
	n = resolveAlias(n)
	if cached, ok := counts[n]; ok {
		return cached
	}
	counts[n] = math.MaxInt32 // for aliases of n below n
	total := 1
	for _, child := range n.Content {
		total = saturate(total + countExpandedNodes(child, counts))
	}
	counts[n] = total
	return total
}
