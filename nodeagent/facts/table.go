package facts

import (
	"maps"
	"reflect"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	"hawser.dev/hawser/nodeagent/mcs"
	"hawser.dev/hawser/nodeagent/model"
	"hawser.dev/hawser/schema/fabric"
)

// Table takes objects one by one and gives the facts that they make up. What a
// change costs does not grow with what did not change: each object is mapped
// when it comes, and the lists that it is not in stay the same ones. It is for one
// goroutine at a time.
type Table struct {
	nodes      shelf[model.Node]
	pods       shelf[model.Pod]
	services   shelf[service] // of all that are known to be there, or not to be
	exports    shelf[mcs.Export]
	imports    shelf[mcs.Import]
	namespaces shelf[string]
	facts      model.Facts
}

// service is what is known of one Service. Both parts are nil when there is none;
// one of another name has only the second.
type service struct {
	project *model.Service
	mcs     *mcs.Service
}

// shelf is one kind of things, by name or namespace/name.
type shelf[T any] struct {
	things map[string]T
	stale  bool // the list was not made since the last change
}

// put reports whether what is there differs from what was.
func (s *shelf[T]) put(key string, thing T) bool {
	if have, there := s.things[key]; there && reflect.DeepEqual(have, thing) {
		return false
	}
	if s.things == nil {
		s.things = map[string]T{}
	}
	s.things[key] = thing
	s.stale = true
	return true
}

func (s *shelf[T]) drop(key string) bool {
	if _, there := s.things[key]; !there {
		return false
	}
	delete(s.things, key)
	s.stale = true
	return true
}

// keep drops what is not wanted.
func (s *shelf[T]) keep(wanted func(key string) bool) bool {
	before := len(s.things)
	maps.DeleteFunc(s.things, func(key string, _ T) bool { return !wanted(key) })
	s.stale = s.stale || len(s.things) != before
	return len(s.things) != before
}

// listed gives what each thing is shown as, by key.
func listed[T, S any](s *shelf[T], shown func(key string, thing T) (S, bool)) []S {
	var out []S
	for _, key := range slices.SortedFunc(maps.Keys(s.things), byPart) {
		if item, ok := shown(key, s.things[key]); ok {
			out = append(out, item)
		}
	}
	s.stale = false
	return out
}

// byPart orders namespace/name by namespace, then by name.
func byPart(a, b string) int {
	an, aname, _ := strings.Cut(a, "/")
	bn, bname, _ := strings.Cut(b, "/")
	if an != bn {
		return strings.Compare(an, bn)
	}
	return strings.Compare(aname, bname)
}

// NewTable begins with what was known before, nil = nothing. It counts until the
// object comes, or is said to be gone.
func NewTable(before *model.Facts) *Table {
	t := &Table{}
	if before == nil {
		return t
	}
	for _, n := range before.Nodes {
		t.nodes.put(n.Name, n)
	}
	for _, p := range before.Pods {
		t.pods.put(p.Namespace+"/"+p.Name, p)
	}
	for _, e := range before.Exports {
		t.services.put(e.Namespace+"/"+e.Name, service{mcs: e.Service})
		e.Service = nil
		t.exports.put(e.Namespace+"/"+e.Name, e)
	}
	for _, s := range before.Services {
		known := t.services.things[s.Namespace+"/"+s.Name]
		known.project = &s
		t.services.put(s.Namespace+"/"+s.Name, known)
	}
	for _, i := range before.Imports {
		t.imports.put(i.Namespace+"/"+i.Name, i)
	}
	for _, n := range before.Namespaces {
		t.namespaces.put(n, n)
	}
	return t
}

// Facts gives the facts as they are now. They are shared: do not change them.
func (t *Table) Facts() model.Facts {
	f := &t.facts
	if t.exports.stale || t.services.stale {
		f.Exports = listed(&t.exports, t.export)
	}
	if t.services.stale {
		f.Services = listed(&t.services, func(_ string, s service) (model.Service, bool) {
			if s.project == nil {
				return model.Service{}, false
			}
			return *s.project, true
		})
	}
	if t.nodes.stale {
		f.Nodes = listed(&t.nodes, same[model.Node])
	}
	if t.pods.stale {
		f.Pods = listed(&t.pods, same[model.Pod])
	}
	if t.imports.stale {
		f.Imports = listed(&t.imports, same[mcs.Import])
	}
	if t.namespaces.stale {
		f.Namespaces = listed(&t.namespaces, same[string])
	}
	return *f
}

