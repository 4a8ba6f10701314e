package projection_test

import (
	"fmt"
	"hash/crc32"
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"

	"golang.org/x/tools/txtar"
	"sigs.k8s.io/yaml"

	"hawser.dev/hawser/internal/diff"
	"hawser.dev/hawser/nodeagent/desired"
	"hawser.dev/hawser/nodeagent/model"
	"hawser.dev/hawser/nodeagent/projection"
	"hawser.dev/hawser/schema/fabric"
)

// world is the clusterset of a txtar file: the input and the desired state of every node.
type world struct {
	fabric *fabric.Fabric
	names  []string // cluster/node, in order
	inputs map[string]projection.Input
	states map[string]desired.State
	faults map[string][]projection.Problem
}

// readWorld returns the world of a txtar file. All paths use the first gateways of both clusters,
// and every cluster has the state of all others.
func readWorld(t testing.TB, file string) (*world, *txtar.Archive) {
	t.Helper()
	archive, err := txtar.ParseFile(file)
	if err != nil {
		t.Fatal(err)
	}
	w := &world{fabric: &fabric.Fabric{}}
	facts := map[string]model.Facts{}
	local := map[string]model.HostState{}
	for _, f := range archive.Files {
		var err error
		if cluster, ok := strings.CutSuffix(f.Name, ".facts.yaml"); ok {
			var read model.Facts
			err = yaml.UnmarshalStrict(f.Data, &read)
			facts[cluster] = read
		} else if f.Name == "fabric.yaml" {
			err = yaml.UnmarshalStrict(f.Data, w.fabric)
		} else if f.Name == "local.yaml" {
			err = yaml.UnmarshalStrict(f.Data, &local)
		}
		if err != nil {
			t.Fatalf("%s: %v", f.Name, err)
		}
	}
	w.build(facts, local)
	return w, archive
}

func (w *world) build(facts map[string]model.Facts, local map[string]model.HostState) {
	w.names, w.inputs = nil, map[string]projection.Input{}
	lives := map[string]model.ClusterState{}
	for _, c := range w.fabric.Clusters {
		lives[c.Name] = projection.ClusterState(projection.Input{Fabric: w.fabric, Cluster: c.Name, Facts: facts[c.Name]})
	}
	for _, c := range w.fabric.Clusters {
		in := projection.Input{
			Fabric: w.fabric, Keys: keysOf(c), Cluster: c.Name, Facts: facts[c.Name],
			Paths: map[string]model.Path{}, ClusterStates: map[string]model.ClusterState{},
		}
		for _, r := range w.fabric.Clusters {
			if r.Name != c.Name {
				in.Paths[r.Name] = model.Path{Local: c.Gateways[0].Name, Remote: r.Gateways[0].Name}
				in.ClusterStates[r.Name] = lives[r.Name]
			}
		}
		for _, n := range facts[c.Name].Nodes {
			in.Node, in.Local, in.GatewayPaths = n.Name, local[n.Name], w.transit(c, n.Name)
			in.Local.UnderlayMTU = 1500
			w.names = append(w.names, c.Name+"/"+n.Name)
			w.inputs[c.Name+"/"+n.Name] = in
		}
	}
	w.project()
}

// transit returns a gateway's own links, to the first gateway of each cluster.
func (w *world) transit(c fabric.Cluster, node string) map[string]model.Path {
	gateway := c.GatewayOn(node)
	if gateway == nil {
		return nil
	}
	out := map[string]model.Path{}
	for _, r := range w.fabric.Clusters {
		if r.Name != c.Name {
			out[r.Name] = model.Path{Local: gateway.Name, Remote: r.Gateways[0].Name}
		}
	}
	return out
}

func (w *world) project() {
	w.states, w.faults = map[string]desired.State{}, map[string][]projection.Problem{}
	for name, in := range w.inputs {
		w.states[name], w.faults[name] = projection.Desired(in)
	}
}

