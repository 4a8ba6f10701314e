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

// errNoNodeHop means that the route of a flow does not lead to another node.
var errNoNodeHop = errors.New("route does not lead to another node")

// sender sends refresh packets on the device between nodes, through a packet socket: below
// routing, filters and conntrack of this node. So a refresh packet cannot leave by another
// device. This node's own entry neither counts it as activity nor sees its sequence number. The
// other packets of the flow may leave without VXLAN. The gateway identifies the node in both cases.
type sender struct {
	fd       int
	device   string
	index    int
	nextHops map[netip.Addr]net.HardwareAddr // by destination; nil = not over another node
	macs     map[netip.Addr]net.HardwareAddr // of the neighbours on the device
}

func openSender(device string) (*sender, error) {
	link, err := netlink.LinkByName(device)
	if err != nil {
		return nil, fmt.Errorf("find device %s: %w", device, err)
	}
	index := link.Attrs().Index
	neighbors, err := netlink.NeighList(index, netlink.FAMILY_ALL)
	if err != nil {
		return nil, fmt.Errorf("list neighbours on %s: %w", device, err)
	}
	s := &sender{
		device: device, index: index,
		nextHops: map[netip.Addr]net.HardwareAddr{}, macs: map[netip.Addr]net.HardwareAddr{},
	}
	for _, n := range neighbors {
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

// send sends a refresh packet for a flow.
func (s *sender) send(f *Flow) error {
	// Packets of the flow leave this node as the reverse of the reply.
	tuple := Tuple{From: f.Reply.To, To: f.Reply.From}
	mac, err := s.nextHop(tuple.To.Addr())
	if err != nil {
		return err
	}
	protocol := uint16(unix.ETH_P_IP)
	if tuple.To.Addr().Is6() {
		protocol = unix.ETH_P_IPV6
	}
	to := &unix.SockaddrLinklayer{Protocol: protocol<<8 | protocol>>8, Ifindex: s.index, Halen: 6}
	copy(to.Addr[:], mac)
	if err := unix.Sendto(s.fd, buildRefresh(f.Protocol, tuple, refreshTTL), 0, to); err != nil {
		return fmt.Errorf("send on %s: %w", s.device, err)
	}
	return nil
}

// nextHop returns the hardware address of the node that is the next hop of the current route to an
// address. The hardware address is for s.device; the route may use another device.
func (s *sender) nextHop(to netip.Addr) (net.HardwareAddr, error) {
	if mac, ok := s.nextHops[to]; ok {
		if mac == nil {
			return nil, errNoNodeHop
		}
		return mac, nil
	}
	s.nextHops[to] = nil
	// RouteGet returns an error for a blackhole, which is no path either.
	routes, err := netlink.RouteGet(to.AsSlice())
	if err != nil || len(routes) == 0 {
		return nil, errNoNodeHop
	}
	gateway, _ := netip.AddrFromSlice(routes[0].Gw)
	mac, ok := s.macs[gateway.Unmap()]
	if !ok {
		return nil, errNoNodeHop
	}
	s.nextHops[to] = mac
	return mac, nil
}

// Refresh packets are sent in bursts, so that neither this node nor the gateway stalls. The
// gateway creates an entry for each.
const (
	burstSize     = 128
	burstInterval = 10 * time.Millisecond
	// maxRefreshes limits one round: TCP first, then UDP with a reply.
	maxRefreshes = 50_000
)

// pause returns the wait before the next refresh packet, after sent packets in the time since
// the first one.
func pause(sent int, elapsed time.Duration) time.Duration {
	return max(time.Duration(sent/burstSize)*burstInterval-elapsed, 0)
}