func same[T any](_ string, thing T) (T, bool) { return thing, true }

// export leaves out those of which nobody has looked yet whether there is a
// Service: they would be told to be wrong for a moment.
func (t *Table) export(key string, e mcs.Export) (mcs.Export, bool) {
	known, looked := t.services.things[key]
	e.Service = known.mcs
	return e, looked
}

// PutNode reports whether the node makes other facts than before; so do the others.
func (t *Table) PutNode(n *corev1.Node) bool { return t.nodes.put(n.Name, fromNode(n)) }

// DropNode forgets a node.
func (t *Table) DropNode(name string) bool { return t.nodes.drop(name) }

// KeepNodes forgets those that are not wanted.
func (t *Table) KeepNodes(wanted func(name string) bool) bool { return t.nodes.keep(wanted) }

// PutPod takes a pod; one that ended or has no address counts as gone.
func (t *Table) PutPod(p *corev1.Pod) bool {
	mapped, useful := fromPod(p)
	if !useful {
		return t.pods.drop(p.Namespace + "/" + p.Name)
	}
	return t.pods.put(p.Namespace+"/"+p.Name, mapped)
}

// DropPod forgets a pod by namespace/name.
func (t *Table) DropPod(key string) bool { return t.pods.drop(key) }

// KeepPods forgets those that are not wanted, by namespace/name.
func (t *Table) KeepPods(wanted func(key string) bool) bool { return t.pods.keep(wanted) }

// PutService takes a Service together with all its slices; nil says that there is none.
func (t *Table) PutService(namespace, name string, s *corev1.Service, endpoints []*discoveryv1.EndpointSlice) bool {
	var known service
	if s != nil {
		known.mcs = offered(s)
		if s.Spec.Type != corev1.ServiceTypeExternalName {
			mapped := fromService(s, endpoints)
			known.project = &mapped
		}
	}
	return t.services.put(namespace+"/"+name, known)
}

// KeepServices forgets those that are not wanted, by namespace/name.
func (t *Table) KeepServices(wanted func(key string) bool) bool { return t.services.keep(wanted) }

// PutExport takes a ServiceExport. It shows once its Service was looked for.
func (t *Table) PutExport(e *ServiceExport) bool {
	return t.exports.put(e.Namespace+"/"+e.Name, fromExport(e))
}

// DropExport forgets a ServiceExport by namespace/name.
func (t *Table) DropExport(key string) bool { return t.exports.drop(key) }

// KeepExports forgets those that are not wanted, by namespace/name.
func (t *Table) KeepExports(wanted func(key string) bool) bool { return t.exports.keep(wanted) }

// Exports gives the namespace/name of each ServiceExport, sorted.
func (t *Table) Exports() []string { return slices.Sorted(maps.Keys(t.exports.things)) }

// PutImport takes a ServiceImport. What another writer takes out of one, its mark or
// its addresses, is not forgotten as long as it stands: the addresses are in use.
func (t *Table) PutImport(i *ServiceImport) bool {
	key := i.Namespace + "/" + i.Name
	mapped, before := fromImport(i), t.imports.things[key]
	switch {
	case i.Labels[ManagedBy] != Manager:
		mapped = mcs.Import{Namespace: i.Namespace, Name: i.Name, Created: mapped.Created, IPs: before.IPs, Taken: true}
	case len(mapped.IPs) == 0 && mapped.Type == fabric.ClusterSetIP:
		mapped.IPs = before.IPs
	}
	return t.imports.put(key, mapped)
}

// DropImport forgets a ServiceImport by namespace/name.
func (t *Table) DropImport(key string) bool { return t.imports.drop(key) }

// KeepImports forgets those that are not wanted, by namespace/name.
func (t *Table) KeepImports(wanted func(key string) bool) bool { return t.imports.keep(wanted) }

// PutNamespace takes the name of a namespace.
func (t *Table) PutNamespace(name string) bool { return t.namespaces.put(name, name) }

// DropNamespace forgets a namespace.
func (t *Table) DropNamespace(name string) bool { return t.namespaces.drop(name) }

// KeepNamespaces forgets those that are not wanted.
func (t *Table) KeepNamespaces(wanted func(name string) bool) bool { return t.namespaces.keep(wanted) }
