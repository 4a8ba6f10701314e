package kube

import (
	"context"
	"fmt"
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

	"hawser.dev/hawser/internal/bell"
	"hawser.dev/hawser/nodeagent/election"
	"hawser.dev/hawser/schema/fabric"
)

// LeaseKind is the resource of Leases, which are in Namespace.
var LeaseKind = schema.GroupVersionResource{Group: "coordination.k8s.io", Version: "v1", Resource: "leases"}

const (
	// Namespace is where everything of Hawser lives inside a cluster.
	Namespace = "hawser-system"
	// leaseWatch is how long one watch of the Leases lasts.
	leaseWatch = 5 * time.Minute
	leaseRetry = time.Second
)

// Leases are those of a cluster's gateways in its API, as election.Store. An object that is not
// there is a gateway that nobody can hold: agents make none.
type Leases struct {
	client dynamic.ResourceInterface
	wanted func() bool

	mu     sync.Mutex
	loaded bool
	leases map[string]election.Lease
}

// NewLeases makes a store. While wanted says so it watches them.
func NewLeases(c *Client, wanted func() bool) *Leases {
	return &Leases{client: c.Dynamic.Resource(LeaseKind).Namespace(Namespace), wanted: wanted}
}

// Follow is of election.Store.
func (s *Leases) Follow(ctx context.Context, changed bell.Bell) {
	for ctx.Err() == nil {
		if s.wanted() {
			s.follow(ctx, changed)
		}
		select {
		case <-ctx.Done():
		case <-time.After(wait.Jitter(leaseRetry, 0.5)):
		}
	}
}

// follow lists the Leases, and watches them until the server ends that.
func (s *Leases) follow(ctx context.Context, changed bell.Bell) {
	list, err := s.client.List(ctx, metav1.ListOptions{})
	if err != nil {
		return // what was known last stays
	}
	all := map[string]election.Lease{}
	for i := range list.Items {
		if l, ok := leaseOf(&list.Items[i]); ok {
			all[l.Gateway] = l
		}
	}
	s.set(all, changed)
	seconds := int64(leaseWatch / time.Second)
	stream, err := s.client.Watch(ctx, metav1.ListOptions{ResourceVersion: list.GetResourceVersion(), TimeoutSeconds: &seconds})
	if err != nil {
		return
	}
	defer stream.Stop()
	for e := range stream.ResultChan() {
		object, ok := e.Object.(*unstructured.Unstructured)
		if !ok || e.Type == watch.Error {
			return
		}
		l, ok := leaseOf(object)
		if !ok {
			continue
		}
		s.mu.Lock()
		all := maps.Clone(s.leases)
		s.mu.Unlock()
		if e.Type == watch.Deleted {
			delete(all, l.Gateway)
		} else {
			all[l.Gateway] = l
		}
		s.set(all, changed)
	}
}

func (s *Leases) set(all map[string]election.Lease, changed bell.Bell) {
	s.mu.Lock()
	same := s.loaded && maps.Equal(all, s.leases)
	s.leases, s.loaded = all, true
	s.mu.Unlock()
	if !same {
		changed.Ring()
	}
}

// Leases is of election.Store.
func (s *Leases) Leases() (map[string]election.Lease, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.leases, s.loaded
}

// Read is of election.Store.
func (s *Leases) Read(ctx context.Context, gateway string) (election.Lease, error) {
	object, err := s.client.Get(ctx, fabric.LeasePrefix+gateway, metav1.GetOptions{})
	if err != nil {
		return election.Lease{}, fmt.Errorf("read Lease of gateway %s: %w", gateway, err)
	}
	l, _ := leaseOf(object)
	// A watch that hangs must not have this node try with the same old version again.
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.loaded {
		s.leases = maps.Clone(s.leases)
		s.leases[gateway] = l
	}
	return l, nil
}

// Write is of election.Store. It replaces the whole spec, and nothing else.
func (s *Leases) Write(ctx context.Context, l election.Lease) (election.Lease, error) {
	name := fabric.LeasePrefix + l.Gateway
	object, err := s.client.Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return election.Lease{}, fmt.Errorf("read Lease of gateway %s: %w", l.Gateway, err)
	}
	if object.GetResourceVersion() != l.Version {
		return election.Lease{}, election.ErrConflict
	}
	seconds := int64(election.TakeAfter / time.Second)
	if l.Released {
		seconds = released
	}
	object.Object["spec"] = map[string]any{
		"leaseDurationSeconds": seconds, "leaseTransitions": int64(l.Turn),
		"renewTime": l.Renewed.UTC().Format(metav1.RFC3339Micro),
	}
	if l.Holder != "" {
		object.Object["spec"].(map[string]any)["holderIdentity"] = l.Holder
	}
	stored, err := s.client.Update(ctx, object, metav1.UpdateOptions{FieldManager: FieldManager})
	if apierrors.IsConflict(err) {
		return election.Lease{}, election.ErrConflict
	}
	if err != nil {
		return election.Lease{}, fmt.Errorf("write Lease of gateway %s: %w", l.Gateway, err)
	}
	out, _ := leaseOf(stored)
	return out, nil
}

// released is the duration of a Lease that was given back, in seconds, as Kubernetes' leader
// election writes it. A holder that somebody took out by hand may still work.
const released = 1

func leaseOf(object *unstructured.Unstructured) (election.Lease, bool) {
	gateway, ours := strings.CutPrefix(object.GetName(), fabric.LeasePrefix)
	if !ours {
		return election.Lease{}, false
	}
	l := election.Lease{Gateway: gateway, Version: object.GetResourceVersion()}
	l.Holder, _, _ = unstructured.NestedString(object.Object, "spec", "holderIdentity")
	turn, _, _ := unstructured.NestedInt64(object.Object, "spec", "leaseTransitions")
	l.Turn = int(turn)
	renewed, _, _ := unstructured.NestedString(object.Object, "spec", "renewTime")
	l.Renewed, _ = time.Parse(metav1.RFC3339Micro, renewed)
	seconds, _, _ := unstructured.NestedInt64(object.Object, "spec", "leaseDurationSeconds")
	l.Released = l.Holder == "" && seconds == released && !l.Renewed.IsZero()
	return l, true
}
