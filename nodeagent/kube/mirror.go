package kube

import (
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// mirror holds objects as they came, with ownEntries of their managedFields.
type mirror map[string]*unstructured.Unstructured

// Exports gives the ServiceExports as they are, in the order of their names, and
// false until all came once. They are shared: do not change them.
func (s *Source) Exports() ([]*unstructured.Unstructured, bool) { return s.mirrored(serviceExports) }

// Imports gives the ServiceImports as they are, ours and others'; see Exports.
func (s *Source) Imports() ([]*unstructured.Unstructured, bool) { return s.mirrored(serviceImports) }

func (s *Source) mirrored(r resource) ([]*unstructured.Unstructured, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []*unstructured.Unstructured
	for _, key := range slices.Sorted(maps.Keys(s.raw[r])) {
		out = append(out, s.raw[r][key])
	}
	w := s.watches[scope{resource: r}]
	return out, w != nil && w.settled && w.err == nil
}

// over makes a sink that keeps the objects and hands them on.
func (m mirror) over(next sink) sink { return mirroring{m, next} }

type mirroring struct {
	mirror
	next sink
}

func (m mirroring) put(object any) bool {
	if u, ok := object.(*unstructured.Unstructured); ok {
		m.mirror[keyOf(u)] = u
	}
	m.next.put(object)
	return true // who reads the objects themselves wants to know of every change
}

func (m mirroring) drop(object any) bool {
	delete(m.mirror, keyOf(object))
	m.next.drop(object)
	return true
}

func (m mirroring) replace(objects []any) bool {
	clear(m.mirror)
	for _, object := range objects {
		if u, ok := object.(*unstructured.Unstructured); ok {
			m.mirror[keyOf(u)] = u
		}
	}
	m.next.replace(objects)
	return true
}
