package socket

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/netip"
	"strconv"
	"sync"
	"syscall"
	"time"
)

// reopen is how often a place without a working socket is tried again, and the
// interface index of a device compared with that of its socket.
const reopen = 250 * time.Millisecond

// Place is where a UDP socket is bound: an address, which need not exist yet, and
// a device or none.
type Place struct {
	Addr   netip.Addr
	Device string
}

// early reports whether a socket may be bound before its address is there. IPv4
// sends nothing from an address that the host does not have. IPv6 does, by whatever
// route there is: in the clear over the default route, from an agent that has made
// neither tunnels nor filter yet.
func (p Place) early() bool { return p.Addr.Is4() || p.Device != "" }

// SetConfig is what a Set needs for its whole life.
type SetConfig struct {
	Name string // for the log, such as "probe"
	Port uint16 // UDP, of all places
	Log  *slog.Logger
	// Largest is the size of the largest datagram that is worth reading, bytes; what
	// is longer comes cut.
	Largest int
	// Prepare sets further options; may be nil.
	Prepare func(network string, conn syscall.RawConn) error
	// Read takes a datagram and gives the answers to it, which leave by the place
	// that it came to. It is called by several goroutines, and must not keep raw.
	Read func(at Place, from netip.AddrPort, raw []byte) []Datagram
	// Failed is told how many answers the kernel refused; may be nil.
	Failed func(n uint64)
}

// Datagram is a packet on its way.
type Datagram struct {
	From Place // not looked at in an answer
	To   netip.AddrPort
	Raw  []byte
}

// Set holds one UDP socket for each of a changing set of places. Only one
// goroutine may use it. What it sends has a hop limit of 1: it is about a link
// itself, and must not get to the other end through others, as it would while the
// addresses of a cluster that becomes a neighbour are still routed through a hub.
type Set struct {
	config  SetConfig
	open    map[Place]*conn // nil = could not be opened
	checked time.Time
	readers sync.WaitGroup
}

// conn is an open socket.
type conn struct {
	*net.UDPConn
	device int // interface index when it was opened
}

// NewSet makes a Set without sockets.
func NewSet(config SetConfig) *Set {
	return &Set{config: config, open: map[Place]*conn{}}
}

// Update opens and closes sockets so that there is one for each place. places
// may give nil when they are the same as before, unless it is asked all the same.
func (s *Set) Update(now time.Time, places func(all bool) map[Place]bool) {
	check := now.Sub(s.checked) >= reopen
	if check {
		s.checked = now
	}
	want := places(check)
	if want == nil {
		return
	}
	for place, c := range s.open {
		stale := check && c != nil && Index(place.Device) != c.device
		if !want[place] || stale {
			s.drop(place, c)
		}
	}
	for place := range want {
		if c, known := s.open[place]; !known || c == nil && check {
			s.open[place] = s.listen(place)
		}
	}
}

// listen opens a socket; nil when that is not possible yet.
func (s *Set) listen(place Place) *conn {
	options := Options{Freebind: place.early(), Device: place.Device, Hops: 1}
	config := net.ListenConfig{Control: func(network, address string, raw syscall.RawConn) error {
		if s.config.Prepare == nil {
			return options.Control(network, address, raw)
		}
		return errors.Join(options.Control(network, address, raw), s.config.Prepare(network, raw))
	}}
	address := net.JoinHostPort(place.Addr.String(), strconv.Itoa(int(s.config.Port)))
	index := Index(place.Device)
	packets, err := config.ListenPacket(context.Background(), Network("udp", place.Addr), address)
	if err != nil {
		s.config.Log.Debug("socket not open yet", "of", s.config.Name, "addr", place.Addr, "device", place.Device, "err", err)
		return nil
	}
	c := &conn{UDPConn: packets.(*net.UDPConn), device: index}
	s.readers.Go(func() { s.read(c.UDPConn, place) })
	return c
}

// Send writes datagrams, and counts those that left.
func (s *Set) Send(datagrams []Datagram) (sent, failed uint64) {
	for _, d := range datagrams {
		c := s.open[d.From]
		if c == nil {
			failed++
			continue
		}
		if _, err := c.WriteToUDPAddrPort(d.Raw, d.To); err != nil {
			failed++
			continue
		}
		sent++
	}
	return sent, failed
}

// read handles datagrams until the socket is closed.
func (s *Set) read(c *net.UDPConn, place Place) {
	buffer := make([]byte, s.config.Largest+1)
	for {
		n, from, err := c.ReadFromUDPAddrPort(buffer)
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			// Such as ECONNREFUSED from an ICMP error, or ENETDOWN: pass, but never spin.
			time.Sleep(time.Millisecond)
			continue
		}
		from = netip.AddrPortFrom(from.Addr().Unmap(), from.Port())
		var failed uint64
		for _, d := range s.config.Read(place, from, buffer[:n]) {
			if _, err := c.WriteToUDPAddrPort(d.Raw, d.To); err != nil {
				failed++
			}
		}
		if failed > 0 && s.config.Failed != nil {
			s.config.Failed(failed)
		}
	}
}

func (s *Set) drop(place Place, c *conn) {
	delete(s.open, place)
	if c != nil {
		_ = c.Close()
	}
}

// Close closes all sockets, and returns when nobody reads any more.
func (s *Set) Close() {
	for place, c := range s.open {
		s.drop(place, c)
	}
	s.readers.Wait()
}
