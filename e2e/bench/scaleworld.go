package main

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"

	"filippo.io/age"
	kyaml "sigs.k8s.io/yaml"

	"hawser.dev/hawser/internal/diag"
	"hawser.dev/hawser/nodeagent/desired"
	"hawser.dev/hawser/nodeagent/peer/feed"
	"hawser.dev/hawser/reconciler"
	"hawser.dev/hawser/render"
	"hawser.dev/hawser/render/keys"
	"hawser.dev/hawser/schema"
	"hawser.dev/hawser/schema/fabric"
	"hawser.dev/hawser/schema/load"
)

// A clusterset with one real cluster and many others, with one gateway each.
const (
	scaleOwn      = "own"
	scaleGateway  = "a"
	scaleOwnWAN   = "198.19.0.1"
	scaleOthersAt = "198.19.0.2" // next hop to the endpoints of the others
	scaleEndpoint = "198.18.0.1" // endpoint of the first of the others
	scaleOthers   = "198.18.0.0/16"
	scaleTunnels  = "241.0.0.0/16"
)

// scaleWorld holds the input of the agent under test and of its stand-ins.
type scaleWorld struct {
	set        *schema.ClusterSet
	root       *keys.Root
	identity   *age.X25519Identity
	recipients []string
	lock       []byte
	tree       render.Tree
}

func newScaleWorld(maxOthers int) (*scaleWorld, error) {
	w := &scaleWorld{tree: render.Tree{}}
	var err error
	if w.root, err = keys.NewRoot(); err != nil {
		return nil, err
	}
	for range maxOthers + 1 {
		identity, err := age.GenerateX25519Identity()
		if err != nil {
			return nil, err
		}
		if w.identity == nil {
			w.identity = identity
		}
		w.recipients = append(w.recipients, identity.Recipient().String())
	}
	return w, nil
}

// publish renders the clusterset with some number of others, based on the previous rendering.
func (w *scaleWorld) publish(others int) error {
	// VXLAN links: one process can then act as all the others.
	var b strings.Builder
	b.WriteString("apiVersion: hawser.dev/v1alpha1\nkind: ClusterSet\nmetadata: {name: scale}\nspec:\n  tunnel: {driver: vxlan}\n  clusters:\n")
	for i := range others + 1 {
		name, endpoint := scaleOwn, scaleOwnWAN
		if i > 0 {
			name, endpoint = fmt.Sprintf("c%d", i), nth(scaleEndpoint+"/16", i-1).String()
		}
		fmt.Fprintf(&b, "  - name: %s\n    podCIDRs: [10.7.0.0/20]\n    serviceCIDRs: [10.77.0.0/20]\n    recipient: %s\n", name, w.recipients[i])
		fmt.Fprintf(&b, "    gateways: [{name: %s, node: %s-node, endpoints: [%s]}]\n", scaleGateway, name, endpoint)
	}
	set, _, list := load.Topology(reconciler.TopologyFile, []byte(b.String()))
	if list.HasErrors() {
		return firstOf(list)
	}
	lock, list := reconciler.Allocate(reconciler.AllocateInput{Set: set, File: reconciler.LockFile, Committed: w.lock})
	if list.HasErrors() {
		return firstOf(list)
	}
	tree, list := render.Render(render.Input{Topology: set, Lock: lock.Lock, Root: w.root, Previous: w.tree})
	if list.HasErrors() {
		return firstOf(list)
	}
	var err error
	w.set, w.tree = set, tree
	w.lock, err = lock.Lock.Marshal()
	return err
}

