package facts

import (
	"maps"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	mcsv1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"hawser.dev/hawser/internal/sortedmap"
	"hawser.dev/hawser/nodeagent/mcs"
	"hawser.dev/hawser/nodeagent/model"
	"hawser.dev/hawser/schema/fabric"
)

// Index converts objects one by one and returns the facts of all of them. The cost of a change
// depends only on the changed object: Facts returns unchanged lists without a copy. An Index is not
// safe for concurrent use.
type Index struct {
	nodes sortedmap.Map[model.Node]
	// boots has the boot ID of each Node and of the report in its HawserNode. A report is valid
	// for one boot, like the rules in the kernel, even if the HawserNode is deleted.
	boots         map[string]boots
	reportsSynced bool // all HawserNodes were listed once
	noReports     bool // no node reports, so all nodes count as protected
	pods          sortedmap.Map[model.Pod]
	namespaces    sortedmap.Map[string]
	imports       sortedmap.Map[mcs.Import]
	services      sortedmap.Map[model.Service]
	// exports has all ServiceExports. resolvedExports has the exports whose Service was looked
	// up, with the result of the lookup.
	exports, resolvedExports sortedmap.Map[mcs.Export]
	// serviceSpecs has the exported part of each Service that was looked up; nil if the Service
	// does not exist.
	serviceSpecs sortedmap.Map[*mcs.Service]
}

// NewIndex returns an index that starts with the facts of the previous agent (nil if absent). Such
// a fact stays until its object is put, deleted or not retained.
func NewIndex(before *model.Facts) *Index {
	t := &Index{boots: map[string]boots{}}
	if before == nil {
		return t
	}
	for _, n := range before.Nodes {
		t.nodes.Put(n.Name, n)
	}
	for _, p := range before.Pods {
		t.pods.Put(p.Namespace+"/"+p.Name, p)
	}
	for _, s := range before.Services {
		t.services.Put(s.Namespace+"/"+s.Name, s)
		t.serviceSpecs.Put(s.Namespace+"/"+s.Name, nil)
	}
	for _, e := range before.Exports {
		key := e.Namespace + "/" + e.Name
		t.serviceSpecs.Put(key, e.Service)
		t.resolvedExports.Put(key, e)
		e.Service = nil
		t.exports.Put(key, e)
	}
	for _, i := range before.Imports {
		t.imports.Put(i.Namespace+"/"+i.Name, i)
	}
	for _, n := range before.Namespaces {
		t.namespaces.Put(n, n)
	}
	return t
}

// Facts returns the current facts. The caller must not modify them.
func (t *Index) Facts() model.Facts {
	return model.Facts{
		Nodes: t.nodes.List(), Pods: t.pods.List(), Services: t.services.List(), Exports: t.resolvedExports.List(),
		Imports: t.imports.List(), Namespaces: t.namespaces.List(),
	}
}

// publishExport adds a ServiceExport to the facts once its Service was looked up. Before the
// lookup, the condition of the ServiceExport would briefly report that the Service does not exist.
func (t *Index) publishExport(key string) bool {
	e, exists := t.exports.Get(key)
	spec, known := t.serviceSpecs.Get(key)
	if !exists || !known {
		return t.resolvedExports.Delete(key)
	}
	e.Service = spec
	return t.resolvedExports.Put(key, e)
}

// PutNode stores a node and reports whether facts changed, as all Put methods do.
func (t *Index) PutNode(n *corev1.Node) bool {
	b := t.boots[n.Name]
	b.node = n.Status.NodeInfo.BootID
	t.boots[n.Name] = b
	return t.protect(fromNode(n))
}

// DeleteNode removes a node.
func (t *Index) DeleteNode(name string) bool {
	delete(t.boots, name)
	return t.nodes.Delete(name)
}

// RetainNodes removes the nodes that wanted rejects.
func (t *Index) RetainNodes(wanted func(name string) bool) bool {
	maps.DeleteFunc(t.boots, func(name string, b boots) bool { return !wanted(name) && b.node != "" })
	return t.nodes.Retain(wanted)
}

// boots has two boot IDs of a node (/proc/sys/kernel/random/boot_id).
type boots struct {
	node     string // of the running system, from the kubelet; empty = the Node has no boot ID
	reported string // from the agent's report that its rules are installed; empty = no report
}

// PutReport stores the boot in which a node's agent reported that its rules are installed.
func (t *Index) PutReport(node, boot string) bool {
	b := t.boots[node]
	b.reported = boot
	t.boots[node] = b
	n, known := t.nodes.Get(node)
	return known && t.protect(n)
}

