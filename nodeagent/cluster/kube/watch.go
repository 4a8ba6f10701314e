package kube

import (
	"cmp"
	"context"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	mcsv1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"hawser.dev/hawser/nodeagent/cluster/listwatch"
)

// watcher is one running watch. It writes the objects into the facts of its source, and stores no
// objects itself.
type watcher struct {
	scope
	source   *FactsReader
	cancel   context.CancelFunc
	services *namespaceServices // of the watches of Services and EndpointSlices
	nodeKeys []string           // label keys of nodes
	podRules []labels.Selector

	// Guarded by source.mu.
	synced bool  // the first list is complete, or the server refused it
	err    error // of the last request
}

// newWatcher returns the watch of a scope. source.mu is locked.
func newWatcher(s *FactsReader, of scope) *watcher {
	w := &watcher{scope: of, source: s}
	switch of.resource {
	case services, endpointSlices:
		w.services = s.servicesOf(of)
	case nodes:
		if of.names != "" {
			w.nodeKeys = strings.Split(of.names, ",")
		}
	case pods:
		for rule := range strings.SplitSeq(of.rules, "\n") {
			if selector, err := labels.Parse(rule); err == nil {
				w.podRules = append(w.podRules, selector)
			}
		}
	}
	return w
}

// List implements listwatch.Watch.
func (w *watcher) List(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
	return w.source.client.list(ctx, w.scope, options)
}

// Watch implements listwatch.Watch.
func (w *watcher) Watch(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
	return w.source.client.watch(ctx, w.scope, options)
}

// RequestDone implements listwatch.Watch.
func (w *watcher) RequestDone(err error) { w.source.requestDone(w, err) }

// Transformer implements cache.TransformingStore.
func (w *watcher) Transformer() cache.TransformFunc {
	return func(object any) (any, error) { return transform(object), nil }
}

// Add implements cache.ReflectorStore.
func (w *watcher) Add(object any) error { return w.Update(object) }

// Update implements cache.ReflectorStore.
func (w *watcher) Update(object any) error {
	s := w.source
	object = transform(object)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.isCurrent(w) {
		s.updated(w, w.put(object))
	}
	return nil
}

// Delete implements cache.ReflectorStore.
func (w *watcher) Delete(object any) error {
	s := w.source
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.isCurrent(w) {
		s.updated(w, w.delete(keyOf(object)))
	}
	return nil
}

