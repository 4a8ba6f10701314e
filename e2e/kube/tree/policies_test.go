//go:build kube

package tree

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/yaml"

	"hawser.dev/hawser/e2e/kube/api"
)

// caller sends requests as an agent on a node, or as an administrator. Its requests
// are dry runs.
type caller struct {
	t      *testing.T
	client dynamic.Interface
}

// callers returns an administrator, and the agents of a gateway on n1 and of a worker on n2.
func callers(t *testing.T, s *api.Server) (admin, gateway, worker caller) {
	t.Helper()
	config, err := clientcmd.BuildConfigFromFlags("", s.Kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	config.QPS, config.Burst = 1000, 1000
	as := func(account, node string) caller {
		c := rest.CopyConfig(config)
		if account != "" {
			c.Impersonate = rest.ImpersonationConfig{
				UserName: "system:serviceaccount:hawser-system:" + account,
				Groups:   []string{"system:serviceaccounts", "system:serviceaccounts:hawser-system", "system:authenticated"},
				Extra:    map[string][]string{"authentication.kubernetes.io/node-name": {node}},
			}
		}
		client, err := dynamic.NewForConfig(c)
		if err != nil {
			t.Fatal(err)
		}
		return caller{t, client}
	}
	return as("", ""), as("hawser-gateway", "n1"), as("hawser-agent", "n2")
}

var (
	configMaps = schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}
	slicesOf   = schema.GroupVersionResource{Group: "discovery.k8s.io", Version: "v1", Resource: "endpointslices"}
	leasesOf   = schema.GroupVersionResource{Group: "coordination.k8s.io", Version: "v1", Resource: "leases"}
	eventsOf   = schema.GroupVersionResource{Group: "events.k8s.io", Version: "v1", Resource: "events"}
	exportsOf  = schema.GroupVersionResource{Group: "multicluster.x-k8s.io", Version: "v1beta1", Resource: "serviceexports"}
	importsOf  = schema.GroupVersionResource{Group: "multicluster.x-k8s.io", Version: "v1beta1", Resource: "serviceimports"}
	properties = schema.GroupVersionResource{Group: "about.k8s.io", Version: "v1beta1", Resource: "clusterproperties"}
	nodesOf    = schema.GroupVersionResource{Group: "hawser.dev", Version: "v1alpha1", Resource: "hawsernodes"}
)

// object parses a manifest.
func object(t *testing.T, manifest string) *unstructured.Unstructured {
	t.Helper()
	out := &unstructured.Unstructured{}
	if err := yaml.Unmarshal([]byte(manifest), &out.Object); err != nil {
		t.Fatalf("%v\n%s", err, manifest)
	}
	return out
}

// in returns the client of a resource in a namespace. The namespace is empty for cluster-scoped
// objects.
func (c caller) in(resource schema.GroupVersionResource, namespace string) dynamic.ResourceInterface {
	if namespace == "" {
		return c.client.Resource(resource)
	}
	return c.client.Resource(resource).Namespace(namespace)
}

var dryRun = []string{metav1.DryRunAll}

// create returns the error of a request of the caller to create an object.
func (c caller) create(resource schema.GroupVersionResource, manifest string) error {
	o := object(c.t, manifest)
	_, err := c.in(resource, o.GetNamespace()).Create(context.Background(), o, metav1.CreateOptions{DryRun: dryRun})
	return err
}

// change returns the error of a merge patch of the caller. patch is JSON or YAML.
func (c caller) change(resource schema.GroupVersionResource, name, patch string, subresources ...string) error {
	namespace, name, found := strings.Cut(name, "/")
	if !found {
		namespace, name = "", namespace
	}
	raw, err := yaml.YAMLToJSON([]byte(patch))
	if err != nil {
		c.t.Fatal(err)
	}
	_, err = c.in(resource, namespace).Patch(context.Background(), name, "application/merge-patch+json", raw, metav1.PatchOptions{DryRun: dryRun}, subresources...)
	return err
}

