package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"time"
)

// profile is how eagerly links are probed.
type profile struct {
	name     string
	interval time.Duration
	misses   int
	worst    time.Duration // promised p99 of the stall
}

func profiles() []profile {
	return []profile{
		{"default", 250 * time.Millisecond, 3, time.Second},
		{"fast", 50 * time.Millisecond, 3, 300 * time.Millisecond},
	}
}

const (
	stallReps = 50
	// backWithin and restWithin bound one repetition; past them it has failed.
	backWithin = 15 * time.Second
	restWithin = 45 * time.Second
	// hopeless is how many failures in a row end a section: what follows would
	// only measure the first one again.
	hopeless = 5
)

// faultRun is one fault with what the flows saw of it.
type faultRun struct {
	Trouble  string
	Rep      int
	Link     string // in use when it happened
	Victim   string
	Hit      time.Time                // just before the fault
	Heal     time.Time                // just before it was mended
	End      time.Time                // everything was at rest again
	Err      string                   `json:",omitempty"`
	Busy     int                      // share of the processors in use before the fault, in percent
	Stall    time.Duration            // longest time without a packet
	Paused   time.Duration            // longest time in which the sender itself sent none
	Request  time.Duration            // longest request over an established connection
	Lost     int                      // packets from Hit to Heal
	Returned int                      // packets lost from Heal to End
	Broken   int                      // requests that failed
	Failed   int                      // new connections that failed
	Late     int                      // new connections that needed another SYN
	Moved    map[string]time.Duration // by node: from Hit to its log line
}

