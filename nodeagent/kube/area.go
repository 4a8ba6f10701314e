package kube

import (
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	"hawser.dev/hawser/nodeagent/facts"
)

// area is what is known of the Services of one namespace that count. A Service
// and its slices come in two watches; facts hear of them when both have told all,
// so that no Service is without endpoints only because its slices come later.
type area struct {
	namespace string
	table     *facts.Table
	names     map[string]bool

	found    map[string]*corev1.Service
	slicesOf map[string]map[string]*discoveryv1.EndpointSlice // by service and name
	owner    map[string]string                                // service by slice

	haveServices, haveSlices bool
}

func newArea(table *facts.Table, w scope) *area {
	a := &area{
		namespace: w.namespace, table: table, names: map[string]bool{},
		found: map[string]*corev1.Service{}, slicesOf: map[string]map[string]*discoveryv1.EndpointSlice{}, owner: map[string]string{},
	}
	for name := range strings.SplitSeq(w.names, ",") {
		a.names[name] = true
	}
	return a
}

// show tells facts of one Service, as far as it counts.
func (a *area) show(name string) bool {
	if !a.haveServices || !a.haveSlices || !a.names[name] {
		return false
	}
	var endpoints []*discoveryv1.EndpointSlice
	for _, slice := range slices.Sorted(maps.Keys(a.slicesOf[name])) {
		endpoints = append(endpoints, a.slicesOf[name][slice])
	}
	return a.table.PutService(a.namespace, name, a.found[name], endpoints)
}

func (a *area) showAll() bool {
	changed := false
	for name := range a.names {
		changed = a.show(name) || changed
	}
	return changed
}

// services is the sink of the Services.
func (a *area) services() sink { return (*areaServices)(a) }

// slices is the sink of the EndpointSlices.
func (a *area) slices() sink { return (*areaSlices)(a) }

type areaServices area

func (s *areaServices) put(object any) bool {
	o := object.(*corev1.Service)
	if !s.names[o.Name] {
		return false
	}
	s.found[o.Name] = o
	return (*area)(s).show(o.Name)
}

func (s *areaServices) drop(object any) bool {
	name := object.(*corev1.Service).Name
	delete(s.found, name)
	return (*area)(s).show(name)
}

func (s *areaServices) replace(objects []any) bool {
	s.found = map[string]*corev1.Service{}
	for _, object := range objects {
		if o := object.(*corev1.Service); s.names[o.Name] {
			s.found[o.Name] = o
		}
	}
	s.haveServices = true
	return (*area)(s).showAll()
}

type areaSlices area

func (s *areaSlices) put(object any) bool {
	o := object.(*discoveryv1.EndpointSlice)
	was, now := s.owner[o.Name], o.Labels[discoveryv1.LabelServiceName]
	changed := was != "" && was != now && s.remove(o.Name)
	s.add(o)
	return (*area)(s).show(now) || changed
}

func (s *areaSlices) drop(object any) bool {
	return s.remove(object.(*discoveryv1.EndpointSlice).Name)
}

func (s *areaSlices) replace(objects []any) bool {
	s.slicesOf, s.owner = map[string]map[string]*discoveryv1.EndpointSlice{}, map[string]string{}
	for _, object := range objects {
		s.add(object.(*discoveryv1.EndpointSlice))
	}
	s.haveSlices = true
	return (*area)(s).showAll()
}

func (s *areaSlices) add(o *discoveryv1.EndpointSlice) {
	service := o.Labels[discoveryv1.LabelServiceName]
	if !s.names[service] {
		return
	}
	if s.slicesOf[service] == nil {
		s.slicesOf[service] = map[string]*discoveryv1.EndpointSlice{}
	}
	s.slicesOf[service][o.Name] = o
	s.owner[o.Name] = service
}

// remove forgets a slice and shows the Service that it was of.
func (s *areaSlices) remove(slice string) bool {
	service, known := s.owner[slice]
	if !known {
		return false
	}
	delete(s.owner, slice)
	delete(s.slicesOf[service], slice)
	return (*area)(s).show(service)
}
