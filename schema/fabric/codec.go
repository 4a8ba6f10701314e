package fabric

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"reflect"
	"slices"
	"sort"
	"strings"
)

// ErrEmpty is the error for a document without clusters and without decommission: true.
var ErrEmpty = errors.New("fabric has no clusters and no decommission: true")

// Encode returns the canonical bytes: JSON with a final newline. It fails with
// ErrTooLarge if Decode would.
func Encode(f *Fabric) ([]byte, error) {
	raw, err := json.Marshal(f)
	if err != nil {
		return nil, fmt.Errorf("encode fabric: %w", err)
	}
	if err := checkSize(raw); err != nil {
		return nil, fmt.Errorf("encode fabric: %w", err)
	}
	return append(raw, '\n'), nil
}

func checkSize(plain []byte) error {
	if len(plain) > MaxFabric+1 { // one is the newline at the end
		return fmt.Errorf("%w: more than %d MiB of JSON", ErrTooLarge, MaxFabric>>20)
	}
	_, err := countMemory(plain, reflect.TypeFor[Fabric](), maxFabricDecoded)
	return err
}

// Digest returns the first 16 hex digits of the SHA-256 of raw, the bytes
// returned by Encode.
func Digest(raw []byte) string {
	sum := sha256.Sum256(raw)
	return hex.EncodeToString(sum[:8])
}

// Compress compresses raw with gzip. Equal input results in equal output: the
// header has neither time nor name.
func Compress(raw []byte) ([]byte, error) {
	var out bytes.Buffer
	w, err := gzip.NewWriterLevel(&out, gzip.BestCompression)
	if err == nil {
		_, err = w.Write(raw)
	}
	if err == nil {
		err = w.Close()
	}
	if err != nil {
		return nil, fmt.Errorf("compress fabric: %w", err)
	}
	return out.Bytes(), nil
}

// Decode reads a document, compressed or not, and checks its apiVersion and that it
// is not empty. It returns the document and the digest of its bytes. It fails with
// ErrTooLarge beyond the bounds, before it allocates memory.
func Decode(raw []byte) (*Fabric, string, error) {
	plain, err := Decompress(raw)
	if err != nil {
		return nil, "", err
	}
	if err := checkSize(plain); err != nil {
		return nil, "", fmt.Errorf("decode fabric: %w", err)
	}
	var f Fabric
	if err := json.Unmarshal(plain, &f); err != nil {
		return nil, "", fmt.Errorf("decode fabric: %w", err)
	}
	if f.APIVersion != APIVersion {
		return nil, "", fmt.Errorf("decode fabric: apiVersion %q is not %q", f.APIVersion, APIVersion)
	}
	if len(f.Clusters) == 0 && !f.Decommission {
		return nil, "", ErrEmpty
	}
	return &f, Digest(plain), nil
}

// Decompress decompresses the output of Compress, and returns other input unchanged.
// It fails with ErrTooLarge beyond MaxFabric bytes.
func Decompress(raw []byte) ([]byte, error) {
	if !bytes.HasPrefix(raw, []byte{0x1f, 0x8b}) {
		return raw, nil
	}
	r, err := gzip.NewReader(bytes.NewReader(raw))
	if err != nil {
		return nil, fmt.Errorf("unpack fabric: %w", err)
	}
	plain, err := io.ReadAll(io.LimitReader(r, MaxFabric+2)) // one is the newline at the end
	if err != nil {
		return nil, fmt.Errorf("unpack fabric: %w", err)
	}
	if len(plain) > MaxFabric+1 {
		return nil, fmt.Errorf("unpack fabric: %w: more than %d MiB", ErrTooLarge, MaxFabric>>20)
	}
	return plain, nil
}

// Cluster returns a cluster by name; nil if absent.
func (f *Fabric) Cluster(name string) *Cluster {
	// Rendered fabrics are sorted by name. A list that is not sorted is searched in full.
	// Clusters are large, so the search compares them by index, without copies.
	i, found := sort.Find(len(f.Clusters), func(i int) int { return strings.Compare(name, f.Clusters[i].Name) })
	if !found {
		i = slices.IndexFunc(f.Clusters, func(c Cluster) bool { return c.Name == name })
	}
	if i < 0 {
		return nil
	}
	return &f.Clusters[i]
}

