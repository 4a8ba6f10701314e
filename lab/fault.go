package lab

import (
	"fmt"
	"slices"
	"strings"
)

// Fault is a fault to inject or to heal.
type Fault struct {
	Kind      string `json:"kind"`                // one of FaultKinds
	Target    string `json:"target,omitempty"`    // CLUSTER/NODE, or CLUSTER for the sync (empty = all)
	Side      string `json:"side,omitempty"`      // wan | lan; empty = wan on a gateway, lan elsewhere
	Direction string `json:"direction,omitempty"` // of cut, loss, block and unblock, from the node's view: in | out; empty = both
	Value     string `json:"value,omitempty"`     // delay: duration; loss: percentage; mtu: bytes; block, unblock: udp, udp/PORT, udp/PORT-PORT, icmp or from/PREFIX; renumber: address; upgrade-agent: program
}

// Directions of a packet, from the node's view.
const (
	DirectionIn  = "in"
	DirectionOut = "out"
)

// faultKind is one kind of fault with its arguments.
type faultKind struct {
	name, help string
	targetKind targetKind
	value      string // description of the value; empty = no value
	optional   bool   // whether the value is optional
	apply      func(*daemon, *node, Fault) error
}

// targetKind is the kind of object that a fault affects.
type targetKind int

const (
	onNode      targetKind = iota
	onLink                 // link of a node: has a side
	onDirection            // link of a node: has a side and a direction
	onCluster              // a cluster, or all clusters
)

func faultKinds() []faultKind {
	return []faultKind{
		{"kill-agent", "kill a node's agent with SIGKILL, without a restart", onNode, "", false, (*daemon).killAgent},
		{"stop-agent", "stop a node's agent with SIGTERM, without a restart", onNode, "", false, (*daemon).stopAgent},
		{"start-agent", "start a stopped or killed agent", onNode, "", false, (*daemon).startAgent},
		{"restart-agent", "kill a node's agent with SIGKILL, and restart it at once", onNode, "", false, (*daemon).restartAgent},
		{"upgrade-agent", "stop a node's agent with SIGTERM, and start another program (--agent PATH) or the same", onNode, "a program", true, (*daemon).upgradeAgent},
		{"freeze-agent", "freeze a node's agent with SIGSTOP", onNode, "", false, (*daemon).freezeAgent},
		{"thaw-agent", "continue a frozen agent", onNode, "", false, (*daemon).thawAgent},
		{"kill-tunnel", "kill a gateway's tunnel processes with SIGKILL; the agent restarts them", onNode, "", false, (*daemon).killTunnel},
		{"freeze-tunnel", "freeze a gateway's tunnel processes with SIGSTOP", onNode, "", false, (*daemon).freezeTunnel},
		{"thaw-tunnel", "continue frozen tunnel processes",
			onNode, "", false, (*daemon).thawTunnel},
		{"lose-tunnels", "delete a gateway's tunnel devices; new ones drop all packets until heal", onNode, "", false, (*daemon).loseTunnels},
		{"kill-gateway", "kill a node's agent and tunnel processes with SIGKILL; start-agent starts both", onNode, "", false, (*daemon).killGateway},
		{"cut", "cut a node's link (wan or lan); with in or out only for received or sent packets", onDirection, "", false, (*daemon).faultLink},
		{"heal", "end the faults of a node's links (cut, delay, loss, mtu) and of lost tunnels", onLink, "", false, (*daemon).healLinks},
		{"delay", "delay every packet of a link, in both directions, such as 20ms", onLink, "a duration up to 10s, such as 20ms; 0 heals", false, (*daemon).faultLink},
		{"loss", "drop packets of a link at random, in both directions or only in or out, such as 5%", onDirection, "a percentage, such as 5%; 0 heals", false, (*daemon).faultLink},
		{"mtu", "drop longer packets of a link silently; value in bytes, such as 1400", onLink, "a number of bytes from 576 to 1500; 0 heals", false, (*daemon).faultLink},
		{"block", "drop UDP ports, ICMP or sources on a link silently, in both directions or only in or out, such as udp/51820-51885, icmp or from/10.7.0.0/16", onDirection, blockValue, false, (*daemon).faultLink},
		{"unblock", "end a block; without a value all blocks", onDirection, blockValue, true, (*daemon).faultLink},
		{"renumber", "change a gateway's address to the given one or a new one; behind a translating router, the router's address", onNode, "an address", true, (*daemon).renumber},
		{"remap", "delete the mappings of a gateway's router: the next packets get other ports", onNode, "", false, (*daemon).remap},
		{"power-off", "stop a node and everything on it, without warning", onNode, "", false, (*daemon).powerOff},
		{"power-on", "start a node", onNode, "", false, (*daemon).powerOn},
		{"reboot", "power-off, then power-on and the start of the agent", onNode, "", false, (*daemon).reboot},
		{"stop-sync", "stop the delivery of publications to a cluster's nodes, or to all", onCluster, "", false, (*daemon).faultSync},
		{"start-sync", "resume the delivery, with the newest publication", onCluster, "", false, (*daemon).faultSync},
		{"corrupt-fabric", "overwrite a node's fabric with garbage, and stop its cluster's sync; start-sync repairs it", onNode, "", false, (*daemon).corruptFabric},
	}
}

