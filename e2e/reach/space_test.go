package reach

import (
	"context"
	"encoding/binary"
	"errors"
	"net"
	"net/netip"
	"os"
	"runtime"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"hawser.dev/hawser/internal/diff"
	"hawser.dev/hawser/nodeagent/converge"
	"hawser.dev/hawser/nodeagent/desired"
	"hawser.dev/hawser/nodeagent/kernel"
)

// Devices of the gateway. All are TUN devices: the test writes incoming packets and reads
// outgoing ones.
const (
	linkTunnel = "hw-wg1"
	linkNodes  = desired.NodeDevice
	linkPods   = "pod0"
	linkUplink = "eth0"
)

// space is a network namespace with the gateway's rules, routes and addresses.
// It must be used by the goroutine that created it.
type space struct {
	t    *testing.T
	ns   *kernel.Namespace
	tuns map[Point]int

	overlays []netlink.Link   // for transit traffic
	mac      net.HardwareAddr // of every overlay
	host     []int            // raw sockets that receive the gateway's own packets
}

// newSpace moves the goroutine's thread into a new namespace, which ends with the thread.
func newSpace(t *testing.T) *space {
	t.Helper()
	runtime.LockOSThread()
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		t.Fatalf("make a network namespace: %v", err)
	}
	s := &space{t: t, tuns: map[Point]int{}}
	for place, name := range map[Point]string{Tunnel: linkTunnel, Node: linkNodes, Pod: linkPods, Neighbor: linkUplink} {
		s.tuns[place] = s.tun(name)
	}
	s.up("lo")
	for name, value := range map[string]string{
		"ipv4/ip_forward": "1", "ipv6/conf/all/forwarding": "1", "ipv4/conf/all/rp_filter": "0", "ipv4/conf/default/rp_filter": "0",
		"netfilter/nf_conntrack_tcp_loose": "1", "netfilter/nf_conntrack_tcp_be_liberal": "1",
	} {

		s.must(os.WriteFile("/proc/sys/net/"+name, []byte(value), 0o644), name)
	}
	for _, proto := range []int{unix.IPPROTO_TCP, unix.IPPROTO_UDP, unix.IPPROTO_ICMP} {
		s.host = append(s.host, s.raw(unix.AF_INET, proto))
	}
	for _, proto := range []int{unix.IPPROTO_TCP, unix.IPPROTO_UDP, unix.IPPROTO_ICMPV6} {
		s.host = append(s.host, s.raw(unix.AF_INET6, proto))
	}
	ns, err := kernel.Open("")
	s.must(err, "open the namespace")
	t.Cleanup(func() { _ = ns.Close() })
	s.ns = ns
	return s
}

func (s *space) must(err error, what string) {
	s.t.Helper()
	if err != nil {
		s.t.Fatalf("%s: %v", what, err)
	}
}

func (s *space) tun(name string) int {
	s.t.Helper()
	fd, err := unix.Open("/dev/net/tun", unix.O_RDWR|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	s.must(err, "open /dev/net/tun")
	s.t.Cleanup(func() { _ = unix.Close(fd) })
	req, err := unix.NewIfreq(name)
	s.must(err, name)
	req.SetUint16(unix.IFF_TUN | unix.IFF_NO_PI)
	s.must(unix.IoctlIfreq(fd, unix.TUNSETIFF, req), "create "+name)
	link := s.up(name)
	s.must(netlink.LinkSetAlias(link, desired.DeviceAlias), "set alias of "+name)
	s.must(netlink.LinkSetMTU(link, 1400), "mtu of "+name)
	return fd
}

func (s *space) up(name string) netlink.Link {
	s.t.Helper()
	link, err := netlink.LinkByName(name)
	s.must(err, name)
	s.must(netlink.LinkSetUp(link), "set up "+name)
	return link
}

func (s *space) raw(family, proto int) int {
	s.t.Helper()
	fd, err := unix.Socket(family, unix.SOCK_RAW|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, proto)
	s.must(err, "open a raw socket")
	s.t.Cleanup(func() { _ = unix.Close(fd) })
	return fd
}

// apply writes a state into the namespace, and the CNI's route to pods.
func (s *space) apply(state desired.State, node []netip.Addr, pods []netip.Prefix) {
	s.t.Helper()
	uplink, err := netlink.LinkByName(linkUplink)
	s.must(err, linkUplink)
	for _, a := range node {
		addr := &netlink.Addr{IPNet: &net.IPNet{IP: a.AsSlice(), Mask: net.CIDRMask(a.BitLen()-8, a.BitLen())}, Flags: unix.IFA_F_NODAD}
		s.must(netlink.AddrReplace(uplink, addr), "address "+a.String())
	}
	pod0, err := netlink.LinkByName(linkPods)
	s.must(err, linkPods)
	for _, family := range []int{netlink.FAMILY_V4, netlink.FAMILY_V6} {
		old, err := netlink.RouteListFiltered(family, &netlink.Route{LinkIndex: pod0.Attrs().Index}, netlink.RT_FILTER_OIF)
		s.must(err, "routes of "+linkPods)
		for _, r := range old {
			_ = netlink.RouteDel(&r)
		}
	}
	for _, p := range pods {
		dst := &net.IPNet{IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen())}
		s.must(netlink.RouteReplace(&netlink.Route{LinkIndex: pod0.Attrs().Index, Dst: dst}), "route to pods "+p.String())
	}
	for _, p := range []string{"0.0.0.0/0", "::/0"} {
		_, dst, err := net.ParseCIDR(p)
		s.must(err, p)
		s.must(netlink.RouteReplace(&netlink.Route{LinkIndex: uplink.Attrs().Index, Dst: dst}), "default route")
	}
	s.createOverlays(state.Devices)
	ours := func(link string) bool {
		return link == linkTunnel || link == linkNodes || link == "" || strings.HasPrefix(link, desired.TransitDevicePrefix)
	}
	var neighbors []desired.Neighbor
	for _, n := range state.Neighbors {
		if strings.HasPrefix(n.Device, desired.TransitDevicePrefix) {
			neighbors = append(neighbors, n)
		}
	}
	var forwards []desired.Forward
	for _, f := range state.Forwards {
		if strings.HasPrefix(f.Device, desired.TransitDevicePrefix) {
			forwards = append(forwards, f)
		}
	}
	var addresses []desired.Address
	for _, a := range state.Addresses {
		if ours(a.Device) {
			addresses = append(addresses, a)
		}
	}
	var routes []desired.Route
	for _, r := range state.Routes {
		if ours(r.Device) {
			routes = append(routes, r)
		}
	}
	converged(s, kernel.NewAddresses(s.ns), addresses)
	converged(s, kernel.NewNeighbors(s.ns), neighbors)
	converged(s, kernel.NewForwards(s.ns), forwards)
	converged(s, kernel.NewRules(s.ns), state.Rules)
	converged(s, kernel.NewRoutes(s.ns), routes)
	tables := kernel.NewTables(kernel.NFTOptions{})
	for i := range state.Tables {
		state.Tables[i] = tables.Normalize(state.Tables[i], desired.Table{})
	}
	converged(s, tables, state.Tables)
	converged(s, kernel.NewElements(kernel.NFTOptions{}), state.Elements)
	s.must(netlink.ConntrackTableFlush(netlink.ConntrackTable), "flush conntrack")
	s.drain()
}

