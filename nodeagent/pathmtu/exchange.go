package pathmtu

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"strconv"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"hawser.dev/hawser/nodeagent/socket"
)

// reopen is how often an address without a working socket is tried again.
const reopen = time.Second

// maxPacket is the largest datagram that is read.
const maxPacket = 1 << 16

// conn is an open socket.
type conn struct{ *net.UDPConn }

// sockets holds one socket for each own address. Only the goroutine of Run uses it.
type sockets struct {
	finder  *Finder
	open    map[netip.Addr]*conn // nil = could not be opened
	tried   time.Time
	readers sync.WaitGroup
}

// update opens and closes sockets so that there is one for each address.
func (s *sockets) update(now time.Time) {
	wanted := s.finder.addresses()
	for a, c := range s.open {
		if !wanted[a] {
			s.drop(a, c)
		}
	}
	retry := now.Sub(s.tried) >= reopen
	if retry {
		s.tried = now
	}
	for a := range wanted {
		if c, known := s.open[a]; !known || c == nil && retry {
			s.open[a] = s.listen(a)
		}
	}
}

// addresses gives all own addresses.
func (f *Finder) addresses() map[netip.Addr]bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	out := make(map[netip.Addr]bool, len(f.listen)+1)
	for a := range f.listen {
		out[a] = true
	}
	for key := range f.paths {
		out[key.source] = true
	}
	return out
}

// listen opens a socket; nil when that is not possible yet.
func (s *sockets) listen(a netip.Addr) *conn {
	config := net.ListenConfig{Control: func(network, address string, raw syscall.RawConn) error {
		return errors.Join(socket.Options{Freebind: true}.Control(network, address, raw), neverSplit(network, raw))
	}}
	address := net.JoinHostPort(a.String(), strconv.Itoa(int(s.finder.config.Port)))
	packets, err := config.ListenPacket(context.Background(), socket.Network("udp", a), address)
	if err != nil {
		s.finder.config.Log.Debug("path mtu socket not open yet", "addr", a, "err", err)
		return nil
	}
	c := &conn{packets.(*net.UDPConn)}
	s.readers.Go(func() { s.finder.read(c.UDPConn) })
	return c
}

// neverSplit forbids to split datagrams, and to believe what a route or an ICMP
// message says of the path's MTU: the device's counts, or a value that was found
// would stand for ever.
func neverSplit(network string, raw syscall.RawConn) error {
	level, option, value := unix.IPPROTO_IP, unix.IP_MTU_DISCOVER, unix.IP_PMTUDISC_PROBE
	if network == "udp6" {
		level, option, value = unix.IPPROTO_IPV6, unix.IPV6_MTU_DISCOVER, unix.IPV6_PMTUDISC_PROBE
	}
	var failed error
	err := raw.Control(func(fd uintptr) { failed = unix.SetsockoptInt(int(fd), level, option, value) })
	return errors.Join(err, failed)
}

func (s *sockets) drop(a netip.Addr, c *conn) {
	delete(s.open, a)
	if c != nil {
		_ = c.Close()
	}
}

func (s *sockets) close() {
	for a, c := range s.open {
		s.drop(a, c)
	}
	s.readers.Wait()
}

// send writes the probes. One that the kernel refuses counts as one that vanished.
func (s *sockets) send(probes []outgoing) {
	var failed uint64
	for _, o := range probes {
		c := s.open[o.from]
		if c == nil {
			failed++
			continue
		}
		if _, err := c.WriteToUDPAddrPort(o.raw, netip.AddrPortFrom(o.to, s.finder.config.Port)); err != nil {
			failed++
		}
	}
	s.finder.count(func(stats *Stats) {
		stats.Sent += uint64(len(probes)) - failed
		stats.Failed += failed
	})
}

// read handles packets until the socket is closed.
func (f *Finder) read(c *net.UDPConn) {
	at := c.LocalAddr().(*net.UDPAddr).AddrPort().Addr().Unmap()
	buffer := make([]byte, maxPacket)
	for {
		n, from, err := c.ReadFromUDPAddrPort(buffer)
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			// Such as ECONNREFUSED from an ICMP error: pass, but never spin.
			time.Sleep(time.Millisecond)
			continue
		}
		peer := netip.AddrPortFrom(from.Addr().Unmap(), from.Port())
		m, err := decode(buffer[:n], peer.Addr())
		switch {
		case err != nil:
			f.count(func(s *Stats) { s.Malformed++ })
		case m.kind == kindReply:
			f.handleReply(time.Now(), way{at, peer.Addr()}, m)
		case f.admits(time.Now(), peer.Addr()):
			m.kind = kindReply
			_, err := c.WriteToUDPAddrPort(m.encode(peer.Addr()), peer)
			f.count(func(s *Stats) {
				if err != nil {
					s.Failed++
				} else {
					s.Replied++
				}
			})
		}
	}
}

func (f *Finder) handleReply(now time.Time, at way, m message) {
	f.mu.Lock()
	known, changed := false, false
	if p := f.paths[at]; p != nil {
		known, changed = p.answer(now, m)
		f.report(p, changed)
	}
	if known {
		f.stats.Answered++
	} else {
		f.stats.Foreign++
	}
	f.mu.Unlock()
	f.notify(changed)
	if known {
		f.poke()
	}
}

// admits reports whether a probe is answered: to gateways of the clusterset
// only, and so many a second.
func (f *Finder) admits(now time.Time, from netip.Addr) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.known[from] {
		f.stats.Foreign++
		return false
	}
	if !f.bucket.take(now) {
		f.stats.Limited++
		return false
	}
	return true
}

// bucket is a token bucket.
type bucket struct {
	tokens float64
	at     time.Time
}

func (b *bucket) take(now time.Time) bool {
	// Two readers may come with their times in the wrong order: at never goes back.
	if b.at.IsZero() {
		b.tokens, b.at = replyRate, now
	} else if passed := now.Sub(b.at); passed > 0 {
		b.tokens, b.at = min(b.tokens+passed.Seconds()*replyRate, replyRate), now
	}
	if b.tokens < 1 {
		return false
	}
	b.tokens--
	return true
}
