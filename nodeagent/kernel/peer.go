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

// Peers is the kind of WireGuard peers: on our devices, every peer is ours.
type Peers struct {
	ns *Namespace
	// answering says by key whether a peer answered recently, as of the last
	// Observe.
	answering  map[string]bool
	handshakes handshakes
	lastDial   map[string]int               // by key: the last Dial that was followed
	endpoints  map[string][2]netip.AddrPort // by key: where a peer is, as of the last Observe, and where it was before
}

// NewPeers makes the kind.
func NewPeers(ns *Namespace) *Peers {
	return &Peers{ns: ns, handshakes: handshakes{}, lastDial: map[string]int{}, endpoints: map[string][2]netip.AddrPort{}}
}

// Name is "peer".
func (*Peers) Name() string { return "peer" }

// Observe gives all peers of our devices.
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
			k.answering[peer.Key()] = k.handshakes.note(peer.Key(), p.LastHandshakeTime, now)
			if at := k.endpoints[peer.Key()]; at[0] != peer.Endpoint {
				k.endpoints[peer.Key()] = [2]netip.AddrPort{peer.Endpoint, at[0]}
			}
			out = append(out, peer)
		}
	}
	gone := func(key string) bool {
		_, there := k.answering[key]
		return !there
	}
	maps.DeleteFunc(k.handshakes, func(key string, _ handshake) bool { return gone(key) })
	maps.DeleteFunc(k.endpoints, func(key string, _ [2]netip.AddrPort) bool { return gone(key) })
	return out, nil
}

func readPeer(link string, p wgtypes.Peer) desired.Peer {
	peer := desired.Peer{
		Link: link, PublicKey: p.PublicKey.String(), PSK: fabric.Secret(p.PresharedKey),
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

// Normalize takes the endpoint that the kernel learned, while the peer answers
// there or when none is asked for, unless it was decided since to go elsewhere; and
// ignores the order of allowed IPs.
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

// Apply writes the changes of each device in one batch, so that an allowed IP
// that moves between peers is never with neither.
func (k *Peers) Apply(ctx context.Context, changes []diff.Change[desired.Peer]) error {
	var errs []error
	var former []netip.AddrPort
	batches := map[string][]diff.Change[desired.Peer]{}
	configs := map[string][]wgtypes.PeerConfig{}
	for _, c := range changes {
		config, err := peerConfig(c)
		if err != nil {
			errs = append(errs, converge.KeyError{Key: c.Key, Err: err})
			continue
		}
		link := c.Want.Link
		if c.Op == diff.Delete {
			link = c.Have.Link
		}
		batches[link] = append(batches[link], c)
		configs[link] = append(configs[link], k.resetForRedial(c, config)...)
		former = append(former, k.previousEndpoints(c)...)
	}
	if err := k.ns.dropFromEndpoints(former); err != nil {
		err = fmt.Errorf("keep what is on its way from calling the peer back: %w", err)
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

// resetForRedial makes a peer without a session that is dialled a new one: WireGuard begins
// no handshake within 5 s of the last (REKEY_TIMEOUT), wherever that went.
func (k *Peers) resetForRedial(c diff.Change[desired.Peer], config wgtypes.PeerConfig) []wgtypes.PeerConfig {
	if c.Op != diff.Update || c.Want.DialCount == 0 || k.answering[c.Key] {
		return []wgtypes.PeerConfig{config}
	}
	config.UpdateOnly = false
	config.Endpoint = net.UDPAddrFromAddrPort(c.Want.Endpoint)
	return []wgtypes.PeerConfig{{PublicKey: config.PublicKey, Remove: true, UpdateOnly: true}, config}
}

// previousEndpoints gives where a peer with a session was that is dialled elsewhere. A question at its
// new place (package scout) may have taken it there for a moment already, so the place
// before that counts too.
func (k *Peers) previousEndpoints(c diff.Change[desired.Peer]) []netip.AddrPort {
	if c.Op != diff.Update || c.Want.DialCount == 0 || !k.answering[c.Key] {
		return nil
	}
	at := k.endpoints[c.Key]
	return slices.DeleteFunc(at[:], func(p netip.AddrPort) bool { return !p.IsValid() || p == c.Want.Endpoint })
}

// recordDial remembers where a peer was told to go.
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
