package lab

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"

	"hawser.dev/hawser/internal/cidr"
)

// Sides of a node: the names of its two links.
const (
	SideWAN = "wan"
	SideLAN = "lan"
)

// underlay connects the nodes. It is one namespace without forwarding. A bridge is the wide area,
// where gateways have their endpoints. One bridge per cluster is its nodes' network.
type underlay struct {
	*netNS
	lans      map[int]bool          // bridges by cluster number
	faults    map[string]linkFault  // current faults by port
	delays    map[string]*delayLink // by port
	isolation []string              // rules that isolate segments
	drops     string                // loaded rules
}

func newUnderlay(path string) (*underlay, error) {
	values := settings(false)
	// Without iptables and ip nftables, bridges only switch packets.
	for _, name := range []string{"iptables", "ip6tables", "arptables"} {
		setting := "net/bridge/bridge-nf-call-" + name
		if _, err := os.Stat("/proc/sys/" + setting); err == nil {
			values[setting] = "0"
		}
	}
	s, err := newNetNS(path, values)
	if err != nil {
		return nil, err
	}
	u := &underlay{netNS: s, lans: map[int]bool{}, faults: map[string]linkFault{}, delays: map[string]*delayLink{}}
	if err := u.bridge("wan"); err != nil {
		return nil, errors.Join(err, u.close())
	}
	return u, nil
}

// lan creates a cluster's bridge if it does not exist. The bridge responds to ARP for the nodes'
// default gateway, the first address of the prefix, and drops packets to it.
func (u *underlay) lan(number int, gateways []netip.Addr, overlay bool) error {
	if u.lans[number] {
		return nil
	}
	name := lanBridge(number)
	if err := u.bridge(name); err != nil {
		return err
	}
	if overlay {
		if err := u.bridge(podBridge(number)); err != nil {
			return err
		}
	}
	for _, addr := range gateways {
		if err := u.addAddress(name, cidr.Single(addr)); err != nil {
			return err
		}
	}
	u.lans[number] = true
	return nil
}

func lanBridge(number int) string { return fmt.Sprintf("lan%d", number) }

// port returns the name of the underlay's end of a node's link.
func port(n *node, side string) string { return fmt.Sprintf("%c%d", side[0], n.number) }

// hardwareAddress derives the hardware address of an interface from a unique name. It does not
// change at a reboot, because neighbours cache it.
func hardwareAddress(name string) net.HardwareAddr {
	sum := sha256.Sum256([]byte(name))
	return append(net.HardwareAddr{0x02}, sum[:5]...) // locally administered, unicast
}

// HardwareAddr returns the hardware address of a node (CLUSTER/NODE) on one side.
func HardwareAddr(node, side string) net.HardwareAddr { return hardwareAddress(node + "/" + side) }

// attach connects a node's eth0 to its cluster's bridge. If the node has a wide-area interface,
// attach connects its wan0 to the wide area.
func (u *underlay) attach(n *node, clusterNumber int, ns *netNS) error {
	if err := vethPairWith(u.netNS, port(n, SideLAN), ns, "eth0", HardwareAddr(n.id(), SideLAN)); err != nil {
		return err
	}
	if err := u.enslave(port(n, SideLAN), lanBridge(clusterNumber)); err != nil {
		return err
	}
	if !n.hasWAN {
		return nil
	}
	return u.plug(n, ns)
}

// plug adds a node's interface in the wide area.
func (u *underlay) plug(n *node, ns *netNS) error {
	if err := vethPairWith(u.netNS, port(n, SideWAN), ns, "wan0", HardwareAddr(n.id(), SideWAN)); err != nil {
		return err
	}
	return u.enslave(port(n, SideWAN), n.bridge)
}

// detach removes a node's links and their delays.
func (u *underlay) detach(n *node) error {
	var errs []error
	for _, side := range []string{SideLAN, SideWAN} {
		name := port(n, side)
		if d := u.delays[name]; d != nil {
			errs = append(errs, d.close())
			delete(u.delays, name)
		}
		delete(u.faults, name)
		errs = append(errs, u.remove(name))
	}
	if n.overlay {
		errs = append(errs, u.remove(podPort(n)))
	}
	return errors.Join(errs...)
}

