package lab

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"os"
	"os/exec"
	"reflect"
	"slices"
	"time"

	"hawser.dev/hawser/internal/cidr"
	"hawser.dev/hawser/lab/netnsexec"
	"hawser.dev/hawser/lab/whereami"
)

// runningNode is a running node: its namespace and its applied state.
type runningNode struct {
	spec          node
	ns            *netNS
	routes        map[route]bool
	rules         string
	agent         *child
	pods          map[string]*runningPod // by ID
	frozen        bool                   // whether its tunnel processes are frozen
	lost          bool                   // whether its tunnels are disabled
	splitSegments bool                   // whether large segments are split before they reach the underlay
	overlay       *overlay               // nil = pods are behind the node
}

// runningPod is a running pod.
type runningPod struct {
	spec   pod
	ns     *netNS // nil for a pod on the host network
	server *whereami.Server
	runs   *child // nil if it runs no program
}

// boot creates a node and connects it to the underlay.
func boot(n node, path string, u *underlay, clusterNumber int) (*runningNode, error) {
	set := settings(true)
	if n.overlay {
		set["net/ipv4/conf/all/rp_filter"], set["net/ipv4/conf/default/rp_filter"] = "1", "1"
	}
	s, err := newNetNS(path, set)
	if err != nil {
		return nil, err
	}
	m := &runningNode{spec: n, ns: s, routes: map[route]bool{}, pods: map[string]*runningPod{}}
	if err := m.connectUnderlay(u, clusterNumber); err != nil {
		return nil, errors.Join(fmt.Errorf("node %s: %w", n.id(), err), u.detach(&n), s.close())
	}
	return m, nil
}

func (m *runningNode) connectUnderlay(u *underlay, clusterNumber int) error {
	if err := u.attach(&m.spec, clusterNumber, m.ns); err != nil {
		return err
	}
	for _, addr := range m.spec.lan {
		bits := 16
		if addr.Is6() {
			bits = 64
		}
		if err := m.ns.addAddress("eth0", netip.PrefixFrom(addr, bits)); err != nil {
			return err
		}
	}
	if m.spec.overlay {
		m.overlay = &overlay{underlay: u, bridge: podBridge(clusterNumber)}
		if err := m.overlay.attachNode(m); err != nil {
			return err
		}
	}
	return m.addWAN(m.spec.wan)
}

func (m *runningNode) addWAN(addrs []netip.Addr) error {
	for _, addr := range addrs {
		if err := m.ns.addAddress("wan0", cidr.Single(addr)); err != nil {
			return err
		}
	}
	return nil
}

// stop stops everything on the node and removes the node, like a power cut. It removes the links
// first, so that peers receive no packets of the shutdown.
func (m *runningNode) stop(u *underlay) error {
	errs := []error{u.unplug(&m.spec)}
	if m.agent != nil {
		m.agent.stop()
	}
	for id := range m.pods {
		errs = append(errs, m.stopPod(id))
	}
	errs = append(errs, killIn(m.ns.path), u.detach(&m.spec), m.ns.close())
	return errors.Join(errs...)
}

// killIn kills every process in a namespace, including processes that start meanwhile.
func killIn(path string) error {
	inode, err := netnsexec.Inode(path)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	for {
		left := netnsexec.Processes(map[uint64]bool{inode: true}, "")
		if len(left) == 0 {
			return nil
		}
		if err := netnsexec.Kill(ctx, left); err != nil {
			return err
		}
	}
}

// setRoutes changes the lab's routes of a namespace from have to want, and updates have.
func setRoutes(in *netNS, have map[route]bool, want []route) error {
	var errs []error
	wanted, replaced := map[route]bool{}, map[netip.Prefix]bool{}
	for _, r := range want {
		wanted[r], replaced[r.dst] = true, true
		if have[r] {
			continue
		}
		if err := in.apply(r, false); err != nil {
			errs = append(errs, err)
			continue
		}
		have[r] = true
	}
	for r := range maps.Clone(have) {
		if wanted[r] {
			continue
		}
		if !replaced[r.dst] { // the replaced route no longer exists
			if err := in.apply(r, true); err != nil {
				errs = append(errs, err)
				continue
			}
		}
		delete(have, r)
	}
	return errors.Join(errs...)
}

// nodeRoutes returns the routes of a node: the endpoints of other gateways, the pods of other
// nodes, and a default route, so that lookups of any address succeed.
func nodeRoutes(w *desiredLab, n *node) []route {
	var out []route
	for _, lan := range n.lan {
		gateway := lanGateway(w, lan.Is6())
		out = append(out, route{dst: defaultPrefix(lan), dev: "eth0", via: gateway, onnet: true})
	}
	out = append(out, w.wideRoutes(n)...)
	for _, other := range w.nodesOf(n.cluster) {
		if other.name == n.name || n.overlay {
			continue
		}
		for _, cidr := range other.podCIDRs {
			if i := slices.IndexFunc(other.lan, sameFamily(cidr.Addr())); i >= 0 {
				out = append(out, route{dst: cidr, dev: "eth0", via: other.lan[i]})
			}
		}
	}
	return out
}

