// Package render turns a topology and its lock into what is published: the
// fabric that every agent reads, Kubernetes manifests for every cluster, and
// each cluster's sealed keys. It is pure, apart from the randomness of age
// encryption; the previous output keeps even that from changing a byte.
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

// KnownAfterPublish stands for a key that only whoever has the root key can make.
const KnownAfterPublish = "(known later)"

// Tree is a rendered tree: content by slash-separated path.
type Tree map[string][]byte

// Input is everything that decides the output.
type Input struct {
	Topology *schema.ClusterSet // loaded, without errors
	Lock     *lockfile.Lock     // up to date (allocate.Check)
	// Root derives the keys. Without it, keys are taken from Previous, so that
	// whoever has no root key can still see what would change.
	Root *keys.Root
	// Preview lets a rendering without a root key go on where a key would have to
	// be made: KnownLater stands in its place. Such a tree must not be published.
	Preview bool
	// AllowOtherRoot lets a root key replace the one that made published keys.
	AllowOtherRoot bool
	// Now is the time of the rendering, seconds since 1970: the least revision of what
	// changes. Revisions grow without it too.
	Now int64
	// Previous is what is published now, empty at first. From it come sealed keys
	// that need no change.
	Previous Tree
	// Patches holds the files of the folder patches beside the topology, by path
	// below it; see patches.go for what goes where.
	Patches Tree
	// Image of the agent where the topology names none; empty keeps the published one.
	Image string
	// Version of Hawser, which names the image of a first publication.
	Version string
}

// Render gives the whole tree. With errors in the list there is no tree.
func Render(in Input) (Tree, diag.List) {
	previous, err := FabricOf(in.Previous)
	if err != nil {
		previous = nil // a damaged publication is replaced; without a root key that shows as missing keys
	}
	list := checkEpochs(in.Topology, previous)
	known := knownKeys(in, previous)
	list = append(list, checkRoot(in, known)...)
	if list.HasErrors() {
		return nil, list
	}
	f, list := Fabric(in.Topology, in.Lock, publicKeys(in, known))
	list = append(list, checkAlternateAddrs(f)...)
	if list.HasErrors() {
		return nil, list
	}
	tree, base := Tree{}, Tree{}
	var found diag.List
	var packing sync.WaitGroup
	packing.Go(func() { found = addFabric(base, f, in) }) // which takes as long as all the rest
	sealed := addSecrets(tree, in)
	list = append(list, addClusters(tree, in.Topology, f)...)
	// What the topology says, to be read, and compared line by line where somebody looks at
	// the branch. addFabric writes the fabric so.
	tree[TopologyText], err = Topology(in.Topology)
	drawn := clustermap.New(f)
	tree[MapPicture], tree[MapText] = []byte(drawn.SVG()), []byte(drawn.Markdown(MapPicture))
	packing.Wait()
	list = append(append(list, found...), sealed...)
	if list.HasErrors() {
		return nil, list
	}
	if err != nil {
		return nil, failed("", err)
	}
	maps.Copy(tree, base)
	list = append(list, addPatches(tree, in)...) // warnings alone
	if list = append(list, addKustomizations(tree, in.Topology)...); list.HasErrors() {
		return nil, list
	}
	return tree, list
}

// publicKeys gives the source of the gateways' public keys.
func publicKeys(in Input, known map[gatewayEpoch]fabric.Key) KeySource {
	if in.Root != nil {
		return func(cluster, gateway string, epoch int) (fabric.Key, error) {
			return in.Root.Public(in.Topology.Metadata.Name, cluster, gateway, epoch)
		}
	}
	later := ""
	if in.Preview {
		later = KnownAfterPublish
	}
	return func(cluster, gateway string, epoch int) (fabric.Key, error) {
		k := known[gatewayEpoch{cluster, gateway, epoch}]
		k.Public, k.Ed25519 = cmp.Or(k.Public, later), cmp.Or(k.Ed25519, later)
		return k, nil
	}
}

type gatewayEpoch struct {
	cluster, gateway string
	epoch            int
}

// knownKeys gives the keys of this clusterset's gateways that are published, but for those
// that a gateway brought: they are not what is derived for it when it no longer does.
func knownKeys(in Input, previous *fabric.Fabric) map[gatewayEpoch]fabric.Key {
	known := map[gatewayEpoch]fabric.Key{}
	if previous == nil || previous.Name != in.Topology.Metadata.Name {
		return known
	}
	before := &schema.ClusterSet{}
	if json.Unmarshal(in.Previous[TopologyText], before) != nil {
		before = &schema.ClusterSet{} // of an older Hawser, which does not tell
	}
	for _, c := range previous.Clusters {
		for _, g := range c.Gateways {
			var said schema.Gateway
			if cluster := before.Cluster(c.Name); cluster != nil && cluster.Gateway(g.Name) != nil {
				said = *cluster.Gateway(g.Name)
			}
			for _, k := range g.Keys {
				if said.PublicKey != "" {
					continue
				}
				if said.IKEPublicKey != "" {
					k.Ed25519 = ""
				}
				known[gatewayEpoch{c.Name, g.Name, k.Epoch}] = k
			}
		}
	}
	return known
}

// Equal reports whether two trees hold the same files.
func (t Tree) Equal(o Tree) bool { return maps.EqualFunc(t, o, bytes.Equal) }

// Paths gives the paths of a tree in order.
func (t Tree) Paths() []string { return slices.Sorted(maps.Keys(t)) }

// ClusterDir is the folder of a cluster in the tree.
func ClusterDir(cluster string) string { return path.Join("clusters", cluster) }
