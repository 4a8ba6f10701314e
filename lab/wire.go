package lab

import (
	"errors"
	"fmt"
	"net"
	"net/netip"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"hawser.dev/hawser/internal/cidr"
	"hawser.dev/hawser/lab/netnsexec"
)

const (
	// mtu is the MTU of every link of the lab, in bytes.
	mtu = 1500
	// maxSegments is the kernel's default for the number of packets in a large segment
	// (GSO_MAX_SEGS).
	maxSegments = 65535
)

// netNS is one network namespace with an open netlink handle.
type netNS struct {
	path string
	ns   netns.NsHandle
	link *netlink.Handle
}

// newNetNS creates a namespace and applies kernel settings before it has any links.
func newNetNS(path string, settings map[string]string) (*netNS, error) {
	if err := netnsexec.Create(path); err != nil {
		return nil, err
	}
	err := netnsexec.Do(path, func() error { return netnsexec.Sysctls(settings) })
	if err != nil {
		return nil, errors.Join(fmt.Errorf("set up namespace %s: %w", path, err), netnsexec.Remove(path))
	}
	ns, err := netns.GetFromPath(path)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("open namespace %s: %w", path, err), netnsexec.Remove(path))
	}
	link, err := netlink.NewHandleAt(ns, unix.NETLINK_ROUTE)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("open netlink in %s: %w", path, err), ns.Close(), netnsexec.Remove(path))
	}
	return &netNS{path: path, ns: ns, link: link}, nil
}

// settings returns the sysctls of every namespace. Addresses are usable at once, without duplicate
// address detection, and router advertisements add no addresses.
func settings(forward bool) map[string]string {
	out := map[string]string{
		"net/ipv6/conf/all/accept_dad": "0", "net/ipv6/conf/default/accept_dad": "0",
		"net/ipv6/conf/all/accept_ra": "0", "net/ipv6/conf/default/accept_ra": "0",
	}
	if forward {
		out["net/ipv4/ip_forward"], out["net/ipv6/conf/all/forwarding"] = "1", "1"
	}
	return out
}

// close closes the namespace. The kernel removes it with all its links.
func (s *netNS) close() error {
	s.link.Close()
	return errors.Join(s.ns.Close(), netnsexec.Remove(s.path))
}

// vethPair creates a veth pair between two namespaces and sets both ends up.
func vethPair(a *netNS, nameA string, b *netNS, nameB string) error {
	return vethPairWith(a, nameA, b, nameB, nil)
}

// vethPairWith creates a veth pair whose second end has the hardware address mac. If mac is nil,
// the kernel chooses it.
func vethPairWith(a *netNS, nameA string, b *netNS, nameB string, mac net.HardwareAddr) error {
	attrs := netlink.NewLinkAttrs()
	attrs.Name, attrs.MTU = nameA, mtu
	veth := &netlink.Veth{LinkAttrs: attrs, PeerName: nameB, PeerNamespace: netlink.NsFd(int(b.ns)), PeerMTU: mtu, PeerHardwareAddr: mac}
	if err := a.link.LinkAdd(veth); err != nil {
		return fmt.Errorf("add device %s to %s: %w", nameA, nameB, err)
	}
	return errors.Join(a.up(nameA), b.up(nameB))
}

func (s *netNS) up(name string) error   { return s.change(name, "bring up", s.link.LinkSetUp) }
func (s *netNS) down(name string) error { return s.change(name, "take down", s.link.LinkSetDown) }

func (s *netNS) change(name, what string, do func(netlink.Link) error) error {
	link, err := s.link.LinkByName(name)
	if err != nil {
		return fmt.Errorf("find device %s: %w", name, err)
	}
	if err := do(link); err != nil {
		return fmt.Errorf("%s device %s: %w", what, name, err)
	}
	return nil
}

// remove deletes a link, if it exists.
func (s *netNS) remove(name string) error {
	link, err := s.link.LinkByName(name)
	var missing netlink.LinkNotFoundError
	if errors.As(err, &missing) {
		return nil
	}
	if err == nil {
		err = s.link.LinkDel(link)
	}
	if err != nil && !errors.Is(err, unix.ENODEV) {
		return fmt.Errorf("remove device %s: %w", name, err)
	}
	return nil
}

