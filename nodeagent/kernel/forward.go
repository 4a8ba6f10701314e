package kernel

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"hawser.dev/hawser/internal/diff"
	"hawser.dev/hawser/nodeagent/converge"
	"hawser.dev/hawser/nodeagent/desired"
)

// Forwards is the kind of the forwarding entries on our VXLAN devices to other clusters. Every
// entry there is ours. The entries of NodeDevice belong to Neighbors.
type Forwards struct{ ns *Namespace }

// NewForwards returns the kind.
func NewForwards(ns *Namespace) *Forwards { return &Forwards{ns: ns} }

// Name returns "forward".
func (*Forwards) Name() string { return "forward" }

// Observe returns the forwarding entries. An entry in a foreign format, or with several
// destinations, has no valid To.
func (k *Forwards) Observe(ctx context.Context) ([]desired.Forward, error) {
	if err := checkContext(ctx, "list forwarding entries"); err != nil {
		return nil, err
	}
	list, err := k.ns.links()
	if err != nil {
		return nil, err
	}
	var out []desired.Forward
	for _, l := range list {
		vxlan, ok := l.(*netlink.Vxlan)
		if !ok || !desired.IsTunnel(vxlan.Name) {
			continue
		}
		// The listing has one message per destination; keep one entry per hardware address.
		var messages [][]byte
		err := k.ns.inside(func() (err error) {
			messages, err = dump(func() ([][]byte, error) {
				req := nl.NewNetlinkRequest(unix.RTM_GETNEIGH, unix.NLM_F_DUMP)
				req.AddData(&netlink.Ndmsg{Family: unix.AF_BRIDGE, Index: uint32(vxlan.Index)})
				return req.Execute(unix.NETLINK_ROUTE, unix.RTM_NEWNEIGH)
			})
			return err
		})
		if err != nil {
			return nil, fmt.Errorf("list forwarding entries of %s: %w", vxlan.Name, err)
		}
		var entries []desired.Forward
		for _, m := range messages {
			f, ours, err := readForward(vxlan, m)
			if err != nil {
				return nil, fmt.Errorf("read forwarding entry of %s: %w", vxlan.Name, err)
			}
			if !ours {
				continue
			}
			if i := slices.IndexFunc(entries, func(o desired.Forward) bool { return o.MAC == f.MAC }); i >= 0 {
				entries[i].To = netip.AddrPort{} // one of several destinations
				continue
			}
			entries = append(entries, f)
		}
		out = append(out, entries...)
	}
	return out, nil
}

// Normalize ignores the spelling of a hardware address.
func (*Forwards) Normalize(want, have desired.Forward) desired.Forward {
	if strings.EqualFold(want.MAC, have.MAC) {
		want.MAC = have.MAC
	}
	return want
}

// Apply writes and removes entries.
func (k *Forwards) Apply(ctx context.Context, changes []diff.Change[desired.Forward]) error {
	return converge.Each(ctx, changes, func(c diff.Change[desired.Forward]) error {
		if c.Op == diff.Delete {
			return k.remove(c.Have)
		}
		return k.set(c.Want, c.Have)
	})
}

// set writes the entry. The kernel replaces only one of an entry's destinations, so a changed
// entry is deleted first.
func (k *Forwards) set(want, have desired.Forward) error {
	link, err := k.ns.vxlan(want.Device)
	if err != nil {
		return err
	}
	mac, err := net.ParseMAC(want.MAC)
	if err != nil {
		return fmt.Errorf("forward %s: %w", want.Key(), err)
	}
	if have.MAC != "" && !have.To.IsValid() {
		if err := k.remove(have); err != nil {
			return err
		}
	}
	err = k.ns.forward(unix.RTM_NEWNEIGH, unix.NLM_F_CREATE|unix.NLM_F_REPLACE, link,
		nl.NewRtAttr(unix.NDA_LLADDR, mac), nl.NewRtAttr(unix.NDA_DST, want.To.Addr().AsSlice()),
		nl.NewRtAttr(unix.NDA_PORT, nftNetOrder16(want.To.Port())))
	if err != nil {
		return fmt.Errorf("forward %s to %s: %w", want.Key(), want.To, err)
	}
	return nil
}

// remove deletes an entry with all its destinations.
func (k *Forwards) remove(have desired.Forward) error {
	link, err := k.ns.vxlan(have.Device)
	if errors.As(err, new(converge.ErrBlocked)) {
		return nil
	}
	if err != nil {
		return err
	}
	mac, err := net.ParseMAC(have.MAC)
	if err != nil {
		return fmt.Errorf("forward %s: %w", have.Key(), err)
	}
	err = k.ns.forward(unix.RTM_DELNEIGH, 0, link, nl.NewRtAttr(unix.NDA_LLADDR, mac))
	if err != nil && !isGone(err) {
		return fmt.Errorf("delete forwarding %s: %w", have.Key(), err)
	}
	return nil
}

// forward sends one request about a forwarding entry. The netlink module does not support ports
// in such entries.
func (ns *Namespace) forward(typ, flags int, link *netlink.Vxlan, attrs ...*nl.RtAttr) error {
	req := nl.NewNetlinkRequest(typ, flags|unix.NLM_F_ACK)
	req.AddData(&netlink.Ndmsg{
		Family: unix.AF_BRIDGE, Index: uint32(link.Index), State: netlink.NUD_PERMANENT, Flags: netlink.NTF_SELF,
	})
	for _, a := range attrs {
		req.AddData(a)
	}
	return ns.inside(func() error {
		_, err := req.Execute(unix.NETLINK_ROUTE, 0)
		return err
	})
}

// readForward reads one entry. ours is false if it belongs to another device.
func readForward(link *netlink.Vxlan, m []byte) (f desired.Forward, ours bool, err error) {
	if len(m) < unix.SizeofNdMsg || int(binary.NativeEndian.Uint32(m[4:])) != link.Index {
		return f, false, nil
	}
	attrs, err := nl.ParseRouteAttr(m[unix.SizeofNdMsg:])
	if err != nil {
		return f, false, err
	}
	var to netip.Addr
	port, plain := uint16(link.Port), binary.NativeEndian.Uint16(m[8:])&netlink.NUD_PERMANENT != 0
	for _, a := range attrs {
		switch a.Attr.Type {
		case unix.NDA_LLADDR:
			f.MAC = net.HardwareAddr(a.Value).String()
		case unix.NDA_DST:
			to = fromIP(a.Value)
		case unix.NDA_PORT:
			port = binary.BigEndian.Uint16(a.Value)
		case unix.NDA_VNI, unix.NDA_IFINDEX, unix.NDA_SRC_VNI:
			plain = false
		}
	}
	f.Device = link.Name
	if plain {
		f.To = netip.AddrPortFrom(to, port)
	}
	return f, f.MAC != "", nil
}
