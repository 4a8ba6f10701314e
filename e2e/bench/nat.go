package main

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"hawser.dev/hawser/nodeagent/desired"
)

const (
	natRounds   = 9
	natConnects = 8000
	natFirsts   = 20000
	natQuota    = 32768  // connections of a pod: the default, which 20 000 of one pod stay below
	natMost     = 10_000 // exports
)

// natSide is one way to translate addresses, with namespaces of its own.
type natSide struct {
	name    string
	exports int
	prepare func(context.Context, *natLab) error
	lab     *natLab
	connect *side
	first   *side
}

func natSides() []*natSide {
	hawser := func(n, slots, quota int) func(context.Context, *natLab) error {
		return func(ctx context.Context, l *natLab) error { return l.hawser(ctx, n, slots, quota) }
	}
	iptables := func(flavour string) func(context.Context, *natLab) error {
		return func(_ context.Context, l *natLab) error { return l.iptables(flavour, natMost) }
	}
	return []*natSide{
		{name: "no NAT, no connection tracking", exports: natMost, prepare: nil},
		{name: "1 export", exports: 1, prepare: hawser(1, 1, natQuota)},
		{name: "1 000 exports", exports: 1000, prepare: hawser(1000, 1, natQuota)},
		{name: "10 000 exports", exports: natMost, prepare: hawser(natMost, 1, natQuota)},
		{name: "64 exports with 1 024 slots each", exports: 64, prepare: hawser(64, desired.SlotsMany, natQuota)},
		{name: "10 000 exports, no quota", exports: natMost, prepare: hawser(natMost, 1, 0)},
		{name: "iptables-nft, 10 000 rules", exports: natMost, prepare: iptables("nft")},
		{name: "iptables-legacy, 10 000 rules", exports: natMost, prepare: iptables("legacy")},
	}
}

func measureNAT(ctx context.Context, _ config) (s section, err error) {
	sides := natSides()
	defer func() {
		for _, n := range sides {
			if n.lab != nil {
				err = errors.Join(err, n.lab.close())
			}
		}
	}()
	var connects, firsts []*side
	for _, n := range sides {
		if err := n.open(ctx); err != nil {
			return s, fmt.Errorf("%s: %w", n.name, err)
		}
		connects, firsts = append(connects, n.connect), append(firsts, n.first)
	}
	if err := inTurn(natRounds, connects); err != nil {
		return s, fmt.Errorf("connections: %w", err)
	}
	for _, n := range sides {
		if err := n.lab.deafen(); err != nil {
			return s, err
		}
	}
	if err := inTurn(natRounds, firsts); err != nil {
		return s, fmt.Errorf("first packets: %w", err)
	}
	return natSection(sides), nil
}

// open makes the namespaces and what is measured in them.
func (n *natSide) open(ctx context.Context) (err error) {
	if n.lab, err = newNatLab(); err != nil {
		return err
	}
	pool := natExports
	if n.prepare != nil {
		pool = natVIPs
		if err := n.prepare(ctx, n.lab); err != nil {
			return err
		}
	}
	if err := n.lab.server.accept(natPort); err != nil {
		return err
	}
	targets := make([]netip.AddrPort, n.exports)
	for i := range targets {
		targets[i] = netip.AddrPortFrom(nth(pool, i+1), natPort)
	}
	n.connect = &side{name: n.name, once: func() (time.Duration, error) {
		if err := n.lab.node.forget(); err != nil {
			return 0, err
		}
		return n.lab.client.connect(targets, natConnects)
	}}
	n.first = &side{name: n.name, once: func() (time.Duration, error) {
		if err := n.lab.node.forget(); err != nil {
			return 0, err
		}
		return n.lab.flood(targets, natFirsts)
	}}
	return nil
}

func natSection(sides []*natSide) section {
	s := section{
		title: "New connections through the NAT",
		how: `
A pod, a gateway and another cluster, each a namespace, with the agent's own table and elements in the gateway: clusterset IP to
export address,
pod address to global address. *Whole connections* are TCP handshakes and resets one after the other, over all exports in turn,
with both ends
on the same two cores. *First packets* are SYNs that a packet socket sends and the far end drops: the gateway's share alone, together with
the cost of sending. The iptables way is one DNAT rule for each address and port, as written by ` + "`iptables-restore`" + `; a
connection passes half of them on average.`,
	}
	one, thousand, most, slots, free := sides[1], sides[2], sides[3], sides[4], sides[5]
	kinds := []struct {
		name  string
		count int
		of    func(*natSide) *side
	}{
		{"whole connections", natConnects, func(n *natSide) *side { return n.connect }},
		{"first packets", natFirsts, func(n *natSide) *side { return n.first }},
	}
	for _, k := range kinds {
		rate := func(n *natSide) string { return perSecond(k.count, median(k.of(n).times)) }
		line := func(n, reference *natSide) (row, float64) {
			ratio := ratios(k.of(reference), k.of(n))
			return row{what: k.name + ", " + n.name, figure: rate(n), reference: rate(reference) + " (" + reference.name + ")",
				ratio: fmt.Sprintf("%.2f", ratio)}, ratio
		}
		for _, n := range []*natSide{thousand, most} {
			r, ratio := line(n, one)
			s.rows = append(s.rows, r.aim("0.95 or better", ratio >= 0.95))
		}
		r, _ := line(slots, one)
		s.rows = append(s.rows, r)
		r, ratio := line(most, free)
		s.rows = append(s.rows, r.aim("0.97 or better", ratio >= 0.97))
		for _, old := range sides[6:] {
			r, ratio := line(most, old)
			s.rows = append(s.rows, r.aim("10 or better", ratio >= 10))
		}
		r, _ = line(most, sides[0])
		s.rows = append(s.rows, r)
		s.after += natCost(k.name, k.count, k.of, sides)
	}
	s.after += `
A handshake costs its two ends, which have the same processors here, more than Hawser's translation does: this bounds what any
translation can
gain on whole connections, and first packets show the gateway alone. Tracking the connection is in both. iptables' cost grows
with the rules, Hawser's
does not.`
	return s
}

// natCost tells what translation adds to the way without it.
func natCost(name string, count int, of func(*natSide) *side, sides []*natSide) string {
	each := func(n *natSide) time.Duration { return median(of(n).times) / time.Duration(count) }
	bare, most := each(sides[0]), sides[3]
	text := fmt.Sprintf("Tracking and translation add to each of the %s: Hawser %.1f µs", name, micros(each(most)-bare))
	for _, old := range sides[6:] {
		added := each(old) - bare
		text += fmt.Sprintf(", %s %.1f µs (%.1f times as much)", old.name, micros(added), float64(added)/float64(each(most)-bare))
	}
	return text + fmt.Sprintf("; without either one takes %.1f µs.\n", micros(bare))
}

func micros(d time.Duration) float64 { return float64(d) / float64(time.Microsecond) }
