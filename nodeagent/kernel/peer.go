package kernel

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"slices"
	"time"

	"golang.zx2c4.com/wireguard/wgctrl/wgtypes"

	"hawser.dev/hawser/internal/cidr"
	"hawser.dev/hawser/internal/diff"
	"hawser.dev/hawser/nodeagent/converge"
	"hawser.dev/hawser/nodeagent/desired"
	"hawser.dev/hawser/schema/fabric"
)

// Peers is the kind of the WireGuard peers on our devices. Every peer there is ours.
type Peers struct {
	ns *Namespace
	// answering reports by key whether a peer responded recently, as of the last Observe.
	answering  map[string]bool
	handshakes handshakes
	lastDial   map[string]int               // by key: the last Dial that was applied
	endpoints  map[string][2]netip.AddrPort // by key: the endpoint at the last Observe, and the one before it
}

// NewPeers returns the kind.
func NewPeers(ns *Namespace) *Peers {
	return &Peers{ns: ns, handshakes: handshakes{}, lastDial: map[string]int{}, endpoints: map[string][2]netip.AddrPort{}}
}

// Name returns "peer".
func (*Peers) Name() string { return "peer" }

// Observe returns all peers of our devices.
func (k *Peers) Observe(ctx context.Context) ([]desired.Peer, error) {
	devices, err := k.ns.reuseDevices(ctx)
	if err != nil {
		return nil, err
	}
	now := time.Now()
	k.answering = map[string]bool{}
	var out []desired.Peer
	for _, d := range devices {
		for _, p := range d.Peers {
			peer := readPeer(d.Name, p)
			k.answering[peer.Key()] = k.handshakes.record(peer.Key(), p.LastHandshakeTime, now)
			if known := k.endpoints[peer.Key()]; known[0] != peer.Endpoint {
				k.endpoints[peer.Key()] = [2]netip.AddrPort{peer.Endpoint, known[0]}
			}
			out = append(out, peer)
		}
	}
	removed := func(key string) bool {
		_, ok := k.answering[key]
		return !ok
	}
	maps.DeleteFunc(k.handshakes, func(key string, _ handshake) bool { return removed(key) })
	maps.DeleteFunc(k.endpoints, func(key string, _ [2]netip.AddrPort) bool { return removed(key) })
	return out, nil
}

func readPeer(link string, p wgtypes.Peer) desired.Peer {
	peer := desired.Peer{
		Device: link, PublicKey: p.PublicKey.String(), PSK: fabric.Secret(p.PresharedKey),
		AllowedIPs: make([]netip.Prefix, len(p.AllowedIPs)), Keepalive: int(p.PersistentKeepaliveInterval / time.Second),
	}
	if p.Endpoint != nil {
		endpoint := p.Endpoint.AddrPort()
		peer.Endpoint = netip.AddrPortFrom(endpoint.Addr().Unmap(), endpoint.Port())
	}
	for i := range p.AllowedIPs {
		peer.AllowedIPs[i] = fromNet(&p.AllowedIPs[i])
	}
	slices.SortFunc(peer.AllowedIPs, netip.Prefix.Compare)
	return peer
}

// Normalize accepts the endpoint that the kernel learned, if the peer responds there or no
// endpoint is desired. A newer Dial overrides the learned endpoint. It ignores the order of
// allowed IPs.
func (k *Peers) Normalize(want, have desired.Peer) desired.Peer {
	if want.DialCount <= k.lastDial[want.Key()] || !want.Endpoint.IsValid() {
		want.DialCount = have.DialCount
	}
	if !want.Endpoint.IsValid() || want.DialCount == have.DialCount && have.Endpoint.IsValid() && k.answering[have.Key()] {
		want.Endpoint = have.Endpoint
	}
	if !slices.IsSortedFunc(want.AllowedIPs, netip.Prefix.Compare) {
		want.AllowedIPs = slices.Clone(want.AllowedIPs)
		slices.SortFunc(want.AllowedIPs, netip.Prefix.Compare)
	}
	return want
}