// update returns the error of a request of the caller to replace an object with a changed one.
func (c caller) update(o *unstructured.Unstructured, resource schema.GroupVersionResource, change func(map[string]any)) error {
	changed := o.DeepCopy()
	change(changed.Object)
	_, err := c.in(resource, o.GetNamespace()).Update(context.Background(), changed, metav1.UpdateOptions{DryRun: dryRun})
	return err
}

// remove returns the error of a request of the caller to delete an object.
func (c caller) remove(resource schema.GroupVersionResource, namespace, name string) error {
	return c.in(resource, namespace).Delete(context.Background(), name, metav1.DeleteOptions{DryRun: dryRun})
}

// allowed checks the error of a request. It must be nil, or Forbidden if want is false.
func allowed(t *testing.T, want bool, what string, err error) {
	t.Helper()
	switch {
	case want && err != nil:
		t.Errorf("%s: %v", what, err)
	case !want && err == nil:
		t.Errorf("%s is accepted", what)
	case !want && !apierrors.IsForbidden(err):
		t.Errorf("%s is not forbidden but failed: %v", what, err)
	}
}

// enforced waits until the API server refuses a request.
func enforced(t *testing.T, what string, request func() error) {
	t.Helper()
	var err error
	for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		if err = request(); apierrors.IsForbidden(err) {
			return
		}
	}
	t.Fatalf("the policy of %s is not enforced: %v", what, err)
}

// services is a topology whose gateways have Services: a gateway on a named node, and a gateway
// selected by labels. Another cluster dials them.
var services = strings.NewReplacer("gateways: [{name: a, node: n1, endpoints: [203.0.113.1]}]",
	`gateways: [{name: a, node: n1, endpoints: [203.0.113.1, "service:LoadBalancer"]}, `+
		`{name: edge, nodeSelector: {node-restriction.kubernetes.io/hawser-gateway: "true"}, endpoints: [203.0.113.2, "service:LoadBalancer"]}]`,
	"  exports:\n", `  - name: c2
    podCIDRs: [10.8.0.0/16]
    serviceCIDRs: [10.78.0.0/16]
    recipient: age1c4qh3aws6qp9yjn53gugn2gpfurpcw2rj65zquuj0jmj87zmwcjs3mhndp
    gateways: [{name: b, node: n9, endpoints: [203.0.113.9]}]
  exports:
`).Replace(topology)