// reps is how often each fault is repeated.
func reps(otherwise int) (int, error) {
	text := os.Getenv("REPS")
	if text == "" {
		return otherwise, nil
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 {
		return 0, fmt.Errorf("REPS=%s: it is a number from 1", text)
	}
	return n, nil
}

func measureStall(p profile) func(context.Context, config) (section, error) {
	return func(ctx context.Context, c config) (s section, err error) {
		n, err := reps(stallReps)
		if err != nil {
			return s, err
		}
		b, err := newStallBed(ctx, c, map[string]string{"interval: 250ms": "interval: " + p.interval.String()})
		if err != nil {
			return s, err
		}
		defer func() { err = errors.Join(err, b.close()) }()
		list, err := b.stalls(ctx, n)
		if err := errors.Join(err, c.keepRaw("stall-"+p.name, list), b.keepLogs(c, "stall-"+p.name)); err != nil {
			return s, err
		}
		return stallSection(p, n, list), nil
	}
}

// stalls does every fault n times, in turn, so that what the machine does
// meanwhile hits all alike.
func (b *failoverLab) stalls(ctx context.Context, n int) (list []faultRun, err error) {
	t, err := b.flows(ctx, "one")
	if err != nil {
		return nil, err
	}
	if err = t.settle(ctx, time.Second, restWithin); err != nil {
		return nil, errors.Join(fmt.Errorf("before the first fault: %w", err), t.close())
	}
	list, err = b.rounds(ctx, t, n)
	return list, errors.Join(err, t.close(), b.evaluate(t, list))
}

func (b *failoverLab) rounds(ctx context.Context, t *flows, n int) (list []faultRun, err error) {
	failures := 0
	for rep := range n {
		for _, trouble := range troubles() {
			one := b.repeat(ctx, t, trouble, rep)
			list = append(list, one)
			if failures++; one.Err == "" {
				failures = 0
			} else {
				fmt.Fprintf(os.Stderr, "bench: %s, repetition %d: %s\n", one.Trouble, rep, one.Err)
			}
			if ctx.Err() != nil || failures == hopeless {
				return list, errors.Join(ctx.Err(), fmt.Errorf("%d repetitions in a row failed: %s", failures, one.Err))
			}
		}
		fmt.Fprintf(os.Stderr, "bench: %d of %d rounds\n", rep+1, n)
	}
	return list, nil
}

// repeat makes one fault, waits until the flow is back, mends it, and waits until
// everything is at rest.
func (b *failoverLab) repeat(ctx context.Context, t *flows, trouble faultCase, rep int) faultRun {
	one := faultRun{Trouble: trouble.name, Rep: rep}
	fail := func(what string, err error) {
		if err != nil && one.Err == "" {
			one.Err = fmt.Sprintf("%s: %v", what, err)
		}
	}
	now, busy, err := b.calmLink(ctx)
	fail("before the fault", err)
	one.Busy = busy
	if now == (link{}) {
		now, _ = b.chosen(ctx, stallNear, stallFar) // one end's view is better than no fault
	}
	one.Link, one.Victim = now.String(), now.far
	if trouble.near(rep) {
		one.Victim = now.near
	}
	// The fault comes at any phase of the probes.
	time.Sleep(rand.N(250 * time.Millisecond))
	one.Hit = time.Now()
	fail("fault", trouble.hit(ctx, b.labAgents, one.Victim, rep))
	hit := time.Now()
	fail("the flow after the fault", within(ctx, backWithin, func() error {
		if time.Since(hit) < watched+watched/4 {
			return errors.New("the fault is too new")
		}
		return t.packets.CheckComplete(watched)
	}))
	one.Heal = time.Now()
	fail("mend", trouble.heal(ctx, b.labAgents, one.Victim))
	_, err = b.awaitRest(ctx, stallNear, stallFar, restWithin)
	fail("rest", err)
	fail("the flow at rest", t.settle(ctx, watched, restWithin))
	one.End = time.Now()
	return one
}

// calmLink waits until everything is at rest on a calm machine, and gives the link in
// use then: while the machine came to rest, a preferred link may have come back.
func (b *failoverLab) calmLink(ctx context.Context) (now link, busy int, err error) {
	err = within(ctx, restWithin+2*calmWithin, func() (err error) {
		before, err := b.awaitRest(ctx, stallNear, stallFar, restWithin)
		if err != nil {
			return err
		}
		if busy, err = waitIdle(ctx); err != nil {
			return err
		}
		if now, err = b.awaitRest(ctx, stallNear, stallFar, restWithin); err == nil && now != before {
			err = fmt.Errorf("%s became %s while the processors came to rest", before, now)
		}
		return err
	})
	return now, busy, err
}

// watched is how long a flow must be whole to count as back.
const watched = 200 * time.Millisecond

// late is a new connection whose first SYN was lost: the next follows after 1 s.
const late = 500 * time.Millisecond

// evaluate fills in what the flows and the agents' logs say of each repetition.
func (b *failoverLab) evaluate(t *flows, list []faultRun) error {
	logs, err := b.moves()
	if err != nil {
		return err
	}
	for i := range list {
		one := &list[i]
		one.Stall, one.Paused = t.packets.Gap(one.Hit, one.Heal), t.packets.Paused(one.Hit, one.Heal)
		one.Lost, _ = t.packets.Lost(one.Hit.Add(-inFlight), one.Heal.Add(-inFlight))
		one.Returned, _ = t.packets.Lost(one.Heal.Add(-inFlight), one.End.Add(-inFlight))
		for _, call := range t.requests.begun(one.Hit.Add(-inFlight), one.End.Add(-inFlight)) {
			if one.Request = max(one.Request, time.Duration(call.Long)); call.Error != "" {
				one.Broken++
			}
		}
		one.Failed, one.Late = newConnections(t.dials, one.Hit.Add(-inFlight), one.End.Add(-inFlight))
		one.Moved = movedBetween(logs, one.Hit, one.Heal)
	}
	return nil
}

// inFlight is how old a packet may be and still be hit by a fault.
const inFlight = 20 * time.Millisecond

func newConnections(d *background, from, to time.Time) (failed, slow int) {
	for _, call := range d.begun(from, to) {
		switch {
		case call.Error != "":
			failed++
		case time.Duration(call.Long) >= late:
			slow++
		}
	}
	return failed, slow
}