func keysOf(c fabric.Cluster) *fabric.Keys {
	epoch := fabric.EpochKeys{Epoch: 1, PSKSeed: fabric.Secret{1}, Gateways: map[string]fabric.Secret{}, Ed25519: map[string]fabric.Secret{}}
	for i, g := range c.Gateways {
		epoch.Gateways[g.Name], epoch.Ed25519[g.Name] = fabric.Secret{byte(i + 1)}, fabric.Secret{byte(i + 1)}
	}
	return &fabric.Keys{APIVersion: fabric.KeysAPIVersion, Cluster: c.Name, Epochs: []fabric.EpochKeys{epoch}}
}

// text returns a state in the style of `ip` and `nft`.
func text(s desired.State) string {
	var out strings.Builder
	lines(&out, "sysctl", s.Sysctls)
	lines(&out, "link", s.Devices)
	lines(&out, "wireguard", s.Wireguards)
	lines(&out, "ipsec", s.IPsecs)
	lines(&out, "peer", s.Peers)
	lines(&out, "address", s.Addresses)
	lines(&out, "neighbour", s.Neighbors)
	lines(&out, "rule", s.Rules)
	lines(&out, "route", s.Routes)
	lines(&out, "table", s.Tables)
	elementLines(&out, s.Elements)
	lines(&out, "zone", s.Zones)
	lines(&out, "service", s.Services)
	return out.String()
}

func lines[S diff.Spec](out *strings.Builder, kind string, specs []S) {
	for _, s := range specs {
		fmt.Fprintf(out, "%s %s", kind, s.Key())
		for _, f := range s.Fields() {
			if f.Value != "" {
				fmt.Fprintf(out, " %s=%s", f.Name, f.Text())
			}
		}
		out.WriteByte('\n')
	}
}

// elementLines writes one line per element. All slots of one backend share a line.
func elementLines(out *strings.Builder, list []desired.Element) {
	for i := 0; i < len(list); i++ {
		e := list[i]
		if e.Set != desired.SetSlots && e.Set != desired.SetShared {
			fmt.Fprintf(out, "%s%d %s", e.Set, e.Family, e.ID)
			if e.Value != "" {
				fmt.Fprintf(out, " : %s", e.Value)
			}
			out.WriteByte('\n')
			continue
		}
		base := slotBase(e.ID)
		byValue := map[string][]string{}
		for ; i < len(list) && list[i].Set == e.Set && list[i].Family == e.Family && slotBase(list[i].ID) == base; i++ {
			slot := strings.TrimPrefix(strings.TrimPrefix(list[i].ID, base), " . ")
			byValue[list[i].Value] = append(byValue[list[i].Value], slot)
		}
		i--
		for _, value := range sortedKeys(byValue) {
			slots := byValue[value]
			fmt.Fprintf(out, "%s%d %s : %s, %d slots: %s\n", e.Set, e.Family, base, value, len(slots), folded(slots))
		}
	}
}

// folded returns all slots as text. If there are many, it returns the first ones and a hash of all.
func folded(slots []string) string {
	all := strings.Join(slots, " ")
	if len(slots) <= 64 {
		return all
	}
	return fmt.Sprintf("%s ... sum %08x", strings.Join(slots[:8], " "), crc32.ChecksumIEEE([]byte(all)))
}

func slotBase(id string) string {
	at := strings.LastIndex(id, " . ")
	return id[:max(at, 0)]
}

func sortedKeys[V any](m map[string]V) []string {
	out := make([]string, 0, len(m))
	for k := range m {
		out = append(out, k)
	}
	slices.Sort(out)
	return out
}

func addr(text string) netip.Addr { return netip.MustParseAddr(text) }

// writeFile replaces a file atomically, because other tests may read it at the same time.
func writeFile(t *testing.T, name string, data []byte) {
	t.Helper()
	if err := os.WriteFile(name+".new", data, 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(name+".new", name); err != nil {
		t.Fatal(err)
	}
}

func addrs(texts ...string) []netip.Addr {
	out := make([]netip.Addr, len(texts))
	for i, text := range texts {
		out[i] = addr(text)
	}
	return out
}
