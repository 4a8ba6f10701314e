package kube

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"

	"hawser.dev/hawser/nodeagent/cluster/listwatch"
)

// watcher is one running watch, as a listwatch.Follower.
type watcher struct {
	scope
	source  *Source
	handler eventHandler
	stop    context.CancelFunc

	// Guarded by source.mu.
	synced bool  // all objects came, or the server said that we cannot have them
	err    error // of the last request; nil = it went well
}

// List is of listwatch.Follower, as are those that follow.
func (w *watcher) List(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
	return w.source.client.list(ctx, w.scope, options)
}

// Watch asks for changes.
func (w *watcher) Watch(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
	return w.source.client.watch(ctx, w.scope, options)
}

// RequestDone keeps how a request ended.
func (w *watcher) RequestDone(err error) {
	// That we may not have something, or that there is no such thing, is an answer too: the
	// rest counts without it.
	w.source.mu.Lock()
	defer w.source.mu.Unlock()
	if w.source.watches[w.scope] != w {
		return
	}
	w.err = err
	if apierrors.IsForbidden(err) || apierrors.IsNotFound(err) {
		w.synced = true
	}
	away := slices.ContainsFunc(slices.Collect(maps.Values(w.source.watches)), func(w *watcher) bool { return unreachable(w.err) })
	switch {
	case away && w.source.unreachableSince.IsZero():
		w.source.unreachableSince = time.Now()
		w.source.log.Warn("kubernetes API is away, what was known last stays in force", "host", w.source.client.Host, "err", err)
	case !away && !w.source.unreachableSince.IsZero() && err == nil:
		w.source.unreachableSince = time.Time{}
		w.source.log.Info("kubernetes API answers", "host", w.source.client.Host)
	}
	if w.source.updateSynced() {
		w.source.changed()
	}
}

// Transform leaves of an object what facts are made of.
func (w *watcher) Transform(object any) any { return transform(object) }

// Put takes an object that is new or has changed.
func (w *watcher) Put(object any) {
	w.source.apply(w, func() bool { return w.handler.onUpdate(object) })
}

// Delete takes an object that is gone.
func (w *watcher) Delete(object any) {
	w.source.apply(w, func() bool { return w.handler.onDelete(keyOf(object)) })
}

// Replace takes all objects.
func (w *watcher) Replace(objects []any) {
	w.source.apply(w, func() bool {
		first := !w.synced
		w.synced = true
		there := make(map[string]bool, len(objects))
		changed := false
		for _, object := range objects {
			there[keyOf(object)] = true
			changed = w.handler.onUpdate(object) || changed
		}
		elsewhere := func(key string) bool { return w.namespace != "" && !strings.HasPrefix(key, w.namespace+"/") }
		changed = w.handler.retain(func(key string) bool { return there[key] || elsewhere(key) }) || changed
		return w.handler.onSynced != nil && w.handler.onSynced() || changed || first
	})
}

// keyOf gives the key of what a watch gave.
func keyOf(object any) string {
	if o, ok := object.(metav1.Object); ok {
		return listwatch.Key(o)
	}
	return ""
}

// unreachable tells trouble with the server from what it answers us.
func unreachable(err error) bool {
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

// trouble reports problems with a watch, and what mends it.
func (w *watcher) trouble(host string) error {
	untyped, custom := w.resource.untyped()
	switch {
	case w.err == nil:
		return nil
	case apierrors.IsNotFound(w.err) && custom:
		return fmt.Errorf("the cluster has no %s of %s: apply the CRDs of the rendered base; until then there are none",
			w.resource, untyped.GroupVersion())
	case apierrors.IsForbidden(w.err):
		return fmt.Errorf("%w: grant get, list and watch as the rendered base does", w.err)
	case unreachable(w.err):
		return fmt.Errorf("kubernetes API at %s: %w", host, w.err)
	}
	return fmt.Errorf("watch %s: %w", w.resource, w.err)
}
