package main

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"golang.zx2c4.com/wireguard/wgctrl/wgtypes"

	"hawser.dev/hawser/nodeagent/converge"
	"hawser.dev/hawser/nodeagent/desired"
	"hawser.dev/hawser/nodeagent/dns"
	"hawser.dev/hawser/nodeagent/kernel"
	"hawser.dev/hawser/nodeagent/kernel/userspacewg"
	"hawser.dev/hawser/schema/fabric"
)

// Size of the gateway that the engine converges.
const (
	enginePeers    = 1000
	engineElements = 10_000
)

// gateway is a node in its own network namespace, with an engine.
type gateway struct {
	space      *space
	ns         *kernel.Namespace
	dir        string
	engine     *converge.Engine[desired.State]
	state      desired.State
	generation int // of state
}

func newGateway() (*gateway, error) {
	s, err := newSpace()
	if err != nil {
		return nil, err
	}
	g := &gateway{space: s}
	if g.ns, err = kernel.Open(s.path()); err != nil {
		return nil, errors.Join(err, g.close())
	}
	if g.dir, err = os.MkdirTemp("", "hawser-bench-"); err != nil {
		return nil, errors.Join(err, g.close())
	}
	if g.state, err = gatewayState(); err != nil {
		return nil, errors.Join(err, g.close())
	}
	g.engine = &converge.Engine[desired.State]{
		Stages: g.stages(), Decommission: func(s desired.State) bool { return len(s.Devices) == 0 },
	}
	return g, nil
}

// close removes everything, including the process of the tunnel.
func (g *gateway) close() error {
	var errs []error
	if g.engine != nil {
		report := g.engine.Once(context.Background(), desired.State{}, "")
		errs = append(errs, report.Err())
	}
	if g.ns != nil {
		errs = append(errs, g.ns.Close())
	}
	if g.dir != "" {
		errs = append(errs, os.RemoveAll(g.dir))
	}
	return errors.Join(append(errs, g.space.close())...)
}

// stages returns the agent's stages, in its order.
func (g *gateway) stages() []converge.Stage[desired.State] {
	type d = desired.State
	tables, elements := kernel.NewRuleset(kernel.NFTOptions{NetNS: int(g.space.handle)}, nil).Kinds()
	records := dns.NewStore()
	return []converge.Stage[d]{
		converge.NewStage(tables, func(s d) []desired.Table { return s.Tables }, nil),
		converge.NewStage(elements, func(s d) []desired.Element { return s.Elements }, nil),
		converge.NewStage(kernel.NewDevices(g.ns, userspacewg.Launcher{LogDir: g.dir}), func(s d) []desired.Device { return s.Devices }, nil),
		converge.NewStage(kernel.NewSysctls(g.ns, filepath.Join(g.dir, "sysctls.json")), func(s d) []desired.Sysctl { return s.Sysctls }, nil),
		converge.NewStage(kernel.NewWireguards(g.ns), func(s d) []desired.Wireguard { return s.Wireguards }, nil),
		converge.NewStage(kernel.NewAddresses(g.ns), func(s d) []desired.Address { return s.Addresses }, nil),
		converge.NewStage(kernel.NewNeighbors(g.ns), func(s d) []desired.Neighbor { return s.Neighbors }, nil),
		converge.NewStage(kernel.NewPeers(g.ns), func(s d) []desired.Peer { return s.Peers }, nil),
		converge.NewStage(kernel.NewRoutes(g.ns), func(s d) []desired.Route { return s.Routes }, nil),
		converge.NewStage(kernel.NewRules(g.ns), func(s d) []desired.Rule { return s.Rules }, nil),
		converge.NewStage(records.Zones(), func(s d) []desired.Zone { return s.Zones }, nil),
		converge.NewStage(records.Services(), func(s d) []desired.Service { return s.Services }, nil),
	}
}

// gatewayState returns the state of a gateway with 1 000 remote gateways: a peer and a route for
// each, and 10 000 elements for their exports.
func gatewayState() (desired.State, error) {
	prefix := netip.MustParsePrefix
	// The sockets of userspace devices share one directory, so the name is unique.
	wg := desired.TunnelDevicePrefix + strconv.FormatInt(int64(os.Getpid()), 36)
	key, err := wgtypes.GeneratePrivateKey()
	if err != nil {
		return desired.State{}, err
	}
	s := desired.State{
		Sysctls: []desired.Sysctl{{Name: "net/ipv4/ip_forward", Value: "1"}, {Name: "net/ipv4/conf/hw-vx0/rp_filter", Value: "2"}},
		Devices: []desired.Device{
			{Name: desired.NodeDevice, Type: desired.DeviceVXLAN, MTU: 1450, Up: true, MAC: "02:11:22:33:44:55",
				VNI: desired.NodeVNI, Port: desired.VXLANPort, Local: netip.MustParseAddr("192.0.2.1")},
			{Name: wg, Type: desired.DeviceWireguard, MTU: 1380, Up: true},
		},
		Wireguards: []desired.Wireguard{{Device: wg, PrivateKey: fabric.Secret(key), ListenPort: 51820}},
		Addresses: []desired.Address{
			{Device: desired.NodeDevice, Prefix: prefix("169.254.73.53/32"), Scope: "link"},
			{Device: wg, Prefix: prefix("241.0.0.1/32"), Scope: "global"},
		},
		Neighbors: []desired.Neighbor{{Device: desired.NodeDevice, Addr: netip.MustParseAddr("192.0.2.2"), MAC: "02:00:00:00:00:02"}},
		Rules:     []desired.Rule{{Priority: 7300, Table: desired.TableOut}, {Priority: 7301, Table: desired.TableIn, IIF: wg}},
		Tables:    []desired.Table{{Name: desired.TableName, MSS4: 1380, MSS6: 1360, Connections: 32768}},
		Zones:     []desired.Zone{{Domain: "clusterset.local", ClusterNames: true, TTL: fabric.Duration(5 * time.Second), Serial: 1}},
	}
	if err := fill(&s, wg); err != nil {
		return desired.State{}, err
	}
	return s, nil
}

