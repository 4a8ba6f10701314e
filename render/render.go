// Package render renders a topology and its lock to the published tree. The tree contains the
// fabric that every agent reads, Kubernetes manifests for every cluster, and each cluster's sealed
// keys. The package is pure except for the randomness of age encryption. Unchanged ciphertexts come
// from the previous tree, so that this randomness causes no changes.
package render

import (
	"bytes"
	"cmp"
	"encoding/json"
	"maps"
	"path"
	"slices"
	"sync"

	"hawser.dev/hawser/internal/diag"
	"hawser.dev/hawser/render/keys"
	"hawser.dev/hawser/schema"
	"hawser.dev/hawser/schema/fabric"
	"hawser.dev/hawser/schema/lockfile"
	"hawser.dev/hawser/view/clustermap"
)

// Namespace is the namespace of all rendered objects of Hawser.
const Namespace = fabric.SystemNamespace

// KnownAfterPublish is the placeholder for a key that only the root key can derive.
const KnownAfterPublish = "(known after publish)"

// Tree is a rendered tree: content by slash-separated path.
type Tree map[string][]byte

// Input contains everything that determines the output.
type Input struct {
	Topology *schema.ClusterSet // loaded, without errors
	Lock     *lockfile.Lock     // up to date (allocate.Check)
	// Root derives the keys. Without Root, keys come from Previous, so that users without the
	// root key can plan a change.
	Root *keys.Root
	// Preview allows a rendering without the root key. KnownAfterPublish then replaces each
	// missing key. Such a tree must not be published.
	Preview bool
	// AllowOtherRoot lets another root key replace the keys of published epochs.
	AllowOtherRoot bool
	// Now is the time of the rendering in Unix seconds. It is the minimum revision of changed
	// documents. Revisions increase even if Now does not.
	Now int64
	// Previous is the published tree; empty before the first publication. Unchanged sealed keys
	// come from it.
	Previous Tree
	// Patches contains the files of the directory patches next to the topology, by path
	// relative to that directory; see patches.go.
	Patches Tree
	// Image is the image of the agent if the topology has none. Empty = the published image
	// stays.
	Image string
	// Version is the version of Hawser. It is the tag of the image in a first publication.
	Version string
}

// Render returns the whole tree, or nil if the list contains errors.
func Render(in Input) (Tree, diag.List) {
	previous, err := FabricOf(in.Previous)
	if err != nil {
		previous = nil // replace an unreadable tree; without a root key its keys are then missing
	}
	list := checkEpochs(in.Topology, previous)
	known := publishedKeys(in, previous)
	list = append(list, checkRoot(in, known)...)
	if list.HasErrors() {
		return nil, list
	}
	f, list := Fabric(in.Topology, in.Lock, newKeySource(in, known))
	list = append(list, checkAlternateAddrs(f)...)
	if list.HasErrors() {
		return nil, list
	}
	tree, base := Tree{}, Tree{}
	var found diag.List
	var fabricDone sync.WaitGroup
	fabricDone.Go(func() { found = addFabric(base, f, in) }) // takes as long as the rest of Render
	sealed := addSecrets(tree, in)
	list = append(list, addClusters(tree, in.Topology, f)...)
	// The topology as text is for people and for line-by-line diffs. addFabric writes the
	// fabric in the same way.
	tree[TopologyText], err = Topology(in.Topology)
	clusterMap := clustermap.New(f)
	tree[MapPicture], tree[MapText] = []byte(clusterMap.SVG()), []byte(clusterMap.Markdown(MapPicture))
	fabricDone.Wait()
	list = append(append(list, found...), sealed...)
	if list.HasErrors() {
		return nil, list
	}
	if err != nil {
		return nil, renderError("", err)
	}
	maps.Copy(tree, base)
	list = append(list, addPatches(tree, in)...) // only warnings
	if list = append(list, addKustomizations(tree, in.Topology)...); list.HasErrors() {
		return nil, list
	}
	return tree, list
}

// newKeySource returns the source of the gateways' public keys.
func newKeySource(in Input, known map[gatewayEpoch]fabric.Key) KeySource {
	if in.Root != nil {
		return func(cluster, gateway string, epoch int) (fabric.Key, error) {
			return in.Root.Public(in.Topology.Metadata.Name, cluster, gateway, epoch)
		}
	}
	placeholder := ""
	if in.Preview {
		placeholder = KnownAfterPublish
	}
	return func(cluster, gateway string, epoch int) (fabric.Key, error) {
		k := known[gatewayEpoch{cluster, gateway, epoch}]
		k.Public, k.Ed25519 = cmp.Or(k.Public, placeholder), cmp.Or(k.Ed25519, placeholder)
		return k, nil
	}
}

type gatewayEpoch struct {
	cluster, gateway string
	epoch            int
}

// publishedKeys returns the published keys of this clusterset's gateways, except keys from the
// topology. Such a key would differ from a key that is derived for the gateway later.
func publishedKeys(in Input, previous *fabric.Fabric) map[gatewayEpoch]fabric.Key {
	known := map[gatewayEpoch]fabric.Key{}
	if previous == nil || previous.Name != in.Topology.Metadata.Name {
		return known
	}
	previousTopology := &schema.ClusterSet{}
	if json.Unmarshal(in.Previous[TopologyText], previousTopology) != nil {
		previousTopology = &schema.ClusterSet{} // an older Hawser did not write it
	}
	for _, c := range previous.Clusters {
		for _, g := range c.Gateways {
			var topologyGateway schema.Gateway
			cluster := previousTopology.Cluster(c.Name)
			if cluster != nil && cluster.Gateway(g.Name) != nil {
				topologyGateway = *cluster.Gateway(g.Name)
			}
			for _, k := range g.Keys {
				if topologyGateway.PublicKey != "" {
					continue
				}
				if topologyGateway.IKEPublicKey != "" {
					k.Ed25519 = ""
				}
				known[gatewayEpoch{c.Name, g.Name, k.Epoch}] = k
			}
		}
	}
	return known
}

// Equal reports whether two trees have the same files.
func (t Tree) Equal(o Tree) bool { return maps.EqualFunc(t, o, bytes.Equal) }

// Paths returns the sorted paths of a tree.
func (t Tree) Paths() []string { return slices.Sorted(maps.Keys(t)) }

// ClusterDir returns the directory of a cluster in the tree.
func ClusterDir(cluster string) string { return path.Join("clusters", cluster) }
