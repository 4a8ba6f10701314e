package main

import (
	"context"
	"math/rand/v2"
	"sync"
	"time"
)

// The lease of an active/passive pair, as client-go's leader election has it by
// default, which is also what active/passive gateways in use today set.
const (
	leaseDuration = 15 * time.Second // after which another may take it
	leaseRetry    = 2 * time.Second  // between two renewals, and two tries
	leaseJitter   = 1.2              // a try comes up to this part of leaseRetry later
)

// lease decides which of several candidates is active. The record itself is
// always at hand and answers at once: the kindest case.
type lease struct {
	mu      sync.Mutex
	holder  string
	renewed time.Time
	dead    map[string]bool // candidates that do nothing
}

// elector is one candidate's view.
type elector struct {
	lease    *lease
	name     string
	renewed  time.Time // as last seen
	observed time.Time // when that was first seen, on the own clock
}

// try is one round of a candidate: it renews what it holds, and takes what has
// not been renewed for leaseDuration since it was seen to change. It reports
// whether the candidate has become active by it.
func (e *elector) try(now time.Time) bool {
	l := e.lease
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.dead[e.name] {
		return false
	}
	if l.holder == e.name {
		l.renewed = now
		return false
	}
	if !l.renewed.Equal(e.renewed) {
		e.renewed, e.observed = l.renewed, now
	}
	if e.observed.Add(leaseDuration).After(now) {
		return false
	}
	l.holder, l.renewed = e.name, now
	return true
}

// run tries until ctx ends, and calls active when it succeeds.
func (e *elector) run(ctx context.Context, active func()) {
	for {
		if e.try(time.Now()) {
			active()
		}
		pause := leaseRetry
		if e.lease.active() != e.name {
			pause += time.Duration(rand.Float64() * leaseJitter * float64(leaseRetry))
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(pause):
		}
	}
}

func (l *lease) active() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.holder
}

// die makes a candidate stop, or start again.
func (l *lease) die(name string, dead bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.dead[name] = dead
}

func (l *lease) gone(name string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.dead[name]
}
