package conntrack

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// errElsewhere says that a flow's way does not lead over the link between nodes.
var errElsewhere = errors.New("route leads elsewhere")

// sender puts knocks on the link between nodes, as a packet socket does: below
// routing, filters and conntrack of this node. So a knock cannot leave by another
// link, and this node's own entry neither takes it for a sign of life nor sees
// its sequence number.
type sender struct {
	fd     int
	device string
	index  int
	hops   map[netip.Addr]net.HardwareAddr // by destination; nil = not over this link
	macs   map[netip.Addr]net.HardwareAddr // of the neighbours on the link
}

func openSender(device string) (*sender, error) {
	link, err := netlink.LinkByName(device)
	if err != nil {
		return nil, fmt.Errorf("find link %s: %w", device, err)
	}
	index := link.Attrs().Index
	neighbours, err := netlink.NeighList(index, netlink.FAMILY_ALL)
	if err != nil {
		return nil, fmt.Errorf("list neighbours on %s: %w", device, err)
	}
	s := &sender{
		device: device, index: index,
		hops: map[netip.Addr]net.HardwareAddr{}, macs: map[netip.Addr]net.HardwareAddr{},
	}
	for _, n := range neighbours {
		if a, ok := netip.AddrFromSlice(n.IP); ok && len(n.HardwareAddr) == 6 {
			s.macs[a.Unmap()] = n.HardwareAddr
		}
	}
	if s.fd, err = unix.Socket(unix.AF_PACKET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0); err != nil {
		return nil, fmt.Errorf("open packet socket: %w", err)
	}
	return s, nil
}

func (s *sender) close() { _ = unix.Close(s.fd) }

// send knocks for a flow.
func (s *sender) send(f *Flow) error {
	// What leaves this node is the reply turned round.
	out := Tuple{From: f.Reply.To, To: f.Reply.From}
	mac, err := s.hop(out.To.Addr())
	if err != nil {
		return err
	}
	protocol := uint16(unix.ETH_P_IP)
	if out.To.Addr().Is6() {
		protocol = unix.ETH_P_IPV6
	}
	to := &unix.SockaddrLinklayer{Protocol: protocol<<8 | protocol>>8, Ifindex: s.index, Halen: 6}
	copy(to.Addr[:], mac)
	if err := unix.Sendto(s.fd, buildRefresh(f.Protocol, out, hops), 0, to); err != nil {
		return fmt.Errorf("send on %s: %w", s.device, err)
	}
	return nil
}

// hop gives the hardware address of the gateway that the routes name now.
func (s *sender) hop(to netip.Addr) (net.HardwareAddr, error) {
	if mac, known := s.hops[to]; known {
		if mac == nil {
			return nil, errElsewhere
		}
		return mac, nil
	}
	s.hops[to] = nil
	// A blackhole is an error here, and no way either.
	routes, err := netlink.RouteGet(to.AsSlice())
	if err != nil || len(routes) == 0 || routes[0].LinkIndex != s.index {
		return nil, errElsewhere
	}
	via, _ := netip.AddrFromSlice(routes[0].Gw)
	mac, known := s.macs[via.Unmap()]
	if !known {
		return nil, errElsewhere
	}
	s.hops[to] = mac
	return mac, nil
}

// Knocks leave in bursts, so that neither this node nor the gateway, which makes
// an entry for each, stalls on them.
const (
	burst    = 128
	interval = 10 * time.Millisecond
	// maxKnocks bounds one round. TCP comes first, then UDP that was answered.
	maxKnocks = 50_000
)

// pause is how long to wait before the next knock, when so many were sent in
// the time since the first.
func pause(sent int, since time.Duration) time.Duration {
	return max(time.Duration(sent/burst)*interval-since, 0)
}
