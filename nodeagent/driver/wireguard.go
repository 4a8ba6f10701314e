package driver

import (
	"cmp"
	"net/netip"
	"slices"
	"strconv"
	"time"

	"hawser.dev/hawser/nodeagent/desired"
	"hawser.dev/hawser/nodeagent/status"
	"hawser.dev/hawser/schema/fabric"
)

// wireguard is the WireGuard driver, in the kernel or in userspace; the host decides which. On one
// device an allowed IP belongs to exactly one peer. So each gateway ordinal has its own device,
// with at most one peer per cluster. That peer can have the cluster's prefixes as allowed IPs even
// while its link is not in use. Key epochs have separate devices.
type wireguard struct{}

// Traits returns the overhead from the WireGuard paper: a header of 16 bytes and an
// authentication tag of 16 bytes, after UDP.
func (wireguard) Traits() Traits {
	return Traits{
		Name: fabric.DriverWireguard, Overhead4: 20 + 8 + 32, Overhead6: 40 + 8 + 32, Roaming: true, Keys: X25519,
	}
}

// wgDevice is the device for one key epoch and the remote gateways of one ordinal whose links
// share a base port.
type wgDevice struct {
	epoch, ordinal, base int
	alt                  bool
	keys                 *fabric.EpochKeys
	private              fabric.Secret
	link                 string
}

func (d *wgDevice) port() int { return fabric.WireguardPort(d.base, d.epoch, d.ordinal, d.alt) }

// isDefaultPort reports whether the device has the default base port and is not alternate.
func (d *wgDevice) isDefaultPort() bool { return d.base == fabric.DefaultPort && !d.alt }

// PortOffset returns the offset of a WireGuard port from its gateway's base port. epoch is the key
// epoch, ordinal the ordinal of the other gateway.
func PortOffset(epoch, ordinal int) int { return fabric.WireguardPort(0, epoch, ordinal, false) }

// Build returns a device for each epoch, ordinal and port, with a peer for each gateway of that
// ordinal.
func (wireguard) Build(site LocalGateway, remotes []Remote) Result {
	var b Result
	// Skip epochs without a private key.
	var devices []wgDevice
	missing := map[int]bool{}
	for i := range remotes {
		r := &remotes[i]
		if missing[r.Epoch] || slices.ContainsFunc(devices, func(d wgDevice) bool { return d.serves(r) }) {
			continue
		}
		private, found := privateKey(X25519, site.Keys, site.Gateway.Name, r.Epoch)
		if !found {
			missing[r.Epoch] = true
			b.problem(site.path(), status.KeyMissing, "no private key of epoch "+strconv.Itoa(r.Epoch)+", so there is no tunnel")
			continue
		}
		d := wgDevice{epoch: r.Epoch, ordinal: r.Gateway.Ordinal, base: r.LocalBasePort, alt: r.Alternate, keys: site.Keys.Epoch(r.Epoch), private: private}
		// The name has only the epoch for ordinal 0, and the port unless it is the default
		// port. It depends on nothing that may change while the device exists.
		name := desired.TunnelDevicePrefix + strconv.Itoa(d.epoch)
		switch {
		case !d.isDefaultPort():
			name += "-p" + strconv.Itoa(d.port())
		case d.ordinal > 0:
			name += "-" + strconv.Itoa(d.ordinal)
		}
		d.link = name
		devices = append(devices, d)
	}
	slices.SortFunc(devices, func(x, y wgDevice) int {
		return cmp.Or(cmp.Compare(x.epoch, y.epoch), cmp.Compare(x.base, y.base), cmp.Compare(x.ordinal, y.ordinal), cmp.Compare(x.port(), y.port()))
	})
	for i := range devices {
		d := &devices[i]
		mtu := 0
		for i := range remotes {
			if d.serves(&remotes[i]) {
				mtu = max(mtu, remotes[i].MTU)
			}
		}
		priority := desired.RuleTunnel
		if d.isDefaultPort() {
			priority = desired.RuleOut + 1 + PortOffset(d.epoch, d.ordinal)
		}
		b.device(&site, desired.Device{Name: d.link, Type: desired.DeviceWireguard, MTU: mtu}, priority)
		b.Wireguards = append(b.Wireguards, desired.Wireguard{
			Device: d.link, PrivateKey: d.private, ListenPort: d.port(), Origin: site.path(),
		})
	}
	for i := range devices {
		for j := range remotes {
			if r := &remotes[j]; devices[i].serves(r) {
				b.peer(&site, &devices[i], r)
			}
		}
	}
	return b
}

func (d *wgDevice) serves(r *Remote) bool {
	return r.Gateway.Ordinal == d.ordinal && r.LocalBasePort == d.base && r.Alternate == d.alt && r.Epoch == d.epoch
}

func (b *Result) peer(site *LocalGateway, d *wgDevice, r *Remote) {
	public := publicKey(X25519, r.Gateway, d.epoch)
	if public == "" {
		b.problem(r.path(), status.PeerKeyMissing, "no public key of epoch "+strconv.Itoa(d.epoch))
		return
	}
	psk, err := d.keys.PSK(site.Cluster+"/"+site.Gateway.Name, r.Cluster+"/"+r.Gateway.Name)
	if err != nil {
		b.problem(r.path(), status.PeerKeyMissing, err.Error())
		return
	}
	var endpoint netip.AddrPort
	if r.Addr.IsValid() {
		endpoint = netip.AddrPortFrom(r.Addr, uint16(fabric.WireguardPort(r.RemoteBasePort, d.epoch, site.Gateway.Ordinal, d.alt)))
	}
	peer := desired.Peer{
		Device: d.link, PublicKey: public, PSK: psk, Endpoint: endpoint, AllowedIPs: r.ownPrefixes(),
		Keepalive: int(time.Duration(r.Link.Keepalive) / time.Second), DialCount: r.DialCount, Origin: r.path(),
	}
	b.Peers = append(b.Peers, peer)
	b.Tunnels = append(b.Tunnels, desired.Tunnel{
		Cluster: r.Cluster, Gateway: r.Gateway.Name, Preference: r.Preference, Driver: fabric.DriverWireguard, Epoch: d.epoch, Alternate: d.alt, Port: d.port(), Device: d.link,
		MTU: r.MTU, Endpoint: endpoint, Sent: []string{peer.Key()}, Received: []string{peer.Key()},
	})
}
