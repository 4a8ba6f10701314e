package kernel

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"

	"golang.zx2c4.com/wireguard/wgctrl/wgtypes"

	"hawser.dev/hawser/nodeagent/desired"
	"hawser.dev/hawser/nodeagent/tunnel"
)

// PeerCounters is what WireGuard knows of one peer now.
type PeerCounters struct {
	Endpoint string // address:port in use; empty when none is known
	RxBytes  int64
	TxBytes  int64
}

// PeerStatus reads the peers of our devices, by public key (base64), and the
// driver that holds them. Devices that do not answer are left out. Other than the
// kinds it may be used by any goroutine, but it looks at the current network
// namespace.
func (ns *Namespace) PeerStatus(ctx context.Context) (peers map[string]PeerCounters, driver string, err error) {
	links, err := net.Interfaces()
	if err != nil {
		return nil, "", fmt.Errorf("list links: %w", err)
	}
	peers = map[string]PeerCounters{}
	for _, link := range links {
		if !strings.HasPrefix(link.Name, desired.TunnelPrefix) {
			continue
		}
		d, err := ns.wg.Device(ctx, link.Name)
		if errors.Is(err, tunnel.ErrNoAnswer) {
			continue
		}
		if err != nil {
			return nil, "", fmt.Errorf("read wireguard device %s: %w", link.Name, err)
		}
		driver = "wireguard (userspace)"
		if d.Type == wgtypes.LinuxKernel {
			driver = "wireguard (kernel)"
		}
		for _, p := range d.Peers {
			c := PeerCounters{RxBytes: p.ReceiveBytes, TxBytes: p.TransmitBytes}
			if p.Endpoint != nil {
				c.Endpoint = p.Endpoint.String()
			}
			peers[p.PublicKey.String()] = c
		}
	}
	return peers, driver, nil
}