// write writes fabric and keys to the agent's directories, each file atomically.
func (w *scaleWorld) write(dir string) error {
	packed, err := w.packed()
	if err != nil {
		return err
	}
	var s struct {
		Data       map[string][]byte `json:"data"`
		StringData map[string]string `json:"stringData"`
	}
	for name, raw := range w.tree {
		if strings.HasPrefix(name, render.ClusterDir(scaleOwn)+"/") && strings.Contains(string(raw), render.KeysKey) {
			if kyaml.Unmarshal(raw, &s) != nil {
				return errors.New("read the sealed keys")
			}
		}
	}
	sealed := s.Data[render.KeysKey]
	if len(sealed) == 0 {
		sealed = []byte(s.StringData[render.KeysKey])
	}
	return errors.Join(replaceFile(filepath.Join(dir, "keys", render.KeysKey), sealed),
		replaceFile(filepath.Join(dir, "fabric", render.FabricKey), packed))
}

func replaceFile(path string, content []byte) error {
	return errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path+".new", content, 0o600), os.Rename(path+".new", path))
}

// writeStatic writes the unchanging input: the identity and the cluster's only node.
func (w *scaleWorld) writeStatic(dir string) error {
	node := fmt.Sprintf("{apiVersion: v1, kind: Node, metadata: {name: %s-node}, spec: {podCIDR: 10.7.0.0/24, podCIDRs: [10.7.0.0/24]}, "+
		"status: {addresses: [{type: InternalIP, address: %s}], conditions: [{type: Ready, status: 'True'}]}}\n", scaleOwn, scaleOwnWAN)
	return errors.Join(replaceFile(filepath.Join(dir, "identity"), []byte(w.identity.String()+"\n")),
		replaceFile(filepath.Join(dir, "facts", "nodes.yaml"), []byte(node)))
}

// standIns returns all others, and the gateway under test from their view.
func (w *scaleWorld) standIns() (scaleFakes, error) {
	f, err := w.fabric()
	if err != nil {
		return scaleFakes{}, err
	}
	var fakes scaleFakes
	for i := range f.Clusters {
		c := &f.Clusters[i]
		g := &c.Gateways[0]
		if c.Name == scaleOwn {
			fakes.Addr, fakes.MAC = g.Addresses[0], desired.HardwareAddr("gateway/"+c.Name+"/"+g.Name)
			if fakes.Keys, err = feed.PublicKeys(g.Keys); err != nil {
				return fakes, err
			}
			continue
		}
		private, err := w.root.Keys(w.set, w.cluster(c.Name))
		if err != nil {
			return fakes, err
		}
		fake := fakeGateway{
			Cluster: c.Name, Gateway: g.Name, Addr: g.Addresses[0],
			Endpoint: netip.MustParseAddr(w.cluster(c.Name).Gateways[0].Endpoints[0]), Private: map[int][]byte{},
		}
		for _, e := range private.Epochs {
			key := e.Gateways[g.Name]
			fake.Private[e.Epoch] = key[:]
		}
		fakes.Others = append(fakes.Others, fake)
	}
	return fakes, nil
}

// packed returns the published fabric.
func (w *scaleWorld) packed() ([]byte, error) {
	var m struct {
		BinaryData map[string][]byte `json:"binaryData"`
	}
	if err := kyaml.Unmarshal(w.tree["base/fabric.yaml"], &m); err != nil {
		return nil, fmt.Errorf("read the fabric: %w", err)
	}
	if len(m.BinaryData[render.FabricKey]) == 0 {
		return nil, errors.New("the fabric is split into several parts")
	}
	return m.BinaryData[render.FabricKey], nil
}

func (w *scaleWorld) fabric() (*fabric.Fabric, error) {
	packed, err := w.packed()
	if err != nil {
		return nil, err
	}
	f, _, err := fabric.Decode(packed)
	return f, err
}

func (w *scaleWorld) cluster(name string) *schema.Cluster {
	for i := range w.set.Spec.Clusters {
		if c := &w.set.Spec.Clusters[i]; c.Name == name {
			return c
		}
	}
	return nil
}

func firstOf(list diag.List) error {
	return fmt.Errorf("%d findings, the first: %s", len(list), list[0].Summary)
}