// Apply writes the changes of each device in one batch, so an allowed IP that moves between
// peers always belongs to one of them.
func (k *Peers) Apply(ctx context.Context, changes []diff.Change[desired.Peer]) error {
	var errs []error
	var previousEndpoints []netip.AddrPort
	batches := map[string][]diff.Change[desired.Peer]{}
	configs := map[string][]wgtypes.PeerConfig{}
	for _, c := range changes {
		config, err := peerConfig(c)
		if err != nil {
			errs = append(errs, converge.KeyError{Key: c.Key, Err: err})
			continue
		}
		link := c.Want.Device
		if c.Op == diff.Delete {
			link = c.Have.Device
		}
		batches[link] = append(batches[link], c)
		configs[link] = append(configs[link], k.resetForRedial(c, config)...)
		previousEndpoints = append(previousEndpoints, k.previousEndpoints(c)...)
	}
	if err := k.ns.dropFromEndpoints(previousEndpoints); err != nil {
		err = fmt.Errorf("drop late packets from the peer's old endpoint: %w", err)
		for _, c := range changes {
			if len(k.previousEndpoints(c)) > 0 {
				errs = append(errs, converge.KeyError{Key: c.Key, Err: err})
			}
		}
	}
	for link, batch := range batches {
		err := k.ns.configure(ctx, link, wgtypes.Config{Peers: configs[link]})
		for _, c := range batch {
			if err == nil || c.Op == diff.Delete && errors.As(err, new(converge.ErrBlocked)) {
				k.recordDial(c)
				continue
			}
			errs = append(errs, converge.KeyError{Key: c.Key, Err: err})
		}
	}
	return errors.Join(errs...)
}

// resetForRedial recreates a peer without a session when it is redialled: WireGuard starts no
// handshake within 5 s of the last one (REKEY_TIMEOUT), even to a new endpoint.
func (k *Peers) resetForRedial(c diff.Change[desired.Peer], config wgtypes.PeerConfig) []wgtypes.PeerConfig {
	if c.Op != diff.Update || c.Want.DialCount == 0 || k.answering[c.Key] {
		return []wgtypes.PeerConfig{config}
	}
	config.UpdateOnly = false
	config.Endpoint = net.UDPAddrFromAddrPort(c.Want.Endpoint)
	return []wgtypes.PeerConfig{{PublicKey: config.PublicKey, Remove: true, UpdateOnly: true}, config}
}

// previousEndpoints returns the endpoints from which late packets may still arrive after a peer
// with a session is redialled. It includes the endpoint before the last one, because an
// endpoint probe (package endpointprobe) may have moved the peer for a moment.
func (k *Peers) previousEndpoints(c diff.Change[desired.Peer]) []netip.AddrPort {
	if c.Op != diff.Update || c.Want.DialCount == 0 || !k.answering[c.Key] {
		return nil
	}
	endpoints := k.endpoints[c.Key]
	return slices.DeleteFunc(endpoints[:], func(p netip.AddrPort) bool { return !p.IsValid() || p == c.Want.Endpoint })
}

// recordDial records the last Dial applied to a peer.
func (k *Peers) recordDial(c diff.Change[desired.Peer]) {
	switch {
	case c.Op == diff.Delete:
		delete(k.lastDial, c.Key)
	case c.Want.DialCount > 0:
		k.lastDial[c.Key] = c.Want.DialCount
	}
}

func peerConfig(c diff.Change[desired.Peer]) (wgtypes.PeerConfig, error) {
	if c.Op == diff.Delete {
		key, err := wgtypes.ParseKey(c.Have.PublicKey)
		return wgtypes.PeerConfig{PublicKey: key, Remove: true, UpdateOnly: true}, err
	}
	key, err := wgtypes.ParseKey(c.Want.PublicKey)
	if err != nil {
		return wgtypes.PeerConfig{}, err
	}
	psk := wgtypes.Key(c.Want.PSK)
	keepalive := time.Duration(c.Want.Keepalive) * time.Second
	config := wgtypes.PeerConfig{
		PublicKey: key, UpdateOnly: c.Op != diff.Create, PresharedKey: &psk, PersistentKeepaliveInterval: &keepalive,
		ReplaceAllowedIPs: true, AllowedIPs: make([]net.IPNet, len(c.Want.AllowedIPs)),
	}
	for i, p := range c.Want.AllowedIPs {
		config.AllowedIPs[i] = *cidr.IPNet(p)
	}
	if c.Want.Endpoint.IsValid() && c.Want.Endpoint != c.Have.Endpoint {
		config.Endpoint = net.UDPAddrFromAddrPort(c.Want.Endpoint)
	}
	return config, nil
}