// TestPolicies tests, field by field, what an attacker may write with the agents of a node, and
// that others may still write all of it.
func TestPolicies(t *testing.T) {
	t.Parallel()
	s := api.Start(t, "c1")
	s.Install(t, services)
	for node, address := range map[string]string{"n1": "172.31.1.11", "n2": "172.31.1.12"} {
		apply(t, s, "apiVersion: v1\nkind: Node\nmetadata: {name: "+node+"}\n")
		s.K(t, "patch", "node", node, "--subresource=status", "--type=merge", "-p", fmt.Sprintf(`{"status":{"addresses":[{"type":"InternalIP","address":%q}]}}`, address))
	}
	admin, gateway, worker := callers(t, s)

	t.Run("ServiceExports", func(t *testing.T) {
		apply(t, s, "apiVersion: multicluster.x-k8s.io/v1beta1\nkind: ServiceExport\nmetadata: {name: web, namespace: default, labels: {a: b}, annotations: {c: d}}\nspec: {exportedLabels: {e: f}}\n")
		change := func(c caller, patch string) error { return c.change(exportsOf, "default/web", patch) }
		enforced(t, "ServiceExports", func() error { return change(gateway, `{metadata: {labels: {x: z}}}`) })
		allowed(t, true, "the record of addresses", change(gateway, `{metadata: {annotations: {hawser.dev/addresses: 242.0.0.1}}}`))
		allowed(t, true, "conditions", gateway.change(exportsOf, "default/web", `{status: {conditions: []}}`, "status"))
		for what, patch := range map[string]string{
			"a label": `{metadata: {labels: {x: z}}}`, "a label less": `{metadata: {labels: {a: null}}}`,
			"an owner":     `{metadata: {ownerReferences: [{apiVersion: v1, kind: ConfigMap, name: none, uid: 00000000-0000-0000-0000-000000000001}]}}`,
			"a finalizer":  `{metadata: {finalizers: [evil.example/x]}}`,
			"another note": `{metadata: {annotations: {hawser.dev/addresses: 242.0.0.1, x: z}}}`,
			"a note less":  `{metadata: {annotations: {c: null}}}`, "all notes": `{metadata: {annotations: null}}`,
			"the spec": `{spec: {exportedLabels: {e: g}}}`, "no spec": `{spec: null}`,
		} {
			allowed(t, false, "a gateway changes "+what+" of a ServiceExport", change(gateway, patch))
			allowed(t, false, "a worker changes "+what+" of a ServiceExport", change(worker, patch))
			if err := change(admin, patch); what != "another note" && err != nil {
				t.Errorf("an administrator changes %s of a ServiceExport: %v", what, err)
			}
		}
		allowed(t, false, "a gateway deletes a ServiceExport", gateway.remove(exportsOf, "default", "web"))
		allowed(t, false, "a gateway creates a ServiceExport",
			gateway.create(exportsOf, "apiVersion: multicluster.x-k8s.io/v1beta1\nkind: ServiceExport\nmetadata: {name: evil, namespace: default}\n"))
		allowed(t, true, "an administrator deletes a ServiceExport", admin.remove(exportsOf, "default", "web"))
	})

	t.Run("Leases", func(t *testing.T) {
		read := func() *unstructured.Unstructured {
			o, err := admin.in(leasesOf, "hawser-system").Get(t.Context(), "hawser-gateway-edge-1", metav1.GetOptions{})
			if err != nil {
				t.Fatal(err)
			}
			return o
		}
		set := func(value any, fields ...string) func(map[string]any) {
			return func(o map[string]any) {
				_ = unstructured.SetNestedField(o, "n1", "spec", "holderIdentity")
				_ = unstructured.SetNestedField(o, value, fields...)
			}
		}
		enforced(t, "Leases", func() error { return gateway.update(read(), leasesOf, set("n2", "spec", "holderIdentity")) })
		l := read()
		allowed(t, true, "its own node as the holder", gateway.update(l, leasesOf, set(int64(8), "spec", "leaseDurationSeconds")))
		for what, change := range map[string]func(map[string]any){
			"an annotation": set(map[string]any{"a": "b"}, "metadata", "annotations"),
			"the labels":    set(map[string]any{"a": "b"}, "metadata", "labels"),
			"a finalizer":   set([]any{"evil.example/x"}, "metadata", "finalizers"),
			"an owner": set([]any{map[string]any{"apiVersion": "v1", "kind": "ConfigMap", "name": "none", "uid": "00000000-0000-0000-0000-000000000001"}},
				"metadata", "ownerReferences"),
			"another holder": set("n2", "spec", "holderIdentity"),
		} {
			allowed(t, false, "a gateway writes "+what+" of a Lease", gateway.update(l, leasesOf, change))
			allowed(t, false, "a worker writes "+what+" of a Lease", worker.update(l, leasesOf, change))
			allowed(t, true, "an administrator writes "+what+" of a Lease", admin.update(l, leasesOf, change))
		}
		allowed(t, false, "a gateway deletes a Lease", gateway.remove(leasesOf, "hawser-system", "hawser-gateway-edge-1"))
		allowed(t, false, "a gateway creates a Lease", gateway.create(leasesOf, strings.Replace(lease("n1"), "edge-1", "x-1", 1)))
	})

	t.Run("EndpointSlices", func(t *testing.T) {
		ports := strings.Fields(strings.Trim(s.K(t, "-n", "hawser-system", "get", "service", "hawser-gateway-a", "-o", "jsonpath={.spec.ports[*].port}"), " "))
		slice := func(service, node, address, port, protocol, more string) string {
			return fmt.Sprintf("apiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\nmetadata: {name: x, namespace: hawser-system, "+
				"labels: {endpointslice.kubernetes.io/managed-by: hawser.dev, kubernetes.io/service-name: %s}%s}\n"+
				"addressType: IPv4\nendpoints: [{addresses: [%s], nodeName: %s}]\nports: [{name: udp-%s, port: %[5]s, protocol: %[6]s}]\n",
				service, more, address, node, port, protocol)
		}
		enforced(t, "EndpointSlices of gateways", func() error {
			return gateway.create(slicesOf, slice("hawser-gateway-a", "n1", "10.96.0.10", ports[0], "UDP", ""))
		})
		enforced(t, "holders", func() error {
			return gateway.create(slicesOf, slice("hawser-gateway-edge-1", "n2", "172.31.1.12", ports[0], "UDP", ""))
		})
		for what, tt := range map[string]struct {
			allowed bool
			text    string
		}{
			"its own node":                    {true, slice("hawser-gateway-a", "n1", "172.31.1.11", ports[0], "UDP", "")},
			"another node":                    {false, slice("hawser-gateway-a", "n2", "172.31.1.12", ports[0], "UDP", "")},
			"another node's address":          {false, slice("hawser-gateway-a", "n1", "172.31.1.12", ports[0], "UDP", "")},
			"the cluster's DNS":               {false, slice("hawser-gateway-a", "n1", "10.96.0.10", ports[0], "UDP", "")},
			"a node that is not there":        {false, slice("hawser-gateway-a", "ghost", "10.96.0.10", ports[0], "UDP", "")},
			"another port":                    {false, slice("hawser-gateway-a", "n1", "172.31.1.11", "53", "UDP", "")},
			"TCP":                             {false, slice("hawser-gateway-a", "n1", "172.31.1.11", ports[0], "TCP", "")},
			"a Service that is no gateway's":  {false, slice("hawser-gateway-x", "n1", "172.31.1.11", ports[0], "UDP", "")},
			"a gateway without a holder":      {false, slice("hawser-gateway-edge-1", "n1", "172.31.1.11", ports[0], "UDP", "")},
			"with a finalizer":                {false, slice("hawser-gateway-a", "n1", "172.31.1.11", ports[0], "UDP", ", finalizers: [evil.example/x]")},
			"no node named":                   {false, strings.Replace(slice("hawser-gateway-a", "n1", "172.31.1.11", ports[0], "UDP", ""), ", nodeName: n1", "", 1)},
			"a port without a number":         {false, strings.Replace(slice("hawser-gateway-a", "n1", "172.31.1.11", ports[0], "UDP", ""), "port: "+ports[0]+", ", "", 1)},
			"another namespace":               {false, strings.Replace(slice("hawser-gateway-a", "n1", "172.31.1.11", ports[0], "UDP", ""), "hawser-system", "default", 1)},
			"a Service of others":             {false, strings.Replace(slice("kubernetes", "n1", "172.31.1.11", ports[0], "UDP", ""), "hawser-system", "default", 1)},
			"without the mark of its manager": {false, strings.Replace(slice("hawser-gateway-a", "n1", "172.31.1.11", ports[0], "UDP", ""), "hawser.dev,", "x,", 1)},
			"an import, which has no Service": {true, strings.NewReplacer("kubernetes.io/service-name: hawser-gateway-a", "multicluster.kubernetes.io/service-name: web", "hawser-system", "default").Replace(slice("hawser-gateway-a", "n1", "242.0.0.1", "80", "TCP", ""))},
			"an import with a finalizer":      {false, strings.NewReplacer("kubernetes.io/service-name: hawser-gateway-a", "multicluster.kubernetes.io/service-name: web", "hawser-system", "default").Replace(slice("hawser-gateway-a", "n1", "242.0.0.1", "80", "TCP", ", finalizers: [evil.example/x]"))},
		} {
			allowed(t, tt.allowed, "an EndpointSlice of a gateway: "+what, gateway.create(slicesOf, tt.text))
			allowed(t, false, "an EndpointSlice of a worker: "+what, worker.create(slicesOf, tt.text))
			if err := admin.create(slicesOf, tt.text); err != nil && !strings.Contains(what, "without a number") {
				t.Errorf("an EndpointSlice of an administrator: %s: %v", what, err)
			}
		}
		held := object(t, lease("n1"))
		if _, err := admin.in(leasesOf, "hawser-system").Patch(t.Context(), held.GetName(), "application/merge-patch+json",
			[]byte(`{"spec":{"holderIdentity":"n1"}}`), metav1.PatchOptions{}); err != nil {
			t.Fatal(err)
		}
		edge := strings.Fields(s.K(t, "-n", "hawser-system", "get", "service", "hawser-gateway-edge-1", "-o", "jsonpath={.spec.ports[*].port}"))
		var err error
		for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(50 * time.Millisecond) { // policies read Leases by a watch
			if err = gateway.create(slicesOf, slice("hawser-gateway-edge-1", "n1", "172.31.1.11", edge[0], "UDP", "")); err == nil {
				break
			}
		}
		allowed(t, true, "the holder of a gateway", err)
		allowed(t, false, "a node that is not the holder", gateway.create(slicesOf, slice("hawser-gateway-edge-1", "n2", "172.31.1.12", edge[0], "UDP", "")))
	})

	t.Run("HawserNodes", func(t *testing.T) {
		text := func(more string) string {
			return "apiVersion: hawser.dev/v1alpha1\nkind: HawserNode\nmetadata: {name: n1" + more + "}\n"
		}
		owner := ", ownerReferences: [{apiVersion: v1, kind: %s, name: %s, uid: 00000000-0000-0000-0000-000000000001}]"
		enforced(t, "HawserNodes", func() error { return gateway.create(nodesOf, node("n2")) })
		allowed(t, true, "an agent creates its own", gateway.create(nodesOf, text(fmt.Sprintf(owner, "Node", "n1"))))
		allowed(t, false, "an agent creates one with another owner", gateway.create(nodesOf, text(fmt.Sprintf(owner, "ConfigMap", "n1"))))
		allowed(t, false, "an agent creates one of another node", gateway.create(nodesOf, text(fmt.Sprintf(owner, "Node", "n2"))))
		allowed(t, false, "an agent creates one with a finalizer", gateway.create(nodesOf, text(", finalizers: [evil.example/x]")))
		allowed(t, false, "an agent deletes one", gateway.remove(nodesOf, "", "n1"))
	})

	t.Run("Imports", func(t *testing.T) {
		text := func(labels, more string) string {
			return "apiVersion: multicluster.x-k8s.io/v1beta1\nkind: ServiceImport\nmetadata: {name: i, namespace: default, labels: {" + labels + "}" + more + "}\n" +
				"spec: {type: ClusterSetIP, ports: [{port: 80, protocol: TCP}]}\n"
		}
		const ours, theirs = "app.kubernetes.io/managed-by: hawser", "app.kubernetes.io/managed-by: lighthouse"
		enforced(t, "ServiceImports", func() error { return gateway.create(importsOf, text(theirs, "")) })
		allowed(t, true, "a gateway creates an import", gateway.create(importsOf, text(ours, "")))
		allowed(t, false, "a gateway creates an import with a finalizer", gateway.create(importsOf, text(ours, ", finalizers: [evil.example/x]")))
		allowed(t, false, "a worker creates an import", worker.create(importsOf, text(ours, "")))
		apply(t, s, text(theirs, ""))
		allowed(t, false, "a gateway takes over an import of others", gateway.change(importsOf, "default/i", "{metadata: {labels: {"+ours+"}}}"))
		allowed(t, false, "a gateway deletes an import of others", gateway.remove(importsOf, "default", "i"))
		allowed(t, true, "an administrator deletes it", admin.remove(importsOf, "default", "i"))
		// Another user removed the label of an import that Hawser wrote.
		mine := strings.Replace(text(ours, ""), "name: i,", "name: mine,", 1)
		raw, err := json.Marshal(object(t, mine).Object)
		if err != nil {
			t.Fatal(err)
		}
		yes := true
		if _, err := gateway.in(importsOf, "default").Patch(t.Context(), "mine", "application/apply-patch+yaml", raw, metav1.PatchOptions{FieldManager: "hawser", Force: &yes}); err != nil {
			t.Fatal(err)
		}
		s.K(t, "-n", "default", "label", "serviceimport", "mine", "app.kubernetes.io/managed-by-")
		allowed(t, true, "a gateway takes back an import", gateway.change(importsOf, "default/mine", "{metadata: {labels: {"+ours+"}}}"))
		property := "apiVersion: about.k8s.io/v1beta1\nkind: ClusterProperty\nmetadata: {name: %s, labels: {" + ours + "}}\nspec: {value: c1}\n"
		allowed(t, true, "a gateway names the cluster", gateway.create(properties, fmt.Sprintf(property, "cluster.clusterset.k8s.io")))
		allowed(t, false, "a gateway writes another property", gateway.create(properties, fmt.Sprintf(property, "evil.example")))
	})

	t.Run("Events", func(t *testing.T) {
		text := func(namespace, controller, instance, regarding string) string {
			return fmt.Sprintf("apiVersion: events.k8s.io/v1\nkind: Event\nmetadata: {name: e, namespace: %s}\neventTime: \"2026-01-01T00:00:00.000000Z\"\n"+
				"type: Normal\nreason: R\naction: A\nreportingController: %s\nreportingInstance: %s\nregarding: {apiVersion: hawser.dev/v1alpha1, kind: HawserNode, name: %s}\n",
				namespace, controller, instance, regarding)
		}
		enforced(t, "Events", func() error { return worker.create(eventsOf, text("default", "kubelet", "n2", "n2")) })
		allowed(t, true, "an Event of its own node", worker.create(eventsOf, text("default", "hawser.dev/agent", "n2", "n2")))
		for what, e := range map[string]string{
			"another controller": text("default", "kubelet", "n2", "n2"), "another node": text("default", "hawser.dev/agent", "n1", "n2"),
			"about another node": text("default", "hawser.dev/agent", "n2", "n1"), "another namespace": text("kube-system", "hawser.dev/agent", "n2", "n2"),
		} {
			allowed(t, false, "an Event of a worker: "+what, worker.create(eventsOf, e))
			allowed(t, false, "an Event of a gateway: "+what, gateway.create(eventsOf, e))
		}
		core := schema.GroupVersionResource{Version: "v1", Resource: "events"}
		allowed(t, false, "an Event of the core API", worker.create(core, "apiVersion: v1\nkind: Event\nmetadata: {name: e, namespace: default}\ninvolvedObject: {namespace: default}\n"))
	})

	// The agents have no other rights on these resources.
	for name, c := range map[string]caller{"gateway": gateway, "worker": worker} {
		for _, resource := range []string{"secrets", "pods", "configmaps", "serviceaccounts"} {
			_, err := c.in(schema.GroupVersionResource{Version: "v1", Resource: resource}, "hawser-system").List(t.Context(), metav1.ListOptions{})
			// Gateways read pods because the topology has egress rules.
			allowed(t, name == "gateway" && resource == "pods", name+" lists "+resource, err)
		}
		err := c.in(slicesOf, "default").DeleteCollection(t.Context(), metav1.DeleteOptions{DryRun: dryRun}, metav1.ListOptions{})
		allowed(t, false, name+": "+http.MethodDelete+" of all EndpointSlices", err)
	}
}
