// Package listwatch lists and watches objects of the Kubernetes API until its context is
// done. It runs a reflector of client-go, and reports the result of each request instead of
// logging it.
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

// Pauses between two attempts. Each pause is multiplied by a random factor from 1 to 2. Thus the
// agents of a cluster do not return to a restarted API server at the same moment.
const (
	minBackoff = 500 * time.Millisecond
	maxBackoff = 15 * time.Second
	// missingInterval is the pause while the API server does not have the resource. The request
	// is cheap, and the agent waits for the CRD.
	missingInterval = time.Second
	// resetAfter is the run time of a watch after which the next pause is minBackoff again.
	resetAfter = time.Minute
)

// Watch is one resource to list and watch, and the store for its objects. One goroutine
// calls all methods except the transformer.
type Watch interface {
	cache.ReflectorStore
	List(ctx context.Context, options metav1.ListOptions) (runtime.Object, error)
	Watch(ctx context.Context, options metav1.ListOptions) (watch.Interface, error)
	// RequestDone receives the result of each list and each start of a watch.
	RequestDone(err error)
}

// Run fills the store of w until ctx is done.
func Run(ctx context.Context, name string, w Watch) {
	discard := logr.Discard()
	ctx = klog.NewContext(ctx, discard)
	backoff := wait.Backoff{Duration: minBackoff, Factor: 2, Jitter: 1, Steps: 10, Cap: maxBackoff}
	r := cache.NewReflectorWithOptions(requests(w), nil, w, cache.ReflectorOptions{
		Logger: &discard, Name: name, Backoff: &backoff,
	})
	// Reflector.RunWithContext would log each failed attempt.
	delay := backoff.DelayWithReset(clock.RealClock{}, resetAfter)
	for ctx.Err() == nil {
		err := r.ListAndWatchWithContext(ctx)
		pause := delay()
		if apierrors.IsNotFound(err) {
			pause, delay = wait.Jitter(missingInterval, 0.5), backoff.DelayWithReset(clock.RealClock{}, resetAfter)
		}
		select {
		case <-ctx.Done():
		case <-time.After(pause):
		}
	}
}

func requests(w Watch) cache.ListerWatcher {
	done := func(ctx context.Context, err error) {
		if ctx.Err() == nil {
			w.RequestDone(err)
		}
	}
	return &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
			list, err := w.List(ctx, options)
			done(ctx, err)
			return list, err
		},
		WatchFuncWithContext: func(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
			stream, err := w.Watch(ctx, options)
			if err == nil && reflect.TypeOf(stream) == reflect.TypeOf(watch.NewEmptyWatch()) {
				// client-go returns an empty watch if the connection closed without
				// a response.
				err = errors.New("the server closed the connection")
			}
			streaming := options.SendInitialEvents != nil
			if !streaming || !apierrors.IsInvalid(err) {
				done(ctx, err) // a server without streaming lists gets a list next
			}
			if err != nil && streaming {
				// After some errors of a streaming list, the reflector waits
				// without checking its context, and the agent could not stop. The
				// reflector does not recognise a plain error, and falls back to a
				// list.
				err = errors.New(err.Error())
			}
			return stream, err
		},
	}
}

// Key returns namespace/name of an object, or its name if it has no namespace.
func Key(o metav1.Object) string { return cache.MetaObjectToName(o).String() }

// TrimManagedFields removes managedFields, which are most of an object's bytes. It keeps one entry
// if manager wrote the object. The entry distinguishes an object of Hawser that lost its label from
// a foreign object.
func TrimManagedFields(o metav1.Object, manager string) {
	var entries []metav1.ManagedFieldsEntry
	if IsFieldManager(o, manager) {
		entries = []metav1.ManagedFieldsEntry{{Manager: manager}}
	}
	o.SetManagedFields(entries)
}

// IsFieldManager reports whether manager wrote fields of an object.
func IsFieldManager(o metav1.Object, manager string) bool {
	return slices.ContainsFunc(o.GetManagedFields(), func(f metav1.ManagedFieldsEntry) bool { return f.Manager == manager })
}
