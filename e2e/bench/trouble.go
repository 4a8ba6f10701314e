package main

import (
	"context"
	"fmt"
	"os/exec"
	"strings"

	"hawser.dev/hawser/lab"
	"hawser.dev/hawser/lab/netnsexec"
)

// faultCase is something bad that happens to a gateway in use.
type faultCase struct {
	name string
	near func(rep int) bool // the victim is the client's gateway, otherwise the server's
	hit  func(ctx context.Context, f *labAgents, victim string, rep int) error
	heal func(ctx context.Context, f *labAgents, victim string) error
}

func troubles() []faultCase {
	always, never := func(int) bool { return true }, func(int) bool { return false }
	turns, pairs := func(rep int) bool { return rep%2 == 0 }, func(rep int) bool { return rep/2%2 == 0 }
	return []faultCase{
		{"power-off of the client's gateway", always, powerOff, powerOn},
		{"power-off of the server's gateway", never, powerOff, powerOn},
		{"SIGKILL of agent and tunnels", turns, lose(lab.Fault{Kind: "kill-gateway"}), startAgent},
		{"underlay cut", turns, lose(lab.Fault{Kind: "cut", Side: lab.SideWAN}), mend},
		{"underlay loses all, one way", pairs, loseOneDirection, mend},
		{"tunnels lost, the gateway lives", turns, lose(lab.Fault{Kind: "lose-tunnels"}), mend},
		{"network of the cluster cut", turns, lose(lab.Fault{Kind: "cut", Side: lab.SideLAN}), mend},
	}
}

func (f *labAgents) fault(ctx context.Context, fault lab.Fault) error {
	if err := f.client.Fault(ctx, fault); err != nil {
		return fmt.Errorf("%s %s: %w", fault.Kind, fault.Target, err)
	}
	return nil
}

func powerOff(ctx context.Context, f *labAgents, victim string, _ int) error {
	return f.fault(ctx, lab.Fault{Kind: "power-off", Target: victim})
}

// powerOn brings a node back, in a new namespace.
func powerOn(ctx context.Context, f *labAgents, victim string) error {
	if err := f.fault(ctx, lab.Fault{Kind: "power-on", Target: victim}); err != nil {
		return err
	}
	at, err := f.client.Place(ctx, victim)
	f.spaces[victim] = at.Net
	return err
}

func startAgent(ctx context.Context, f *labAgents, victim string) error {
	return f.fault(ctx, lab.Fault{Kind: "start-agent", Target: victim})
}

// lose makes one of the lab's faults of the victim.
func lose(fault lab.Fault) func(context.Context, *labAgents, string, int) error {
	return func(ctx context.Context, f *labAgents, victim string, _ int) error {
		fault := fault
		fault.Target = victim
		return f.fault(ctx, fault)
	}
}

// loseOneDirection drops, without a sign on the node, what it receives or what it sends.
func loseOneDirection(ctx context.Context, f *labAgents, victim string, rep int) error {
	way := lab.DirectionIn
	if rep%2 == 1 {
		way = lab.DirectionOut
	}
	return f.fault(ctx, lab.Fault{Kind: "loss", Target: victim, Side: lab.SideWAN, Direction: way, Value: "100%"})
}

func mend(ctx context.Context, f *labAgents, victim string) error {
	return f.fault(ctx, lab.Fault{Kind: "heal", Target: victim})
}

// rules loads nftables rules on a node.
func (f *labAgents) rules(node, text string) error {
	return f.inside(node, text, "nft", "-f", "-")
}

// inside runs a program on a node and waits for it.
func (f *labAgents) inside(node, input, name string, args ...string) error {
	return netnsexec.Do(f.spaces[node], func() error {
		cmd := exec.Command(name, args...)
		cmd.Stdin = strings.NewReader(input)
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("%s %s on %s: %w: %s", name, strings.Join(args, " "), node, err, out)
		}
		return nil
	})
}