func (s *netNS) bridge(name string) error {
	attrs := netlink.NewLinkAttrs()
	attrs.Name, attrs.MTU = name, mtu
	if err := s.link.LinkAdd(&netlink.Bridge{LinkAttrs: attrs}); err != nil {
		return fmt.Errorf("add bridge %s: %w", name, err)
	}
	return s.up(name)
}

// enslave adds a link to a bridge, or removes it from its bridge if bridge is empty.
func (s *netNS) enslave(name, bridge string) error {
	link, err := s.link.LinkByName(name)
	if err != nil {
		return fmt.Errorf("find device %s: %w", name, err)
	}
	if bridge == "" {
		err = s.link.LinkSetNoMaster(link)
	} else {
		var master netlink.Link
		if master, err = s.link.LinkByName(bridge); err == nil {
			err = s.link.LinkSetMaster(link, master)
		}
	}
	if err != nil {
		return fmt.Errorf("attach device %s to bridge %q: %w", name, bridge, err)
	}
	return nil
}

func (s *netNS) addAddress(name string, prefix netip.Prefix) error {
	link, err := s.link.LinkByName(name)
	if err != nil {
		return fmt.Errorf("find device %s: %w", name, err)
	}
	addr := &netlink.Addr{IPNet: cidr.IPNet(prefix)}
	if prefix.Addr().Is6() {
		addr.Flags = unix.IFA_F_NODAD
	}
	if err := s.link.AddrReplace(link, addr); err != nil {
		return fmt.Errorf("add address %s to %s: %w", prefix, name, err)
	}
	return nil
}

func (s *netNS) deleteAddress(name string, prefix netip.Prefix) error {
	link, err := s.link.LinkByName(name)
	if err != nil {
		return fmt.Errorf("find device %s: %w", name, err)
	}
	if err := s.link.AddrDel(link, &netlink.Addr{IPNet: cidr.IPNet(prefix)}); err != nil && !errors.Is(err, unix.EADDRNOTAVAIL) {
		return fmt.Errorf("remove address %s from %s: %w", prefix, name, err)
	}
	return nil
}

// route is a route of the main table. Routes are compared by value.
type route struct {
	dst   netip.Prefix
	dev   string
	via   netip.Addr // invalid = directly on the link
	src   netip.Addr // preferred source; invalid = the kernel's choice
	onnet bool       // via is on the link even if no route says so
}

func (s *netNS) apply(r route, remove bool) error {
	link, err := s.link.LinkByName(r.dev)
	if err != nil {
		return fmt.Errorf("route %s: find device %s: %w", r.dst, r.dev, err)
	}
	out := &netlink.Route{LinkIndex: link.Attrs().Index, Dst: cidr.IPNet(r.dst), Scope: netlink.SCOPE_UNIVERSE}
	switch {
	case r.via.IsValid():
		out.Gw = net.IP(r.via.AsSlice())
		if r.onnet {
			out.Flags = int(netlink.FLAG_ONLINK)
		}
	case r.dst.Addr().Is4():
		out.Scope = netlink.SCOPE_LINK
	}
	if r.src.IsValid() {
		out.Src = net.IP(r.src.AsSlice())
	}
	if remove {
		if err := s.link.RouteDel(out); err != nil && !errors.Is(err, unix.ESRCH) {
			return fmt.Errorf("remove route %s dev %s: %w", r.dst, r.dev, err)
		}
		return nil
	}
	if err := s.link.RouteReplace(out); err != nil {
		return fmt.Errorf("add route %s dev %s: %w", r.dst, r.dev, err)
	}
	return nil
}

func defaultPrefix(addr netip.Addr) netip.Prefix {
	if addr.Is4() {
		return netip.PrefixFrom(netip.IPv4Unspecified(), 0)
	}
	return netip.PrefixFrom(netip.IPv6Unspecified(), 0)
}
