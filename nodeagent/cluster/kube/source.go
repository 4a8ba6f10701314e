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

	discoveryv1 "k8s.io/api/discovery/v1"
	mcsv1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"hawser.dev/hawser/internal/sortedmap"
	"hawser.dev/hawser/internal/trigger"
	"hawser.dev/hawser/nodeagent/cluster/facts"
	"hawser.dev/hawser/nodeagent/cluster/listwatch"
	"hawser.dev/hawser/nodeagent/model"
	"hawser.dev/hawser/schema/fabric"
)

// Where facts come from.
const (
	fromAPI  = "kubernetes API"
	fromCopy = "last good copy"
)

// settle is how long watches that changed are left alone before they change again,
// so that many exports made at once restart them a few times, not once each.
const settle = 200 * time.Millisecond

// Source gives facts as the API server tells them. It watches what the fabric
// and the ServiceExports make matter, and nothing else. Its methods may be called
// from any goroutine.
type Source struct {
	client        *Client
	cluster, node string
	log           *slog.Logger
	changed       func()
	wake          trigger.Trigger

	mu               sync.Mutex
	table            *facts.Index
	needs            watchRequirements
	hasFabric        bool // the needs are those of a fabric
	stale            bool // the watches are not yet those that are needed
	loaded           bool
	watches          map[scope]*watcher
	areas            map[string]*namespaceServices // by namespace
	exports          sortedmap.Map[*mcsv1.ServiceExport]
	imports          sortedmap.Map[*mcsv1.ServiceImport]
	unreachableSince time.Time // since when the API server is away; zero = it is not
}

// NewSource makes a source that begins with what was known before (nil =
// nothing). changed is called when the facts have changed, and must not block.
func NewSource(client *Client, cluster, node string, before *model.Facts, log *slog.Logger, changed func()) *Source {
	return &Source{
		client: client, cluster: cluster, node: node, log: log, changed: changed, wake: trigger.New(),
		table: facts.NewTable(before), loaded: before != nil, stale: true, unreachableSince: time.Now(),
		watches: map[scope]*watcher{}, areas: map[string]*namespaceServices{},
	}
}

// SetFabric makes the source watch what a fabric makes matter.
func (s *Source) SetFabric(f *fabric.Fabric) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.needs, s.hasFabric, s.stale = needsOf(f, s.cluster, s.node), true, true
	s.wake.Fire()
}

// Run watches until ctx ends.
func (s *Source) Run(ctx context.Context) {
	ctx, cancel := context.WithCancel(ctx)
	var wait sync.WaitGroup
	defer wait.Wait()
	defer cancel()
	for {
		s.adjust(func(w *watcher) {
			own, stop := context.WithCancel(ctx)
			w.stop = stop
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
		case <-time.After(settle):
		}
	}
}

// adjust stops the watches that are not needed any more and starts those that are
// missing.
func (s *Source) adjust(start func(*watcher)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.hasFabric || !s.stale {
		return
	}
	wanted := s.needs.scopes(s.table.Exports())
	for have, w := range s.watches {
		if !wanted[have] {
			w.stop()
			delete(s.watches, have)
			delete(s.areas, have.namespace+"/"+have.names)
		}
	}
	for want := range wanted {
		if s.watches[want] == nil {
			w := &watcher{scope: want, source: s}
			w.handler = s.handlerFor(want)
			s.watches[want] = w
			start(w)
		}
	}
	s.stale = false
	names := s.needs.names(s.table.Exports()) // what no watch is about any more goes
	changed := s.table.KeepServices(func(key string) bool {
		namespace, name, _ := strings.Cut(key, "/")
		return names[namespace][name]
	})
	changed = s.table.KeepPods(func(key string) bool {
		namespace, _, _ := strings.Cut(key, "/")
		return s.needs.pods[namespace] != nil
	}) || changed
	nothing := func(string) bool { return false }
	if !s.needs.mcs {
		changed = s.table.KeepExports(nothing) || changed
		changed = s.table.KeepImports(nothing) || changed
	}
	if !s.needs.namespaces {
		changed = s.table.KeepNamespaces(nothing) || changed
	}
	if s.updateSynced() || changed {
		s.changed()
	}
}

// area gives what is known of the Services of a scope.
func (s *Source) area(w scope) *namespaceServices {
	key := w.namespace + "/" + w.names
	if s.areas[key] == nil {
		a := &namespaceServices{
			namespace: w.namespace, table: s.table, names: map[string]bool{},
			slicesOf: map[string]*sortedmap.Map[*discoveryv1.EndpointSlice]{},
		}
		for name := range strings.SplitSeq(w.names, ",") {
			a.names[name] = true
			a.slicesOf[name] = &sortedmap.Map[*discoveryv1.EndpointSlice]{}
		}
		s.areas[key] = a
	}
	return s.areas[key]
}

// apply lets a watch change facts, as long as it is one of ours.
func (s *Source) apply(w *watcher, change func() bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.watches[w.scope] != w {
		return
	}
	changed := change()
	if w.resource == serviceExports && s.needs.mcs && !s.watchesComplete() {
		s.stale = true
		s.wake.Fire()
	}
	if changed {
		s.updateSynced()
		s.changed()
	}
}

// watchesComplete reports whether the watches are those that the ServiceExports need.
func (s *Source) watchesComplete() bool {
	wanted := s.needs.scopes(s.table.Exports())
	return len(wanted) == len(s.watches) && maps.EqualFunc(wanted, s.watches, func(bool, *watcher) bool { return true })
}

// updateSynced looks whether all was told at least once; then the facts are the whole truth.
func (s *Source) updateSynced() bool {
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

// Current gives the facts in force. They are shared: do not change them.
func (s *Source) Current() facts.State {
	s.mu.Lock()
	defer s.mu.Unlock()
	// One line for each thing that a person can mend.
	told := map[string]bool{}
	var errs []error
	for _, w := range slices.SortedFunc(maps.Values(s.watches), byScope) {
		if err := w.trouble(s.client.Host); err != nil && !told[err.Error()] {
			told[err.Error()] = true
			errs = append(errs, err)
		}
	}
	state := facts.State{Facts: s.table.Facts(), Loaded: s.loaded, Err: errors.Join(errs...), Source: fromAPI, DegradedSince: s.unreachableSince}
	state.Facts.HasAPI = true // addresses are given in the API alone
	if !s.unreachableSince.IsZero() {
		state.Source = fromCopy
	}
	return state
}

// Exports gives the ServiceExports as they are, with as much of their managedFields as says
// that we are among their writers, in the order of their names; and false until all came once.
// They are shared: do not change them.
func (s *Source) Exports() ([]*mcsv1.ServiceExport, bool) { return all(s, &s.exports, serviceExports) }

// Imports gives the ServiceImports as they are, ours and others'; see Exports.
func (s *Source) Imports() ([]*mcsv1.ServiceImport, bool) { return all(s, &s.imports, serviceImports) }

func all[T any](s *Source, objects *sortedmap.Map[T], r resource) ([]T, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	w := s.watches[scope{resource: r}]
	return objects.List(), w != nil && w.synced && w.err == nil
}
