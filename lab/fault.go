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
	concerns   concern
	value      string // description of the value; empty = no value
	optional   bool   // whether the value is optional
	do         func(*daemon, *node, Fault) error
}

// concern is the kind of object that a fault affects.
type concern int

const (
	aNode      concern = iota
	aLink              // link of a node: has a side
	aDirection         // link of a node: has a side and a direction
	aCluster           // a cluster, or all clusters
)

func faultKinds() []faultKind {
	return []faultKind{
		{"kill-agent", "kill a node's agent with SIGKILL, without a restart", aNode, "", false, (*daemon).killAgent},
		{"stop-agent", "stop a node's agent with SIGTERM, without a restart", aNode, "", false, (*daemon).stopAgent},
		{"start-agent", "start a stopped or killed agent", aNode, "", false, (*daemon).startAgent},
		{"restart-agent", "kill a node's agent with SIGKILL, and restart it at once", aNode, "", false, (*daemon).restartAgent},
		{"upgrade-agent", "stop a node's agent with SIGTERM, and start another program (--agent PATH) or the same", aNode, "a program", true, (*daemon).upgradeAgent},
		{"freeze-agent", "freeze a node's agent with SIGSTOP", aNode, "", false, (*daemon).freezeAgent},
		{"thaw-agent", "continue a frozen agent", aNode, "", false, (*daemon).thawAgent},
		{"kill-tunnel", "kill a gateway's tunnel processes with SIGKILL; the agent restarts them", aNode, "", false, (*daemon).killTunnel},
		{"freeze-tunnel", "freeze a gateway's tunnel processes with SIGSTOP", aNode, "", false, (*daemon).freezeTunnel},
		{"thaw-tunnel", "continue frozen tunnel processes", aNode, "", false, (*daemon).thawTunnel},
		{"lose-tunnels", "delete a gateway's tunnel devices; new ones drop all packets until heal", aNode, "", false, (*daemon).loseTunnels},
		{"kill-gateway", "kill a node's agent and tunnel processes with SIGKILL; start-agent starts both", aNode, "", false, (*daemon).killGateway},
		{"cut", "cut a node's link (wan or lan); with in or out only for received or sent packets", aDirection, "", false, (*daemon).faultLink},
		{"heal", "end the faults of a node's links (cut, delay, loss, mtu) and of lost tunnels", aLink, "", false, (*daemon).heal},
		{"delay", "delay every packet of a link, in both directions, such as 20ms", aLink, "a duration up to 10s, such as 20ms; 0 heals", false, (*daemon).faultLink},
		{"loss", "drop packets of a link at random, in both directions or only in or out, such as 5%", aDirection, "a percentage, such as 5%; 0 heals", false, (*daemon).faultLink},
		{"mtu", "drop longer packets of a link silently; value in bytes, such as 1400", aLink, "a number of bytes from 576 to 1500; 0 heals", false, (*daemon).faultLink},
		{"block", "drop UDP ports, ICMP or sources on a link silently, in both directions or only in or out, such as udp/51820-51885, icmp or from/10.7.0.0/16", aDirection, blockValue, false, (*daemon).faultLink},
		{"unblock", "end a block; without a value all blocks", aDirection, blockValue, true, (*daemon).faultLink},
		{"renumber", "change a gateway's address to the given one or a new one; behind a translating router, the router's address", aNode, "an address", true, (*daemon).renumber},
		{"remap", "delete the mappings of a gateway's router: the next packets get other ports", aNode, "", false, (*daemon).remap},
		{"power-off", "stop a node and everything on it, without warning", aNode, "", false, (*daemon).powerOff},
		{"power-on", "start a node", aNode, "", false, (*daemon).powerOn},
		{"reboot", "power-off, then power-on and the start of the agent", aNode, "", false, (*daemon).reboot},
		{"stop-sync", "stop the delivery of publications to a cluster's nodes, or to all", aCluster, "", false, (*daemon).faultSync},
		{"start-sync", "resume the delivery, with the newest publication", aCluster, "", false, (*daemon).faultSync},
		{"corrupt-fabric", "overwrite a node's fabric with garbage, and stop its cluster's sync; start-sync repairs it", aNode, "", false, (*daemon).corruptFabric},
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
	case k.concerns != aCluster && f.Target == "":
		return k, fmt.Errorf("%s: name a node, CLUSTER/NODE", k.name)
	case f.Side != "" && f.Side != SideWAN && f.Side != SideLAN:
		return k, fmt.Errorf("link %q: must be wan (on gateways) or lan", f.Side)
	case f.Side != "" && k.concerns != aLink && k.concerns != aDirection:
		return k, fmt.Errorf("%s: has no link, got %q", k.name, f.Side)
	case f.Direction != "" && f.Direction != DirectionIn && f.Direction != DirectionOut:
		return k, fmt.Errorf("direction %q: must be in or out, as the node sees it; omit it for both", f.Direction)
	case f.Direction != "" && k.concerns != aDirection:
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
	if kind.concerns == aCluster {
		return kind.do(d, nil, f)
	}
	n, err := d.findNode(f.Target)
	if err != nil {
		return err
	}
	return kind.do(d, n, f)
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
	if m := d.machines[n.id()]; m != nil {
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
	return d.broken
}

// clearFaults heals the faults that prevent a complete lab: powered-off nodes, stopped agents, lost
// tunnels and stopped syncs. Faults of links remain.
func (d *daemon) clearFaults() {
	clear(d.state.Off)
	clear(d.state.Stopped)
	clear(d.state.SyncStopped)
	clear(d.state.Lost)
	for _, m := range d.machines {
		if err := m.thaw(); err != nil {
			d.log.Warn("programs stay frozen", "node", m.spec.id(), "err", err)
		}
	}
}