// fill adds the peers, routes and elements.
func fill(s *desired.State, wg string) error {
	for i := range enginePeers {
		private, err := wgtypes.GeneratePrivateKey()
		if err != nil {
			return err
		}
		block, inner := netip.PrefixFrom(nth("242.0.0.0/8", i<<12), 20), netip.PrefixFrom(nth("241.0.0.2/32", i), 32)
		s.Peers = append(s.Peers, desired.Peer{
			Device: wg, PublicKey: private.PublicKey().String(), PSK: fabric.Secret{1, byte(i)}, Keepalive: 25,
			Endpoint: netip.AddrPortFrom(nth("198.18.0.0/15", i+1), 51820), AllowedIPs: []netip.Prefix{inner, block},
		})
		s.Routes = append(s.Routes, desired.Route{Table: desired.TableOut, Dst: block, Type: desired.RouteUnicast, Device: wg, MTU: 1380},
			desired.Route{Table: desired.TableOut, Dst: inner, Type: desired.RouteUnicast, Device: wg, MTU: 1380})
	}
	s.Elements = elements((engineElements - len(elements(0))) / 4)
	for i := range engineElements - len(s.Elements) {
		s.Elements = append(s.Elements, desired.Element{Set: desired.SetRemoteExports, Family: 4, ID: nth("242.3.0.0/16", i).String() + " . tcp . 80"})
	}
	for i := range engineElements / 4 {
		s.Services = append(s.Services, desired.Service{
			Namespace: "shop", Name: fmt.Sprintf("svc-%d", i), VIPs: []netip.Addr{nth(vips, i+1)},
			Ports:    []desired.ServicePort{{Name: "http", Protocol: "TCP", Port: 80}},
			Clusters: []desired.ServiceCluster{{Name: "far", IPs: []netip.Addr{nth(exports, i+1)}}},
		})
	}
	return nil
}

// Addresses that elements translate: clusterset IPs to exports of another cluster, pods to
// global addresses.
const (
	pods    = "10.70.0.0/16"
	global  = "242.1.0.0/16"
	vips    = "243.0.0.0/16"
	exports = "242.2.0.0/16"
)

// elements returns a gateway's elements for n exports of another cluster.
func elements(n int) []desired.Element {
	out := []desired.Element{
		{Set: desired.SetPods, Family: 4, ID: pods}, {Set: desired.SetMapped, Family: 4, ID: pods, Value: global},
		{Set: desired.SetUnmapped, Family: 4, ID: global, Value: pods}, {Set: desired.SetPodBlocks, Family: 4, ID: global},
		{Set: desired.SetRemote, Family: 4, ID: exports}, {Set: desired.SetPools, Family: 4, ID: vips}, {Set: desired.SetTunnels, Family: 4, ID: "241.0.0.1"},
	}
	for i := range n {
		vip, export := nth(vips, i+1).String(), nth(exports, i+1).String()
		out = append(out,
			desired.Element{Set: desired.SetServices, Family: 4, ID: vip + " . tcp . 80", Value: desired.PickChain(1, false) + "4"},
			desired.Element{Set: desired.SetICMPEcho, Family: 4, ID: vip, Value: export},
			desired.Element{Set: desired.SetRemoteExports, Family: 4, ID: export + " . tcp . 80"},
			desired.Element{Set: desired.SetSlots, Family: 4, ID: vip + " . tcp . 80 . 0", Value: export + " . 80"},
		)
	}
	return out
}

// nth returns the nth address of a prefix.
func nth(prefix string, n int) netip.Addr {
	base := netip.MustParsePrefix(prefix).Addr().As4()
	v := binary.BigEndian.Uint32(base[:]) + uint32(n)
	return netip.AddrFrom4([4]byte(binary.BigEndian.AppendUint32(nil, v)))
}

// quantile returns the value below which the share q of the sample lies.
func quantile[T cmp.Ordered](sample []T, q float64) T {
	sorted := slices.Sorted(slices.Values(sample))
	return sorted[min(int(q*float64(len(sorted))), len(sorted)-1)]
}

func median[T cmp.Ordered](sample []T) T { return quantile(sample, 0.5) }

// millis formats a duration with about three significant digits.
func millis(d time.Duration) string {
	ms := float64(d) / float64(time.Millisecond)
	switch {
	case ms >= 1000:
		return fmt.Sprintf("%.2f s", ms/1000)
	case ms >= 100:
		return fmt.Sprintf("%.0f ms", ms)
	case ms >= 1:
		return fmt.Sprintf("%.1f ms", ms)
	}
	return fmt.Sprintf("%.0f µs", ms*1000)
}

// side is one of several alternating measurements.
type side struct {
	name  string
	once  func() (time.Duration, error)
	times []time.Duration
}

// alternate measures all sides once a round. Each round starts with another side, so other load
// of the machine affects all equally. An additional first round warms up and does not count.
func alternate(rounds int, sides []*side) error {
	for round := range rounds + 1 {
		for i := range sides {
			s := sides[(i+round)%len(sides)]
			took, err := s.once()
			if err != nil {
				return fmt.Errorf("%s: %w", s.name, err)
			}
			if round > 0 {
				s.times = append(s.times, took)
			}
		}
	}
	return nil
}
