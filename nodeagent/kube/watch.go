package kube

import (
	"context"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
)

// watching is one running watch, as a listwatch.Follower.
type watching struct {
	scope
	source *Source
	sink   sink
	stop   context.CancelFunc

	// Guarded by source.mu.
	settled bool  // all objects came, or the server said that we cannot have them
	err     error // of the last request; nil = it went well
}

// List is of listwatch.Follower, as are those that follow.
func (w *watching) List(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
	return w.source.client.list(ctx, w.scope, options)
}

// Watch asks for changes.
func (w *watching) Watch(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
	return w.source.client.watch(ctx, w.scope, options)
}

// Ended keeps how a request ended.
func (w *watching) Ended(err error) { w.source.noted(w, err) }

// Trim leaves of an object what facts are made of.
func (w *watching) Trim(object any) any { return trim(object) }

// Put takes an object that is new or has changed.
func (w *watching) Put(object any) {
	w.source.apply(w, func() bool { return w.sink.take(object) })
}

// Delete takes an object that is gone.
func (w *watching) Delete(object any) {
	w.source.apply(w, func() bool { return w.sink.lose(keyOf(object)) })
}

// Replace takes all objects.
func (w *watching) Replace(objects []any) {
	w.source.apply(w, func() bool {
		first := !w.settled
		w.settled = true
		return w.sink.replace(w.namespace, objects) || first
	})
}

// keyOf gives name, or namespace/name.
func keyOf(object any) string {
	m, err := meta.Accessor(object)
	if err != nil {
		return ""
	}
	if m.GetNamespace() == "" {
		return m.GetName()
	}
	return m.GetNamespace() + "/" + m.GetName()
}
