// Package host is the machine that an agent runs on: its kernel, the processes that the
// agent starts for tunnels and IPsec, and the connections that it keeps alive when a path
// moves. It gives the stages that bring a desired state to the kernel, and reads what the
// kernel has.
package host

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"golang.org/x/sync/errgroup"

	"hawser.dev/hawser/internal/trigger"
	"hawser.dev/hawser/nodeagent/desired"
	"hawser.dev/hawser/nodeagent/kernel"
	"hawser.dev/hawser/nodeagent/kernel/conntrack"
	"hawser.dev/hawser/nodeagent/kernel/inventory"
	"hawser.dev/hawser/nodeagent/kernel/ipsec"
	"hawser.dev/hawser/nodeagent/kernel/userspacewg"
	"hawser.dev/hawser/nodeagent/model"
	"hawser.dev/hawser/nodeagent/round"
	"hawser.dev/hawser/nodeagent/status"
	"hawser.dev/hawser/schema/fabric"
)

// Config is what a Host needs for its whole life. No function of it may block.
type Config struct {
	Cluster, Node    string
	StateDir         string
	VICI             string // socket of a charon that the host runs; empty = our own is started when IPsec is used
	ProcSys          string // where the kernel's settings can be written [/proc/sys]
	Log              *slog.Logger
	TriggerRound     func()                    // asks for a round
	Drift            trigger.Trigger           // is rung when the kernel's state changed
	Wanted           func() *round.DesiredNode // what the last round brought; nil = there was none
	OnTunnelProcess  func(link string)         // a tunnel device has a process of its own
	OnTunnelReplaced func(link string)         // a tunnel process ended or hung, and was replaced
}

// Host is the machine. Its methods may be called from any goroutine, but for those of
// Stages, Observe and Routed, which are the engine's.
type Host struct {
	config    Config
	namespace *kernel.Namespace
	ruleset   *kernel.Ruleset
	charon    *ipsec.Charon
	secured   *ipsec.Supervisor
	keeper    *conntrack.Syncer

	moves              pathTracker
	connLimitSupported *bool // the kernel can count connections; nil = not found out
}

// Open opens the kernel of this network namespace. It changes nothing.
func Open(config Config) (*Host, error) {
	namespace, err := kernel.Open("")
	if err != nil {
		return nil, err
	}
	h := &Host{
		config:    config,
		namespace: namespace,
		ruleset:   kernel.NewRuleset(kernel.NFTOptions{}, config.Drift),
		keeper:    conntrack.New(conntrack.Config{Device: desired.NodeDevice, Log: config.Log}),
		charon: &ipsec.Charon{
			Dir: filepath.Join(config.StateDir, "ipsec"), ExternalSocket: config.VICI, Kernel: sync.OnceValue(ipsec.KernelESP), Log: config.Log,
		},
	}
	h.moves.keeper = h.keeper
	h.secured = &ipsec.Supervisor{Charon: h.charon, Log: config.Log, TriggerRound: config.TriggerRound, Wanted: func() []desired.IPsec {
		if n := config.Wanted(); n != nil {
			return n.IPsecs
		}
		return nil
	}}
	return h, nil
}

// Fence returns the fence of the gateway that this node holds if its node is selected by labels.
// ports returns the UDP port ranges of its tunnels, first and last port.
func (h *Host) Fence(ports func() [][2]int) *kernel.Fence {
	return h.namespace.NewFence(func() []kernel.PortRange {
		var out []kernel.PortRange
		for _, p := range ports() {
			out = append(out, kernel.PortRange{First: uint16(p[0]), Last: uint16(p[1])})
		}
		return out
	})
}

// Close releases what Open opened; the node keeps its state.
func (h *Host) Close() error { return h.namespace.Close() }

// Run watches the kernel, and looks after processes and connections, until ctx ends.
func (h *Host) Run(ctx context.Context) error {
	group, ctx := errgroup.WithContext(ctx)
	for _, run := range []func(context.Context) error{
		func(ctx context.Context) error { return kernel.Monitor(ctx, h.config.Drift) },
		h.ruleset.Monitor, h.tunnels().Run, h.secured.Run, h.keeper.Run,
	} {
		group.Go(func() error { return run(ctx) })
	}
	return group.Wait()
}

