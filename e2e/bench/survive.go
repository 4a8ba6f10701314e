package main

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"time"

	"hawser.dev/hawser/e2e/traffic"
)

const (
	surviveReps = 5
	perKind     = 250 // connections of each kind
	// The anchor's lease needs up to 24 s. A connection may then wait for the same time again
	// before TCP retransmits, because its intervals double.
	anchorBack  = 60 * time.Second
	anchorGrace = 30 * time.Second
	ourGrace    = 10 * time.Second
)

// setup is one kind of gateways, with its faults.
type setup struct {
	name              string
	flowTarget        netip.AddrPort   // target of the flow of packets
	connectionTargets []netip.AddrPort // targets of the connections
	recovery          time.Duration    // limit for the recovery of the flow
	grace             time.Duration    // additional limit for the connections
	awaitIdle         func(context.Context) error
	crash             func(ctx context.Context, near bool) (string, error) // returns the victim
	revive            func(ctx context.Context, near bool, victim string) error
}

// survival is the result of one gateway's failure.
type survival struct {
	Setup, Victim string
	Near          bool // the client's gateway died
	Rep           int
	Stall         time.Duration
	Lost          int
	Count, Alive  map[string]int // connections by kind
	Err           string         `json:",omitempty"`
}

func measureSurvive(ctx context.Context, c config) (s section, err error) {
	n, err := reps(surviveReps)
	if err != nil {
		return s, err
	}
	var list []survival
	for _, run := range []func(context.Context, config, int) ([]survival, error){
		surviveAnchor, surviveHawser("Hawser, mapped egress", "mapped"), surviveHawser("Hawser, shared egress", "shared"),
	} {
		results, err := run(ctx, c, n)
		if list = append(list, results...); err != nil {
			return s, errors.Join(err, c.saveRaw("survive", list))
		}
	}
	return surviveSection(n, list), c.saveRaw("survive", list)
}

// surviveAnchor runs the active/passive setup.
func surviveAnchor(ctx context.Context, c config, n int) (list []survival, err error) {
	b, err := newFailoverLab(ctx, c, nil, "--bare")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, b.close()) }()
	a, err := newAnchor(ctx, b)
	if err != nil {
		return nil, err
	}
	defer a.end()
	if err := a.start(ctx); err != nil {
		return nil, fmt.Errorf("active/passive setup: %w", err)
	}
	at := func(number byte) netip.AddrPort { return netip.AddrPortFrom(a.far.global(number), stallPort) }
	end := func(near bool) *anchorEnd {
		if near {
			return a.near
		}
		return a.far
	}
	return b.survive(ctx, n, setup{
		name: "active/passive, lease of 15 s", flowTarget: at(globalOne), recovery: anchorBack, grace: anchorGrace,
		connectionTargets: []netip.AddrPort{at(globalBack), at(globalHead), at(globalBack), at(globalHead + 1), at(globalBack), at(globalHead + 2)},
		awaitIdle:         func(context.Context) error { return nil },
		crash:             func(ctx context.Context, near bool) (string, error) { return a.crash(ctx, end(near)) },
		revive:            func(ctx context.Context, near bool, victim string) error { return a.revive(ctx, end(near), victim) },
	})
}

// surviveHawser runs Hawser with one egress mode.
func surviveHawser(name, egress string) func(context.Context, config, int) ([]survival, error) {
	return func(ctx context.Context, c config, n int) (list []survival, err error) {
		b, err := newFailoverLab(ctx, c, map[string]string{"egress: auto": "egress: " + egress})
		if err != nil {
			return nil, err
		}
		defer func() { err = errors.Join(err, b.close()) }()
		one, err := b.address(ctx, "one")
		if err != nil {
			return nil, err
		}
		var many []netip.AddrPort
		for i := range 3 {
			back, err := b.address(ctx, "back")
			if err != nil {
				return nil, err
			}
			head, err := b.address(ctx, fmt.Sprintf("head-%d.%s.head", i, stallFar))
			if err != nil {
				return nil, err
			}
			many = append(many, back, head)
		}
		return b.survive(ctx, n, setup{
			name: name, flowTarget: one, connectionTargets: many, recovery: backWithin, grace: ourGrace,
			awaitIdle: func(ctx context.Context) error {
				_, err := b.awaitRest(ctx, stallNear, stallFar, restWithin)
				return err
			},
			crash:  b.crashInUse,
			revive: func(ctx context.Context, _ bool, victim string) error { return powerOn(ctx, b.labAgents, victim) },
		})
	}
}

