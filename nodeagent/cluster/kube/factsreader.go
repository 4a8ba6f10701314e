package kube

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	mcsv1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"hawser.dev/hawser/internal/sortedmap"
	"hawser.dev/hawser/internal/trigger"
	"hawser.dev/hawser/nodeagent/cluster/facts"
	"hawser.dev/hawser/nodeagent/cluster/listwatch"
	"hawser.dev/hawser/nodeagent/model"
	"hawser.dev/hawser/schema/fabric"
)

// Sources of facts, as status shows them.
const (
	fromAPI  = "kubernetes API"
	fromCopy = "last good copy"
)

// minRestartInterval is the shortest time between two restarts of watches. Thus exports that are
// created together cause a few restarts instead of one for each export.
const minRestartInterval = 200 * time.Millisecond

// FactsReader reads facts from the API server. It watches only the objects that the fabric and the
// ServiceExports require. It is safe for concurrent use.
type FactsReader struct {
	client        *Client
	cluster, node string
	log           *slog.Logger
	changed       func()
	wake          trigger.Trigger

	mu               sync.Mutex
	index            *facts.Index
	needs            watchRequirements
	hasFabric        bool // SetFabric was called
	stale            bool // the running watches may differ from the required ones
	loaded           bool
	watches          map[scope]*watcher
	serviceScopes    map[string]*namespaceServices // by namespace/names of a scope
	exports          sortedmap.Map[*mcsv1.ServiceExport]
	imports          sortedmap.Map[*mcsv1.ServiceImport]
	unreachableSince time.Time // zero = the API server is reachable
}

// NewFactsReader returns a reader that starts with before, the facts of the previous agent (nil if
// absent). The reader calls changed after each change of facts. changed must not block.
func NewFactsReader(client *Client, cluster, node string, before *model.Facts, log *slog.Logger, changed func()) *FactsReader {
	return &FactsReader{
		client: client, cluster: cluster, node: node, log: log, changed: changed, wake: trigger.New(),
		index: facts.NewIndex(before), loaded: before != nil, stale: true, unreachableSince: time.Now(),
		watches: map[scope]*watcher{}, serviceScopes: map[string]*namespaceServices{},
	}
}

// SetFabric starts the watches that f requires and stops the others.
func (s *FactsReader) SetFabric(f *fabric.Fabric) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.needs, s.hasFabric, s.stale = needsOf(f, s.cluster, s.node), true, true
	s.wake.Fire()
}

// Run watches until ctx is done.
func (s *FactsReader) Run(ctx context.Context) {
	ctx, cancel := context.WithCancel(ctx)
	var wait sync.WaitGroup
	defer wait.Wait()
	defer cancel()
	for {
		s.updateWatches(func(w *watcher) {
			own, stop := context.WithCancel(ctx)
			w.cancel = stop
			wait.Go(func() {
				defer stop()
				listwatch.Run(own, string(w.resource), w)
			})
		})
		select {
		case <-ctx.Done():
			return
		case <-s.wake:
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(minRestartInterval):
		}
	}
}

// updateWatches stops the watches that are no longer needed and starts the missing ones.
func (s *FactsReader) updateWatches(start func(*watcher)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.hasFabric || !s.stale {
		return
	}
	wanted := s.needs.scopes(s.index.Exports())
	for have, w := range s.watches {
		if !wanted[have] {
			w.cancel()
			delete(s.watches, have)
			delete(s.serviceScopes, have.namespace+"/"+have.names)
		}
	}
	for want := range wanted {
		if s.watches[want] == nil {
			w := newWatcher(s, want)
			s.watches[want] = w
			start(w)
		}
	}
	s.stale = false
	// Remove the objects without a watch.
	names := s.needs.names(s.index.Exports())
	changed := s.index.RetainServices(func(key string) bool {
		namespace, name, _ := strings.Cut(key, "/")
		return names[namespace][name]
	})
	changed = s.index.RetainPods(func(key string) bool {
		namespace, _, _ := strings.Cut(key, "/")
		return s.needs.pods[namespace] != nil
	}) || changed
	none := func(string) bool { return false }
	if !s.needs.mcs {
		changed = s.index.RetainExports(none) || changed
		changed = s.index.RetainImports(none) || changed
	}
	if !s.needs.namespaces {
		changed = s.index.RetainNamespaces(none) || changed
	}
	if s.updateSynced() || changed {
		s.changed()
	}
}

