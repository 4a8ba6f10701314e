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

// profile holds the probe settings of links.
type profile struct {
	name     string
	interval time.Duration
	misses   int
	worst    time.Duration // target for the p99 of the stall
}

func profiles() []profile {
	return []profile{
		{"default", 250 * time.Millisecond, 3, time.Second},
		{"fast", 50 * time.Millisecond, 3, 300 * time.Millisecond},
	}
}

const (
	stallReps = 50
	// backWithin and restWithin bound one repetition, which fails after them.
	backWithin = 15 * time.Second
	restWithin = 45 * time.Second
	// maxFailures is the number of consecutive failures that end a section: later repetitions
	// would only measure the first failure again.
	maxFailures = 5
)

// faultRun is one fault with its effect on the flows.
type faultRun struct {
	Fault    string
	Rep      int
	Link     string // active link at the fault
	Victim   string
	Hit      time.Time                // just before the fault
	Heal     time.Time                // just before the heal
	End      time.Time                // when everything was at rest again
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

// reps returns the number of repetitions of each fault: REPS, or the default.
func reps(byDefault int) (int, error) {
	text := os.Getenv("REPS")
	if text == "" {
		return byDefault, nil
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 {
		return 0, fmt.Errorf("REPS=%s: not a number from 1", text)
	}
	return n, nil
}

func measureStall(p profile) func(context.Context, config) (section, error) {
	return func(ctx context.Context, c config) (s section, err error) {
		n, err := reps(stallReps)
		if err != nil {
			return s, err
		}
		b, err := newFailoverLab(ctx, c, map[string]string{"interval: 250ms": "interval: " + p.interval.String()})
		if err != nil {
			return s, err
		}
		defer func() { err = errors.Join(err, b.close()) }()
		list, err := b.stalls(ctx, n)
		if err := errors.Join(err, c.saveRaw("stall-"+p.name, list), b.saveLogs(c, "stall-"+p.name)); err != nil {
			return s, err
		}
		return stallSection(p, n, list), nil
	}
}

// stalls injects every fault n times, in rotation, so that other load of the machine affects all
// equally.
func (b *failoverLab) stalls(ctx context.Context, n int) (list []faultRun, err error) {
	t, err := b.flows(ctx, "one")
	if err != nil {
		return nil, err
	}
	if err = t.awaitComplete(ctx, time.Second, restWithin); err != nil {
		return nil, errors.Join(fmt.Errorf("before the first fault: %w", err), t.close())
	}
	list, err = b.rounds(ctx, t, n)
	return list, errors.Join(err, t.close(), b.evaluate(t, list))
}

func (b *failoverLab) rounds(ctx context.Context, t *flows, n int) (list []faultRun, err error) {
	failures := 0
	for rep := range n {
		for _, fault := range faultCases() {
			result := b.repeat(ctx, t, fault, rep)
			list = append(list, result)
			if failures++; result.Err == "" {
				failures = 0
			} else {
				fmt.Fprintf(os.Stderr, "bench: %s, repetition %d: %s\n", result.Fault, rep, result.Err)
			}
			if ctx.Err() != nil || failures == maxFailures {
				return list, errors.Join(ctx.Err(), fmt.Errorf("%d repetitions in a row failed: %s", failures, result.Err))
			}
		}
		fmt.Fprintf(os.Stderr, "bench: %d of %d rounds\n", rep+1, n)
	}
	return list, nil
}

// repeat injects one fault, waits for the recovery of the flow, heals the fault, and waits until
// everything is at rest.
func (b *failoverLab) repeat(ctx context.Context, t *flows, fault faultCase, rep int) faultRun {
	result := faultRun{Fault: fault.name, Rep: rep}
	fail := func(phase string, err error) {
		if err != nil && result.Err == "" {
			result.Err = fmt.Sprintf("%s: %v", phase, err)
		}
	}
	now, busy, err := b.calmLink(ctx)
	fail("before the fault", err)
	result.Busy = busy
	if now == (link{}) {
		now, _ = b.activeLink(ctx, stallNear, stallFar) // use one end's view if both do not agree
	}
	result.Link, result.Victim = now.String(), now.far
	if fault.near(rep) {
		result.Victim = now.near
	}
	// Inject the fault at a random phase of the probes.
	time.Sleep(rand.N(250 * time.Millisecond))
	result.Hit = time.Now()
	fail("fault", fault.hit(ctx, b.labAgents, result.Victim, rep))
	hit := time.Now()
	fail("the flow after the fault", within(ctx, backWithin, func() error {
		if time.Since(hit) < watched+watched/4 {
			return errors.New("the fault is too new")
		}
		return t.packets.CheckComplete(watched)
	}))
	result.Heal = time.Now()
	fail("heal", fault.heal(ctx, b.labAgents, result.Victim))
	_, err = b.awaitRest(ctx, stallNear, stallFar, restWithin)
	fail("rest", err)
	fail("the flow at rest", t.awaitComplete(ctx, watched, restWithin))
	result.End = time.Now()
	return result
}

// calmLink waits until everything is at rest on an idle machine, and returns the active link. It
// checks the link again after the wait for the machine: a preferred link may have recovered.
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
			err = fmt.Errorf("the active link changed from %s to %s before the processors were idle", before, now)
		}
		return err
	})
	return now, busy, err
}

// watched is the time for which a flow must be complete to count as recovered.
const watched = 200 * time.Millisecond

// lateThreshold is the duration of a new connection with a lost first SYN: the next SYN follows after 1 s.
const lateThreshold = 500 * time.Millisecond

// evaluate completes each repetition from the flows and the agents' logs.
func (b *failoverLab) evaluate(t *flows, list []faultRun) error {
	logs, err := b.moves()
	if err != nil {
		return err
	}
	for i := range list {
		result := &list[i]
		result.Stall, result.Paused = t.packets.Gap(result.Hit, result.Heal), t.packets.Paused(result.Hit, result.Heal)
		result.Lost, _ = t.packets.Lost(result.Hit.Add(-inFlight), result.Heal.Add(-inFlight))
		result.Returned, _ = t.packets.Lost(result.Heal.Add(-inFlight), result.End.Add(-inFlight))
		for _, call := range t.requests.begun(result.Hit.Add(-inFlight), result.End.Add(-inFlight)) {
			if result.Request = max(result.Request, time.Duration(call.Long)); call.Error != "" {
				result.Broken++
			}
		}
		result.Failed, result.Late = newConnections(t.dials, result.Hit.Add(-inFlight), result.End.Add(-inFlight))
		result.Moved = movedBetween(logs, result.Hit, result.Heal)
	}
	return nil
}

// inFlight is the maximum age of a packet that a fault can still affect.
const inFlight = 20 * time.Millisecond

func newConnections(d *background, from, to time.Time) (failed, slow int) {
	for _, call := range d.begun(from, to) {
		switch {
		case call.Error != "":
			failed++
		case time.Duration(call.Long) >= lateThreshold:
			slow++
		}
	}
	return failed, slow
}
