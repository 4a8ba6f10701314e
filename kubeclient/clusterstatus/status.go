// Package clusterstatus reads what a cluster's API reports about Hawser: agents, exports,
// the inventory of hawser apply and the published fabric.
package clusterstatus

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"hawser.dev/hawser/kubeclient"
	"hawser.dev/hawser/nodeagent/mcs"
	"hawser.dev/hawser/render"
)

// State is what a cluster's API reports about Hawser.
type State struct {
	Cluster    string    `json:"cluster"`
	Context    string    `json:"context"`
	Error      string    `json:"error,omitempty"` // why the rest is not known
	At         time.Time `json:"at"`              // of the read
	Clusterset string    `json:"clusterset,omitempty"`
	Applied    string    `json:"applied,omitempty"`   // digest of the fabric that hawser apply brought last
	Delivered  string    `json:"delivered,omitempty"` // digest of the fabric in the API
	Image      string    `json:"image,omitempty"`     // of the agents
	Nodes      []Node    `json:"nodes"`
	Pods       int64     `json:"pods"` // agents that should run
	Running    int64     `json:"running"`
	// Outdated counts agents that do not run the newest version of their DaemonSet.
	Outdated int64     `json:"outdated,omitempty"`
	Stopped  []Pod     `json:"stopped,omitempty"` // agents that do not run
	Exports  []Export  `json:"exports"`
	Gateways []Gateway `json:"gateways,omitempty"` // on a fixed node
	// DNSProblem is why pods may not resolve names of the clusterset, and how to fix it.
	DNSProblem string `json:"unresolved,omitempty"`
}

// Export is a ServiceExport of a cluster, or its import of that name.
type Export struct {
	Namespace  string      `json:"namespace"`
	Name       string      `json:"name"`
	Exported   bool        `json:"exported"` // by this cluster
	Conditions []Condition `json:"conditions,omitempty"`
	Type       string      `json:"type,omitempty"` // of the ServiceImport
	IPs        []string    `json:"ips,omitempty"`
	Clusters   []string    `json:"clusters,omitempty"` // that export it
}

// Condition is one condition of a ServiceExport.
type Condition struct {
	Type    string `json:"type"`
	Status  string `json:"status"`
	Reason  string `json:"reason,omitempty"`
	Message string `json:"message,omitempty"`
}

// Read returns the state of a cluster. Errors of single reads are fields of it.
func Read(ctx context.Context, c *kubeclient.Client) State {
	s := State{Cluster: c.Name, Context: c.Context, At: time.Now().UTC(), Nodes: []Node{}, Exports: []Export{}}
	if err := read(ctx, c, &s); err != nil {
		s.Error = kubeclient.ErrorText(err)
	}
	return s
}

func read(ctx context.Context, c *kubeclient.Client, s *State) error {
	if err := c.Ping(ctx); err != nil {
		return err
	}
	have, err := ReadInventory(ctx, c)
	if err != nil {
		return err
	}
	s.Clusterset, s.Applied = have.Clusterset, have.Digest
	nodes, err := Nodes(ctx, c)
	if err != nil {
		return err
	}
	s.Nodes = append(s.Nodes, nodes...)
	sets, err := rollouts(ctx, c)
	if err != nil {
		return err
	}
	for _, set := range sets {
		s.Pods, s.Running = s.Pods+set.wanted, s.Running+set.available
		if !set.observed {
			s.Outdated += set.wanted
		} else {
			s.Outdated += max(set.wanted-set.updated, 0)
		}
	}
	objects, err := nodeObjects(ctx, c)
	if err != nil {
		return err
	}
	for i := range s.Nodes {
		s.Nodes[i].Off = objects[s.Nodes[i].Name].off
	}
	if s.Running < s.Pods || s.Outdated > 0 {
		if s.Stopped, err = stoppedPods(ctx, c); err != nil {
			return err
		}
	}
	tree := render.Tree{}
	if err := ReadFabric(ctx, c, tree); err != nil {
		return err
	}
	if f, err := render.FabricOf(tree); err == nil {
		s.Delivered, _ = render.FabricDigest(tree) // it is readable
		s.Gateways = gateways(f, c.Name, objects)
	}
	if err := copyImage(ctx, c, tree); err != nil {
		return err
	}
	s.Image = render.ImageOf(tree)
	if err := readExports(ctx, c, s); err != nil {
		return err
	}
	s.DNSProblem, err = checkNodeLocalDNS(ctx, c, tree)
	return err
}

func readExports(ctx context.Context, c *kubeclient.Client, s *State) error {
	byID := map[string]*Export{}
	at := func(o *unstructured.Unstructured) *Export {
		id := o.GetNamespace() + "/" + o.GetName()
		if byID[id] == nil {
			byID[id] = &Export{Namespace: o.GetNamespace(), Name: o.GetName()}
		}
		return byID[id]
	}
	exports, err := c.List(ctx, kubeclient.MCSKind(kubeclient.KindServiceExport), "", "")
	if err != nil {
		return err
	}
	for i := range exports {
		e := at(&exports[i])
		e.Exported, e.Conditions = true, conditions(&exports[i])
	}
	imports, err := c.List(ctx, kubeclient.MCSKind("ServiceImport"), "", kubeclient.LabelByAgents)
	if err != nil {
		return err
	}
	for i := range imports {
		e, o := at(&imports[i]), &imports[i]
		// A field that violates the CRD stays empty.
		e.Type, _, _ = unstructured.NestedString(o.Object, "spec", "type")
		e.IPs, _, _ = unstructured.NestedStringSlice(o.Object, "spec", "ips")
		list, _, _ := unstructured.NestedSlice(o.Object, "status", "clusters")
		for _, item := range list {
			if m, ok := item.(map[string]any); ok {
				name, _ := m["cluster"].(string)
				e.Clusters = append(e.Clusters, name)
			}
		}
	}
	for _, e := range byID {
		s.Exports = append(s.Exports, *e)
	}
	slices.SortFunc(s.Exports, func(a, b Export) int {
		return cmp.Or(strings.Compare(a.Namespace, b.Namespace), strings.Compare(a.Name, b.Name))
	})
	return nil
}

func conditions(o *unstructured.Unstructured) []Condition {
	list, _, _ := unstructured.NestedSlice(o.Object, "status", "conditions")
	var out []Condition
	for _, item := range list {
		m, ok := item.(map[string]any)
		if !ok {
			continue
		}
		word := func(name string) string { text, _ := m[name].(string); return text }
		out = append(out, Condition{Type: word("type"), Status: word("status"), Reason: word("reason"), Message: word("message")})
	}
	slices.SortFunc(out, func(a, b Condition) int { return strings.Compare(a.Type, b.Type) })
	return out
}

// Problem returns the text of a condition that needs attention, else nothing.
func (c Condition) Problem() string {
	good := "True"
	if c.Type == "Conflict" {
		good = "False"
	}
	// A Service may keep an unsupported part, such as a port of SCTP.
	if c.Status == good || c.Type == mcs.Supported {
		return ""
	}
	return strings.TrimSuffix(c.Type+"="+c.Status+" "+c.Reason+": "+c.Message, ": ")
}
