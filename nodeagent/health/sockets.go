package health

import (
	"context"
	"errors"
	"net"
	"strconv"
	"sync"
	"time"

	"hawser.dev/hawser/nodeagent/socket"
)

// reopen is how often a place without a working socket is tried again, and the
// interface index of a device compared with that of its socket.
const reopen = 250 * time.Millisecond

// conn is an open socket and the goroutine that reads from it.
type conn struct {
	*net.UDPConn
	device int // interface index when it was opened
}

// sockets holds one socket per place. Only the goroutine of Run uses it.
type sockets struct {
	prober  *Prober
	open    map[Listen]*conn
	checked time.Time
	readers sync.WaitGroup
}

// update opens and closes sockets so that there is one for each place.
func (s *sockets) update(now time.Time) {
	check := now.Sub(s.checked) >= reopen
	if check {
		s.checked = now
	}
	places := s.prober.places(check)
	if places == nil {
		return
	}
	for place, c := range s.open {
		stale := check && c != nil && socket.Index(place.Device) != c.device
		if !places[place] || stale {
			s.drop(place, c)
		}
	}
	for place := range places {
		c, known := s.open[place]
		if !known || c == nil && check {
			s.open[place] = s.listen(place)
		}
	}
}

// listen opens a socket; nil when that is not possible yet.
func (s *sockets) listen(place Listen) *conn {
	options := socket.Options{Freebind: true, Device: place.Device}
	config := net.ListenConfig{Control: options.Control}
	address := net.JoinHostPort(place.Addr.String(), strconv.Itoa(int(s.prober.config.Port)))
	index := socket.Index(place.Device)
	packets, err := config.ListenPacket(context.Background(), socket.Network("udp", place.Addr), address)
	if err != nil {
		s.prober.config.Log.Debug("probe socket not open yet", "addr", place.Addr, "device", place.Device, "err", err)
		return nil
	}
	c := &conn{UDPConn: packets.(*net.UDPConn), device: index}
	s.readers.Go(func() { s.prober.read(c.UDPConn, place) })
	return c
}

func (s *sockets) drop(place Listen, c *conn) {
	delete(s.open, place)
	if c != nil {
		_ = c.Close()
	}
}

func (s *sockets) close() {
	for place, c := range s.open {
		s.drop(place, c)
	}
	s.readers.Wait()
}

// send writes packets.
func (s *sockets) send(packets []outgoing) {
	var sent, failed uint64
	for _, o := range packets {
		c := s.open[o.from]
		if c == nil {
			failed++
			continue
		}
		if _, err := c.WriteToUDPAddrPort(o.raw, o.to); err != nil {
			failed++
			continue
		}
		sent++
	}
	s.prober.count(sent, failed)
}

// count notes what became of packets.
func (p *Prober) count(sent, failed uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.stats.Sent += sent
	p.stats.Failed += failed
}

// read handles packets until the socket is closed.
func (p *Prober) read(c *net.UDPConn, place Listen) {
	buffer := make([]byte, maxPacket+1)
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
		var failed uint64
		for _, o := range p.receive(p.clock(), place, from, buffer[:n]) {
			if _, err := c.WriteToUDPAddrPort(o.raw, o.to); err != nil {
				failed++
			}
		}
		if failed > 0 {
			p.count(0, failed)
		}
	}
}
