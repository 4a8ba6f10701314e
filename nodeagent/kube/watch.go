package kube

import (
	"context"
	"errors"
	"reflect"
	"time"

	"github.com/go-logr/logr"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
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

// sink takes the objects of one watch. It says whether facts changed.
type sink interface {
	put(object any) bool
	drop(object any) bool
	// replace takes all that there are.
	replace(objects []any) bool
}

// watching is one running watch. It is the store of its reflector, so that no
// object is kept but what the sink makes of it.
type watching struct {
	scope
	source *Source
	sink   sink
	stop   context.CancelFunc

	// Guarded by source.mu.
	settled bool  // all objects came, or the server said that we cannot have them
	err     error // of the last request; nil = it went well
}

// follow runs the watch until ctx ends.
func (w *watching) follow(ctx context.Context) {
	discard := logr.Discard()
	ctx = klog.NewContext(ctx, discard)
	pauses := wait.Backoff{Duration: retryFirst, Factor: 2, Jitter: 1, Steps: 10, Cap: retryMost}
	r := cache.NewReflectorWithOptions(w.requests(), nil, w, cache.ReflectorOptions{
		Logger: &discard, Name: string(w.resource), Backoff: &pauses,
	})
	// Not the reflector's own loop, which logs every try: how requests end is noted
	// where they are made.
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

// requests are the reflector's way to the server; how each one ended is noted.
func (w *watching) requests() cache.ListerWatcher {
	client := w.source.client
	return &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
			list, err := client.list(ctx, w.scope, options)
			w.note(ctx, err)
			return list, err
		},
		WatchFuncWithContext: func(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
			stream, err := client.watch(ctx, w.scope, options)
			if err == nil && reflect.TypeOf(stream) == reflect.TypeOf(watch.NewEmptyWatch()) {
				// What client-go makes of a connection that was closed without an answer.
				err = errors.New("the server closed the connection")
			}
			w.note(ctx, err)
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

// note keeps how a request ended.
func (w *watching) note(ctx context.Context, err error) {
	if ctx.Err() == nil {
		w.source.noted(w, err)
	}
}

// Add is for the reflector, as are those that follow.
func (w *watching) Add(object any) error { return w.Update(object) }

// Update takes an object that is new or has changed.
func (w *watching) Update(object any) error {
	w.source.apply(w, func() bool { return w.sink.put(trim(object)) })
	return nil
}

// Delete takes an object that is gone.
func (w *watching) Delete(object any) error {
	w.source.apply(w, func() bool { return w.sink.drop(object) })
	return nil
}

// Replace takes all objects.
func (w *watching) Replace(objects []any, _ string) error {
	for i := range objects {
		objects[i] = trim(objects[i])
	}
	w.source.apply(w, func() bool {
		first := !w.settled
		w.settled = true
		return w.sink.replace(objects) || first
	})
	return nil
}

// Resync has nothing to do: nothing is kept here.
func (w *watching) Resync() error { return nil }

// Transformer makes the reflector trim objects as they come in a first list.
func (w *watching) Transformer() cache.TransformFunc {
	return func(object any) (any, error) { return trim(object), nil }
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
