package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.zx2c4.com/wireguard/wgctrl/wgtypes"
)

// The anchor is the reference of measureSurvive: one active and one passive gateway per cluster, on
// the same nodes and pods, without agents. It imitates systems with a lease. Tunnels, keys and NAT
// rules of the passive gateway exist in advance. After the lease expires, it only changes routes
// and the allowed IPs of peers.
const (
	anchorLink = "wgap0"
	anchorPort = 51998
	anchorAll  = "198.18.0.0/16" // all global addresses
	egressIPs  = 8               // source addresses shared by a cluster's pods
)

// anchorEnd is one cluster of the anchor.
type anchorEnd struct {
	cluster  string
	net      netip.Prefix // global addresses
	gateways []string     // two nodes: the active and the passive gateway
	others   []string     // nodes that send to the active gateway
	keys     map[string]wgtypes.Key
	pods     map[string]string // address by name
	lease    *lease
}

// global returns the cluster's global address with a host number.
func (e *anchorEnd) global(number byte) netip.Addr {
	raw := e.net.Addr().As4()
	raw[3] = number
	return netip.AddrFrom4(raw)
}

// Host numbers of global addresses, by their backend.
const (
	globalOne  = 20
	globalBack = 21
	globalHead = 30 // the next numbers are the other pods
)

// activePassive holds both clusters with their leases.
type activePassive struct {
	*failoverLab
	near, far *anchorEnd
	stop      context.CancelFunc
	wait      sync.WaitGroup

	mu     sync.Mutex // guards changes of routes and peers
	failed error
	moved  time.Time // last change of the active gateway
}

func newAnchor(ctx context.Context, b *failoverLab) (*activePassive, error) {
	status, err := b.client.Status(ctx)
	if err != nil {
		return nil, err
	}
	a := &activePassive{failoverLab: b}
	for i, name := range []string{stallNear, stallFar} {
		e := &anchorEnd{cluster: name, net: netip.PrefixFrom(netip.AddrFrom4([4]byte{198, 18, byte(i + 1), 0}), 24),
			keys: map[string]wgtypes.Key{}, pods: map[string]string{}}
		for _, id := range b.ids(name) {
			if b.nodes[id].Gateway && len(e.gateways) < 2 {
				e.gateways = append(e.gateways, id)
				if e.keys[id], err = wgtypes.GeneratePrivateKey(); err != nil {
					return nil, err
				}
			} else if !b.nodes[id].Gateway {
				e.others = append(e.others, id)
			}
		}
		for _, p := range status.Pods {
			if p.Cluster == name && p.Namespace == "bench" {
				e.pods[p.Name] = p.IP
			}
		}
		e.lease = &lease{holder: e.gateways[0], renewed: time.Now(), dead: map[string]bool{}}
		if i == 0 {
			a.near = e
		} else {
			a.far = e
		}
	}
	return a, nil
}

// start configures everything and starts the elections.
func (a *activePassive) start(ctx context.Context) error {
	for _, e := range []*anchorEnd{a.near, a.far} {
		for _, gateway := range e.gateways {
			if err := a.prepare(ctx, e, gateway); err != nil {
				return err
			}
		}
		for _, node := range e.others {
			if err := a.rules(node, e.keepSource()); err != nil {
				return err
			}
		}
	}
	for _, e := range []*anchorEnd{a.near, a.far} {
		if err := a.activate(ctx, e); err != nil {
			return err
		}
	}
	ctx, a.stop = context.WithCancel(ctx)
	for _, e := range []*anchorEnd{a.near, a.far} {
		for _, gateway := range e.gateways {
			member := &elector{lease: e.lease, name: gateway}
			a.wait.Go(func() { member.run(ctx, func() { a.takeOver(ctx, e) }) })
		}
	}
	return nil
}

func (a *activePassive) end() {
	if a.stop != nil {
		a.stop()
	}
	a.wait.Wait()
}

func (a *activePassive) other(e *anchorEnd) *anchorEnd {
	if e == a.near {
		return a.far
	}
	return a.near
}

// takeOver runs when a passive gateway acquired the lease.
func (a *activePassive) takeOver(ctx context.Context, e *anchorEnd) {
	if err := a.activate(ctx, e); err != nil && ctx.Err() == nil {
		a.mu.Lock()
		a.failed = errors.Join(a.failed, err)
		a.mu.Unlock()
	}
}

