package flow

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Packets is a flow of UDP packets from one pod to another at a steady rate. The
// other pod returns each of them.
type Packets struct {
	conn   *net.UDPConn
	raw    syscall.RawConn // of conn
	every  time.Duration
	origin time.Time
	stop   chan struct{}
	wait   sync.WaitGroup

	mu  sync.Mutex
	log packetLog
}

// packetLog is what became of the packets; all times are since the origin.
type packetLog struct {
	sent    []time.Duration // by sequence, which rises
	back    []bool          // by sequence: it was returned
	arrived []time.Duration // of answers, in the order of arrival
}

const packetSize = 64 // bytes of payload

// StartPackets begins a flow with the given number of packets a second.
func StartPackets(from Place, to netip.AddrPort, rate int) (*Packets, error) {
	conn, err := from.dialUDP(to)
	if err != nil {
		return nil, err
	}
	raw, err := conn.SyscallConn()
	if err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	p := &Packets{conn: conn, raw: raw, every: time.Second / time.Duration(rate), origin: time.Now(), stop: make(chan struct{})}
	p.wait.Go(p.send)
	p.wait.Go(p.receive)
	return p, nil
}

// Close ends the flow.
func (p *Packets) Close() error {
	close(p.stop)
	err := p.conn.Close()
	p.wait.Wait()
	return err
}

// send keeps the rate on average: a sender that was not scheduled in time makes
// up for it at once.
func (p *Packets) send() {
	tick := time.NewTicker(p.every)
	defer tick.Stop()
	raw := make([]byte, packetSize)
	for next := uint64(0); ; {
		select {
		case <-p.stop:
			return
		case <-tick.C:
		}
		for due := uint64(time.Since(p.origin) / p.every); next < due; next++ {
			binary.BigEndian.PutUint64(raw, next)
			p.mu.Lock()
			p.log.sent, p.log.back = append(p.log.sent, time.Since(p.origin)), append(p.log.back, false)
			p.mu.Unlock()
			p.put(raw)
		}
	}
}

// put sends without ever waiting: when a queue on the way is full, what this
// socket sent before may fill its buffer. A packet that the kernel refuses is
// one that got lost.
func (p *Packets) put(packet []byte) {
	_ = p.raw.Control(func(fd uintptr) { _ = unix.Send(int(fd), packet, unix.MSG_DONTWAIT) })
}

func (p *Packets) receive() {
	raw := make([]byte, packetSize)
	for {
		n, err := p.conn.Read(raw)
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil || n != packetSize {
			continue // such as ECONNREFUSED, from an ICMP error
		}
		p.mu.Lock()
		p.log.answered(binary.BigEndian.Uint64(raw), time.Since(p.origin))
		p.mu.Unlock()
	}
}

func (l *packetLog) answered(sequence uint64, at time.Duration) {
	if sequence >= uint64(len(l.back)) || l.back[sequence] {
		return
	}
	l.back[sequence] = true
	l.arrived = append(l.arrived, at)
}

// Gap is the longest time without an answer that touches the time from..to.
func (p *Packets) Gap(from, to time.Time) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.log.gap(from.Sub(p.origin), to.Sub(p.origin))
}

func (l *packetLog) gap(from, to time.Duration) time.Duration { return longest(l.arrived, from, to) }

// Paused is the longest time without a packet that the sender itself sent, which
// touches the time from..to: then the machine had no processor for the sender, and
// what is measured is the machine.
func (p *Packets) Paused(from, to time.Time) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	return longest(p.log.sent, from.Sub(p.origin), to.Sub(p.origin))
}

// longest is the longest time between two that touches from..to; times rise.
func longest(times []time.Duration, from, to time.Duration) time.Duration {
	i, _ := slices.BinarySearch(times, from)
	last := time.Duration(0)
	if i > 0 {
		last = times[i-1]
	}
	var most time.Duration
	for ; i < len(times) && last < to; i++ {
		most, last = max(most, times[i]-last), times[i]
	}
	return max(most, to-last)
}

// Lost counts the packets that were sent from..to, and those of them that never
// came back.
func (p *Packets) Lost(from, to time.Time) (lost, sent int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.log.lost(from.Sub(p.origin), to.Sub(p.origin))
}

func (l *packetLog) lost(from, to time.Duration) (lost, sent int) {
	first, _ := slices.BinarySearch(l.sent, from)
	end, _ := slices.BinarySearch(l.sent, to)
	for _, back := range l.back[first:max(first, end)] {
		if sent++; !back {
			lost++
		}
	}
	return lost, sent
}

// Whole says what is missing of the packets of the last while; nil = every one
// came back. The newest may still be under way and do not count.
func (p *Packets) Whole(while time.Duration) error {
	now := time.Now()
	to := now.Add(-underWay)
	lost, sent := p.Lost(to.Add(-while), to)
	gap := p.Gap(to.Add(-while), now)
	if lost == 0 && sent > 0 && gap < while {
		return nil
	}
	return fmt.Errorf("of the last %s %d of %d packets did not come back, the longest gap is %s", while, lost, sent, gap)
}

// underWay is how long an answer may take in the lab, with room for a busy machine.
const underWay = 30 * time.Millisecond

// Reflector returns UDP packets and TCP bytes to whom they came from. It also
// knows the kinds of Connections.
type Reflector struct {
	udp  *net.UDPConn
	tcp  net.Listener
	wait sync.WaitGroup

	mu     sync.Mutex
	conns  map[net.Conn]bool
	heard  map[uint64]time.Time // by connection: when its client was last heard
	newest time.Time            // when the last connection was accepted
}

// Reflect serves both protocols on a port of a pod.
func Reflect(at Place, port uint16) (*Reflector, error) {
	udp, err := at.listenUDP(port)
	if err != nil {
		return nil, err
	}
	tcp, err := at.listenTCP(port)
	if err != nil {
		return nil, errors.Join(err, udp.Close())
	}
	r := &Reflector{udp: udp, tcp: tcp, conns: map[net.Conn]bool{}, heard: map[uint64]time.Time{}}
	r.wait.Go(r.packets)
	r.wait.Go(r.accept)
	return r, nil
}

// Newest tells when the client began the last of the Dials that came here.
func (r *Reflector) Newest() time.Time {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.newest
}

// Close ends the service and all its connections.
func (r *Reflector) Close() error {
	err := errors.Join(r.udp.Close(), r.tcp.Close())
	r.mu.Lock()
	for conn := range r.conns {
		_ = conn.Close() // whether it still works is not the question any more
	}
	r.mu.Unlock()
	r.wait.Wait()
	return err
}

func (r *Reflector) packets() {
	raw := make([]byte, 2048)
	for {
		n, from, err := r.udp.ReadFromUDPAddrPort(raw)
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err == nil {
			_, _ = r.udp.WriteToUDPAddrPort(raw[:n], from) // lost, as on a wire
		}
	}
}

func (r *Reflector) accept() {
	for {
		conn, err := r.tcp.Accept()
		if err != nil {
			return
		}
		r.mu.Lock()
		r.conns[conn] = true
		r.mu.Unlock()
		r.wait.Go(func() {
			r.serve(conn)
			r.mu.Lock()
			delete(r.conns, conn)
			r.mu.Unlock()
			_ = conn.Close()
		})
	}
}
