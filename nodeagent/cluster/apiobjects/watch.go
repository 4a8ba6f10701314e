package apiobjects

import (
	"context"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"

	"hawser.dev/hawser/internal/sortedmap"
	"hawser.dev/hawser/nodeagent/cluster/listwatch"
)

// Watch follows the objects of one resource that some selectors leave, as T, a pointer. It is a
// listwatch.Follower.
type Watch[T metav1.Object] struct {
	Client    dynamic.Interface
	Resource  schema.GroupVersionResource
	Namespace string // empty = all
	Labels    string // selectors; empty = all
	Fields    string
	Changed   func() // must not block
	// KeepManagedFields keeps the whole of managedFields, which are most of an object's bytes; without it
	// only as much of them that we are among the object's writers.
	KeepManagedFields bool

	mu      sync.Mutex
	objects sortedmap.Map[T]
	known   bool  // all came once
	err     error // of the last request; nil = it went well
}

// Objects gives what is there, and false until that was told once.
func (w *Watch[T]) Objects() ([]T, bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.objects.List(), w.known
}

// Err gives how the last request ended.
func (w *Watch[T]) Err() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.err
}

// Run follows until ctx ends.
func (w *Watch[T]) Run(ctx context.Context) { listwatch.Run(ctx, w.Resource.Resource, w) }

func (w *Watch[T]) api() dynamic.ResourceInterface {
	if w.Namespace == "" {
		return w.Client.Resource(w.Resource)
	}
	return w.Client.Resource(w.Resource).Namespace(w.Namespace)
}

func (w *Watch[T]) restrict(o metav1.ListOptions) metav1.ListOptions {
	o.LabelSelector, o.FieldSelector = w.Labels, w.Fields
	return o
}

// List is of listwatch.Follower, as are those that follow.
func (w *Watch[T]) List(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
	return w.api().List(ctx, w.restrict(o))
}

// Watch asks for changes.
func (w *Watch[T]) Watch(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
	return w.api().Watch(ctx, w.restrict(o))
}

// RequestDone keeps how a request ended.
func (w *Watch[T]) RequestDone(err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.err = err
}

// Transform makes a T of an object. One that does not fit its own schema, which the API server does not
// admit, stays as it is and counts as none.
func (w *Watch[T]) Transform(object any) any {
	u, is := object.(*unstructured.Unstructured)
	if !is {
		return object
	}
	o, err := read[T](u)
	if err != nil {
		return object
	}
	if !w.KeepManagedFields {
		listwatch.TrimManagedFields(o, FieldManager)
	}
	return o
}

// Put takes an object that is new or has changed.
func (w *Watch[T]) Put(object any) {
	w.change(func() {
		if o, is := object.(T); is && w.known {
			w.objects.Put(listwatch.Key(o), o)
		}
	})
}

// Delete takes an object that is gone.
func (w *Watch[T]) Delete(object any) {
	w.change(func() {
		if o, is := object.(metav1.Object); is {
			w.objects.Delete(listwatch.Key(o))
		}
	})
}

// Replace takes all objects.
func (w *Watch[T]) Replace(list []any) {
	w.change(func() {
		w.objects, w.known = sortedmap.Map[T]{}, true
		for _, object := range list {
			if o, is := object.(T); is {
				w.objects.Put(listwatch.Key(o), o)
			}
		}
	})
}

func (w *Watch[T]) change(change func()) {
	w.mu.Lock()
	change()
	w.mu.Unlock()
	w.Changed()
}
