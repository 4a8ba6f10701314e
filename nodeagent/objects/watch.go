package objects

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/go-logr/logr"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
)

// Pauses between two tries of a watch.
const (
	retryFirst = 500 * time.Millisecond
	retryMost  = 15 * time.Second
	// retryMissing is the pause while there is no such kind: who defines one waits for it.
	retryMissing = time.Second
	// retryForget is how long a watch must have stood for the pauses to begin anew.
	retryForget = time.Minute
)

// Watch follows the objects of one resource that some selectors leave.
type Watch struct {
	Client    dynamic.Interface
	Resource  schema.GroupVersionResource
	Namespace string // empty = all
	Labels    string // selectors; empty = all
	Fields    string
	Changed   func() // must not block
	// Trim makes smaller what is kept; nil = nothing.
	Trim func(metav1.Object)

	mu      sync.Mutex
	objects map[string]*unstructured.Unstructured // by namespace/name; nil = not known yet
	err     error                                 // of the last request; nil = it went well
}

// Objects gives what is there, and false until that was told once.
func (w *Watch) Objects() ([]*unstructured.Unstructured, bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	out := make([]*unstructured.Unstructured, 0, len(w.objects))
	for _, o := range w.objects {
		out = append(out, o)
	}
	return out, w.objects != nil
}

// Err gives how the last request ended.
func (w *Watch) Err() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.err
}

// Run follows until ctx ends.
func (w *Watch) Run(ctx context.Context) {
	discard := logr.Discard()
	ctx = klog.NewContext(ctx, discard)
	pauses := wait.Backoff{Duration: retryFirst, Factor: 2, Jitter: 1, Steps: 10, Cap: retryMost}
	r := cache.NewReflectorWithOptions(w.requests(), nil, w, cache.ReflectorOptions{
		Logger: &discard, Name: w.Resource.Resource, Backoff: &pauses,
	})
	again := pauses.DelayWithReset(clock.RealClock{}, retryForget)
	for ctx.Err() == nil {
		err := r.ListAndWatchWithContext(ctx)
		rest := again()
		if apierrors.IsNotFound(err) {
			rest, again = wait.Jitter(retryMissing, 0.5), pauses.DelayWithReset(clock.RealClock{}, retryForget)
		}
		select {
		case <-ctx.Done():
		case <-time.After(rest):
		}
	}
}

func (w *Watch) requests() cache.ListerWatcher {
	api := func() dynamic.ResourceInterface {
		if w.Namespace == "" {
			return w.Client.Resource(w.Resource)
		}
		return w.Client.Resource(w.Resource).Namespace(w.Namespace)
	}
	restrict := func(o metav1.ListOptions) metav1.ListOptions {
		o.LabelSelector, o.FieldSelector = w.Labels, w.Fields
		return o
	}
	return &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			list, err := api().List(ctx, restrict(o))
			w.note(ctx, err)
			return list, err
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			stream, err := api().Watch(ctx, restrict(o))
			w.note(ctx, err)
			if err != nil && o.SendInitialEvents != nil {
				// A reflector waits on some errors without looking at its context; of one that
				// it does not know it turns to a list at once.
				err = errors.New(err.Error())
			}
			return stream, err
		},
	}
}

func (w *Watch) note(ctx context.Context, err error) {
	if ctx.Err() != nil {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.err = err
}

func (w *Watch) change(change func()) error {
	w.mu.Lock()
	change()
	w.mu.Unlock()
	w.Changed()
	return nil
}

func (w *Watch) kept(object any) (*unstructured.Unstructured, bool) {
	o, is := object.(*unstructured.Unstructured)
	if is && w.Trim != nil {
		w.Trim(o)
	}
	return o, is
}

// Add is for the reflector, as are those that follow.
func (w *Watch) Add(object any) error { return w.Update(object) }

// Update takes an object that is new or has changed.
func (w *Watch) Update(object any) error {
	return w.change(func() {
		if o, is := w.kept(object); is && w.objects != nil {
			w.objects[keyOf(o)] = o
		}
	})
}

// Delete takes an object that is gone.
func (w *Watch) Delete(object any) error {
	return w.change(func() {
		if o, is := object.(*unstructured.Unstructured); is {
			delete(w.objects, keyOf(o))
		}
	})
}

// Replace takes all objects.
func (w *Watch) Replace(list []any, _ string) error {
	return w.change(func() {
		w.objects = make(map[string]*unstructured.Unstructured, len(list))
		for _, object := range list {
			if o, is := w.kept(object); is {
				w.objects[keyOf(o)] = o
			}
		}
	})
}

// Resync has nothing to do: the objects are kept as they come.
func (w *Watch) Resync() error { return nil }

// OnlyOurs leaves of an object's managedFields, which are most of its bytes, that we
// are among its writers.
func OnlyOurs(o metav1.Object) {
	var kept []metav1.ManagedFieldsEntry
	if slices.ContainsFunc(o.GetManagedFields(), func(f metav1.ManagedFieldsEntry) bool { return f.Manager == FieldManager }) {
		kept = []metav1.ManagedFieldsEntry{{Manager: FieldManager}}
	}
	o.SetManagedFields(kept)
}
