package lab

import (
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/uuid"
)

// converge changes the running lab to the desired lab. It can be called at any time, and changes
// only objects that differ. The caller holds d.mu.
func (d *daemon) converge() {
	err := d.pass()
	if err != nil && (d.lastErr == nil || d.lastErr.Error() != err.Error()) {
		d.log.Error("lab does not run as wanted", "err", err)
		d.events.add("trying again: %v", err)
	}
	d.lastErr = err
}

func (d *daemon) pass() error {
	w, err := plan(d.topology, d.sets, d.config.Workers, d.state)
	if err != nil {
		return err
	}
	d.world = w
	errs := []error{d.removeStale(w), d.startRouters(w), d.bootNodes(w), d.reconfigureRouters(w)}
	for i := range w.nodes {
		if m := d.nodes[w.nodes[i].id()]; m != nil {
			errs = append(errs, setRoutes(m.ns, m.routes, nodeRoutes(w, &w.nodes[i])))
		}
	}
	errs = append(errs, d.writeFiles(w), d.runPods(w), d.loadNodeRules(w),
		d.applyFaults(w), d.deliver(w))
	if !d.config.NoHawser {
		errs = append(errs, d.runAgents(w))
	}
	errs = append(errs, d.state.write(d.layout.state()))
	return errors.Join(errs...)
}

// stale reports whether a running node must be removed or recreated.
func (d *daemon) stale(w *desiredLab, m *runningNode) bool {
	want := w.node(m.spec.id())
	return want == nil || d.state.Off[want.id()] || !slices.Equal(want.lan, m.spec.lan) || !slices.Equal(want.podCIDRs, m.spec.podCIDRs)
}

// removeStale stops removed and powered-off nodes, and removed and moved pods.
func (d *daemon) removeStale(w *desiredLab) error {
	var errs []error
	for _, id := range slices.Sorted(maps.Keys(d.nodes)) {
		if m := d.nodes[id]; d.stale(w, m) {
			delete(d.nodes, id)
			errs = append(errs, m.stop(d.underlay))
			d.events.add("node %s went down", id)
			dir := d.nodeDir(&m.spec)
			if w.node(id) != nil {
				dir = filepath.Join(dir, "run") // like /run, which does not survive a reboot
			} else { // the HawserNode is deleted with its node
				errs = append(errs, os.RemoveAll(filepath.Join(d.hawserNodes(m.spec.cluster), m.spec.name+".json")))
			}
			errs = append(errs, os.RemoveAll(dir))
		}
	}
	want := map[string]pod{}
	for _, p := range w.pods() {
		want[p.id()] = p
	}
	for _, m := range d.nodes {
		for _, id := range slices.Sorted(maps.Keys(m.pods)) {
			if p, wanted := want[id]; !wanted || !m.pods[id].same(p) {
				errs = append(errs, m.stopPod(id))
			}
		}
	}
	return errors.Join(errs...)
}

// bootNodes starts the missing nodes.
func (d *daemon) bootNodes(w *desiredLab) error {
	var errs []error
	for _, c := range w.clusters {
		gateways := []netip.Addr{lanGateway(w, false)}
		if hasIPv6() {
			gateways = append(gateways, lanGateway(w, true))
		}
		if err := d.underlay.lan(c.number, gateways, d.state.Overlay); err != nil {
			errs = append(errs, fmt.Errorf("cluster %s: %w", c.name, err))
			continue
		}
		for _, n := range w.nodesOf(c.name) {
			if d.state.Off[n.id()] {
				continue
			}
			if m := d.nodes[n.id()]; m != nil {
				errs = append(errs, m.reconfigure(n, d.underlay))
				continue
			}
			path := d.layout.namespace(d.config, fmt.Sprintf("node%d", n.number))
			m, err := boot(n, path, d.underlay, c.number)
			if err != nil {
				errs = append(errs, err)
				continue
			}
			d.nodes[n.id()] = m
			if _, err := writeFile(d.bootID(&n), []byte(newBootID()), 0o644); err != nil {
				errs = append(errs, err)
			}
			d.events.add("node %s is up", n.id())
		}
	}
	return errors.Join(errs...)
}

// newBootID returns a random UUID, as the kernel has it in /proc/sys/kernel/random/boot_id.
func newBootID() string { return string(uuid.NewUUID()) + "\n" }

// hasIPv6 reports whether the kernel has IPv6; ipv6.disable=1 disables it.
func hasIPv6() bool {
	_, err := os.Stat("/proc/net/if_inet6")
	return err == nil
}