// prepare configures tunnel, keys and NAT of a gateway, so that it can become active.
func (a *activePassive) prepare(ctx context.Context, e *anchorEnd, gateway string) error {
	if err := a.background("lab", "node", gateway, "--", a.bin+"/hawser-agent", "wireguard", anchorLink); err != nil {
		return err
	}
	remote := a.other(e)
	var settings strings.Builder
	fmt.Fprintf(&settings, "[Interface]\nPrivateKey = %s\nListenPort = %d\n", e.keys[gateway], anchorPort)
	for _, peer := range remote.gateways {
		fmt.Fprintf(&settings, "[Peer]\nPublicKey = %s\nEndpoint = %s:%d\n", remote.keys[peer].PublicKey(), a.nodes[peer].WAN[0], anchorPort)
		if peer == remote.lease.active() {
			fmt.Fprintf(&settings, "AllowedIPs = %s\n", remote.net)
		}
	}
	configure := func() error {
		return a.node(ctx, gateway, settings.String(), "wg", "setconf", anchorLink, "/dev/stdin")
	}
	if err := within(ctx, 5*time.Second, configure); err != nil {
		return err
	}
	for _, command := range []string{
		"ip link set " + anchorLink + " mtu 1420 up",
		"ip route replace " + remote.net.String() + " dev " + anchorLink,
	} {
		args := strings.Fields(command)
		if err := a.inside(gateway, "", args[0], args[1:]...); err != nil {
			return err
		}
	}
	return a.rules(gateway, e.translate(remote))
}

// translate returns the NAT rules of a gateway. Incoming connections go to a random backend;
// outgoing ones get one of the cluster's addresses. Only the gateway's connection tracking stores
// the selection.
func (e *anchorEnd) translate(remote *anchorEnd) string {
	var in, out strings.Builder
	for number, pod := range map[byte]string{globalOne: "one", globalHead: "head-0", globalHead + 1: "head-1", globalHead + 2: "head-2"} {
		if addr := e.pods[pod]; addr != "" {
			fmt.Fprintf(&in, "ip daddr %s dnat to %s\n", e.global(number), addr)
		}
		if addr := e.pods[pod]; addr != "" && number >= globalHead {
			// A pod with its own global address also uses it as its source.
			fmt.Fprintf(&out, "ip saddr %s ip daddr %s snat to %s\n", addr, remote.net, e.global(number))
		}
	}
	if e.pods["back-1"] != "" {
		fmt.Fprintf(&in, "ip daddr %s dnat to numgen random mod 3 map { 0 : %s, 1 : %s, 2 : %s }\n",
			e.global(globalBack), e.pods["back-1"], e.pods["back-2"], e.pods["back-3"])
	}
	fmt.Fprintf(&out, "ip saddr 10.7.0.0/16 ip daddr %s snat to %s-%s\n", remote.net, e.global(1), e.global(egressIPs))
	return fmt.Sprintf("table ip anchor {\nchain in { type nat hook prerouting priority -110;\n%s}\n"+
		"chain out { type nat hook postrouting priority 90;\n%s}\n}\n", in.String(), out.String())
}

// keepSource returns rules that prevent masquerading of packets to the gateway.
func (e *anchorEnd) keepSource() string {
	var out strings.Builder
	for _, addr := range slices.Sorted(maps.Values(e.pods)) {
		fmt.Fprintf(&out, "ip saddr %s ip daddr %s snat to %s\n", addr, anchorAll, addr)
	}
	return fmt.Sprintf("table ip anchor {\nchain out { type nat hook postrouting priority 90;\n%s}\n}\n", out.String())
}

// activate routes all traffic through the holder of the lease: from the nodes of its cluster and
// from the other cluster's gateways.
func (a *activePassive) activate(ctx context.Context, e *anchorEnd) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	active, remote := e.lease.active(), a.other(e)
	key := e.keys[active].PublicKey().String()
	for _, gateway := range remote.gateways {
		if remote.lease.isDead(gateway) {
			continue // prepare configures it later
		}
		if err := a.node(ctx, gateway, "", "wg", "set", anchorLink, "peer", key, "allowed-ips", e.net.String()); err != nil {
			return err
		}
	}
	for _, node := range e.others {
		if err := a.inside(node, "", "ip", "route", "replace", anchorAll, "via", a.nodes[active].LAN[0]); err != nil {
			return err
		}
	}
	a.moved = time.Now()
	return nil
}

// crash powers off the active gateway of an end, and returns its node.
func (a *activePassive) crash(ctx context.Context, e *anchorEnd) (string, error) {
	victim := e.lease.active()
	e.lease.setDead(victim, true)
	return victim, powerOff(ctx, a.labAgents, victim, 0)
}

// revive powers the node on as the passive gateway.
func (a *activePassive) revive(ctx context.Context, e *anchorEnd, victim string) error {
	if err := powerOn(ctx, a.labAgents, victim); err != nil {
		return err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if err := errors.Join(a.failed, a.prepare(ctx, e, victim)); err != nil {
		return err
	}
	e.lease.setDead(victim, false)
	return nil
}
