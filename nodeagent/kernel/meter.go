package kernel

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"time"

	"golang.org/x/sys/unix"
	"golang.zx2c4.com/wireguard/wgctrl/wgtypes"

	"hawser.dev/hawser/nodeagent/desired"
	"hawser.dev/hawser/nodeagent/kernel/nftables"
	"hawser.dev/hawser/nodeagent/kernel/userspacewg"
)

// TunnelCounters holds the counters of a tunnel in the kernel or in the tunnel's process.
type TunnelCounters struct {
	Endpoint string // address:port in use; empty if unknown
	Mode     string // of a WireGuard device that responds: kernel or userspace
	RxBytes  int64
	TxBytes  int64
}

// TunnelCounters returns the counters of tunnels, in the same order. The counters of devices
// that do not respond are zero. It is safe for concurrent use.
func (ns *Namespace) TunnelCounters(ctx context.Context, tunnels []desired.Tunnel) ([]TunnelCounters, error) {
	counts := map[string]TunnelCounters{}
	var errs []error
	read := map[string]bool{}
	elements := false
	for _, tunnel := range tunnels {
		if !strings.HasPrefix(tunnel.Device, desired.TunnelDevicePrefix) {
			elements = true
		} else if !read[tunnel.Device] {
			read[tunnel.Device] = true
			errs = append(errs, ns.readPeerCounters(ctx, tunnel.Device, counts))
		}
	}
	if elements {
		errs = append(errs, ns.nft(func(conn *nftables.Conn) error {
			for _, set := range nftSets() {
				if !set.Counter || set.Set.Name == desired.SetRemote {
					continue
				}
				if err := nftCountElements(conn, set, counts); err != nil {
					return fmt.Errorf("read counters of %s: %w", set.Name, err)
				}
			}
			return nil
		}))
	}
	out := make([]TunnelCounters, len(tunnels))
	for i, tunnel := range tunnels {
		if tunnel.Endpoint.IsValid() {
			out[i].Endpoint = tunnel.Endpoint.String()
		}
		counters := &out[i]
		for _, key := range tunnel.Received {
			counters.RxBytes += counts[key].RxBytes
		}
		for _, key := range tunnel.Sent {
			from := counts[key]
			counters.TxBytes += from.TxBytes
			counters.Mode = from.Mode
			if from.Endpoint != "" {
				counters.Endpoint = from.Endpoint
			}
		}
	}
	return out, errors.Join(errs...)
}

// readPeerCounters reads the peers of a WireGuard device.
func (ns *Namespace) readPeerCounters(ctx context.Context, link string, counts map[string]TunnelCounters) error {
	d, err := ns.wg.Device(ctx, link)
	if errors.Is(err, userspacewg.ErrNoAnswer) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("read wireguard device %s: %w", link, err)
	}
	mode := "userspace"
	if d.Type == wgtypes.LinuxKernel {
		mode = "kernel"
	}
	for _, p := range d.Peers {
		m := TunnelCounters{Mode: mode, RxBytes: p.ReceiveBytes, TxBytes: p.TransmitBytes}
		if p.Endpoint != nil {
			m.Endpoint = p.Endpoint.String()
		}
		counts[desired.Peer{Device: link, PublicKey: p.PublicKey.String()}.Key()] = m
	}
	return nil
}

// RemotePackets returns the packets that this node sent into tunnels since the elements of the set were
// written, by the first address of each prefix of another cluster. The map is empty without the table.
// It is safe for concurrent use.
func (ns *Namespace) RemotePackets(context.Context) (map[netip.Addr]uint64, error) {
	counts := map[netip.Addr]uint64{}
	read := func(conn *nftables.Conn) error {
		for _, set := range nftSets() {
			if set.Set.Name != desired.SetRemote {
				continue
			}
			err := conn.Elements(set.name(), func(e nftables.Element) error {
				if addr, ok := netip.AddrFromSlice(e.Key); ok && e.Counter != nil {
					counts[addr] = e.Counter.Packets
				}
				return nil
			})
			if err != nil && !errors.Is(err, unix.ENOENT) && !errors.Is(err, nftables.ErrInterrupted) {
				return err
			}
		}
		return nil
	}
	if err := ns.inside(func() error { return ns.remoteCounters.use(read) }); err != nil {
		return nil, fmt.Errorf("read counters of remote prefixes: %w", err)
	}
	return counts, nil
}

// Dropped returns the packets that table inet hawser dropped since its rules were last written,
// by the chain that counts them (desired.Drop). The map is empty without the table. It is safe
// for concurrent use.
func (ns *Namespace) Dropped(context.Context) (map[string]uint64, error) {
	counts := map[string]uint64{}
	if err := ns.nft(func(conn *nftables.Conn) error { return nftCountDrops(conn, counts) }); err != nil {
		return nil, fmt.Errorf("read drop counters: %w", err)
	}
	return counts, nil
}

func nftCountDrops(conn *nftables.Conn, counts map[string]uint64) error {
	err := conn.Rules(nftTable(), func(r nftables.Rule) error {
		if !strings.HasPrefix(r.Chain, desired.DropPrefix) {
			return nil
		}
		for e := range r.ListExpressions() {
			if counter, ok := e.Counter(); ok {
				counts[r.Chain] = counter.Packets
			}
		}
		return nil
	})
	if errors.Is(err, unix.ENOENT) || errors.Is(err, nftables.ErrInterrupted) {
		return nil
	}
	return err
}

// nftCountElements reads one set. If the ruleset changes meanwhile, some counters may be
// missing; they are for display only.
func nftCountElements(conn *nftables.Conn, set nftSet, counts map[string]TunnelCounters) error {
	err := conn.Elements(set.name(), func(e nftables.Element) error {
		if e.Counter != nil {
			n := int64(e.Counter.Bytes)
			key := desired.Element{Set: set.Set.Name, Family: set.Family, ID: set.keyText(nftFromElement(e))}.Key()
			counts[key] = TunnelCounters{RxBytes: n, TxBytes: n}
		}
		return nil
	})
	if errors.Is(err, unix.ENOENT) || errors.Is(err, nftables.ErrInterrupted) {
		return nil
	}
	return err
}

// handshakeAge is the time for which a handshake proves the peer's endpoint: WireGuard drops a
// session after REJECT_AFTER_TIME = 180 s (the WireGuard paper, section 6.1).
const handshakeAge = 180 * time.Second

// handshakes records which peers completed a handshake recently. WireGuard reports the time of
// the last handshake by the wall clock, which jumps. So its age counts from its first
// observation, by the monotonic clock.
type handshakes map[string]handshake

type handshake struct {
	reported time.Time // by WireGuard
	observed time.Time // first read of this handshake
}

// record records the last handshake that WireGuard reports for a peer (zero = none yet). It
// reports whether it is recent. now has a monotonic part.
func (h handshakes) record(key string, reported, now time.Time) bool {
	if reported.IsZero() {
		delete(h, key)
		return false
	}
	last, ok := h[key]
	switch {
	case !ok: // for a handshake before our start, only the wall clock is known
		last = handshake{reported: reported, observed: now.Add(-max(now.Sub(reported), 0))}
	case !reported.Equal(last.reported):
		last = handshake{reported: reported, observed: now}
	}
	h[key] = last
	return now.Sub(last.observed) < handshakeAge
}
