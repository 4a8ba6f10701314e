package kube

import (
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	"hawser.dev/hawser/internal/sortedmap"
	"hawser.dev/hawser/nodeagent/cluster/facts"
)

// namespaceServices is what is known of the Services of one namespace that count. A Service
// and its slices come in two watches; facts hear of them when both have told all,
// so that no Service is without endpoints only because its slices come later.
type namespaceServices struct {
	namespace string
	table     *facts.Index
	names     map[string]bool

	found    sortedmap.Map[*corev1.Service]
	slicesOf map[string]*sortedmap.Map[*discoveryv1.EndpointSlice] // by the name of the service
	owner    sortedmap.Map[string]                                 // the name of the service, by slice

	haveServices, haveSlices bool
}

// publish puts one Service into facts, as far as it counts.
func (a *namespaceServices) publish(name string) bool {
	if !a.haveServices || !a.haveSlices || !a.names[name] {
		return false
	}
	service, _ := a.found.Get(a.namespace + "/" + name)
	return a.table.PutService(a.namespace, name, service, a.slicesOf[name].List())
}

func (a *namespaceServices) showAll() bool {
	changed := false
	for name := range a.names {
		changed = a.publish(name) || changed
	}
	return changed
}

// serviceHandler is the sink of the Services.
func (a *namespaceServices) serviceHandler() eventHandler {
	return eventHandler{
		onUpdate: func(object any) bool {
			o := object.(*corev1.Service)
			return a.names[o.Name] && a.found.Put(keyOf(o), o) && a.publish(o.Name)
		},
		onDelete: func(key string) bool {
			_, name, _ := strings.Cut(key, "/")
			return a.found.Delete(key) && a.publish(name)
		},
		retain: a.found.Retain,
		onSynced: func() bool {
			a.haveServices = true
			return a.showAll()
		},
	}
}

// sliceHandler is the sink of the EndpointSlices.
func (a *namespaceServices) sliceHandler() eventHandler {
	forget := func(key string) bool {
		of, known := a.owner.Get(key)
		return known && a.owner.Delete(key) && a.slicesOf[of].Delete(key) && a.publish(of)
	}
	return eventHandler{
		onUpdate: func(object any) bool {
			o := object.(*discoveryv1.EndpointSlice)
			key, now := keyOf(o), o.Labels[discoveryv1.LabelServiceName]
			changed := false
			if was, known := a.owner.Get(key); known && was != now {
				changed = forget(key)
			}
			if a.names[now] {
				a.owner.Put(key, now)
				a.slicesOf[now].Put(key, o)
			}
			return a.publish(now) || changed
		},
		onDelete: forget,
		retain: func(wanted func(string) bool) bool {
			changed := false
			for _, key := range a.owner.Keys() {
				if !wanted(key) {
					changed = forget(key) || changed
				}
			}
			return changed
		},
		onSynced: func() bool {
			a.haveSlices = true
			return a.showAll()
		},
	}
}
