package main

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"time"

	"hawser.dev/hawser/lab"
	"hawser.dev/hawser/lab/netspace"
)

// trouble is something bad that happens to a gateway in use.
type trouble struct {
	name string
	near func(rep int) bool // the victim is the client's gateway, otherwise the server's
	hit  func(ctx context.Context, f *fleet, victim string, rep int) error
	heal func(ctx context.Context, f *fleet, victim string) error
}

func troubles() []trouble {
	always, never := func(int) bool { return true }, func(int) bool { return false }
	turns, pairs := func(rep int) bool { return rep%2 == 0 }, func(rep int) bool { return rep/2%2 == 0 }
	return []trouble{
		{"power-off of the client's gateway", always, powerOff, powerOn},
		{"power-off of the server's gateway", never, powerOff, powerOn},
		{"SIGKILL of agent and tunnels", turns, killAll, startAgent},
		{"underlay cut", turns, cut(lab.SideWAN), mend},
		{"underlay loses all, one way", pairs, loseOneWay, loseNothing},
		{"tunnels lost, the gateway lives", turns, loseTunnels, loseNothing},
		{"network of the cluster cut", turns, cut(lab.SideLAN), mend},
	}
}

func (f *fleet) fault(ctx context.Context, fault lab.Fault) error {
	if err := f.client.Fault(ctx, fault); err != nil {
		return fmt.Errorf("%s %s: %w", fault.Kind, fault.Target, err)
	}
	return nil
}

func powerOff(ctx context.Context, f *fleet, victim string, _ int) error {
	return f.fault(ctx, lab.Fault{Kind: "power-off", Target: victim})
}

// powerOn brings a node back, in a new namespace.
func powerOn(ctx context.Context, f *fleet, victim string) error {
	if err := f.fault(ctx, lab.Fault{Kind: "power-on", Target: victim}); err != nil {
		return err
	}
	at, err := f.client.Place(ctx, victim)
	f.spaces[victim] = at.Net
	return err
}

// killAll ends every program of the agent at once. The lab would start the agent
// again after a pause, so it is told within that pause not to.
func killAll(ctx context.Context, f *fleet, victim string, _ int) error {
	inode, err := netspace.Inode(f.spaces[victim])
	if err != nil {
		return err
	}
	all := netspace.Processes(map[uint64]bool{inode: true}, "")
	if len(all) < 2 {
		return fmt.Errorf("%s runs %d programs, want an agent and its tunnels", victim, len(all))
	}
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	return errors.Join(netspace.Kill(ctx, all), f.fault(ctx, lab.Fault{Kind: "kill-agent", Target: victim}))
}

func startAgent(ctx context.Context, f *fleet, victim string) error {
	return f.fault(ctx, lab.Fault{Kind: "start-agent", Target: victim})
}

func cut(side string) func(context.Context, *fleet, string, int) error {
	return func(ctx context.Context, f *fleet, victim string, _ int) error {
		return f.fault(ctx, lab.Fault{Kind: "cut", Target: victim, Side: side})
	}
}

func mend(ctx context.Context, f *fleet, victim string) error {
	return f.fault(ctx, lab.Fault{Kind: "heal", Target: victim})
}

// lossTable drops at the edge of the node's underlay link, outside of everything
// that the node itself sees or is told, as a broken wire would.
const lossTable = `table netdev benchloss {
chain in { type filter hook ingress device "wan0" priority 0; %s }
chain out { type filter hook egress device "wan0" priority 0; %s }
}
`

func loseOneWay(_ context.Context, f *fleet, victim string, rep int) error {
	if rep%2 == 0 {
		return f.rules(victim, fmt.Sprintf(lossTable, "drop;", ""))
	}
	return f.rules(victim, fmt.Sprintf(lossTable, "", "drop;"))
}

func loseTunnels(_ context.Context, f *fleet, victim string, _ int) error {
	return f.rules(victim, fmt.Sprintf(lossTable, "meta l4proto udp drop;", "meta l4proto udp drop;"))
}

func loseNothing(_ context.Context, f *fleet, victim string) error {
	return f.rules(victim, "delete table netdev benchloss\n")
}

// rules loads nftables rules on a node.
func (f *fleet) rules(node, text string) error {
	return f.inside(node, text, "nft", "-f", "-")
}

// inside runs a program on a node and waits for it.
func (f *fleet) inside(node, input, name string, args ...string) error {
	return netspace.Do(f.spaces[node], func() error {
		cmd := exec.Command(name, args...)
		cmd.Stdin = strings.NewReader(input)
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("%s %s on %s: %w: %s", name, strings.Join(args, " "), node, err, out)
		}
		return nil
	})
}