// setRules loads the rules for services and masquerading if they changed.
func (m *runningNode) setRules(text string) error {
	if m.rules == text {
		return nil
	}
	if err := loadRules(m.ns.path, text); err != nil {
		return fmt.Errorf("node %s: %w", m.spec.id(), err)
	}
	m.rules = text
	return nil
}

// loadRules loads nftables rules in a namespace, in one transaction.
func loadRules(path, text string) error {
	return netnsexec.Do(path, func() error {
		cmd := exec.Command("nft", "-f", "-")
		cmd.Stdin = bytes.NewBufferString(text)
		cmd.Env = append(os.Environ(), "LC_ALL=C")
		// The child is forked from this thread, so it is also in the namespace.
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("load nftables rules: %w: %s", err, bytes.TrimSpace(out))
		}
		return nil
	})
}

// startPod starts a pod on the node: a namespace with a routed veth, like the ptp CNI plugin, and
// its servers.
func (m *runningNode) startPod(p pod, path string) error {
	c := &runningPod{spec: p}
	nsPath := m.ns.path
	if !p.HostNetwork {
		s, err := newNetNS(path, settings(false))
		if err != nil {
			return fmt.Errorf("pod %s: %w", p.id(), err)
		}
		c.ns, nsPath = s, path
		if err := m.wirePod(c); err != nil {
			return errors.Join(fmt.Errorf("pod %s: %w", p.id(), err), m.podLinks().remove(vethName(p.id())), s.close())
		}
	}
	var ports []whereami.Port
	for _, port := range p.ListenPorts() {
		ports = append(ports, whereami.Port{Protocol: port.Protocol, Number: port.Number})
	}
	id := whereami.Identity{Pod: p.Name, Namespace: p.Namespace, Node: p.node, Cluster: p.cluster}
	if len(p.addrs) > 0 {
		id.PodIP = p.addrs[0].String()
	}
	server, err := whereami.Start(nsPath, id, ports)
	if err != nil {
		err = fmt.Errorf("pod %s: %w", p.id(), err)
		if c.ns != nil {
			err = errors.Join(err, c.ns.close())
		}
		return err
	}
	c.server = server
	m.pods[p.id()] = c
	return nil
}

// podLinks returns the namespace with the node's ends of pod links.
func (m *runningNode) podLinks() *netNS {
	if m.overlay != nil {
		return m.overlay.underlay.netNS
	}
	return m.ns
}

// vethName returns the name of the node's end of a pod's link.
func vethName(id string) string {
	sum := sha256.Sum256([]byte(id))
	return "veth" + hex.EncodeToString(sum[:5])
}

// podGateway returns the node's gateway address for a pod.
func (n *node) podGateway(addr netip.Addr) (netip.Addr, error) {
	i := slices.IndexFunc(n.podCIDRs, func(p netip.Prefix) bool { return p.Contains(addr) })
	if i < 0 {
		return netip.Addr{}, fmt.Errorf("address %s is not of node %s", addr, n.id())
	}
	return nth(n.podCIDRs[i], 1)
}

func (m *runningNode) wirePod(c *runningPod) error {
	if m.overlay != nil {
		return m.overlay.attachPod(m, c)
	}
	name := vethName(c.spec.id())
	if err := vethPair(m.ns, name, c.ns, "eth0"); err != nil {
		return err
	}
	for _, addr := range c.spec.addrs {
		gateway, err := m.spec.podGateway(addr)
		if err != nil {
			return err
		}
		err = errors.Join(
			m.ns.addAddress(name, cidr.Single(gateway)),
			m.ns.apply(route{dst: cidr.Single(addr), dev: name}, false),
			c.ns.addAddress("eth0", cidr.Single(addr)),
			c.ns.apply(route{dst: cidr.Single(gateway), dev: "eth0"}, false),
			c.ns.apply(route{dst: defaultPrefix(addr), dev: "eth0", via: gateway, onnet: true}, false),
		)
		if err != nil {
			return err
		}
	}
	return nil
}

// stopPod stops a pod and all its processes.
func (m *runningNode) stopPod(id string) error {
	c := m.pods[id]
	delete(m.pods, id)
	if c.runs != nil {
		c.runs.stop()
	}
	errs := []error{c.server.Close()}
	if c.ns != nil {
		errs = append(errs, killIn(c.ns.path), m.podLinks().remove(vethName(id)), c.ns.close())
	}
	return errors.Join(errs...)
}

// same reports whether a running pod matches the desired pod. It ignores readiness, which does not
// affect the pod's network.
func (c *runningPod) same(want pod) bool {
	have := c.spec
	return have.node == want.node && have.HostNetwork == want.HostNetwork &&
		slices.Equal(have.addrs, want.addrs) && reflect.DeepEqual(have.ListenPorts(), want.ListenPorts()) &&
		slices.Equal(have.Command(), want.Command())
}