// servicesOf returns the Services of a scope, which its two watches share.
func (s *FactsReader) servicesOf(of scope) *namespaceServices {
	key := of.namespace + "/" + of.names
	if s.serviceScopes[key] == nil {
		s.serviceScopes[key] = newNamespaceServices(s.index, of)
	}
	return s.serviceScopes[key]
}

// isCurrent reports whether w has not been replaced. s.mu is locked.
func (s *FactsReader) isCurrent(w *watcher) bool { return s.watches[w.scope] == w }

// updated handles an event of w: it restarts watches if the ServiceExports require others, and
// notifies the agent if facts changed. s.mu is locked.
func (s *FactsReader) updated(w *watcher, factsChanged bool) {
	if w.resource == serviceExports && s.needs.mcs && !s.watchesComplete() {
		s.stale = true
		s.wake.Fire()
	}
	if factsChanged {
		s.updateSynced()
		s.changed()
	}
}

// requestDone stores the result of a request of w, and logs when the API server becomes
// unreachable and reachable.
func (s *FactsReader) requestDone(w *watcher, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.isCurrent(w) {
		return
	}
	w.err = err
	// Facts are complete without a resource that the agent may not read or that does not exist.
	if apierrors.IsForbidden(err) || apierrors.IsNotFound(err) {
		w.synced = true
	}
	unreachable := false
	for _, w := range s.watches {
		unreachable = unreachable || isUnreachable(w.err)
	}
	switch {
	case unreachable && s.unreachableSince.IsZero():
		s.unreachableSince = time.Now()
		s.log.Warn("kubernetes API unreachable; using the last known facts", "host", s.client.Host, "err", err)
	case !unreachable && !s.unreachableSince.IsZero() && err == nil:
		s.unreachableSince = time.Time{}
		s.log.Info("kubernetes API reachable", "host", s.client.Host)
	}
	if s.updateSynced() {
		s.changed()
	}
}

// watchesComplete reports whether the running watches are those that the ServiceExports require.
func (s *FactsReader) watchesComplete() bool {
	wanted := s.needs.scopes(s.index.Exports())
	return len(wanted) == len(s.watches) && maps.EqualFunc(wanted, s.watches, func(bool, *watcher) bool { return true })
}

// updateSynced reports whether the facts have become complete now: each watch has listed its
// objects.
func (s *FactsReader) updateSynced() bool {
	if s.loaded || s.stale {
		return false
	}
	for _, w := range s.watches {
		if !w.synced {
			return false
		}
	}
	s.loaded = true
	return true
}

// Current returns the current facts. The caller must not modify them.
func (s *FactsReader) Current() facts.State {
	s.mu.Lock()
	defer s.mu.Unlock()
	// Watches of several namespaces report the same problem once.
	reported := map[string]bool{}
	var errs []error
	for _, w := range slices.SortedFunc(maps.Values(s.watches), byScope) {
		if err := w.problem(s.client.Host); err != nil && !reported[err.Error()] {
			reported[err.Error()] = true
			errs = append(errs, err)
		}
	}
	state := facts.State{Facts: s.index.Facts(), Loaded: s.loaded, Err: errors.Join(errs...), Source: fromAPI, DegradedSince: s.unreachableSince}
	state.Facts.HasAPI = true
	if !s.unreachableSince.IsZero() {
		state.Source = fromCopy
	}
	return state
}

// Exports returns the ServiceExports, sorted by namespace and name, and whether they are complete.
// Their managedFields only show whether the agents wrote the object. The caller must not modify the
// objects.
func (s *FactsReader) Exports() ([]*mcsv1.ServiceExport, bool) {
	return listAll(s, &s.exports, serviceExports)
}

// Imports returns the ServiceImports, foreign ones included. See Exports.
func (s *FactsReader) Imports() ([]*mcsv1.ServiceImport, bool) {
	return listAll(s, &s.imports, serviceImports)
}

func listAll[T any](s *FactsReader, objects *sortedmap.Map[T], r resource) ([]T, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	w := s.watches[scope{resource: r}]
	return objects.List(), w != nil && w.synced && w.err == nil
}
