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

// Index takes objects one by one and gives the facts that they make up. What a
// change costs does not grow with what did not change: each object is mapped
// when it comes, and the lists that it is not in stay the same ones. It is for one
// goroutine at a time.
type Index struct {
	nodes sortedmap.Map[model.Node]
	// boots are the boots of nodes: of the Node, and of the report in its HawserNode. A report
	// ends with its boot, as the rules in the kernel do, and not with the HawserNode.
	boots      map[string]boots
	reports    bool // all HawserNodes came once
	pods       sortedmap.Map[model.Pod]
	namespaces sortedmap.Map[string]
	imports    sortedmap.Map[mcs.Import]
	services   sortedmap.Map[model.Service]
	// exports are those that came, and exported those of which somebody looked whether there is
	// a Service, together with that.
	exports, resolvedExports sortedmap.Map[mcs.Export]
	// serviceSpecs says of every Service that is known to be there, or not to be (nil), what an import
	// would take from it.
	serviceSpecs sortedmap.Map[*mcs.Service]
}

// NewTable begins with what was known before, nil = nothing. It counts until the
// object comes, or is said to be gone.
func NewTable(before *model.Facts) *Index {
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

// Facts gives the facts as they are now. They are shared: do not change them.
func (t *Index) Facts() model.Facts {
	return model.Facts{
		Nodes: t.nodes.List(), Pods: t.pods.List(), Services: t.services.List(), Exports: t.resolvedExports.List(),
		Imports: t.imports.List(), Namespaces: t.namespaces.List(),
	}
}

// publishExport shows a ServiceExport once somebody looked whether there is a Service: before, it
// would be said to be wrong for a moment.
func (t *Index) publishExport(key string) bool {
	e, there := t.exports.Get(key)
	offer, looked := t.serviceSpecs.Get(key)
	if !there || !looked {
		return t.resolvedExports.Delete(key)
	}
	e.Service = offer
	return t.resolvedExports.Put(key, e)
}

// PutNode reports whether the node makes other facts than before; so do the others.
func (t *Index) PutNode(n *corev1.Node) bool {
	b := t.boots[n.Name]
	b.node = n.Status.NodeInfo.BootID
	t.boots[n.Name] = b
	return t.protect(fromNode(n))
}

// DropNode forgets a node.
func (t *Index) DropNode(name string) bool {
	delete(t.boots, name)
	return t.nodes.Delete(name)
}

// KeepNodes forgets those that are not wanted.
func (t *Index) KeepNodes(wanted func(name string) bool) bool {
	maps.DeleteFunc(t.boots, func(name string, b boots) bool { return !wanted(name) && b.node != "" })
	return t.nodes.Retain(wanted)
}

// boots are boot IDs of a node (/proc/sys/kernel/random/boot_id).
type boots struct {
	node     string // of the running system, by its kubelet; empty = the Node has none
	reported string // in which the agent reported its rules; empty = in none
}

// PutReport takes the boot in which a node's agent reported that its rules are in place.
func (t *Index) PutReport(node, boot string) bool {
	b := t.boots[node]
	b.reported = boot
	t.boots[node] = b
	n, known := t.nodes.Get(node)
	return known && t.protect(n)
}

// HaveReports notes that the reports of all nodes came. Until then a node stays what it was.
func (t *Index) HaveReports() bool {
	t.reports = true
	changed := false
	for _, n := range t.nodes.List() {
		changed = t.protect(n) || changed
	}
	return changed
}

// protect stores a node with whether its rules are in place.
func (t *Index) protect(n model.Node) bool {
	b := t.boots[n.Name]
	was, _ := t.nodes.Get(n.Name)
	n.Unprotected = was.Unprotected
	if t.reports {
		n.Unprotected = b.reported == "" || b.node != "" && b.node != b.reported
	}
	return t.nodes.Put(n.Name, n)
}

// PutPod takes a pod; one that ended or has no address counts as gone.
func (t *Index) PutPod(p *corev1.Pod) bool {
	mapped, useful := fromPod(p)
	if !useful {
		return t.pods.Delete(p.Namespace + "/" + p.Name)
	}
	return t.pods.Put(p.Namespace+"/"+p.Name, mapped)
}

// DropPod forgets a pod by namespace/name.
func (t *Index) DropPod(key string) bool { return t.pods.Delete(key) }

// KeepPods forgets those that are not wanted, by namespace/name.
func (t *Index) KeepPods(wanted func(key string) bool) bool { return t.pods.Retain(wanted) }

// PutService takes a Service together with all its slices; nil says that there is none.
func (t *Index) PutService(namespace, name string, s *corev1.Service, endpoints []*discoveryv1.EndpointSlice) bool {
	key := namespace + "/" + name
	var offer *mcs.Service
	changed := false
	if s != nil {
		offer = exportedSpec(s)
	}
	if s != nil {
		changed = t.services.Put(key, fromService(s, endpoints))
	} else {
		changed = t.services.Delete(key)
	}
	changed = t.serviceSpecs.Put(key, offer) || changed
	return t.publishExport(key) || changed
}

// KeepServices forgets those that are not wanted, by namespace/name.
func (t *Index) KeepServices(wanted func(key string) bool) bool {
	changed := t.services.Retain(wanted)
	changed = t.serviceSpecs.Retain(wanted) || changed
	return t.resolvedExports.Retain(wanted) || changed
}

// PutExport takes a ServiceExport. It shows once its Service was looked for.
func (t *Index) PutExport(e *mcsv1.ServiceExport) bool {
	key := e.Namespace + "/" + e.Name
	changed := t.exports.Put(key, fromExport(e))
	return t.publishExport(key) || changed
}

// DropExport forgets a ServiceExport by namespace/name.
func (t *Index) DropExport(key string) bool {
	changed := t.exports.Delete(key)
	return t.publishExport(key) || changed
}

// KeepExports forgets those that are not wanted, by namespace/name.
func (t *Index) KeepExports(wanted func(key string) bool) bool {
	changed := t.exports.Retain(wanted)
	return t.resolvedExports.Retain(wanted) || changed
}

// Exports gives the namespace/name of each ServiceExport, sorted.
func (t *Index) Exports() []string { return t.exports.Keys() }

// PutImport takes a ServiceImport. What another writer takes out of one, its mark or
// its addresses, is not forgotten as long as it stands: the addresses are in use.
func (t *Index) PutImport(i *mcsv1.ServiceImport) bool {
	key := i.Namespace + "/" + i.Name
	mapped := fromImport(i)
	before, _ := t.imports.Get(key)
	switch {
	case i.Labels[ManagedByLabel] != ManagedByValue:
		mapped = mcs.Import{Namespace: i.Namespace, Name: i.Name, Created: mapped.Created, IPs: before.IPs, Foreign: true}
	case len(mapped.IPs) == 0 && mapped.Type == fabric.ClusterSetIP:
		mapped.IPs = before.IPs
	}
	return t.imports.Put(key, mapped)
}

// DropImport forgets a ServiceImport by namespace/name.
func (t *Index) DropImport(key string) bool { return t.imports.Delete(key) }

// KeepImports forgets those that are not wanted, by namespace/name.
func (t *Index) KeepImports(wanted func(key string) bool) bool { return t.imports.Retain(wanted) }

// PutNamespace takes the name of a namespace.
func (t *Index) PutNamespace(name string) bool { return t.namespaces.Put(name, name) }

// DropNamespace forgets a namespace.
func (t *Index) DropNamespace(name string) bool { return t.namespaces.Delete(name) }

// KeepNamespaces forgets those that are not wanted.
func (t *Index) KeepNamespaces(wanted func(name string) bool) bool {
	return t.namespaces.Retain(wanted)
}
