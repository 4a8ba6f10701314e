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

// Limits of one build. kustomize rebuilds a folder for each entry that refers to it. It matches
// every object against every patch with a target, which takes about 1 ms per match.
const (
	maxVisits   = 256      // builds of folders; a folder counts once per build
	maxDepth    = 32       // levels of nested folders
	maxBytes    = 64 << 20 // bytes that are read; a file counts once per read
	maxPatches  = 2_000
	maxMatches  = 20_000 // objects times folders and patches with a target
	maxExpanded = 10_000 // YAML nodes that the aliases of a document add
	maxValues   = yamlsize.MaxValues
)

// work is the cost of a build.
type work struct{ visits, bytes, values, objects, patches, targeted int }

func (w work) plus(o work) work {
	return work{
		visits: saturated(w.visits + o.visits), bytes: saturated(w.bytes + o.bytes), values: saturated(w.values + o.values), objects: saturated(w.objects + o.objects),
		patches: saturated(w.patches + o.patches), targeted: saturated(w.targeted + o.targeted),
	}
}

// saturated returns at most math.MaxInt32, so that sums and products of two counts do not overflow.
func saturated(n int) int { return min(n, math.MaxInt32) }

// excess returns a message about the first limit that the work exceeds, or "".
func (w work) excess() string {
	switch matches := w.objects * (w.visits + w.targeted); {
	case w.visits > maxVisits:
		return fmt.Sprintf("it builds more than %d folders", maxVisits)
	case w.bytes > maxBytes:
		return fmt.Sprintf("it reads more than %d MiB", maxBytes>>20)
	case w.values > maxValues:
		return fmt.Sprintf("it reads more than %d YAML values", maxValues)
	case w.patches > maxPatches:
		return fmt.Sprintf("it has more than %d patches", maxPatches)
	case matches > maxMatches:
		return fmt.Sprintf("%d objects, %d folders and %d patches with a target", w.objects, w.visits, w.targeted)
	}
	return ""
}

// content is the part of a YAML file that is relevant to the limits.
type content struct {
	values  int  // indicators of YAML values, see yamlsize.Values
	objects int  // upper bound of Kubernetes objects
	aliases bool // aliases add more than maxExpanded nodes
	copies  int  // line of the first JSON patch operation "copy", or 0
}

// read returns the content of a file of the tree. It inspects each file once.
func (c *checker) read(name string) content {
	done, ok := c.files[name]
	if !ok {
		done = inspect(c.tree[name])
		c.files[name] = done
	}
	return done
}

// inspect counts the objects of a YAML text. It also detects two causes of exponential growth:
// aliases of aliases, and JSON patches that copy a value into itself.
func inspect(raw []byte) content {
	out := content{values: yamlsize.Values(raw)}
	if out.values > maxValues {
		return out // excess rejects the build
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
		out.objects += objects(&doc)
		out.aliases = out.aliases || expanded(&doc, map[*yaml.Node]int{})-written(&doc) > maxExpanded
		out.copies = cmp.Or(out.copies, copies(&doc))
	}
}

// checkContent adds findings about the content of a file or of an inline patch. patch reports
// whether kustomize reads the content as a patch.
func (c *checker) checkContent(at diag.Pos, read content, patch bool) {
	if read.aliases {
		c.add(at, CodeBound, fmt.Sprintf("has YAML aliases that expand to more than %d values", maxExpanded), "write the values out")
	}
	if patch && read.copies > 0 {
		c.add(at, CodeBound, "is a JSON patch with the operation copy, which is not used here", "write the value out with the operation add")
	}
}

// written counts a node and the nodes below it, without expanding aliases.
func written(n *yaml.Node) int {
	total := 1
	for _, child := range n.Content {
		total += written(child)
	}
	return total
}

// objects counts the mappings with a key "kind". The result is an upper bound of the objects.
func objects(n *yaml.Node) int {
	count := 0
	if n.Kind == yaml.MappingNode {
		for i := 0; i+1 < len(n.Content); i += 2 {
			if n.Content[i].Value == "kind" {
				count = 1
			}
		}
	}
	for _, child := range n.Content {
		count += objects(child)
	}
	return count
}

// copies returns the line of the first JSON patch operation that copies a value, or 0.
func copies(n *yaml.Node) int {
	if n.Kind == yaml.DocumentNode && len(n.Content) == 1 {
		n = resolved(n.Content[0])
	}
	if n.Kind != yaml.SequenceNode {
		return 0
	}
	for _, item := range n.Content {
		item = resolved(item)
		for i := 0; item.Kind == yaml.MappingNode && i+1 < len(item.Content); i += 2 {
			if resolved(item.Content[i]).Value == "op" && resolved(item.Content[i+1]).Value == "copy" {
				return max(item.Line, 1)
			}
		}
	}
	return 0
}

// resolved returns the target of an alias, or the node itself.
func resolved(n *yaml.Node) *yaml.Node {
	if n.Kind == yaml.AliasNode && n.Alias != nil {
		return n.Alias
	}
	return n
}

// expanded counts a node and the nodes below it, with all aliases expanded. An alias of its own
// ancestor counts as math.MaxInt32.
func expanded(n *yaml.Node, counts map[*yaml.Node]int) int {
	n = resolved(n)
	if done, ok := counts[n]; ok {
		return done
	}
	counts[n] = math.MaxInt32 // for aliases of n below n
	total := 1
	for _, child := range n.Content {
		total = saturated(total + expanded(child, counts))
	}
	counts[n] = total
	return total
}