// writeFiles writes the files of nodes and pods: facts, resolv.conf and hosts.
func (d *daemon) writeFiles(w *desiredLab) error {
	errs := []error{overwrite(d.layout.hosts(), hostsFile(w))}
	namespaces := map[string]bool{"default": true}
	for _, p := range w.pods() {
		namespaces[p.Namespace] = true
	}
	for _, namespace := range slices.Sorted(maps.Keys(namespaces)) {
		for _, c := range w.clusters {
			errs = append(errs, overwrite(d.layout.resolv(c.name, namespace), resolvConf(d.topology, c.cluster, namespace)))
		}
	}
	for _, c := range w.clusters {
		boots := map[string]string{}
		for _, n := range w.nodesOf(c.name) {
			raw, err := os.ReadFile(d.bootID(&n)) // does not exist before the node boots
			if err != nil && !errors.Is(err, os.ErrNotExist) {
				errs = append(errs, fmt.Errorf("read boot ID of node %s: %w", n.id(), err))
			}
			boots[n.id()] = strings.TrimSpace(string(raw))
		}
		content, err := facts(w, c, d.state.Off, boots)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		for _, n := range w.nodesOf(c.name) {
			dir := d.nodeDir(&n)
			errs = append(errs, makeNodeDirs(dir))
			for name, raw := range content {
				_, err := writeFile(filepath.Join(dir, "facts", name), raw, 0o644)
				errs = append(errs, err)
			}
		}
	}
	return errors.Join(errs...)
}

// makeNodeDirs creates the directories of a node's agent. Programs on the node also find the
// agent's socket at its usual path.
func makeNodeDirs(dir string) error {
	var errs []error
	for _, sub := range []string{"fabric", "keys", "facts", "state", "run/hawser"} {
		errs = append(errs, os.MkdirAll(filepath.Join(dir, sub), 0o755))
	}
	err := os.Symlink("../agent.sock", filepath.Join(dir, "run", "hawser", "agent.sock"))
	if err != nil && !errors.Is(err, os.ErrExist) {
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// overwrite changes a file in place. Bind mounts of the file would not show a new file with the
// same name.
func overwrite(path string, content []byte) error {
	if have, err := os.ReadFile(path); err == nil && string(have) == string(content) {
		return nil
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	if err := os.WriteFile(path, content, 0o644); err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	return nil
}

func (d *daemon) nodeDir(n *node) string {
	return d.layout.Node(d.state.nodeDir(n.cluster, n.name))
}

// runPods starts the missing pods.
func (d *daemon) runPods(w *desiredLab) error {
	var errs []error
	for _, p := range w.pods() {
		m := d.nodes[p.cluster+"/"+p.node]
		if m == nil {
			continue
		}
		if have := m.pods[p.id()]; have != nil {
			have.spec = p
			continue
		}
		path := d.layout.namespace(d.config, "pod-"+vethName(p.id()))
		if err := m.startPod(p, path); err != nil {
			errs = append(errs, err)
			continue
		}
		if len(p.Command()) > 0 {
			program, err := d.podProgram(m, m.pods[p.id()])
			if err != nil {
				errs = append(errs, err, m.stopPod(p.id()))
				continue
			}
			m.pods[p.id()].runs = startChild(program, d.log)
		}
	}
	return errors.Join(errs...)
}

// loadNodeRules loads the rules for services and masquerading on every node.
func (d *daemon) loadNodeRules(w *desiredLab) error {
	var errs []error
	for _, c := range w.clusters {
		for _, n := range w.nodesOf(c.name) {
			if m := d.nodes[n.id()]; m != nil {
				errs = append(errs, m.setRules(rules(&n, c.services)))
			}
		}
	}
	return errors.Join(errs...)
}

// applyFaults applies the current faults to the links.
func (d *daemon) applyFaults(w *desiredLab) error {
	var errs []error
	for i := range w.nodes {
		n := &w.nodes[i]
		if d.nodes[n.id()] == nil {
			continue
		}
		errs = append(errs, d.underlay.setFault(port(n, SideLAN), lanBridge(d.state.number(n.cluster)), d.state.Links[n.id()+"/"+SideLAN]))
		if n.hasWAN {
			errs = append(errs, d.underlay.setFault(port(n, SideWAN), n.bridge, d.state.Links[n.id()+"/"+SideWAN]))
		}
		errs = append(errs, d.nodes[n.id()].setTunnelDrop(d.state.Lost[n.id()]))
	}
	var inner []string // underlay ends of all links behind routers
	for i := range w.sites {
		inner = append(inner, innerPort(w.sites[i].number))
	}
	for i := range w.nodes {
		if n := &w.nodes[i]; n.hasWAN && n.site != "" {
			inner = append(inner, port(n, SideWAN), outerEnd(port(n, SideWAN)))
		}
	}
	d.underlay.isolation = w.file.IsolationRules(inner)
	errs = append(errs, d.underlay.setDrops())
	for _, m := range d.nodes {
		errs = append(errs, m.setSegmentation(d.underlay.hasDrops()))
	}
	return errors.Join(errs...)
}
