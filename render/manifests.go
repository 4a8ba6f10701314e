package render

import (
	"bytes"
	"embed"
	"encoding/base64"
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"
	"text/template"

	"hawser.dev/hawser/internal/diag"
	"hawser.dev/hawser/schema"
	"hawser.dev/hawser/schema/fabric"
)

//go:embed base
var baseFiles embed.FS

// Names of the objects that the agents read.
const (
	FabricConfigMap   = "hawser-fabric" // and hawser-fabric-1, ... when it is split
	FabricKey         = "fabric.json.gz"
	KeysSecret        = "hawser-keys"
	KeysKey           = "keys.age"
	IdentityConfigMap = "hawser-identity"
	// DigestAnnotation holds the keyed digest of what is sealed in KeysSecret.
	DigestAnnotation = "hawser.dev/keys-digest"
)

// maxPart is the size of the gzip data in one ConfigMap: the API server takes
// 1 MiB for a whole object, and base64 is not counted.
const maxPart = 900 << 10

// addFabric writes the folder base.
func addFabric(tree Tree, f *fabric.Fabric, in Input) diag.List {
	raw, err := fabric.Encode(f)
	if err != nil {
		return failed("base", err)
	}
	packed := packedBefore(in.Previous, raw)
	if packed == nil {
		if packed, err = fabric.Compress(raw); err != nil {
			return failed("base", err)
		}
	}
	parts := slices.Collect(slices.Chunk(packed, maxPart))
	maps := make([]string, len(parts))
	for i, part := range parts {
		maps[i] = partName(FabricConfigMap, i)
		key := FabricKey
		if len(parts) > 1 {
			key += "." + strconv.Itoa(i)
		}
		tree["base/"+partName("fabric", i)+".yaml"] = configMap(maps[i], "binaryData", key, base64.StdEncoding.EncodeToString(part))
	}
	image := in.Image
	if image == "" {
		image = DefaultImage
	}
	if err := addStatic(tree, map[string]any{"Image": scalar(image), "ConfigMaps": maps}); err != nil {
		return failed("base", err)
	}
	return nil
}

func failed(path string, err error) diag.List {
	return diag.List{{Severity: diag.Error, Code: "render", Path: path, Summary: err.Error()}}
}

func partName(name string, i int) string {
	if i == 0 {
		return name
	}
	return name + "-" + strconv.Itoa(i)
}

// addStatic writes the embedded files; agent.yaml is a template.
func addStatic(tree Tree, values map[string]any) error {
	entries, err := baseFiles.ReadDir("base")
	if err != nil {
		return fmt.Errorf("read embedded files: %w", err)
	}
	for _, e := range entries {
		raw, err := baseFiles.ReadFile("base/" + e.Name())
		if err != nil {
			return fmt.Errorf("read embedded %s: %w", e.Name(), err)
		}
		switch e.Name() {
		case "README.md":
			tree["README.md"] = raw
		case "agent.yaml":
			t, err := template.New(e.Name()).Parse(string(raw))
			if err != nil {
				return fmt.Errorf("read embedded %s: %w", e.Name(), err)
			}
			var out bytes.Buffer
			if err := t.Execute(&out, values); err != nil {
				return fmt.Errorf("fill in %s: %w", e.Name(), err)
			}
			tree["base/agent.yaml"] = out.Bytes()
		default:
			tree["base/"+e.Name()] = raw
		}
	}
	return nil
}

func configMap(name, field, key, value string) []byte {
	return fmt.Appendf(nil, "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: %s\n  namespace: %s\n%s:\n  %s: %s\n",
		name, Namespace, field, key, scalar(value))
}

// scalar writes text as a YAML scalar that every reader takes for text.
func scalar(text string) string {
	if text == "" || strings.ContainsAny(text, ":#{}[],&*!|>'\"%@`\\ \t\n") || ambiguous(text) {
		return strconv.Quote(text)
	}
	return text
}

// ambiguous reports whether a YAML 1.1 reader may take the text for a number, a
// boolean or nothing, as in 0123, 1e3, no or ~.
func ambiguous(text string) bool {
	switch strings.ToLower(text) {
	case "y", "n", "yes", "no", "on", "off", "true", "false", "null", "~":
		return true
	}
	return strings.ContainsRune("0123456789+-.=?<", rune(text[0]))
}

// addClusters writes what is of one cluster alone, apart from its keys.
func addClusters(tree Tree, top *schema.ClusterSet) {
	for _, c := range top.Spec.Clusters {
		tree[path.Join(ClusterDir(c.Name), "identity.yaml")] = configMap(IdentityConfigMap, "data", "cluster", c.Name)
	}
	exports := map[string][]*schema.Export{}
	for i := range top.Spec.Exports {
		for _, c := range top.Spec.Exports[i].Clusters {
			exports[c] = append(exports[c], &top.Spec.Exports[i])
		}
	}
	for cluster, list := range exports {
		slices.SortFunc(list, func(a, b *schema.Export) int { return strings.Compare(a.ID(), b.ID()) })
		var out bytes.Buffer
		for i, e := range list {
			if i > 0 {
				out.WriteString("---\n")
			}
			_, _ = fmt.Fprintf(&out, "apiVersion: multicluster.x-k8s.io/v1beta1\nkind: ServiceExport\nmetadata:\n  name: %s\n  namespace: %s\n",
				scalar(e.Name), scalar(e.Namespace))
		}
		tree[path.Join(ClusterDir(cluster), "exports.yaml")] = out.Bytes()
	}
}
