package kernel

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"slices"
	"strings"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"hawser.dev/hawser/internal/diff"
	"hawser.dev/hawser/nodeagent/converge"
	"hawser.dev/hawser/nodeagent/desired"
)

// Neighbors is the kind of the static neighbours on our VXLAN devices. Each is a permanent
// neighbour entry and, on NodeDevice, a forwarding entry; both are compared and written as one
// object. An address has no forwarding entry if it is link-local, or of the family that the
// VXLAN does not use outside. The forwarding entries of devices to other clusters belong to
// Forwards.
type Neighbors struct{ ns *Namespace }

// NewNeighbors returns the kind.
func NewNeighbors(ns *Namespace) *Neighbors { return &Neighbors{ns: ns} }

// Name returns "neighbour".
func (*Neighbors) Name() string { return "neighbour" }

// neighborHalves holds the entries of both tables for one address.
type neighborHalves struct {
	link    *netlink.Vxlan
	addr    netip.Addr
	entry   string          // hardware address of the neighbour entry
	forward map[string]bool // hardware addresses whose frames go to the address
}

// needsForward reports whether the VXLAN can send to the address. A link-local IPv6 address
// belongs to the VXLAN itself.
func needsForward(link *netlink.Vxlan, addr netip.Addr) bool {
	if desired.IsTunnel(link.Name) || addr.IsLinkLocalUnicast() && addr.Is6() {
		return false
	}
	local := fromIP(link.SrcAddr)
	return !local.IsValid() || local.Is4() == addr.Is4()
}

// spec returns both halves as one object. If they disagree, its MAC differs from every desired
// one.
func (n *neighborHalves) spec() desired.Neighbor {
	out := desired.Neighbor{Device: n.link.Name, Addr: n.addr, MAC: n.entry}
	agree := len(n.forward) == 0
	if needsForward(n.link, n.addr) {
		agree = len(n.forward) == 1 && n.forward[n.entry]
	}
	if !agree {
		macs := slices.Sorted(maps.Keys(n.forward))
		out.MAC = fmt.Sprintf("entry %s, forwarding %s", orNone(n.entry), orNone(strings.Join(macs, " ")))
	}
	return out
}

func orNone(text string) string {
	if text == "" {
		return "none"
	}
	return text
}

// Observe returns the permanent neighbours on our VXLAN devices.
func (k *Neighbors) Observe(ctx context.Context) ([]desired.Neighbor, error) {
	if err := checkContext(ctx, "list neighbours"); err != nil {
		return nil, err
	}
	list, err := k.ns.links()
	if err != nil {
		return nil, err
	}
	var out []desired.Neighbor
	for _, l := range list {
		vxlan, ok := l.(*netlink.Vxlan)
		if !ok {
			continue
		}
		halves, err := k.read(vxlan)
		if err != nil {
			return nil, err
		}
		for _, n := range halves {
			out = append(out, n.spec())
		}
	}
	return out, nil
}

func (k *Neighbors) read(link *netlink.Vxlan) (map[netip.Addr]*neighborHalves, error) {
	halves := map[netip.Addr]*neighborHalves{}
	halvesOf := func(ip net.IP) *neighborHalves {
		addr := fromIP(ip)
		if halves[addr] == nil {
			halves[addr] = &neighborHalves{link: link, addr: addr, forward: map[string]bool{}}
		}
		return halves[addr]
	}
	families := k.ns.families()
	if !desired.IsTunnel(link.Name) {
		families = append(families, unix.AF_BRIDGE)
	}
	for _, family := range families {
		list, err := dump(func() ([]netlink.Neigh, error) { return k.ns.route.NeighList(link.Index, family) })
		if err != nil {
			return nil, fmt.Errorf("list neighbours of %s: %w", link.Name, err)
		}
		for _, n := range list {
			switch {
			case n.IP == nil || n.State&netlink.NUD_PERMANENT == 0:
			case family == unix.AF_BRIDGE:
				halvesOf(n.IP).forward[n.HardwareAddr.String()] = true
			default:
				halvesOf(n.IP).entry = n.HardwareAddr.String()
			}
		}
	}
	return halves, nil
}