func (b *failoverLab) crashInUse(ctx context.Context, near bool) (string, error) {
	// The active link may have changed while the thousand connections were opened.
	now, err := b.awaitRest(ctx, stallNear, stallFar, restWithin)
	if err != nil {
		return "", err
	}
	victim := now.far
	if near {
		victim = now.near
	}
	return victim, powerOff(ctx, b.labAgents, victim, 0)
}

// survive powers off the active gateway n times at each side.
func (b *failoverLab) survive(ctx context.Context, n int, s setup) (list []survival, err error) {
	packets, err := startPackets(b.near, s.flowTarget, packetRate)
	if err != nil {
		return nil, err
	}
	t := &flows{packets: packets}
	defer func() { err = errors.Join(err, packets.Close()) }()
	if err := t.awaitComplete(ctx, time.Second, restWithin); err != nil {
		return nil, fmt.Errorf("%s, before the first fault: %w", s.name, err)
	}
	for rep := range n {
		for _, near := range []bool{true, false} {
			result, err := b.surviveOnce(ctx, t, s, near)
			result.Rep = rep
			if err != nil {
				result.Err = err.Error()
				fmt.Fprintf(os.Stderr, "bench: %s, repetition %d: %v\n", s.name, rep, err)
			}
			fmt.Fprintf(os.Stderr, "bench: %s, %s died: stall %s, alive %v of %v\n", s.name, result.Victim, result.Stall, result.Alive, result.Count)
			if list = append(list, result); ctx.Err() != nil {
				return list, ctx.Err()
			}
		}
	}
	return list, nil
}

func (b *failoverLab) surviveOnce(ctx context.Context, t *flows, s setup, near bool) (result survival, err error) {
	result = survival{Setup: s.name, Near: near}
	if err := errors.Join(s.awaitIdle(ctx), t.awaitComplete(ctx, watched, restWithin)); err != nil {
		return result, err
	}
	connections, err := b.open(ctx, s)
	if err != nil {
		return result, err
	}
	defer connections.end()
	if err := t.awaitComplete(ctx, watched, restWithin); err != nil {
		return result, err
	}
	hit := time.Now()
	if result.Victim, err = s.crash(ctx, near); err != nil {
		return result, err
	}
	hitDone := time.Now()
	failed := within(ctx, s.recovery, func() error {
		if time.Since(hitDone) < 2*watched {
			return errors.New("the fault is too new")
		}
		return t.packets.CheckComplete(watched)
	})
	recoveredAt := time.Now()
	result.Stall = t.packets.Gap(hit, recoveredAt)
	result.Lost, _ = t.packets.Lost(hit.Add(-inFlight), recoveredAt.Add(-inFlight))
	report, testErr := connections.end()
	result.Count, result.Alive = map[string]int{}, map[string]int{}
	for kind, k := range report.Kinds {
		result.Count[string(kind)], result.Alive[string(kind)] = k.Connections, k.Survivors
	}
	return result, errors.Join(failed, testErr, s.revive(ctx, near, result.Victim), t.awaitComplete(ctx, watched, restWithin))
}

// connectionSet is a set of open connections of all kinds.
type connectionSet struct {
	// end tests each connection within the setup's grace, and returns the report.
	end func() (traffic.TCPReport, error)
}

// open opens connections of each kind over the addresses of a setup.
func (b *failoverLab) open(ctx context.Context, s setup) (*connectionSet, error) {
	ctx, cancel := context.WithCancel(ctx)
	opened, done := make(chan struct{}), make(chan struct{})
	var report traffic.TCPReport
	var err error
	tcp := traffic.TCP{
		Count: perKind * len(traffic.Kinds()), Interval: 250 * time.Millisecond, Patience: s.recovery + s.grace, Grace: s.grace,
		Reset: true, Dial: b.near.Dial, Ready: func() { close(opened) },
	}
	for _, to := range s.connectionTargets {
		tcp.Targets = append(tcp.Targets, to.String())
	}
	go func() {
		defer close(done)
		report, err = tcp.Run(ctx)
	}()
	c := &connectionSet{end: func() (traffic.TCPReport, error) {
		cancel()
		<-done
		return report, err
	}}
	select {
	case <-opened:
		return c, nil
	case <-done:
		_, err := c.end()
		return nil, err
	}
}