// FaultKinds returns the kinds of faults with their help, in the order of the help.
func FaultKinds() [][2]string {
	var out [][2]string
	for _, k := range faultKinds() {
		out = append(out, [2]string{k.name, k.help})
	}
	return out
}

// check returns the kind of a fault, or an error in its arguments.
func (f Fault) check() (faultKind, error) {
	kinds := faultKinds()
	i := slices.IndexFunc(kinds, func(k faultKind) bool { return k.name == f.Kind })
	if i < 0 {
		return faultKind{}, fmt.Errorf("unknown fault %q: see hawser lab fault --help", f.Kind)
	}
	k := kinds[i]
	switch {
	case k.targetKind != onCluster && f.Target == "":
		return k, fmt.Errorf("%s: name a node, CLUSTER/NODE", k.name)
	case f.Side != "" && f.Side != SideWAN && f.Side != SideLAN:
		return k, fmt.Errorf("link %q: must be wan (on gateways) or lan", f.Side)
	case f.Side != "" && k.targetKind != onLink && k.targetKind != onDirection:
		return k, fmt.Errorf("%s: has no link, got %q", k.name, f.Side)
	case f.Direction != "" && f.Direction != DirectionIn && f.Direction != DirectionOut:
		return k, fmt.Errorf("direction %q: must be in or out, as the node sees it; omit it for both", f.Direction)
	case f.Direction != "" && k.targetKind != onDirection:
		return k, fmt.Errorf("%s: has no direction, got %q", k.name, f.Direction)
	case f.Value != "" && k.value == "":
		return k, fmt.Errorf("%s: has no value, got %q", k.name, f.Value)
	case f.Value == "" && k.value != "" && !k.optional:
		return k, fmt.Errorf("%s: needs %s", k.name, k.value)
	}
	return k, nil
}

// fault injects one fault. The caller holds d.mu.
func (d *daemon) fault(f Fault) error {
	kind, err := f.check()
	if err != nil {
		return err
	}
	if kind.targetKind == onCluster {
		return kind.apply(d, nil, f)
	}
	n, err := d.findNode(f.Target)
	if err != nil {
		return err
	}
	return kind.apply(d, n, f)
}

func (d *daemon) findNode(target string) (*node, error) {
	if n := d.world.node(target); n != nil {
		return n, nil
	}
	var names []string
	for i := range d.world.nodes {
		names = append(names, d.world.nodes[i].id())
	}
	return nil, fmt.Errorf("node %q not found (nodes: %s)", target, strings.Join(names, ", "))
}

// running returns a powered-on node.
func (d *daemon) running(n *node) (*runningNode, error) {
	if m := d.nodes[n.id()]; m != nil {
		return m, nil
	}
	return nil, fmt.Errorf("node %s is off: hawser lab fault power-on %s", n.id(), n.id())
}

func (d *daemon) faultSync(_ *node, f Fault) error {
	targets := []string{f.Target}
	if f.Target == "" {
		targets = nil
		for _, c := range d.topology.clusters {
			targets = append(targets, c.name)
		}
	} else if _, ok := d.topology.cluster(f.Target); !ok {
		return fmt.Errorf("cluster %q not found (clusters: %s)", f.Target, d.topology.names())
	}
	for _, name := range targets {
		if f.Kind == "stop-sync" {
			d.state.SyncStopped[name] = true
		} else {
			delete(d.state.SyncStopped, name)
		}
	}
	return d.convergeFaults()
}

// convergeFaults applies a changed fault to the running lab.
func (d *daemon) convergeFaults() error {
	d.converge()
	return d.lastErr
}

// clearFaults heals the faults that prevent a complete lab: powered-off nodes, stopped agents, lost
// tunnels and stopped syncs. Faults of links remain.
func (d *daemon) clearFaults() {
	clear(d.state.Off)
	clear(d.state.Stopped)
	clear(d.state.SyncStopped)
	clear(d.state.Lost)
	for _, m := range d.nodes {
		if err := m.thaw(); err != nil {
			d.log.Warn("programs stay frozen", "node", m.spec.id(), "err", err)
		}
	}
}
