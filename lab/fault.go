package lab

import (
	"fmt"
	"slices"
	"strings"
)

// Fault is something bad to do to the lab, or to mend.
type Fault struct {
	Kind      string `json:"kind"`             // one of FaultKinds
	Target    string `json:"target,omitempty"` // CLUSTER/NODE, or CLUSTER for the sync (empty = all)
	Side      string `json:"side,omitempty"`   // wan | lan; empty = wan on a gateway, lan elsewhere
	Direction string `json:"way,omitempty"`    // of cut, loss, block and unblock, as the node sees it: in | out; empty = both
	Value     string `json:"value,omitempty"`  // of delay a duration, of loss a percentage, of mtu bytes, of block and unblock udp, udp/PORT, udp/PORT-PORT or icmp, of renumber an address, of upgrade-agent a program
}

// Directions of a packet, as the node sees it.
const (
	DirectionIn  = "in"
	DirectionOut = "out"
)

// faultKind is one kind with the arguments that it takes.
type faultKind struct {
	name, help string
	concerns   concern
	value      string // what its value is; empty = it takes none
	optional   bool   // the value may be left out
	do         func(*daemon, *node, Fault) error
}

// concern is what a fault happens to.
type concern int

const (
	aNode      concern = iota
	aLink              // of a node: takes a side
	aDirection         // of a link of a node: takes a side and a direction
	aCluster           // or all of them
)

func faultKinds() []faultKind {
	return []faultKind{
		{"kill-agent", "end a node's agent with SIGKILL; it stays away", aNode, "", false, (*daemon).killAgent},
		{"stop-agent", "end a node's agent with SIGTERM; it stays away", aNode, "", false, (*daemon).stopAgent},
		{"start-agent", "start it again", aNode, "", false, (*daemon).startAgent},
		{"restart-agent", "end a node's agent with SIGKILL; it is started again at once", aNode, "", false, (*daemon).restartAgent},
		{"upgrade-agent", "end a node's agent with SIGTERM and start another program (--agent PATH), or the same", aNode, "a program", true, (*daemon).upgradeAgent},
		{"freeze-agent", "stop a node's agent with SIGSTOP", aNode, "", false, (*daemon).freezeAgent},
		{"thaw-agent", "let it go on", aNode, "", false, (*daemon).thawAgent},
		{"kill-tunnel", "end a gateway's tunnel processes with SIGKILL; the agent starts them again", aNode, "", false, (*daemon).killTunnel},
		{"freeze-tunnel", "stop a gateway's tunnel processes with SIGSTOP", aNode, "", false, (*daemon).freezeTunnel},
		{"thaw-tunnel", "let them go on", aNode, "", false, (*daemon).thawTunnel},
		{"lose-tunnels", "delete a gateway's tunnel devices; until heal, new ones carry nothing", aNode, "", false, (*daemon).loseTunnels},
		{"kill-gateway", "end a node's agent and tunnel processes with SIGKILL; start-agent brings both back", aNode, "", false, (*daemon).killGateway},
		{"cut", "cut a node's link (wan or lan); with in or out only what the node receives or sends", aDirection, "", false, (*daemon).faultLink},
		{"heal", "mend a node's links (cut, delay, loss, mtu) and lost tunnels", aLink, "", false, (*daemon).heal},
		{"delay", "hold every packet of a link back, in both directions, such as 20ms", aLink, "a duration up to 10s, such as 20ms; 0 heals", false, (*daemon).faultLink},
		{"loss", "drop packets of a link at random, in both directions or only in or out, such as 5%", aDirection, "a percentage, such as 5%; 0 heals", false, (*daemon).faultLink},
		{"mtu", "drop packets of a link over so many bytes in silence, such as 1400", aLink, "a number of bytes from 576 to 1500; 0 heals", false, (*daemon).faultLink},
		{"block", "drop UDP ports or ICMP on a link in silence, in both directions or only in or out, such as udp/51820-51885 or icmp", aDirection, blockValue, false, (*daemon).faultLink},
		{"unblock", "let them pass again; without a value everything that was blocked", aDirection, blockValue, true, (*daemon).faultLink},
		{"renumber", "give a gateway another address: the one named, or a new one; behind a router that translates the router gets it", aNode, "an address", true, (*daemon).renumber},
		{"remap", "make the router before a gateway forget its mappings: what comes next gets other ports", aNode, "", false, (*daemon).remap},
		{"power-off", "take a node away with all that runs on it", aNode, "", false, (*daemon).powerOff},
		{"power-on", "bring it back", aNode, "", false, (*daemon).powerOn},
		{"reboot", "power-off, power-on, and its agent starts", aNode, "", false, (*daemon).reboot},
		{"stop-sync", "carry nothing new to a cluster's nodes (or to all clusters')", aCluster, "", false, (*daemon).faultSync},
		{"start-sync", "go on, beginning with what is published now", aCluster, "", false, (*daemon).faultSync},
		{"corrupt-fabric", "overwrite a node's fabric with garbage, and stop its cluster's sync; start-sync mends it", aNode, "", false, (*daemon).corruptFabric},
	}
}

// FaultKinds lists the faults with what they do, in the order of the help.
func FaultKinds() [][2]string {
	var out [][2]string
	for _, k := range faultKinds() {
		out = append(out, [2]string{k.name, k.help})
	}
	return out
}

// check finds the kind of a fault and reports problems with its arguments.
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
		return k, fmt.Errorf("link %q: a node has wan (gateways) and lan", f.Side)
	case f.Side != "" && k.concerns != aLink && k.concerns != aDirection:
		return k, fmt.Errorf("%s: it does not concern a link, so not %q", k.name, f.Side)
	case f.Direction != "" && f.Direction != DirectionIn && f.Direction != DirectionOut:
		return k, fmt.Errorf("direction %q: in or out, as the node sees it; left out = both", f.Direction)
	case f.Direction != "" && k.concerns != aDirection:
		return k, fmt.Errorf("%s: it has no direction, so not %q", k.name, f.Direction)
	case f.Value != "" && k.value == "":
		return k, fmt.Errorf("%s: it takes no value, so not %q", k.name, f.Value)
	case f.Value == "" && k.value != "" && !k.optional:
		return k, fmt.Errorf("%s: it needs %s", k.name, k.value)
	}
	return k, nil
}

// fault carries out one fault; d.mu is held.
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
	return nil, fmt.Errorf("no node %q: there are %s", target, strings.Join(names, ", "))
}

// running is the machine of a node that has power.
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
	} else if _, known := d.topology.cluster(f.Target); !known {
		return fmt.Errorf("no cluster %q: there are %s", f.Target, d.topology.names())
	}
	for _, name := range targets {
		if f.Kind == "stop-sync" {
			d.state.SyncStopped[name] = true
		} else {
			delete(d.state.SyncStopped, name)
		}
	}
	return d.settle()
}

// settle brings what a fault changed into force.
func (d *daemon) settle() error {
	d.converge()
	return d.broken
}

// clearFaults undoes what keeps the lab from running whole: powered-off nodes, agents and
// tunnels that were stopped or lost, and stopped syncs. Faults of links stay.
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
