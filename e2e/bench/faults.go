package main

import (
	"context"
	"fmt"
	"os/exec"
	"strings"

	"hawser.dev/hawser/lab"
	"hawser.dev/hawser/lab/netnsexec"
)

// faultCase is a fault of a gateway of the active link.
type faultCase struct {
	name string
	near func(rep int) bool // reports whether the victim is the client's gateway
	hit  func(ctx context.Context, f *labAgents, victim string, rep int) error
	heal func(ctx context.Context, f *labAgents, victim string) error
}

func faultCases() []faultCase {
	always, never := func(int) bool { return true }, func(int) bool { return false }
	everySecond, everyOtherPair := func(rep int) bool { return rep%2 == 0 }, func(rep int) bool { return rep/2%2 == 0 }
	return []faultCase{
		{"power-off of the client's gateway", always, powerOff, powerOn},
		{"power-off of the server's gateway", never, powerOff, powerOn},
		{"SIGKILL of agent and tunnels", everySecond, labFault(lab.Fault{Kind: "kill-gateway"}), startAgent},
		{"underlay cut", everySecond, labFault(lab.Fault{Kind: "cut", Side: lab.SideWAN}), heal},
		{"underlay loses all, one way", everyOtherPair, loseOneDirection, heal},
		{"tunnels lost, the gateway lives", everySecond, labFault(lab.Fault{Kind: "lose-tunnels"}), heal},
		{"network of the cluster cut", everySecond, labFault(lab.Fault{Kind: "cut", Side: lab.SideLAN}), heal},
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

// powerOn starts a node, in a new namespace.
func powerOn(ctx context.Context, f *labAgents, victim string) error {
	if err := f.fault(ctx, lab.Fault{Kind: "power-on", Target: victim}); err != nil {
		return err
	}
	at, err := f.client.ExecAt(ctx, victim)
	f.spaces[victim] = at.Net
	return err
}

func startAgent(ctx context.Context, f *labAgents, victim string) error {
	return f.fault(ctx, lab.Fault{Kind: "start-agent", Target: victim})
}

// labFault returns a function that injects a fault of the lab into the victim.
func labFault(fault lab.Fault) func(context.Context, *labAgents, string, int) error {
	return func(ctx context.Context, f *labAgents, victim string, _ int) error {
		fault := fault
		fault.Target = victim
		return f.fault(ctx, fault)
	}
}

// loseOneDirection drops all packets that a node receives, or all that it sends. The node cannot detect it locally.
func loseOneDirection(ctx context.Context, f *labAgents, victim string, rep int) error {
	direction := lab.DirectionIn
	if rep%2 == 1 {
		direction = lab.DirectionOut
	}
	return f.fault(ctx, lab.Fault{Kind: "loss", Target: victim, Side: lab.SideWAN, Direction: direction, Value: "100%"})
}

func heal(ctx context.Context, f *labAgents, victim string) error {
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
