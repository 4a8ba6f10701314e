package kube

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"strings"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"

	"hawser.dev/hawser/internal/trigger"
	"hawser.dev/hawser/nodeagent/cluster/election"
	"hawser.dev/hawser/schema/fabric"
)

// LeaseKind is the resource of Leases.
var LeaseKind = schema.GroupVersionResource{Group: "coordination.k8s.io", Version: "v1", Resource: "leases"}

const (
	// leaseWatchTimeout is the maximum duration of one watch of the Leases.
	leaseWatchTimeout = 5 * time.Minute
	leaseRetryPeriod  = time.Second
)

// LeaseStore implements election.LeaseStore with the Leases in the API of a cluster. The reconciler
// creates the Leases; no node can acquire a gateway without a Lease.
type LeaseStore struct {
	client dynamic.ResourceInterface
	needed func() bool
	log    *slog.Logger

	mu      sync.Mutex
	synced  bool
	objects map[string]*unstructured.Unstructured // by gateway; never changed in place
}

// NewLeaseStore returns a store that watches the Leases while needed returns true.
func NewLeaseStore(c *Client, needed func() bool, log *slog.Logger) *LeaseStore {
	return &LeaseStore{
		client: c.Dynamic.Resource(LeaseKind).Namespace(fabric.SystemNamespace), needed: needed, log: log,
		objects: map[string]*unstructured.Unstructured{},
	}
}

// Watch implements election.LeaseStore. It logs an error once until it changes.
func (s *LeaseStore) Watch(ctx context.Context, changed trigger.Trigger) {
	logged := ""
	for ctx.Err() == nil {
		if s.needed() {
			err := s.watchOnce(ctx, changed)
			if err == nil {
				logged = ""
			} else if err.Error() != logged && ctx.Err() == nil {
				logged = err.Error()
				s.log.Warn("Leases not read; using the last known Leases", "err", err)
			}
		}
		select {
		case <-ctx.Done():
		case <-time.After(wait.Jitter(leaseRetryPeriod, 0.5)):
		}
	}
}

// watchOnce lists the Leases and watches them until the server ends the watch. The last known
// Leases stay if the list fails.
func (s *LeaseStore) watchOnce(ctx context.Context, changed trigger.Trigger) error {
	list, err := s.client.List(ctx, metav1.ListOptions{})
	if err != nil {
		return fmt.Errorf("list Leases: %w", err)
	}
	all := map[string]*unstructured.Unstructured{}
	for i := range list.Items {
		if gateway, ok := gatewayOf(&list.Items[i]); ok {
			all[gateway] = &list.Items[i]
		}
	}
	s.mu.Lock()
	s.objects, s.synced = all, true
	s.mu.Unlock()
	changed.Fire()
	seconds := int64(leaseWatchTimeout / time.Second)
	stream, err := s.client.Watch(ctx, metav1.ListOptions{ResourceVersion: list.GetResourceVersion(), TimeoutSeconds: &seconds})
	if err != nil {
		return fmt.Errorf("watch Leases: %w", err)
	}
	defer stream.Stop()
	for e := range stream.ResultChan() {
		object, ok := e.Object.(*unstructured.Unstructured)
		if !ok || e.Type == watch.Error {
			err := apierrors.FromObject(e.Object)
			if apierrors.IsResourceExpired(err) || apierrors.IsGone(err) {
				return nil // the next list has a newer version
			}
			return fmt.Errorf("watch Leases: %w", err)
		}
		gateway, ok := gatewayOf(object)
		if !ok {
			continue
		}
		s.mu.Lock()
		if e.Type == watch.Deleted {
			delete(s.objects, gateway)
		} else {
			s.objects[gateway] = object
		}
		s.mu.Unlock()
		changed.Fire()
	}
	return nil
}

// Leases implements election.LeaseStore.
func (s *LeaseStore) Leases() (map[string]election.Lease, bool) {
	s.mu.Lock()
	objects, synced := maps.Clone(s.objects), s.synced
	s.mu.Unlock()
	out := map[string]election.Lease{}
	for gateway, object := range objects {
		out[gateway] = leaseOf(gateway, object)
	}
	return out, synced
}

// Read implements election.LeaseStore.
func (s *LeaseStore) Read(ctx context.Context, gateway string) (election.Lease, error) {
	object, err := s.client.Get(ctx, fabric.LeasePrefix+gateway, metav1.GetOptions{})
	if err != nil {
		return election.Lease{}, fmt.Errorf("read Lease of gateway %s: %w", gateway, err)
	}
	return s.store(gateway, object), nil
}

// Write implements election.LeaseStore. It replaces the whole spec and does not change the
// metadata.
func (s *LeaseStore) Write(ctx context.Context, l election.Lease) (election.Lease, error) {
	s.mu.Lock()
	object := s.objects[l.Gateway]
	s.mu.Unlock()
	if object == nil || object.GetResourceVersion() != l.Version {
		return election.Lease{}, election.ErrConflict
	}
	seconds := int64(election.LeaseDuration / time.Second)
	if l.Released {
		seconds = releasedSeconds
	}
	spec := map[string]any{
		"leaseDurationSeconds": seconds, "leaseTransitions": int64(l.Transitions),
		"renewTime": l.Renewed.UTC().Format(metav1.RFC3339Micro),
	}
	if l.Holder != "" {
		spec["holderIdentity"] = l.Holder
	}
	object = object.DeepCopy()
	object.Object["spec"] = spec
	stored, err := s.client.Update(ctx, object, metav1.UpdateOptions{FieldManager: fabric.FieldManager})
	if apierrors.IsConflict(err) {
		return election.Lease{}, election.ErrConflict
	}
	if err != nil {
		return election.Lease{}, fmt.Errorf("write Lease of gateway %s: %w", l.Gateway, err)
	}
	return s.store(l.Gateway, stored), nil
}

// store stores an object that the server returned, so that the next write does not conflict while a
// watch hangs.
func (s *LeaseStore) store(gateway string, object *unstructured.Unstructured) election.Lease {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.objects[gateway] = object
	return leaseOf(gateway, object)
}

// gatewayOf returns the gateway of a Lease, and false for foreign Leases in the namespace.
func gatewayOf(object *unstructured.Unstructured) (string, bool) {
	return strings.CutPrefix(object.GetName(), fabric.LeasePrefix)
}

// releasedSeconds is the duration of a released Lease, as client-go's leader election writes it. A
// Lease whose holder was removed by hand has a longer duration: that node may still forward.
const releasedSeconds = 1

func leaseOf(gateway string, object *unstructured.Unstructured) election.Lease {
	l := election.Lease{Gateway: gateway, Version: object.GetResourceVersion()}
	l.Holder, _, _ = unstructured.NestedString(object.Object, "spec", "holderIdentity")
	transitions, _, _ := unstructured.NestedInt64(object.Object, "spec", "leaseTransitions")
	l.Transitions = int(transitions)
	renewed, _, _ := unstructured.NestedString(object.Object, "spec", "renewTime")
	l.Renewed, _ = time.Parse(metav1.RFC3339Micro, renewed)
	seconds, _, _ := unstructured.NestedInt64(object.Object, "spec", "leaseDurationSeconds")
	l.Released = l.Holder == "" && seconds == releasedSeconds && !l.Renewed.IsZero()
	return l
}
