package kube

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

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

// trouble puts into words what the watches ended with, one line for each thing
// that a person can mend.
func (s *Source) trouble() error {
	told := map[string]bool{}
	var errs []error
	for _, w := range slices.SortedFunc(maps.Values(s.watches), byScope) {
		if err := w.trouble(s.client.Host); err != nil && !told[err.Error()] {
			told[err.Error()] = true
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

func byScope(a, b *watching) int {
	return cmp.Or(cmp.Compare(a.resource, b.resource), cmp.Compare(a.namespace, b.namespace), cmp.Compare(a.names, b.names))
}

// trouble reports problems with a watch, and what mends it.
func (w *watching) trouble(host string) error {
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
