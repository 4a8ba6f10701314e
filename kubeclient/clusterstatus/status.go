// Package clusterstatus reads the state of Hawser from a cluster's API: agents, exports, the
// inventory of hawser apply and the published fabric.
package clusterstatus

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"hawser.dev/hawser/health"
	"hawser.dev/hawser/kubeclient"
	"hawser.dev/hawser/render"
)

// Read returns the state of a cluster. Errors of single reads are in its fields.
func Read(ctx context.Context, c *kubeclient.Client) health.State {
	s := health.State{Cluster: c.Name, Context: c.Context, At: time.Now().UTC(), Nodes: []health.Node{}, Exports: []health.Export{}}
	if err := read(ctx, c, &s); err != nil {
		s.Error = kubeclient.ErrorText(err)
	}
	return s
}

func read(ctx context.Context, c *kubeclient.Client, s *health.State) error {
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
	daemonSets, err := rollouts(ctx, c)
	if err != nil {
		return err
	}
	for _, set := range daemonSets {
		s.Pods, s.Running = s.Pods+set.desired, s.Running+set.available
		if !set.observed {
			s.Outdated += set.desired
		} else {
			s.Outdated += max(set.desired-set.updated, 0)
		}
	}
	objects, err := nodeObjects(ctx, c)
	if err != nil {
		return err
	}
	for i := range s.Nodes {
		s.Nodes[i].NodeNotReady = objects[s.Nodes[i].Name].notReady
	}
	if s.Running < s.Pods || s.Outdated > 0 {
		if s.Stopped, s.NotReady, err = agentPods(ctx, c); err != nil {
			return err
		}
	}
	tree := render.Tree{}
	if err := ReadFabric(ctx, c, tree); err != nil {
		return err
	}
	if f, err := render.FabricOf(tree); err == nil {
		s.Delivered, _ = render.FabricDigest(tree) // cannot fail: it was decoded before
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

func readExports(ctx context.Context, c *kubeclient.Client, s *health.State) error {
	byID := map[string]*health.Export{}
	export := func(o *unstructured.Unstructured) *health.Export {
		id := o.GetNamespace() + "/" + o.GetName()
		if byID[id] == nil {
			byID[id] = &health.Export{Namespace: o.GetNamespace(), Name: o.GetName()}
		}
		return byID[id]
	}
	exports, err := c.List(ctx, kubeclient.MCSKind(kubeclient.KindServiceExport), "", "")
	if err != nil {
		return err
	}
	for i := range exports {
		e := export(&exports[i])
		e.Exported, e.Conditions = true, conditions(&exports[i])
	}
	imports, err := c.List(ctx, kubeclient.MCSKind("ServiceImport"), "", kubeclient.LabelByAgents)
	if err != nil {
		return err
	}
	for i := range imports {
		e, o := export(&imports[i]), &imports[i]
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
	slices.SortFunc(s.Exports, func(a, b health.Export) int {
		return cmp.Or(strings.Compare(a.Namespace, b.Namespace), strings.Compare(a.Name, b.Name))
	})
	return nil
}

func conditions(o *unstructured.Unstructured) []health.Condition {
	list, _, _ := unstructured.NestedSlice(o.Object, "status", "conditions")
	var out []health.Condition
	for _, item := range list {
		m, ok := item.(map[string]any)
		if !ok {
			continue
		}
		stringField := func(name string) string { text, _ := m[name].(string); return text }
		out = append(out, health.Condition{Type: stringField("type"), Status: stringField("status"), Reason: stringField("reason"), Message: stringField("message")})
	}
	slices.SortFunc(out, func(a, b health.Condition) int { return strings.Compare(a.Type, b.Type) })
	return out
}