// GatewayOn returns the gateway that runs on a node; nil if absent.
func (c *Cluster) GatewayOn(node string) *Gateway {
	i := slices.IndexFunc(c.Gateways, func(g Gateway) bool { return g.Node != "" && g.Node == node })
	if i < 0 {
		return nil
	}
	return &c.Gateways[i]
}

// Gateway returns a gateway by name; nil if absent or if c is nil.
func (c *Cluster) Gateway(name string) *Gateway {
	if c == nil {
		return nil
	}
	i := slices.IndexFunc(c.Gateways, func(g Gateway) bool { return g.Name == name })
	if i < 0 {
		return nil
	}
	return &c.Gateways[i]
}

// HasNodeSelector reports whether labels select the gateway's node.
func (g *Gateway) HasNodeSelector() bool { return len(g.NodeSelector) > 0 }

// NodeText returns the gateway's node, or the labels that select it: "with role=edge".
func (g *Gateway) NodeText() string {
	if g.Node != "" {
		return g.Node
	}
	var out []string
	for _, key := range slices.Sorted(maps.Keys(g.NodeSelector)) {
		out = append(out, key+"="+g.NodeSelector[key])
	}
	return "with " + strings.Join(out, ",")
}

// Allows reports whether a cluster may reach the export.
func (e *Export) Allows(cluster string) bool {
	return e.Allow == nil || slices.Contains(e.Allow, cluster)
}

// ClusterPart returns a cluster's part of the export; nil if the cluster does not export it.
func (e *Export) ClusterPart(cluster string) *ExportCluster {
	i := slices.IndexFunc(e.Clusters, func(c ExportCluster) bool { return c.Name == cluster })
	if i < 0 {
		return nil
	}
	return &e.Clusters[i]
}

// ID returns namespace/name.
func (e *Export) ID() string { return e.Namespace + "/" + e.Name }

// Matches reports whether a pattern matches the namespace of a ServiceExport.
func (d *DynamicExports) Matches(namespace string) bool {
	return d != nil && matchesAny(d.Namespaces, namespace)
}

// Allows reports whether a cluster may export from a namespace with a
// ServiceExport.
func (d *DynamicExports) Allows(namespace, cluster string) bool {
	if !d.Matches(namespace) {
		return false
	}
	only, restricted := d.AllowedClusters(namespace)
	return !restricted || slices.Contains(only, cluster)
}

// AllowedClusters returns the clusters that may export from a namespace, sorted. restricted
// is false if every cluster may.
func (d *DynamicExports) AllowedClusters(namespace string) (clusters []string, restricted bool) {
	for i := range d.Restrictions {
		if matchesAny(d.Restrictions[i].Namespaces, namespace) {
			clusters, restricted = append(clusters, d.Restrictions[i].Clusters...), true
		}
	}
	slices.Sort(clusters)
	return slices.Compact(clusters), restricted
}

func matchesAny(patterns []string, namespace string) bool {
	return slices.ContainsFunc(patterns, func(p string) bool { return MatchesPattern(p, namespace) })
}

// MatchesPattern reports whether text matches a pattern in which * stands for any
// characters, such as a namespace or an owner. If text is itself a pattern, it matches only
// if pattern matches every text that it matches.
func MatchesPattern(pattern, text string) bool {
	head, rest, wild := strings.Cut(pattern, "*")
	if !wild {
		return text == pattern
	}
	text, ok := strings.CutPrefix(text, head)
	for ok {
		var piece string
		if piece, rest, wild = strings.Cut(rest, "*"); !wild {
			return strings.HasSuffix(text, piece)
		}
		// The first match suffices: the text after it ends with the text after any later match.
		_, text, ok = strings.Cut(text, piece)
	}
	return false
}
