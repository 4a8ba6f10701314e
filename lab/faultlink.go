package lab

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// healLinks heals the faults of links. It also heals faults of tunnels unless the fault names one
// link.
func (d *daemon) healLinks(n *node, f Fault) error {
	if f.Side == "" {
		delete(d.state.Lost, n.id())
	}
	return d.faultLink(n, f)
}

// faultLink changes the faults of one link of a node.
func (d *daemon) faultLink(n *node, f Fault) error {
	sides := []string{f.Side}
	switch {
	case f.Side == "" && f.Kind == "heal":
		sides = []string{SideWAN, SideLAN}
	case f.Side == "" && n.hasWAN:
		sides = []string{SideWAN}
	case f.Side == "":
		sides = []string{SideLAN}
	case f.Side == SideWAN && !n.hasWAN:
		return fmt.Errorf("node %s is no gateway: its only link is lan", n.id())
	}
	for _, side := range sides {
		id := n.id() + "/" + side
		next, err := d.state.Links[id].apply(f)
		if err != nil {
			return err
		}
		d.state.Links[id] = next
		if next == (linkFault{}) {
			delete(d.state.Links, id)
		}
	}
	return d.convergeFaults()
}

// apply returns the faults of the link with one additional fault.
func (l linkFault) apply(f Fault) (linkFault, error) {
	in, out := f.Direction != DirectionOut, f.Direction != DirectionIn
	valueError := func(what string) (linkFault, error) { return l, fmt.Errorf("%s %q: it is %s", f.Kind, f.Value, what) }
	switch f.Kind {
	case "heal":
		return linkFault{}, nil
	case "cut":
		l.Cut = l.Cut || f.Direction == ""
		l.CutIn, l.CutOut = l.CutIn || f.Direction == DirectionIn, l.CutOut || f.Direction == DirectionOut
	case "delay":
		delay, err := time.ParseDuration(f.Value)
		if err != nil || delay < 0 || delay > 10*time.Second {
			return valueError("a duration up to 10s, such as 20ms; 0 heals")
		}
		l.Delay = delay
	case "loss":
		percent, err := strconv.ParseFloat(strings.TrimSuffix(f.Value, "%"), 64)
		if err != nil || !(percent >= 0 && percent <= 100) {
			return valueError("a percentage, such as 5%; 0 heals")
		}
		if in {
			l.LossIn = percent / 100
		}
		if out {
			l.LossOut = percent / 100
		}
	case "mtu":
		bytes, err := strconv.Atoi(f.Value)
		if err != nil || bytes != 0 && (bytes < 576 || bytes > mtu) {
			return valueError("a number of bytes from 576 to 1500; 0 heals")
		}
		l.MTU = bytes
	case "block", "unblock":
		if f.Value != "" && blockMatches(f.Value) == nil {
			return valueError(blockValue)
		}
		if in {
			l.BlockIn = blocked(l.BlockIn, f)
		}
		if out {
			l.BlockOut = blocked(l.BlockOut, f)
		}
	}
	return l, nil
}

// texts describes the faults of a link.
func (l linkFault) texts(side string) []string {
	var out []string
	for _, f := range []struct {
		set  bool
		text string
	}{
		{l.Cut, "cut " + side},
		{l.CutIn, "cut " + side + " in"},
		{l.CutOut, "cut " + side + " out"},
		{l.Delay > 0, fmt.Sprintf("delay %s %s", side, l.Delay)},
		{l.LossIn > 0 && l.LossIn == l.LossOut, fmt.Sprintf("loss %s %g%%", side, l.LossIn*100)},
		{l.LossIn > 0 && l.LossIn != l.LossOut, fmt.Sprintf("loss %s in %g%%", side, l.LossIn*100)},
		{l.LossOut > 0 && l.LossIn != l.LossOut, fmt.Sprintf("loss %s out %g%%", side, l.LossOut*100)},
		{l.MTU > 0, fmt.Sprintf("mtu %s %d", side, l.MTU)},
		{l.BlockIn != "" && l.BlockIn == l.BlockOut, fmt.Sprintf("block %s %s", side, l.BlockIn)},
		{l.BlockIn != "" && l.BlockIn != l.BlockOut, fmt.Sprintf("block %s in %s", side, l.BlockIn)},
		{l.BlockOut != "" && l.BlockIn != l.BlockOut, fmt.Sprintf("block %s out %s", side, l.BlockOut)},
	} {
		if f.set {
			out = append(out, f.text)
		}
	}
	return out
}

// drops returns the rules of the underlay that drop packets at a port.
func (l linkFault) drops(name string) []string {
	// If a port has a delay, its delay veth is on the bridge instead.
	if l.Delay > 0 {
		name = outerEnd(name)
	}
	var out []string
	for _, dir := range []struct {
		match string
		cut   bool
		loss  float64
		block string
	}{
		{fmt.Sprintf("oifname %q", name), l.CutIn, l.LossIn, l.BlockIn}, // packets that leave through the port are received by the node
		{fmt.Sprintf("iifname %q", name), l.CutOut, l.LossOut, l.BlockOut},
	} {
		switch {
		case dir.cut || dir.loss >= 1: // nft rejects a comparison that is always true
			out = append(out, dir.match+" drop")
			continue
		case dir.loss > 0:
			out = append(out, fmt.Sprintf("%s numgen random mod 10000 < %d drop", dir.match, int(dir.loss*10000)))
		}
		for what := range strings.SplitSeq(dir.block, ",") {
			for _, match := range blockMatches(what) {
				out = append(out, dir.match+" "+match+" drop")
			}
		}
		if l.MTU > 0 {
			out = append(out, fmt.Sprintf("%s meta length > %d drop", dir.match, l.MTU))
		}
	}
	return out
}
