// Package listwatch follows objects of the Kubernetes API for as long as an agent runs, whatever
// becomes of the server. It is a reflector of client-go that reports how each request ended
// instead of logging it.
package listwatch

import (
	"context"
	"errors"
	"reflect"
	"slices"
	"time"

	"github.com/go-logr/logr"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
)

// Pause between two tries of a watch: the first one, and the longest. Every pause
// is drawn from once to twice its length, so that the agents of a cluster whose API
// server comes back do not ask all at once.
const (
	retryFirst = 500 * time.Millisecond
	retryMost  = 15 * time.Second
	// retryMissing is the pause while there is no such kind: who defines one waits for
	// it, and such an answer costs the server next to nothing.
	retryMissing = time.Second
	// retryForget is how long a watch must have stood for the pauses to begin anew.
	retryForget = time.Minute
)

// Handler asks for objects and takes what comes. Its methods are called from one goroutine, but
// for Trim.
type Handler interface {
	List(ctx context.Context, options metav1.ListOptions) (runtime.Object, error)
	Watch(ctx context.Context, options metav1.ListOptions) (watch.Interface, error)
	// RequestDone gets how each request ended; nil = well.
	RequestDone(err error)
	// Transform leaves of an object what is needed. Put and Replace get trimmed objects.
	Transform(object any) any
	// Put takes an object that is new or has changed.
	Put(object any)
	// Delete takes an object that is gone, as it was last.
	Delete(object any)
	// Replace takes all that there are.
	Replace(objects []any)
}

// Run follows until ctx ends.
func Run(ctx context.Context, name string, f Handler) {
	discard := logr.Discard()
	ctx = klog.NewContext(ctx, discard)
	pauses := wait.Backoff{Duration: retryFirst, Factor: 2, Jitter: 1, Steps: 10, Cap: retryMost}
	r := cache.NewReflectorWithOptions(requests(f), nil, storeAdapter{f}, cache.ReflectorOptions{
		Logger: &discard, Name: name, Backoff: &pauses,
	})
	// Not the reflector's own loop, which logs every try.
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

func requests(f Handler) cache.ListerWatcher {
	ended := func(ctx context.Context, err error) {
		if ctx.Err() == nil {
			f.RequestDone(err)
		}
	}
	return &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
			list, err := f.List(ctx, options)
			ended(ctx, err)
			return list, err
		},
		WatchFuncWithContext: func(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
			stream, err := f.Watch(ctx, options)
			if err == nil && reflect.TypeOf(stream) == reflect.TypeOf(watch.NewEmptyWatch()) {
				// What client-go makes of a connection that was closed without an answer.
				err = errors.New("the server closed the connection")
			}
			ended(ctx, err)
			if err != nil && options.SendInitialEvents != nil {
				// On some errors a reflector that begins waits without looking at its
				// context, and the agent could not stop. It does not know this one, so it
				// turns to a list, and waits as it should.
				err = errors.New(err.Error())
			}
			return stream, err
		},
	}
}

// storeAdapter is the reflector's store. It keeps nothing itself.
type storeAdapter struct{ Handler }

func (s storeAdapter) Add(object any) error { return s.Update(object) }

func (s storeAdapter) Update(object any) error {
	s.Put(s.Transform(object))
	return nil
}

func (s storeAdapter) Delete(object any) error {
	s.Handler.Delete(object)
	return nil
}

func (s storeAdapter) Replace(objects []any, _ string) error {
	for i := range objects {
		objects[i] = s.Transform(objects[i])
	}
	s.Handler.Replace(objects)
	return nil
}

func (s storeAdapter) Resync() error { return nil }

// Transformer has the reflector trim objects as they come in a first list.
func (s storeAdapter) Transformer() cache.TransformFunc {
	return func(object any) (any, error) { return s.Transform(object), nil }
}

// Key gives namespace/name of an object, or the name of one without a namespace.
func Key(o metav1.Object) string { return cache.MetaObjectToName(o).String() }

// TrimManagedFields leaves of an object's managedFields, which are most of its bytes, that a manager is
// among its writers: that tells what lost its mark from what never was ours.
func TrimManagedFields(o metav1.Object, manager string) {
	var kept []metav1.ManagedFieldsEntry
	if IsFieldManager(o, manager) {
		kept = []metav1.ManagedFieldsEntry{{Manager: manager}}
	}
	o.SetManagedFields(kept)
}

// IsFieldManager reports whether a manager is among the writers of an object.
func IsFieldManager(o metav1.Object, manager string) bool {
	return slices.ContainsFunc(o.GetManagedFields(), func(f metav1.ManagedFieldsEntry) bool { return f.Manager == manager })
}