// tunnels looks after the processes of this node's tunnel devices.
func (h *Host) tunnels() *userspacewg.Supervisor {
	return &userspacewg.Supervisor{
		Log: h.config.Log,
		Devices: func() []string {
			var names []string
			if n := h.config.Wanted(); n != nil {
				for _, l := range n.Links {
					if l.Type == desired.LinkWireguard {
						names = append(names, l.Name)
					}
				}
			}
			return names
		},
		LogDir: h.config.StateDir,
		Seen:   h.config.OnTunnelProcess,
		Replaced: func(name string) {
			h.config.OnTunnelReplaced(name)
			h.config.TriggerRound()
		},
	}
}

// Observe looks at this host. What cannot be seen is left out; the projection says what
// is missing. gateway says whether this node is one, and holds whether it has tunnels of a
// driver, also of one that the fabric says nothing of any more. found is false where the
// node's own address is on no interface.
func (h *Host) Observe(f *fabric.Fabric, nodes []model.Node, gateway bool, holds func(driver string) bool) (local model.HostState, found bool) {
	local = model.HostState{NoIPv6: kernel.NoIPv6(), NoConnLimit: gateway && h.noConnLimit(f)}
	if slices.Contains(f.Drivers(h.config.Cluster), fabric.DriverIPsec) || holds(fabric.DriverIPsec) {
		// Where there is no IPsec, and none is on its way out, nobody asks it.
		local.KernelESP = h.charon.InKernel()
	}
	mtu, err := kernel.Underlay(round.NodeAddrs(nodes, h.config.Node))
	if err != nil {
		h.config.Log.Warn("underlay not found", "node", h.config.Node, "err", err)
	}
	local.UnderlayMTU, found = mtu, err == nil
	if own := f.Cluster(h.config.Cluster); own != nil {
		held, err := kernel.AddressesIn(own.PodCIDRs)
		if err != nil {
			h.config.Log.Warn("host addresses not read", "err", err)
		}
		if local.PodRoutes, err = podRoutes(own.PodCIDRs, nodes, h.config.Node); err != nil {
			h.config.Log.Warn("routes of pods not read", "err", err)
		}
		remote := remotePrefixes(f, own)
		if local.ForeignRules, err = kernel.ForeignRules(remote, own.PodCIDRs); err != nil {
			h.config.Log.Warn("routing rules not read", "err", err)
		}
		if local.Networks, err = kernel.Networks(slices.Concat(remote, f.ServicePools, f.TunnelPools, own.GlobalCIDRs)); err != nil {
			h.config.Log.Warn("networks of the node not read", "err", err)
		}
		// They are sorted, so that these are the lowest of each family.
		local.HostSource = slices.CompactFunc(held, func(a, b netip.Addr) bool { return a.Is4() == b.Is4() })
	}
	return local, found
}

// remotePrefixes returns the prefixes by which other clusters are reached.
func remotePrefixes(f *fabric.Fabric, own *fabric.Cluster) []netip.Prefix {
	var out []netip.Prefix
	for i := range f.Clusters {
		if c := &f.Clusters[i]; c.Name != own.Name {
			out = append(out, c.SeenFrom(own)...)
		}
	}
	return out
}

// podRoutes returns routes on links inside a node's Node.spec.podCIDRs, as far as the
// cluster's podCIDRs do not hold these. Such a route proves that the CNI uses
// Node.spec.podCIDRs, which not every one does.
func podRoutes(podCIDRs []netip.Prefix, nodes []model.Node, node string) ([]netip.Prefix, error) {
	i := slices.IndexFunc(nodes, func(n model.Node) bool { return n.Name == node })
	if i < 0 {
		return nil, nil
	}
	var outside []netip.Prefix
	for _, p := range nodes[i].PodCIDRs {
		if !slices.ContainsFunc(podCIDRs, func(q netip.Prefix) bool { return q.Bits() <= p.Bits() && q.Contains(p.Addr()) }) {
			outside = append(outside, p)
		}
	}
	if len(outside) == 0 {
		return nil, nil
	}
	return kernel.OnLink(outside)
}