// Replace implements cache.ReflectorStore. objects has all objects of the scope.
func (w *watcher) Replace(objects []any, _ string) error {
	s := w.source
	for i := range objects {
		objects[i] = transform(objects[i])
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.isCurrent(w) {
		return nil
	}
	changed := !w.synced
	w.synced = true
	listed := make(map[string]bool, len(objects))
	for _, object := range objects {
		listed[keyOf(object)] = true
		changed = w.put(object) || changed
	}
	changed = w.retain(func(key string) bool {
		return listed[key] || w.namespace != "" && !strings.HasPrefix(key, w.namespace+"/")
	}) || changed
	s.updated(w, w.listed() || changed)
	return nil
}

// Resync implements cache.ReflectorStore.
func (w *watcher) Resync() error { return nil }

// put stores a new or changed object and reports whether facts changed. It ignores an object of
// another type, which does not conform to its CRD; the API server admits no such object.
func (w *watcher) put(object any) bool {
	s := w.source
	switch o := object.(type) {
	case *corev1.Node:
		return s.index.PutNode(trimNode(o, w.nodeKeys))
	case *corev1.Namespace:
		return s.index.PutNamespace(o.Name)
	case *corev1.Pod:
		for _, rule := range w.podRules {
			if rule.Matches(labels.Set(o.Labels)) {
				return s.index.PutPod(o)
			}
		}
		return s.index.DeletePod(keyOf(o))
	case *corev1.Service:
		return w.services.putService(o)
	case *discoveryv1.EndpointSlice:
		return w.services.putSlice(o)
	case *mcsv1.ServiceExport:
		changed := s.exports.Put(keyOf(o), o)
		return s.index.PutExport(o) || changed
	case *mcsv1.ServiceImport:
		changed := s.imports.Put(keyOf(o), o)
		return s.index.PutImport(o) || changed
	case *unstructured.Unstructured:
		return w.resource == hawserNodes && s.index.PutReport(o.GetName(), rulesBootIDOf(o))
	}
	return false
}

// delete removes an object and reports whether facts changed.
func (w *watcher) delete(key string) bool {
	s := w.source
	switch w.resource {
	case nodes:
		return s.index.DeleteNode(key)
	case namespaces:
		return s.index.DeleteNamespace(key)
	case pods:
		return s.index.DeletePod(key)
	case services:
		return w.services.deleteService(key)
	case endpointSlices:
		return w.services.deleteSlice(key)
	case serviceExports:
		changed := s.exports.Delete(key)
		return s.index.DeleteExport(key) || changed
	case serviceImports:
		changed := s.imports.Delete(key)
		return s.index.DeleteImport(key) || changed
	}
	// A deleted HawserNode does not end its report: the rules are still in the kernel.
	return false
}

// retain removes the objects that wanted rejects, and reports whether facts changed.
func (w *watcher) retain(wanted func(key string) bool) bool {
	s := w.source
	switch w.resource {
	case nodes:
		return s.index.RetainNodes(wanted)
	case namespaces:
		return s.index.RetainNamespaces(wanted)
	case pods:
		return s.index.RetainPods(wanted)
	case services:
		return w.services.retainServices(wanted)
	case endpointSlices:
		return w.services.retainSlices(wanted)
	case serviceExports:
		changed := s.exports.Retain(wanted)
		return s.index.RetainExports(wanted) || changed
	case serviceImports:
		changed := s.imports.Retain(wanted)
		return s.index.RetainImports(wanted) || changed
	}
	return false
}

// listed records that the watch has stored all objects of a list, and reports whether facts
// changed.
func (w *watcher) listed() bool {
	switch w.resource {
	case services:
		w.services.servicesSynced = true
		return w.services.publishAll()
	case endpointSlices:
		w.services.slicesSynced = true
		return w.services.publishAll()
	case hawserNodes:
		return w.source.index.ReportsSynced()
	}
	return false
}

func keyOf(object any) string {
	if o, ok := object.(metav1.Object); ok {
		return listwatch.Key(o)
	}
	return ""
}

// isUnreachable reports whether a request failed because the API server could not serve it or did
// not accept the credentials. It returns false for a request that the server served and refused.
func isUnreachable(err error) bool {
	if err == nil {
		return false
	}
	switch apierrors.ReasonForError(err) {
	case metav1.StatusReasonUnknown, metav1.StatusReasonUnauthorized, metav1.StatusReasonServiceUnavailable, metav1.StatusReasonInternalError,
		metav1.StatusReasonTimeout, metav1.StatusReasonServerTimeout, metav1.StatusReasonTooManyRequests:
		return true
	}
	return false
}

func byScope(a, b *watcher) int {
	return cmp.Or(cmp.Compare(a.resource, b.resource), cmp.Compare(a.namespace, b.namespace), cmp.Compare(a.names, b.names))
}

// problem returns the error of the last request with its fix, or nil.
func (w *watcher) problem(host string) error {
	untyped, custom := w.resource.untyped()
	switch {
	case w.err == nil:
		return nil
	case apierrors.IsNotFound(w.err) && custom:
		return fmt.Errorf("the cluster has no resource %s of %s: apply base/crds.yaml of the publish branch; until then Hawser ignores them",
			w.resource, untyped.GroupVersion())
	case apierrors.IsForbidden(w.err):
		return fmt.Errorf("%w: grant get, list and watch as base/rbac.yaml of the publish branch does", w.err)
	case isUnreachable(w.err):
		return fmt.Errorf("kubernetes API at %s: %w", host, w.err)
	}
	return fmt.Errorf("watch %s: %w", w.resource, w.err)
}