// createOverlays recreates the devices for transit traffic. They are real VXLAN devices over the
// tunnel's TUN device.
func (s *space) createOverlays(links []desired.Device) {
	s.t.Helper()
	for _, l := range s.overlays {
		s.must(netlink.LinkDel(l), "remove "+l.Attrs().Name)
	}
	s.overlays = nil
	for _, l := range links {
		if !strings.HasPrefix(l.Name, desired.TransitDevicePrefix) {
			continue
		}
		mac, err := net.ParseMAC(l.MAC)
		s.must(err, l.Name)
		s.must(netlink.LinkAdd(&netlink.Vxlan{
			LinkAttrs: netlink.LinkAttrs{Name: l.Name, MTU: l.MTU, HardwareAddr: mac}, VxlanId: l.VNI, Port: l.Port, SrcAddr: l.Local.AsSlice(),
		}), "create "+l.Name)
		link := s.up(l.Name)
		s.must(netlink.LinkSetAlias(link, desired.DeviceAlias), "set alias of "+l.Name)
		s.overlays, s.mac = append(s.overlays, link), mac
	}
}

// converged applies one kind until nothing differs. Some elements need two passes: an old one must
// be removed before a new one is added.
func converged[S diff.Spec](s *space, kind converge.Kind[S], want []S) {
	s.t.Helper()
	var last error
	for range 3 {
		have, err := kind.Observe(context.Background())
		s.must(err, "read "+kind.Name())
		changes, err := diff.Compute(want, have)
		s.must(err, "compare "+kind.Name())
		if len(changes) == 0 {
			return
		}
		last = kind.Apply(context.Background(), changes)
	}
	s.must(errors.Join(errors.New("it does not converge"), last), "write "+kind.Name())
}

// seen is a packet that left the gateway.
type seen struct {
	at Point
	frame
}

// send writes a packet to the device of a point and returns the resulting packets. The kernel has
// usually processed the packet when the write returns.
func (s *space) send(from Point, raw []byte) []seen {
	s.t.Helper()
	_, err := unix.Write(s.tuns[from], raw)
	s.must(err, "send from "+string(from))
	return s.drain()
}

func (s *space) drain() []seen {
	var out []seen
	buf := make([]byte, 2048)
	for _, place := range []Point{Tunnel, Pod, Node, Neighbor} {
		for {
			n, err := unix.Read(s.tuns[place], buf)
			if err != nil {
				break
			}
			if f, ok := parse(buf[:n]); ok {
				out = append(out, seen{place, f})
			}
		}
	}
	for _, fd := range s.host {
		for {
			n, _, err := unix.Recvfrom(fd, buf, 0)
			if err != nil {
				break
			}
			if f, ok := parse(buf[:n]); ok && f.via.IsValid() {
				continue // the inner packet is forwarded
			}
			// IPv6 sockets return no IP header; the identity follows the transport header.
			out = append(out, seen{Host, frame{id: lastWord(buf[:n])}})
		}
	}
	return out
}

func lastWord(b []byte) uint32 {
	if len(b) < 4 {
		return 0
	}
	return binary.BigEndian.Uint32(b[len(b)-4:])
}
