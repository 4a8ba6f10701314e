package socket

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/netip"
	"strconv"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// reopenInterval is the interval between attempts to open a socket.
	reopenInterval = 250 * time.Millisecond
	// checkInterval is the interval between checks of all sockets. A change of a device causes
	// a check at once.
	checkInterval = 10 * time.Second
)

// Bind is the address and the optional device that a UDP socket is bound to. The address need not
// exist yet.
type Bind struct {
	Addr   netip.Addr
	Device string
}

// canBindEarly reports whether a socket may be bound before its address exists. The kernel sends no
// IPv4 packet from an address that the host does not have. It sends IPv6 packets from such an
// address by any route: unencrypted over the default route, before the agent has created tunnels
// and filters.
func (p Bind) canBindEarly() bool { return p.Addr.Is4() || p.Device != "" }

// SetConfig is the constant configuration of a Set.
type SetConfig struct {
	Port uint16 // UDP port of all sockets
	Log  *slog.Logger
	// MaxDatagram is the size of the largest datagram in bytes; longer datagrams are truncated.
	MaxDatagram int
	// Read handles a datagram and returns the replies. A reply without a Device is sent from
	// the receiving socket. It must be safe for concurrent use, and must not keep raw.
	Read func(in Arrival, raw []byte) []Datagram
	// Changed is called after a change of a device; may be nil. The caller must then call
	// Update. Changed must not block.
	Changed func()
}

// Arrival describes how a datagram was received.
type Arrival struct {
	Local Bind
	From  netip.AddrPort
	Index int // of the receiving interface; 0 if unknown
}

// Datagram is a packet to send.
type Datagram struct {
	From Bind // ignored in a reply, except for its address if Device is set
	To   netip.AddrPort
	// Device is the device to send through, regardless of routes. The source port is still the
	// Set's. If Device is empty, routes apply.
	Device string
	Raw    []byte
}

// Set has one UDP socket for each Bind of a changing set. It is not safe for concurrent use. Its
// packets have a hop limit of 1, because they test one link. They must not reach the other end
// through other clusters, such as a hub that still routes a new neighbour's addresses.
//
// A Bind without a device is a tunnel address. Packets from it measure the path: they are never
// fragmented, and only the device limits their size, not routes or ICMP.
type Set struct {
	config  SetConfig
	open    map[Bind]*conn // nil if it could not be opened
	checked time.Time
	readers sync.WaitGroup
	raw     rawSender
	devices *DeviceWatch // nil before the first Update
	changed atomic.Bool  // a device changed since the last check
}

// conn is an open socket.
type conn struct {
	*net.UDPConn
	device int // interface index when it was opened
}

// NewSet returns a Set without sockets.
func NewSet(config SetConfig) *Set {
	return &Set{config: config, open: map[Bind]*conn{}}
}

// Update opens and closes sockets to match binds. binds may return nil if nothing changed, unless
// all is true. Update returns the maximum time until the next call. All calls must be made in one
// network namespace.
func (s *Set) Update(now time.Time, binds func(all bool) map[Bind]bool) time.Duration {
	if s.devices == nil {
		s.devices = WatchDevices(func() {
			s.changed.Store(true)
			if s.config.Changed != nil {
				s.config.Changed()
			}
		})
	}
	check := s.changed.Swap(false) || now.Sub(s.checked) >= s.interval()
	if check {
		s.checked = now
		s.raw.sweep(now)
	}
	if want := binds(check); want != nil {
		s.update(want, check)
	}
	return s.checked.Add(s.interval()).Sub(now)
}

// interval returns the time between two checks of all sockets.
func (s *Set) interval() time.Duration {
	for _, c := range s.open {
		if c == nil {
			return reopenInterval
		}
	}
	return checkInterval
}

// update opens and closes sockets until they match want. With check, it also compares existing
// sockets with their devices.
func (s *Set) update(want map[Bind]bool, check bool) {
	for bind, c := range s.open {
		stale := check && c != nil && DeviceIndex(bind.Device) != c.device
		if !want[bind] || stale {
			s.drop(bind, c)
		}
	}
	for bind := range want {
		if c, known := s.open[bind]; !known || c == nil && check {
			s.open[bind] = s.listen(bind)
		}
	}
}

// listen opens a socket; nil if this is not possible yet.
func (s *Set) listen(bind Bind) *conn {
	options := Options{Freebind: bind.canBindEarly(), Device: bind.Device, HopLimit: 1, DontFragment: bind.Device == ""}
	config := net.ListenConfig{Control: options.Control}
	address := net.JoinHostPort(bind.Addr.String(), strconv.Itoa(int(s.config.Port)))
	index := DeviceIndex(bind.Device)
	packets, err := config.ListenPacket(context.Background(), Network("udp", bind.Addr), address)
	if err != nil {
		s.config.Log.Debug("socket not open yet", "addr", bind.Addr, "device", bind.Device, "err", err)
		return nil
	}
	c := &conn{UDPConn: packets.(*net.UDPConn), device: index}
	s.readers.Go(func() { s.read(c.UDPConn, bind) })
	return c
}

// Send sends datagrams, and returns how many were sent and how many failed.
func (s *Set) Send(datagrams []Datagram) (sent, failed uint64) {
	for _, d := range datagrams {
		if err := s.send(d); err != nil {
			failed++
			continue
		}
		sent++
	}
	return sent, failed
}

func (s *Set) send(d Datagram) error {
	if d.Device != "" {
		return s.raw.send(d, s.config.Port)
	}
	c := s.open[d.From]
	if c == nil {
		return net.ErrClosed
	}
	_, err := c.WriteToUDPAddrPort(d.Raw, d.To)
	return err
}

// read handles datagrams until the socket is closed.
func (s *Set) read(c *net.UDPConn, bind Bind) {
	buffer, control := make([]byte, s.config.MaxDatagram+1), make([]byte, controlLength())
	for {
		n, controlLen, _, from, err := c.ReadMsgUDPAddrPort(buffer, control)
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			// Such as ECONNREFUSED after an ICMP error, or ENETDOWN. The pause prevents
			// a busy loop.
			time.Sleep(time.Millisecond)
			continue
		}
		in := Arrival{Local: bind, From: netip.AddrPortFrom(from.Addr().Unmap(), from.Port()), Index: inDeviceIndex(control[:controlLen])}
		for _, d := range s.config.Read(in, buffer[:n]) {
			// A reply that the kernel refuses counts as lost: the sender repeats its
			// request.
			if d.Device != "" {
				_ = s.raw.send(d, s.config.Port)
			} else {
				_, _ = c.WriteToUDPAddrPort(d.Raw, d.To)
			}
		}
	}
}

func (s *Set) drop(bind Bind, c *conn) {
	delete(s.open, bind)
	if c != nil {
		_ = c.Close()
	}
}

// Close closes all sockets and waits for their readers.
func (s *Set) Close() {
	for bind, c := range s.open {
		s.drop(bind, c)
	}
	s.readers.Wait()
	if s.devices != nil {
		_ = s.devices.Close()
		s.devices = nil
	}
	s.raw.sweep(time.Time{})
}
