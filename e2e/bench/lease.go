package main

import (
	"context"
	"math/rand/v2"
	"sync"
	"time"
)

// The lease of an active/passive pair, with the defaults of client-go's leader election, which
// active/passive gateways use today.
const (
	leaseDuration = 15 * time.Second // after which another candidate may acquire it
	leaseRetry    = 2 * time.Second  // between two renewals or attempts
	leaseJitter   = 1.2              // an attempt is delayed by up to this multiple of leaseRetry
)

// lease decides which of several candidates is active. The record is always available and
// responds at once: the best case.
type lease struct {
	mu      sync.Mutex
	holder  string
	renewed time.Time
	dead    map[string]bool // stopped candidates
}

// elector is one candidate of a lease.
type elector struct {
	lease    *lease
	name     string
	renewed  time.Time // last renewal seen
	observed time.Time // when it was first seen, by the candidate's clock
}

// try runs one round of a candidate. It renews its lease, or acquires one without a renewal for
// leaseDuration. It reports whether the candidate became active.
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

// run calls try until ctx is done, and active after it succeeds.
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

// setDead stops a candidate, or restarts it.
func (l *lease) setDead(name string, dead bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.dead[name] = dead
}

func (l *lease) isDead(name string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.dead[name]
}
