package main

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"strings"
	"time"

	"golang.zx2c4.com/wireguard/wgctrl/wgtypes"

	"hawser.dev/hawser/lab"
)

// The reference is a WireGuard set up by hand between the same gateways: no NAT, no VXLAN inside
// the cluster, second addresses for the same pods.
const (
	refLink = "wgref0"
	refPort = 51999
)

// refEnd is one cluster's end.
type refEnd struct {
	cluster     string
	net, remote string // prefixes of the pods' second addresses
	pods        map[string]string
	key         wgtypes.Key
	lan, wan    map[string]string // by node
	podIP, at   map[string]string // by pod: address, node
}

func newRefEnd(s lab.Status, cluster string, net, remote string) (*refEnd, error) {
	key, err := wgtypes.GeneratePrivateKey()
	if err != nil {
		return nil, err
	}
	base := netip.MustParsePrefix(net).Addr()
	e := &refEnd{cluster: cluster, net: net, remote: remote, key: key,
		pods: map[string]string{"worker": base.Next().String(), "gateway": base.Next().Next().String()},
		lan:  map[string]string{}, wan: map[string]string{}, podIP: map[string]string{}, at: map[string]string{}}
	for _, n := range s.Nodes {
		if n.Cluster != cluster {
			continue
		}
		e.lan[n.Name] = n.LAN[0]
		if len(n.WAN) > 0 {
			e.wan[n.Name] = n.WAN[0]
		}
	}
	for _, p := range s.Pods {
		if p.Cluster == cluster && p.Namespace == "bench" {
			e.podIP[p.Name], e.at[p.Name] = p.IP, p.Node
		}
	}
	for pod := range e.pods {
		if e.podIP[pod] == "" {
			return nil, fmt.Errorf("pod %s/bench/%s is missing in the lab", cluster, pod)
		}
	}
	return e, nil
}

func (e *refEnd) gateway() string { return e.cluster + "-gw" }
func (e *refEnd) worker() string  { return e.cluster + "-w1" }

// reference configures both ends and waits until packets arrive. It returns the servers' addresses by pod.
func (t *testbed) reference(ctx context.Context) (servers map[string]string, err error) {
	s, err := t.status(ctx)
	if err != nil {
		return nil, err
	}
	a, err := newRefEnd(s, "b1", "198.19.1.0/24", "198.19.2.0/24")
	if err != nil {
		return nil, err
	}
	b, err := newRefEnd(s, "b2", "198.19.2.0/24", "198.19.1.0/24")
	if err != nil {
		return nil, err
	}
	for _, pair := range [][2]*refEnd{{a, b}, {b, a}} {
		if err := t.refTunnel(ctx, pair[0], pair[1]); err != nil {
			return nil, err
		}
		if err := t.refRoutes(ctx, pair[0]); err != nil {
			return nil, err
		}
	}
	err = within(ctx, 10*time.Second, func() error {
		_, err := t.pod(ctx, "b1/bench/worker", "ping", "-c1", "-W1", b.pods["worker"])
		return err
	})
	return b.pods, err
}

func (t *testbed) refTunnel(ctx context.Context, near, far *refEnd) error {
	node := near.cluster + "/" + near.gateway()
	if err := t.background("lab", "node", node, "--", t.bin+"/hawser-agent", "wireguard", refLink); err != nil {
		return err
	}
	settings := fmt.Sprintf("[Interface]\nPrivateKey = %s\nListenPort = %d\n[Peer]\nPublicKey = %s\nEndpoint = %s:%d\nAllowedIPs = %s\n",
		near.key, refPort, far.key.PublicKey(), far.wan[far.gateway()], refPort, far.net)
	configure := func() error { return t.node(ctx, node, settings, "wg", "setconf", refLink, "/dev/stdin") }
	if err := within(ctx, 5*time.Second, configure); err != nil {
		return err
	}
	mtu, err := t.hawser(ctx, "lab", "node", node, "--", "cat", "/proc/sys/net/ipv6/conf/hw-wg1/mtu")
	if err != nil && !os.IsNotExist(err) {
		return err
	}
	return t.node(ctx, node, "", "ip", "link", "set", refLink, "mtu", strings.TrimSpace(string(mtu)), "up")
}

// refRoutes adds the pods' second addresses and the routes to them.
func (t *testbed) refRoutes(ctx context.Context, e *refEnd) error {
	gateway, worker := e.cluster+"/"+e.gateway(), e.cluster+"/"+e.worker()
	commands := []struct{ node, command string }{
		{gateway, "ip route add " + e.remote + " dev " + refLink},
		{worker, "ip route add " + e.remote + " via " + e.lan[e.gateway()]},
		{gateway, "ip route add " + e.pods["worker"] + " via " + e.lan[e.worker()]},
		{worker, "ip route add " + e.pods["worker"] + " via " + e.podIP["worker"]},
		{gateway, "ip route add " + e.pods["gateway"] + " via " + e.podIP["gateway"]},
	}
	for _, c := range commands {
		if err := t.node(ctx, c.node, "", strings.Fields(c.command)...); err != nil {
			return err
		}
	}
	for pod, address := range e.pods {
		name := e.cluster + "/bench/" + pod
		if _, err := t.pod(ctx, name, "ip", "addr", "add", address+"/32", "dev", "eth0"); err != nil {
			return err
		}
		via, err := t.pod(ctx, name, "sh", "-c", "ip -4 route show default | cut -d' ' -f3")
		if err != nil {
			return err
		}
		route := "ip route add " + e.remote + " via " + strings.TrimSpace(string(via)) + " dev eth0 onlink src " + address
		if _, err := t.pod(ctx, name, strings.Fields(route)...); err != nil {
			return err
		}
	}
	return nil
}