// setFault applies the desired faults to a port. The zero value heals all faults.
func (u *underlay) setFault(name, bridge string, want linkFault) error {
	have := u.faults[name]
	if have == want {
		return nil
	}
	if have.Delay != want.Delay {
		if err := u.setDelay(name, bridge, want); err != nil {
			return err
		}
	}
	if have.Cut != want.Cut {
		set := u.up
		if want.Cut {
			set = u.down
		}
		if err := set(name); err != nil {
			return err
		}
	}
	u.faults[name] = want
	return u.setDrops()
}

func (u *underlay) setDelay(name, bridge string, want linkFault) error {
	if d := u.delays[name]; d != nil {
		if want.Delay > 0 {
			d.set(want.Delay)
			return nil
		}
		delete(u.delays, name)
		return errors.Join(d.close(), u.enslave(name, bridge))
	}
	d, err := newDelayer(u.netNS, name, bridge, want.Delay)
	if err != nil {
		return err
	}
	u.delays[name] = d
	return nil
}

// setDrops loads the rules that drop packets.
func (u *underlay) setDrops() error {
	drops := slices.Clone(u.isolation)
	for name, fault := range u.faults {
		drops = append(drops, fault.drops(name)...)
	}
	slices.Sort(drops)
	var out strings.Builder
	out.WriteString("table bridge lab\ndelete table bridge lab\ntable bridge lab {\n")
	chain(&out, "forward", "type filter hook forward priority 0", drops)
	out.WriteString("}\n")
	text := out.String()
	if text == u.drops {
		return nil
	}
	if err := loadRules(u.path, text); err != nil {
		return err
	}
	u.drops = text
	return nil
}

// hasDrops reports whether any port drops packets by length.
func (u *underlay) hasDrops() bool {
	for _, fault := range u.faults {
		if fault.MTU > 0 {
			return true
		}
	}
	return false
}

// unplug disconnects a node's links, like a power cut: packets that its programs send at their exit
// do not leave the node.
func (u *underlay) unplug(n *node) error {
	errs := []error{u.down(port(n, SideLAN))}
	if n.hasWAN {
		errs = append(errs, u.down(port(n, SideWAN)))
	}
	if n.overlay {
		errs = append(errs, u.down(podPort(n)))
	}
	return errors.Join(errs...)
}

// reconfigure applies a changed topology to a running node. It adds a gateway's wide-area
// interface, or changes its addresses. It never removes the interface.
func (m *runningNode) reconfigure(n node, u *underlay) error {
	if n.hasWAN && !m.spec.hasWAN {
		if err := u.plug(&n, m.ns); err != nil {
			return fmt.Errorf("node %s: %w", n.id(), err)
		}
		m.spec.hasWAN = true
		m.splitSegments = false
	}
	for _, addr := range m.spec.wan {
		if slices.Contains(n.wan, addr) {
			continue
		}
		if err := m.ns.deleteAddress("wan0", cidr.Single(addr)); err != nil {
			return fmt.Errorf("node %s: %w", n.id(), err)
		}
	}
	if err := m.addWAN(n.wan); err != nil {
		return fmt.Errorf("node %s: %w", n.id(), err)
	}
	m.spec = n
	return nil
}

// setSegmentation sets whether large segments leave the node unchanged or split into packets. A
// link that drops packets by length needs packets.
func (m *runningNode) setSegmentation(split bool) error {
	if m.splitSegments == split {
		return nil
	}
	segments := maxSegments
	if split {
		segments = 1
	}
	names := []string{"eth0"}
	if m.spec.hasWAN {
		names = append(names, "wan0")
	}
	for _, name := range names {
		link, err := m.ns.link.LinkByName(name)
		if err == nil {
			err = m.ns.link.LinkSetGSOMaxSegs(link, segments)
		}
		if err != nil {
			return fmt.Errorf("node %s: set segments of %s: %w", m.spec.id(), name, err)
		}
	}
	m.splitSegments = split
	return nil
}
