package pathmtu

import (
	"errors"
	"net/netip"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"hawser.dev/hawser/nodeagent/socket"
)

// maxPacket is the largest datagram that is read.
const maxPacket = 1 << 16

// sockets makes the finder's, one for each own address.
func (f *Finder) sockets() *socket.Set {
	return socket.NewSet(socket.SetConfig{
		Name: "path mtu", Port: f.config.Port, Log: f.config.Log, Largest: maxPacket, Prepare: neverSplit,
		Read:   f.receive,
		Failed: func(n uint64) { f.count(func(s *Stats) { s.Failed += n }) },
	})
}

// places gives all own addresses.
func (f *Finder) places(bool) map[socket.Place]bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	out := make(map[socket.Place]bool, len(f.listen)+1)
	for a := range f.listen {
		out[socket.Place{Addr: a}] = true
	}
	for key := range f.paths {
		out[socket.Place{Addr: key.source}] = true
	}
	return out
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

// receive takes a packet, and gives the answer to a probe.
func (f *Finder) receive(at socket.Place, from netip.AddrPort, raw []byte) []socket.Datagram {
	m, err := decode(raw, from.Addr())
	switch {
	case err != nil:
		f.count(func(s *Stats) { s.Malformed++ })
	case m.kind == kindReply:
		f.handleReply(time.Now(), way{at.Addr, from.Addr()}, m)
	case f.admits(time.Now(), from.Addr()):
		m.kind = kindReply
		f.count(func(s *Stats) { s.Replied++ })
		return []socket.Datagram{{To: from, Raw: m.encode(from.Addr())}}
	}
	return nil
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
		f.wake.Ring()
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
