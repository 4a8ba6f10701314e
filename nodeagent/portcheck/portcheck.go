// Package portcheck checks whether the UDP ports of gateways are reachable, before any tunnel
// exists. Every gateway listens at the ports of its tunnels, and sends requests to the
// endpoints of the others. It also measures the largest packet that passes, and the offset
// between the clocks.
package portcheck

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"hawser.dev/hawser/nodeagent/model"
)

// Config configures one gateway.
type Config struct {
	// Ports are the ports of its tunnels. A port that cannot be opened is reported and skipped.
	Ports []int
	// Targets are host:port of other gateways' endpoints. Names are resolved each time.
	Targets []string
	// Key is known to all gateways of one check. Packets without it get no reply.
	Key []byte
	// Sizes are the sizes of the sent packets, in bytes with IP and UDP headers; nil = Sizes().
	Sizes []int
	Every time.Duration // between two rounds of requests
	// Networks are the networks that the node is connected to, for the report.
	Networks []model.Network
}

// Sizes returns the packet sizes to test, in order. They include the minimum MTU of IPv6 (RFC
// 8200), that size inside WireGuard over IPv6 (1280 + 80), and Ethernet's.
func Sizes() []int {
	return []int{minSize, 576, 1000, 1200, 1280, 1300, 1320, 1340, 1360, 1380, 1400, 1420, 1450, 1460, 1480, 1492, 1500}
}

// minSize has room for a request over either family.
const minSize = 128

// Report is the current result of one gateway.
type Report struct {
	Ports   []Port   `json:"ports"`
	Targets []Target `json:"targets"`
	// Networks are the networks that the node is connected to.
	Networks []model.Network `json:"networks,omitempty"`
}

// Port is one port of the gateway.
type Port struct {
	Port     int    `json:"port"`
	Error    string `json:"error,omitempty"` // the reason why it is not open
	Requests int    `json:"requests"`        // requests of other gateways
}

// Target is one endpoint of another gateway.
type Target struct {
	To       string `json:"to"`
	Error    string `json:"error,omitempty"` // last error of a send
	Sent     int    `json:"sent"`            // requests of the smallest size
	Answered int    `json:"answered"`        // replies of the smallest size
	Largest  int    `json:"largest"`         // size of the largest request with a reply, bytes with IP header
	RTT      int64  `json:"rttMicroseconds"` // minimum, microseconds
	// ClockOffset is the other clock minus this one, by the reply with the smallest RTT,
	// milliseconds.
	ClockOffset int64 `json:"clockOffsetMilliseconds"`
}

// Check is a running check.
type Check struct {
	config Config
	mu     sync.Mutex
	report Report
	socks  []sock
}

// sock is an open socket. Requests use separate ports: a firewall could accept a request from
// the port of a tunnel as the reply to a request of the other side.
type sock struct {
	*net.UDPConn
	port int // index in Report.Ports; -1 = none
	four bool
}

// New opens the ports. Close closes them.
func New(c Config) (*Check, error) {
	if c.Sizes == nil {
		c.Sizes = Sizes()
	}
	k := &Check{config: c, report: Report{Networks: c.Networks}}
	for i, p := range c.Ports {
		k.report.Ports = append(k.report.Ports, Port{Port: p})
		k.open(p, i)
	}
	listening := len(k.socks)
	k.open(0, -1)
	for _, to := range c.Targets {
		if _, _, err := net.SplitHostPort(to); err != nil {
			k.Close()
			return nil, fmt.Errorf("target %q: %w", to, err)
		}
		k.report.Targets = append(k.report.Targets, Target{To: to})
	}
	if len(k.socks) == listening {
		k.Close()
		return nil, errors.New("no UDP socket can be opened")
	}
	return k, nil
}

func (k *Check) open(port, index int) {
	var errs []string
	for _, network := range []string{"udp4", "udp6"} {
		config := net.ListenConfig{Control: setDontFragment}
		c, err := config.ListenPacket(context.Background(), network, net.JoinHostPort("", strconv.Itoa(port)))
		if errors.Is(err, syscall.EAFNOSUPPORT) {
			continue // a host without IPv6
		}
		if err != nil {
			errs = append(errs, err.Error())
			continue
		}
		k.socks = append(k.socks, sock{c.(*net.UDPConn), index, network == "udp4"})
	}
	if len(errs) > 0 && index >= 0 {
		k.report.Ports[index].Error = strings.Join(errs, "; ") // one line
	}
}

// Close closes all sockets.
func (k *Check) Close() {
	for _, s := range k.socks {
		_ = s.Close() // no pending writes
	}
}

// Run replies to requests and sends its own until ctx is done.
func (k *Check) Run(ctx context.Context) {
	var readers sync.WaitGroup
	for _, s := range k.socks {
		readers.Go(func() { k.read(s) })
	}
	ticker := time.NewTicker(k.config.Every)
	defer ticker.Stop()
	for k.round(ctx); ctx.Err() == nil; {
		select {
		case <-ctx.Done():
		case <-ticker.C:
			k.round(ctx)
		}
	}
	k.Close()
	readers.Wait()
}