// noConnLimit reports whether the kernel lacks what the topology's quota of connections
// needs. It is found out once, and where there is a quota alone.
func (h *Host) noConnLimit(f *fabric.Fabric) bool {
	if f.Limits.Connections == 0 {
		return false
	}
	if h.connLimitSupported == nil {
		counts, err := h.namespace.CountsConnections(context.Background())
		if err != nil {
			h.config.Log.Warn("there is no quota of connections for now", "err", err)
			return true
		}
		h.connLimitSupported = &counts
	}
	return !*h.connLimitSupported
}

// Addresses gives all addresses of this host.
func (h *Host) Addresses() ([]netip.Addr, error) {
	return kernel.AddressesIn([]netip.Prefix{netip.PrefixFrom(netip.IPv4Unspecified(), 0), netip.PrefixFrom(netip.IPv6Unspecified(), 0)})
}

// BootID returns the boot ID of the running kernel, as kubelets report it in their Node; empty
// if it cannot be read.
func BootID() string {
	raw, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(raw))
}

// NoIPv6 reports whether this host has no IPv6.
func (h *Host) NoIPv6() bool { return kernel.NoIPv6() }

// Meters reads the counters of tunnels.
func (h *Host) Meters(ctx context.Context, tunnels []desired.Tunnel) ([]kernel.TunnelCounters, error) {
	return h.namespace.TunnelCounters(ctx, tunnels)
}

// IPsecStates gives the state of the IPsec connections.
func (h *Host) IPsecStates() map[string]ipsec.State { return h.secured.States() }

// Dropped gives what the node's rules dropped, of each reason.
func (h *Host) Dropped() []status.Dropped {
	counts, err := h.namespace.Dropped(context.Background())
	if err != nil {
		h.config.Log.Debug("counters not read", "err", err)
	}
	var out []status.Dropped
	for _, d := range desired.Drops() {
		if n, exists := counts[d.Chain()]; exists {
			out = append(out, status.Dropped{Reason: d.Reason, Packets: n, Text: d.Doc})
		}
	}
	return out
}

// Conntrack gives how full the connection table is; nil = not known.
func (h *Host) Conntrack() *status.Conntrack {
	entries, limit, err := h.namespace.Conntrack()
	if err != nil {
		h.config.Log.Debug("connection table not read", "err", err)
		return nil
	}
	return &status.Conntrack{Entries: entries, Limit: limit}
}

// TunnelsExist reports whether an agent before this one left tunnels, over which
// the traffic goes on: then this gateway is as ready as it was, and a restart
// moves nothing.
func TunnelsExist() bool {
	links, err := net.Interfaces()
	return err == nil && slices.ContainsFunc(links, func(l net.Interface) bool {
		return desired.IsTunnel(l.Name)
	})
}

// AcceptsTransit reports whether a node has what takes packets that clusters passed on.
func AcceptsTransit(n *round.DesiredNode) bool {
	return n != nil && slices.ContainsFunc(n.Links, func(l desired.Device) bool {
		return strings.HasPrefix(l.Name, desired.TransitPrefix)
	})
}

// Release takes away what the agent held in the kernel besides the stages, and names it.
func Release() ([]string, error) { return conntrack.RemoveStaleRules() }

// StateFiles names what the host leaves in the state folder, as patterns.
func StateFiles() []string { return []string{"sysctls.json", "ipsec", "hw-*.log"} }

// Inventory reports what the kernel of this node has, of everybody.
func (h *Host) Inventory(ctx context.Context) (k inventory.Kernel, err error) {
	// The engine's own handle is for its goroutine alone.
	namespace, err := kernel.Open("")
	if err != nil {
		return k, err
	}
	defer func() { err = errors.Join(err, namespace.Close()) }()
	var named []string
	if n := h.config.Wanted(); n != nil {
		for _, s := range n.Sysctls {
			named = append(named, s.Name)
		}
	}
	k = namespace.Inventory(ctx, named)
	k.Cluster, k.Node = h.config.Cluster, h.config.Node
	return k, nil
}