// Normalize ignores the spelling of a hardware address.
func (*Neighbors) Normalize(want, have desired.Neighbor) desired.Neighbor {
	if strings.EqualFold(want.MAC, have.MAC) {
		want.MAC = have.MAC
	}
	return want
}

// Apply writes and removes both halves.
func (k *Neighbors) Apply(ctx context.Context, changes []diff.Change[desired.Neighbor]) error {
	return converge.Each(ctx, changes, func(c diff.Change[desired.Neighbor]) error {
		if c.Op == diff.Delete {
			return k.remove(c.Have)
		}
		mac, err := net.ParseMAC(c.Want.MAC)
		if err != nil {
			return fmt.Errorf("neighbour %s: %w", c.Want.Key(), err)
		}
		link, err := k.ns.vxlan(c.Want.Device)
		if err != nil {
			return err
		}
		if err := k.clearForward(link, c.Want.Addr, c.Want.MAC); err != nil {
			return err
		}
		if needsForward(link, c.Want.Addr) {
			if err := k.ns.route.NeighSet(forwardEntry(link, c.Want.Addr, mac)); err != nil {
				return fmt.Errorf("set forwarding of %s to %s on %s: %w", c.Want.MAC, c.Want.Addr, c.Want.Device, err)
			}
		}
		if err := k.ns.route.NeighSet(neighborEntry(link, c.Want.Addr, mac)); err != nil {
			return fmt.Errorf("set neighbour %s of %s: %w", c.Want.Addr, c.Want.Device, err)
		}
		return nil
	})
}

// vxlan returns one of our VXLAN devices, or ErrBlocked while it does not exist.
func (ns *Namespace) vxlan(name string) (*netlink.Vxlan, error) {
	l, err := ns.link(name)
	if err != nil {
		return nil, err
	}
	vxlan, ok := l.(*netlink.Vxlan)
	if !ok {
		return nil, fmt.Errorf("device %s is of type %s, not vxlan", name, l.Type())
	}
	return vxlan, nil
}

// clearForward removes the forwarding entries to addr with hardware addresses other than keep.
func (k *Neighbors) clearForward(link *netlink.Vxlan, addr netip.Addr, keep string) error {
	halves, err := k.read(link)
	if err != nil || halves[addr] == nil {
		return err
	}
	for text := range halves[addr].forward {
		if strings.EqualFold(text, keep) && needsForward(link, addr) {
			continue
		}
		mac, err := net.ParseMAC(text)
		if err != nil {
			return fmt.Errorf("forwarding entry on %s: %w", link.Name, err)
		}
		if err := k.ns.route.NeighDel(forwardEntry(link, addr, mac)); err != nil && !isGone(err) {
			return fmt.Errorf("delete forwarding of %s to %s on %s: %w", text, addr, link.Name, err)
		}
	}
	return nil
}

func (k *Neighbors) remove(have desired.Neighbor) error {
	link, err := k.ns.vxlan(have.Device)
	if errors.As(err, new(converge.ErrBlocked)) {
		return nil
	}
	if err != nil {
		return err
	}
	if err := k.ns.route.NeighDel(neighborEntry(link, have.Addr, nil)); err != nil && !isGone(err) {
		return fmt.Errorf("delete neighbour %s of %s: %w", have.Addr, have.Device, err)
	}
	return k.clearForward(link, have.Addr, "")
}

func neighborEntry(link *netlink.Vxlan, addr netip.Addr, mac net.HardwareAddr) *netlink.Neigh {
	return &netlink.Neigh{
		LinkIndex: link.Index, Family: familyOf(addr), State: netlink.NUD_PERMANENT, IP: toIP(addr), HardwareAddr: mac,
	}
}

func forwardEntry(link *netlink.Vxlan, addr netip.Addr, mac net.HardwareAddr) *netlink.Neigh {
	return &netlink.Neigh{
		LinkIndex: link.Index, Family: unix.AF_BRIDGE, State: netlink.NUD_PERMANENT, Flags: netlink.NTF_SELF,
		IP: toIP(addr), HardwareAddr: mac,
	}
}
