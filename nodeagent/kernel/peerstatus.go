package kernel

import (
	"fmt"
	"net"
	"strings"

	"golang.zx2c4.com/wireguard/wgctrl"
	"golang.zx2c4.com/wireguard/wgctrl/wgtypes"

	"hawser.dev/hawser/nodeagent/desired"
)

// PeerCounters is what WireGuard knows of one peer now.
type PeerCounters struct {
	Endpoint string // address:port in use; empty when none is known
	RxBytes  int64
	TxBytes  int64
}

// PeerStatus reads the peers of our devices in the current network namespace, by
// public key (base64), and the driver that holds them.
func PeerStatus() (peers map[string]PeerCounters, driver string, err error) {
	client, err := wgctrl.New()
	if err != nil {
		return nil, "", fmt.Errorf("open wireguard control: %w", err)
	}
	defer func() { _ = client.Close() }()
	links, err := net.Interfaces()
	if err != nil {
		return nil, "", fmt.Errorf("list links: %w", err)
	}
	peers = map[string]PeerCounters{}
	for _, link := range links {
		if !strings.HasPrefix(link.Name, desired.TunnelPrefix) {
			continue
		}
		d, err := client.Device(link.Name)
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
