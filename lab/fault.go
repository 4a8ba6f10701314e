package lab

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Fault is something bad to do to the lab, or to mend.
type Fault struct {
	Kind   string `json:"kind"`             // one of FaultKinds
	Target string `json:"target,omitempty"` // CLUSTER/NODE, or CLUSTER for the sync (empty = all)
	Side   string `json:"side,omitempty"`   // wan | lan; empty = wan on a gateway, lan elsewhere
	Value  string `json:"value,omitempty"`  // of delay: a duration; of loss: a percentage; 0 heals
}

// FaultKinds lists the faults with what they do, in the order of the help.
func FaultKinds() [][2]string {
	return [][2]string{
		{"kill-agent", "end a node's agent with SIGKILL; it stays away"},
		{"start-agent", "start it again"},
		{"restart-agent", "end a node's agent with SIGKILL; it is started again at once"},
		{"cut", "cut a node's link (wan or lan)"},
		{"heal", "mend a node's links: cut, delay and loss"},
		{"delay", "hold every packet of a link back, each way, such as 20ms"},
		{"loss", "drop packets of a link at random, each way, such as 5%"},
		{"power-off", "take a node away with all that runs on it"},
		{"power-on", "bring it back"},
		{"stop-sync", "carry nothing new to a cluster's nodes (or to all clusters')"},
		{"start-sync", "go on, beginning with what is published now"},
		{"corrupt-fabric", "overwrite a node's fabric with garbage, and stop its cluster's sync; start-sync mends it"},
	}
}

// fault carries out one fault; d.mu is held.
func (d *daemon) fault(f Fault) error {
	if f.Kind == "stop-sync" || f.Kind == "start-sync" {
		return d.faultSync(f)
	}
	if !slices.ContainsFunc(FaultKinds(), func(k [2]string) bool { return k[0] == f.Kind }) {
		return fmt.Errorf("unknown fault %q: see hawser lab fault --help", f.Kind)
	}
	n, err := d.findNode(f.Target)
	if err != nil {
		return err
	}
	switch f.Kind {
	case "kill-agent":
		d.state.Stopped[n.id()] = true
	case "start-agent":
		delete(d.state.Stopped, n.id())
	case "restart-agent":
		return d.restartAgent(n)
	case "power-off":
		d.state.Off[n.id()] = true
	case "power-on":
		delete(d.state.Off, n.id())
	case "corrupt-fabric":
		return d.corruptFabric(n)
	default:
		return d.faultLink(n, f)
	}
	d.converge()
	return d.broken
}

func (d *daemon) faultSync(f Fault) error {
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
			d.state.NoSync[name] = true
		} else {
			delete(d.state.NoSync, name)
		}
	}
	d.converge()
	return d.broken
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

func (d *daemon) restartAgent(n *node) error {
	delete(d.state.Stopped, n.id())
	m := d.machines[n.id()]
	if m == nil {
		return fmt.Errorf("node %s is off: hawser lab fault power-on %s", n.id(), n.id())
	}
	if m.agent == nil {
		d.converge()
		return d.broken
	}
	return m.agent.crash()
}

// faultLink changes what is wrong with one link of a node.
func (d *daemon) faultLink(n *node, f Fault) error {
	sides := []string{f.Side}
	switch {
	case f.Side == "" && f.Kind == "heal":
		sides = []string{SideWAN, SideLAN}
	case f.Side == "" && n.gateway:
		sides = []string{SideWAN}
	case f.Side == "":
		sides = []string{SideLAN}
	case f.Side == SideWAN && !n.gateway:
		return fmt.Errorf("node %s is no gateway: its only link is lan", n.id())
	case f.Side != SideWAN && f.Side != SideLAN:
		return fmt.Errorf("link %q: a node has wan (gateways) and lan", f.Side)
	}
	for _, side := range sides {
		id := n.id() + "/" + side
		next, err := d.state.Links[id].with(f)
		if err != nil {
			return err
		}
		d.state.Links[id] = next
		if next == (linkFault{}) {
			delete(d.state.Links, id)
		}
	}
	d.converge()
	return d.broken
}

func (l linkFault) with(f Fault) (linkFault, error) {
	switch f.Kind {
	case "heal":
		return linkFault{}, nil
	case "cut":
		l.Cut = true
	case "delay":
		delay, err := time.ParseDuration(f.Value)
		if f.Value == "0" {
			delay, err = 0, nil
		}
		if err != nil || delay < 0 || delay > 10*time.Second {
			return l, fmt.Errorf("delay %q: it is a duration up to 10s, such as 20ms; 0 heals", f.Value)
		}
		l.Delay = delay
	case "loss":
		percent, err := strconv.ParseFloat(strings.TrimSuffix(f.Value, "%"), 64)
		if err != nil || percent < 0 || percent > 100 {
			return l, fmt.Errorf("loss %q: it is a percentage, such as 5%%; 0 heals", f.Value)
		}
		l.Loss = percent / 100
	}
	return l, nil
}

// corruptFabric stops the sync of the node's cluster, which would mend the file
// at once, and spoils every file of the fabric.
func (d *daemon) corruptFabric(n *node) error {
	d.state.NoSync[n.cluster] = true
	files, err := filepath.Glob(filepath.Join(d.nodeDir(n), "fabric", "*"))
	if err != nil {
		return fmt.Errorf("find fabric of node %s: %w", n.id(), err)
	}
	errs := []error{d.state.write(d.layout.state())}
	for _, file := range files {
		errs = append(errs, os.WriteFile(file, []byte("not a fabric\n"), 0o644))
	}
	return errors.Join(errs...)
}

// mend undoes what keeps the lab from running whole: powered-off nodes, stopped
// agents and stopped syncs. Faults of links stay.
func (d *daemon) mend() {
	clear(d.state.Off)
	clear(d.state.Stopped)
	clear(d.state.NoSync)
}
