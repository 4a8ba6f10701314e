// Package clusterdump collects Hawser's objects and logs from a cluster for a support bundle. It
// omits all data that may be secret.
package clusterdump

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/yaml"

	"hawser.dev/hawser/kubeclient"
	"hawser.dev/hawser/kubeclient/clusterstatus"
	"hawser.dev/hawser/render"
)

// Sink receives one gathered file, an error, or both if a part is missing. It must be safe for concurrent use.
type Sink func(file string, text []byte, err error)

// Gather reads the state of Hawser from a cluster's API, for readers without access to the cluster:
// versions, objects, and the agents' logs of the duration since (0 = all). It does not request
// Secrets. It omits fields of other objects that may contain a secret.
func Gather(ctx context.Context, c *kubeclient.Client, since time.Duration, put Sink) {
	version, err := c.Version(ctx)
	put("version.json", version, err)
	var group sync.WaitGroup
	group.Go(func() { gatherLogs(ctx, c, since, put) })
	group.Go(func() {
		tree := render.Tree{} // only the fabric, without the keys that Published reads too
		err := clusterstatus.ReadFabric(ctx, c, tree)
		if err != nil {
			put("fabric.json", nil, err)
			return
		}
		if len(tree) == 0 {
			put("fabric.json", nil, fmt.Errorf("there is no %s", clusterstatus.FabricPart(0)))
			return
		}
		f, err := render.FabricOf(tree)
		if err != nil {
			put("fabric.json", nil, err)
			return
		}
		text, err := json.MarshalIndent(f, "", "  ")
		put("fabric.json", append(text, '\n'), err)
	})
	for _, s := range dumpFiles() {
		list, err := collect(ctx, c, s)
		if text := documents(list, s.redact); len(text) > 0 || err != nil {
			put("objects/"+s.file+".yaml", text, err)
		}
	}
	group.Wait()
}

// dumpFile is the content of one file.
type dumpFile struct {
	file   string
	kind   schema.GroupVersionKind
	scopes []scope
	redact func(*unstructured.Unstructured) map[string]any
}

// scope limits a list of objects to a namespace or a name.
type scope struct {
	namespace string // empty = all, or the kind is cluster-scoped
	selector  string
	name      string // of the only object; empty = all
	include   func(*unstructured.Unstructured) bool
}

// dumpFiles returns the files of objects.
func dumpFiles() []dumpFile {
	core := func(kind string) schema.GroupVersionKind { return schema.GroupVersionKind{Version: "v1", Kind: kind} }
	hawserNamespace, anywhere := []scope{{namespace: render.Namespace}}, []scope{{}}
	var dns []scope
	for _, name := range []string{"coredns", "coredns-custom", "kube-dns", "node-local-dns"} {
		dns = append(dns, scope{namespace: "kube-system", name: name})
	}
	return []dumpFile{
		{"pods", kubeclient.PodKind(), hawserNamespace, redactWorkload},
		{"daemonsets", clusterstatus.DaemonSetKind(), hawserNamespace, redactWorkload},
		{"events", core("Event"), append(hawserNamespace, scope{namespace: "default", include: fromAgents}), withoutManagedFields},
		{"hawsernodes", clusterstatus.HawserNodeKind(), anywhere, withoutManagedFields},
		{"nodes", core("Node"), anywhere, redactNode},
		{"serviceexports", kubeclient.MCSKind(kubeclient.KindServiceExport), anywhere,
			withoutManagedFields},
		{"serviceimports", kubeclient.MCSKind("ServiceImport"), anywhere, withoutManagedFields},
		{"endpointslices", schema.GroupVersionKind{Group: "discovery.k8s.io", Version: "v1", Kind: "EndpointSlice"}, []scope{{selector: kubeclient.LabelEndpointSlices}}, withoutManagedFields},
		{"clusterproperties", schema.GroupVersionKind{Group: "about.k8s.io", Version: "v1beta1", Kind: "ClusterProperty"}, anywhere, withoutManagedFields},
		{"configmaps", core("ConfigMap"), hawserNamespace, redactConfigMap},
		{"dns", core("ConfigMap"), dns, redactDNSConfig},
	}
}

// fromAgents matches the events that agents write about their HawserNodes. HawserNodes are
// cluster-scoped, so the events are in the namespace default.
func fromAgents(o *unstructured.Unstructured) bool {
	component, _, _ := unstructured.NestedString(o.Object, "reportingComponent")
	return strings.HasPrefix(component, "hawser.dev/")
}

func collect(ctx context.Context, c *kubeclient.Client, s dumpFile) ([]unstructured.Unstructured, error) {
	var out []unstructured.Unstructured
	for _, p := range s.scopes {
		if p.name != "" {
			o, err := c.Get(ctx, kubeclient.ID{Group: s.kind.Group, Version: s.kind.Version, Kind: s.kind.Kind, Namespace: p.namespace, Name: p.name})
			if err != nil {
				return out, err
			}
			if o != nil {
				out = append(out, *o)
			}
			continue
		}
		list, err := c.List(ctx, s.kind, p.namespace, p.selector)
		if err != nil {
			return out, err
		}
		for i := range list {
			if p.include == nil || p.include(&list[i]) {
				out = append(out, list[i])
			}
		}
	}
	slices.SortStableFunc(out, func(a, b unstructured.Unstructured) int {
		if s.file == "events" { // events are formatted like a log
			if c := a.GetCreationTimestamp().Time.Compare(b.GetCreationTimestamp().Time); c != 0 {
				return c
			}
		}
		return cmp.Or(strings.Compare(a.GetNamespace(), b.GetNamespace()), strings.Compare(a.GetName(), b.GetName()))
	})
	return out, nil
}

// documents encodes objects as a YAML stream.
func documents(list []unstructured.Unstructured, redact func(*unstructured.Unstructured) map[string]any) []byte {
	var out bytes.Buffer
	for i := range list {
		text, err := yaml.Marshal(redact(&list[i]))
		if err != nil {
			text = fmt.Appendf(nil, "# %s cannot be written: %v\n", kubeclient.IDOf(&list[i]), err)
		}
		out.WriteString("---\n")
		out.Write(text)
	}
	return out.Bytes()
}
