package apiobjects

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"reflect"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"hawser.dev/hawser/internal/diff"
	"hawser.dev/hawser/internal/stablehash"
	"hawser.dev/hawser/nodeagent/cluster/listwatch"
	"hawser.dev/hawser/nodeagent/converge"
	"hawser.dev/hawser/schema/fabric"
)

// isUnreachable reports whether the API server is unreachable or overloaded, so that further
// requests would fail too.
func isUnreachable(err error) bool {
	var status apierrors.APIStatus
	if errors.As(err, &status) {
		code := status.Status().Code
		return code == http.StatusTooManyRequests || code >= http.StatusInternalServerError && code != http.StatusNotImplemented
	}
	var blocked converge.ErrBlocked
	return err != nil && !errors.As(err, &blocked) && !errors.Is(err, converge.ErrConflict)
}

// each applies changes, at most maxConcurrent at a time. If the server becomes unreachable, each
// does not attempt the remaining changes.
func each[S diff.Spec](ctx context.Context, changes []diff.Change[S], apply func(diff.Change[S]) error) error {
	errs := make([]error, len(changes))
	var wait sync.WaitGroup
	var mu sync.Mutex
	var lost error
	free := make(chan struct{}, maxConcurrent)
	for i, c := range changes {
		free <- struct{}{}
		mu.Lock()
		stop := lost
		mu.Unlock()
		if err := ctx.Err(); err != nil || stop != nil {
			<-free
			errs[i] = converge.KeyError{Key: c.Key, Err: fmt.Errorf("not attempted: %w", errors.Join(err, stop))}
			continue
		}
		wait.Go(func() {
			defer func() { <-free }()
			err := apply(c)
			if err == nil {
				return
			}
			errs[i] = converge.KeyError{Key: c.Key, Err: err}
			if isUnreachable(err) {
				mu.Lock()
				lost = err
				mu.Unlock()
			}
		})
	}
	wait.Wait()
	return errors.Join(errs...)
}

// read converts an object of the API to T, a pointer.
func read[T metav1.Object](o *unstructured.Unstructured) (T, error) {
	out := reflect.New(reflect.TypeFor[T]().Elem()).Interface().(T)
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, out); err != nil {
		return out, fmt.Errorf("read %s %s: %w", o.GetKind(), listwatch.Key(o), err)
	}
	return out, nil
}

// decode returns an object as T. It returns false for an object that violates its schema; the API
// server admits no such object.
func decode[T metav1.Object](o *unstructured.Unstructured) (T, bool) {
	out, err := read[T](o)
	return out, err == nil
}

// DecodeTrimmed returns an object as T, like decode. The managedFields of the result only show
// whether the agents wrote the object.
func DecodeTrimmed[T metav1.Object](o *unstructured.Unstructured) (T, bool) {
	out, ok := decode[T](o)
	if ok {
		listwatch.TrimManagedFields(out, fabric.FieldManager)
	}
	return out, ok
}

// stamp returns a string that changes when one of the objects changes.
func (t *resourceCache[T]) stamp() (string, error) {
	all, err := t.snapshot()
	if err != nil {
		return "", err
	}
	var sum uint64
	for key, o := range all {
		// A sum does not depend on the order of the map.
		sum += stablehash.Mix64(stablehash.Sum64(key + " " + string(o.GetUID()) + " " + o.GetResourceVersion()))
	}
	return fmt.Sprintf("%d %x", len(all), sum), nil
}