// Report returns the current result.
func (k *Check) Report() Report {
	k.mu.Lock()
	defer k.mu.Unlock()
	return Report{Ports: slices.Clone(k.report.Ports), Targets: slices.Clone(k.report.Targets), Networks: k.report.Networks}
}

// A request has MAC, type, size, target, and the time it was sent; a reply also has the time of
// the reply. Numbers are big-endian.
const (
	macBytes     = 16
	typeRequest  = 'q'
	typeReply    = 'a'
	requestBytes = macBytes + 1 + 2 + 2 + 8
	replyBytes   = requestBytes + 8
)

func (k *Check) sign(raw []byte) {
	mac := hmac.New(sha256.New, k.config.Key)
	mac.Write(raw[macBytes:])
	copy(raw, mac.Sum(nil)[:macBytes])
}

func (k *Check) signed(raw []byte) bool {
	mac := hmac.New(sha256.New, k.config.Key)
	mac.Write(raw[macBytes:])
	return hmac.Equal(raw[:macBytes], mac.Sum(nil)[:macBytes])
}

// round sends requests of every size to every target.
func (k *Check) round(ctx context.Context) {
	for i, to := range k.config.Targets {
		if err := k.request(ctx, i, to); err != nil && ctx.Err() == nil {
			k.mu.Lock()
			k.report.Targets[i].Error = err.Error()
			k.mu.Unlock()
		}
	}
}

func (k *Check) request(ctx context.Context, target int, to string) error {
	host, port, err := net.SplitHostPort(to)
	if err != nil {
		return err
	}
	number, err := net.DefaultResolver.LookupPort(ctx, "udp", port)
	if err != nil {
		return err
	}
	addrs, err := net.DefaultResolver.LookupNetIP(ctx, "ip", host)
	if err != nil {
		return err
	}
	at := netip.AddrPortFrom(addrs[0].Unmap(), uint16(number))
	i := slices.IndexFunc(k.socks, func(s sock) bool { return s.port < 0 && s.four == at.Addr().Is4() })
	if i < 0 {
		return fmt.Errorf("%s: this host has no socket of that family", at)
	}
	headers := 20 + 8
	if at.Addr().Is6() {
		headers = 40 + 8
	}
	for _, size := range k.config.Sizes {
		raw := make([]byte, size-headers)
		raw[macBytes] = typeRequest
		binary.BigEndian.PutUint16(raw[macBytes+1:], uint16(size))
		binary.BigEndian.PutUint16(raw[macBytes+3:], uint16(target))
		binary.BigEndian.PutUint64(raw[macBytes+5:], uint64(time.Now().UnixNano()))
		k.sign(raw)
		_, err := k.socks[i].WriteToUDPAddrPort(raw, at)
		if errors.Is(err, syscall.EMSGSIZE) {
			continue // exceeds the MTU of the device
		}
		if size != k.config.Sizes[0] {
			continue
		}
		if err != nil && !errors.Is(err, syscall.ECONNREFUSED) { // of an earlier packet: the port is not open yet
			return err
		}
		k.mu.Lock()
		k.report.Targets[target].Sent++
		k.report.Targets[target].Error = ""
		k.mu.Unlock()
	}
	return nil
}

// read handles requests and replies until the socket is closed.
func (k *Check) read(s sock) {
	buffer := make([]byte, 1<<16)
	for {
		n, from, err := s.ReadFromUDPAddrPort(buffer)
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil || n < requestBytes || !k.signed(buffer[:n]) {
			continue // an ICMP error of an earlier request, or a packet without the key
		}
		raw := buffer[:n]
		switch {
		case raw[macBytes] == typeRequest:
			out := make([]byte, replyBytes) // shorter than any request, so it amplifies no attack
			copy(out[macBytes:], raw[macBytes:requestBytes])
			out[macBytes] = typeReply
			binary.BigEndian.PutUint64(out[requestBytes:], uint64(time.Now().UnixNano()))
			k.sign(out)
			if _, err := s.WriteToUDPAddrPort(out, from); err == nil && s.port >= 0 {
				k.mu.Lock()
				k.report.Ports[s.port].Requests++
				k.mu.Unlock()
			}
		case raw[macBytes] == typeReply && n == replyBytes:
			k.onReply(raw, time.Now())
		}
	}
}

func (k *Check) onReply(raw []byte, now time.Time) {
	size := int(binary.BigEndian.Uint16(raw[macBytes+1:]))
	target := int(binary.BigEndian.Uint16(raw[macBytes+3:]))
	sent := time.Unix(0, int64(binary.BigEndian.Uint64(raw[macBytes+5:])))
	replied := time.Unix(0, int64(binary.BigEndian.Uint64(raw[requestBytes:])))
	k.mu.Lock()
	defer k.mu.Unlock()
	if target >= len(k.report.Targets) || !slices.Contains(k.config.Sizes, size) {
		return
	}
	t := &k.report.Targets[target]
	if size == k.config.Sizes[0] {
		t.Answered++
	}
	t.Largest = max(t.Largest, size)
	if rtt := now.Sub(sent); t.RTT == 0 || rtt.Microseconds() < t.RTT {
		t.RTT = max(rtt.Microseconds(), 1)
		t.ClockOffset = replied.Sub(sent.Add(rtt / 2)).Milliseconds()
	}
}