// ReportsSynced records that all HawserNodes were listed, and reports whether facts changed. Until
// then, a node keeps the state that the previous agent saved, and other nodes are unprotected.
func (t *Index) ReportsSynced() bool {
	t.reportsSynced = true
	changed := false
	for _, n := range t.nodes.List() {
		changed = t.protect(n) || changed
	}
	return changed
}

// protect stores a node and whether its rules are installed.
func (t *Index) protect(n model.Node) bool {
	b := t.boots[n.Name]
	before, known := t.nodes.Get(n.Name)
	switch {
	case t.noReports:
	case t.reportsSynced:
		n.Unprotected = b.reported == "" || b.node != "" && b.node != b.reported
	default:
		n.Unprotected = !known || before.Unprotected
	}
	return t.nodes.Put(n.Name, n)
}

// PutPod stores a pod. If the pod has ended or has no address, PutPod removes it.
func (t *Index) PutPod(p *corev1.Pod) bool {
	mapped, running := fromPod(p)
	if !running {
		return t.pods.Delete(p.Namespace + "/" + p.Name)
	}
	return t.pods.Put(p.Namespace+"/"+p.Name, mapped)
}

// DeletePod removes a pod by namespace/name.
func (t *Index) DeletePod(key string) bool { return t.pods.Delete(key) }

// RetainPods removes the pods that wanted rejects, by namespace/name.
func (t *Index) RetainPods(wanted func(key string) bool) bool { return t.pods.Retain(wanted) }

// PutService stores a Service with all its EndpointSlices. s is nil if the Service does not exist.
func (t *Index) PutService(namespace, name string, s *corev1.Service, endpoints []*discoveryv1.EndpointSlice) bool {
	key := namespace + "/" + name
	var spec *mcs.Service
	changed := false
	if s != nil {
		spec = exportedSpec(s)
		changed = t.services.Put(key, fromService(s, endpoints))
	} else {
		changed = t.services.Delete(key)
	}
	changed = t.serviceSpecs.Put(key, spec) || changed
	return t.publishExport(key) || changed
}

// RetainServices removes the Services that wanted rejects, by namespace/name.
func (t *Index) RetainServices(wanted func(key string) bool) bool {
	changed := t.services.Retain(wanted)
	changed = t.serviceSpecs.Retain(wanted) || changed
	return t.resolvedExports.Retain(wanted) || changed
}

// PutExport stores a ServiceExport. It becomes a fact once its Service was looked up.
func (t *Index) PutExport(e *mcsv1.ServiceExport) bool {
	key := e.Namespace + "/" + e.Name
	changed := t.exports.Put(key, fromExport(e))
	return t.publishExport(key) || changed
}

// DeleteExport removes a ServiceExport by namespace/name.
func (t *Index) DeleteExport(key string) bool {
	changed := t.exports.Delete(key)
	return t.publishExport(key) || changed
}

// RetainExports removes the ServiceExports that wanted rejects, by namespace/name.
func (t *Index) RetainExports(wanted func(key string) bool) bool {
	changed := t.exports.Retain(wanted)
	return t.resolvedExports.Retain(wanted) || changed
}

// Exports returns namespace/name of each ServiceExport, sorted.
func (t *Index) Exports() []string { return t.exports.Keys() }

// PutImport stores a ServiceImport. If another writer removes its label or its addresses, the
// addresses stay in the facts until the ServiceImport is deleted: they are in use.
func (t *Index) PutImport(i *mcsv1.ServiceImport) bool {
	key := i.Namespace + "/" + i.Name
	mapped := fromImport(i)
	before, _ := t.imports.Get(key)
	switch {
	case i.Labels[fabric.ManagedByLabel] != fabric.ManagedByValue:
		mapped = mcs.Import{Namespace: i.Namespace, Name: i.Name, Created: mapped.Created, IPs: before.IPs, Foreign: true}
	case len(mapped.IPs) == 0 && mapped.Type == fabric.ClusterSetIP:
		mapped.IPs = before.IPs
	}
	return t.imports.Put(key, mapped)
}

// DeleteImport removes a ServiceImport by namespace/name.
func (t *Index) DeleteImport(key string) bool { return t.imports.Delete(key) }

// RetainImports removes the ServiceImports that wanted rejects, by namespace/name.
func (t *Index) RetainImports(wanted func(key string) bool) bool { return t.imports.Retain(wanted) }

// PutNamespace stores the name of a namespace.
func (t *Index) PutNamespace(name string) bool { return t.namespaces.Put(name, name) }

// DeleteNamespace removes a namespace.
func (t *Index) DeleteNamespace(name string) bool { return t.namespaces.Delete(name) }

// RetainNamespaces removes the namespaces that wanted rejects.
func (t *Index) RetainNamespaces(wanted func(name string) bool) bool {
	return t.namespaces.Retain(wanted)
}
