package kube

import (
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	"hawser.dev/hawser/internal/sortedmap"
	"hawser.dev/hawser/nodeagent/cluster/facts"
)

// namespaceServices joins the Services of one namespace with their EndpointSlices, which come from
// a second watch. It updates the facts only after both watches have listed all objects. Otherwise a
// Service would have no endpoints until its slices arrive.
type namespaceServices struct {
	namespace string
	index     *facts.Index
	names     map[string]bool // of the watched Services

	services  sortedmap.Map[*corev1.Service]
	slicesOf  map[string]*sortedmap.Map[*discoveryv1.EndpointSlice] // by the name of the Service
	serviceOf sortedmap.Map[string]                                 // name of the Service, by key of the slice

	servicesSynced, slicesSynced bool
}

func newNamespaceServices(index *facts.Index, of scope) *namespaceServices {
	n := &namespaceServices{
		namespace: of.namespace, index: index, names: map[string]bool{},
		slicesOf: map[string]*sortedmap.Map[*discoveryv1.EndpointSlice]{},
	}
	for name := range strings.SplitSeq(of.names, ",") {
		n.names[name] = true
		n.slicesOf[name] = &sortedmap.Map[*discoveryv1.EndpointSlice]{}
	}
	return n
}

// publish updates the facts of one Service and reports whether they changed.
func (n *namespaceServices) publish(name string) bool {
	if !n.servicesSynced || !n.slicesSynced || !n.names[name] {
		return false
	}
	service, _ := n.services.Get(n.namespace + "/" + name)
	return n.index.PutService(n.namespace, name, service, n.slicesOf[name].List())
}

func (n *namespaceServices) publishAll() bool {
	changed := false
	for name := range n.names {
		changed = n.publish(name) || changed
	}
	return changed
}

func (n *namespaceServices) putService(s *corev1.Service) bool {
	return n.names[s.Name] && n.services.Put(keyOf(s), s) && n.publish(s.Name)
}

func (n *namespaceServices) deleteService(key string) bool {
	_, name, _ := strings.Cut(key, "/")
	return n.services.Delete(key) && n.publish(name)
}

// retainServices returns false: publishAll follows a list and publishes the removals.
func (n *namespaceServices) retainServices(wanted func(key string) bool) bool {
	n.services.Retain(wanted)
	return false
}

func (n *namespaceServices) putSlice(s *discoveryv1.EndpointSlice) bool {
	key, name := keyOf(s), s.Labels[discoveryv1.LabelServiceName]
	changed := false
	if before, known := n.serviceOf.Get(key); known && before != name {
		changed = n.deleteSlice(key)
	}
	if n.names[name] {
		n.serviceOf.Put(key, name)
		n.slicesOf[name].Put(key, s)
	}
	return n.publish(name) || changed
}

func (n *namespaceServices) deleteSlice(key string) bool {
	name, known := n.serviceOf.Get(key)
	return known && n.serviceOf.Delete(key) && n.slicesOf[name].Delete(key) && n.publish(name)
}

func (n *namespaceServices) retainSlices(wanted func(key string) bool) bool {
	changed := false
	for _, key := range n.serviceOf.Keys() {
		if !wanted(key) {
			changed = n.deleteSlice(key) || changed
		}
	}
	return changed
}
