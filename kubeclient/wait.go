package kubeclient

import (
	"context"
	"errors"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

const pollInterval = 500 * time.Millisecond

// establishedTimeout bounds the wait for the API server to serve the kinds of new CRDs.
const establishedTimeout = time.Minute

// WaitEstablished waits until the API server serves every kind whose CRD is in objects.
func (c *Client) WaitEstablished(ctx context.Context, objects []*unstructured.Unstructured, changed bool) error {
	if !changed {
		return nil
	}
	for _, o := range objects {
		if o.GetKind() != KindCRD {
			continue
		}
		id := IDOf(o)
		err := Poll(ctx, establishedTimeout, func(ctx context.Context) (bool, error) {
			have, err := c.Get(ctx, id)
			return have != nil && ConditionStatus(have, "Established") == "True", err
		})
		if err != nil {
			return fmt.Errorf("wait until %s is established: %w", id, err)
		}
	}
	c.mapper.Reset()
	// Discovery has the kind a moment after the condition Established.
	return Poll(ctx, establishedTimeout, func(context.Context) (bool, error) {
		for _, o := range objects {
			if o.GetKind() != KindCRD {
				continue
			}
			group, _, _ := unstructured.NestedString(o.Object, "spec", "group")
			kind, _, _ := unstructured.NestedString(o.Object, "spec", "names", "kind")
			_, err := c.mapper.RESTMapping(schema.GroupKind{Group: group, Kind: kind})
			if err != nil {
				c.mapper.Reset()
				return false, nil // not yet; Poll has a timeout
			}
		}
		return true, nil
	})
}

// ErrTimeout is returned by Poll.
var ErrTimeout = errors.New("it did not happen in time")

// Poll calls condition until it returns true or an error. After the timeout it returns
// ErrTimeout.
func Poll(ctx context.Context, timeout time.Duration, condition func(context.Context) (bool, error)) error {
	ctx, cancel := context.WithTimeoutCause(ctx, timeout, ErrTimeout)
	defer cancel()
	ticker := time.NewTicker(pollInterval)
	defer ticker.Stop()
	for {
		done, err := condition(ctx)
		if ctx.Err() != nil && !done {
			return context.Cause(ctx)
		}
		if done || err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-ticker.C:
		}
	}
}
