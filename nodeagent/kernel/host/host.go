// Package host represents the machine of the agent: its kernel, the tunnel and IPsec processes
// that the agent starts, and the connections that it preserves when a path moves. It provides
// the stages that write a desired state to the kernel, and reads the kernel's state.
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

// Config configures a Host. Its functions must not block.
type Config struct {
	Cluster, Node    string
	StateDir         string
	VICI             string // socket of the host's charon; empty = the agent starts its own charon for IPsec
	ProcSys          string // directory with the writable sysctls [/proc/sys]
	Log              *slog.Logger
	TriggerRound     func()                    // requests a round
	Drift            trigger.Trigger           // fired when the kernel's state changed
	Desired          func() *round.DesiredNode // result of the last round; nil = none yet
	OnTunnelProcess  func(device string)       // called when a userspace WireGuard process serves a device
	OnTunnelReplaced func(device string)       // called when a userspace WireGuard process that ended or hung was replaced
}

// Host is the machine. It is safe for concurrent use, except Stages, Observe and RoutesWritten:
// only the engine's goroutine may call these.
type Host struct {
	config          Config
	namespace       *kernel.Namespace
	ruleset         *kernel.Ruleset
	charon          *ipsec.Charon
	ipsecSupervisor *ipsec.Supervisor
	syncer          *conntrack.Syncer

	moves              pathTracker
	connLimitSupported *bool // the kernel can count connections; nil = unknown
}

// Open opens the kernel of this network namespace. It changes nothing in it.
func Open(config Config) (*Host, error) {
	namespace, err := kernel.Open("")
	if err != nil {
		return nil, err
	}
	h := &Host{
		config:    config,
		namespace: namespace,
		ruleset:   kernel.NewRuleset(kernel.NFTOptions{}, config.Drift),
		syncer:    conntrack.New(conntrack.Config{Device: desired.NodeDevice, Log: config.Log}),
		charon: &ipsec.Charon{
			Dir: filepath.Join(config.StateDir, "ipsec"), ExternalSocket: config.VICI, Kernel: sync.OnceValue(ipsec.KernelESP), Log: config.Log,
		},
	}
	h.moves.syncer = h.syncer
	h.ipsecSupervisor = &ipsec.Supervisor{Charon: h.charon, Log: config.Log, TriggerRound: config.TriggerRound, Desired: func() []desired.IPsec {
		if n := config.Desired(); n != nil {
			return n.IPsecs
		}
		return nil
	}}
	return h, nil
}

// Fence returns the fence for a gateway that is selected by labels and has this node as its holder.
// ports returns the UDP port ranges of the gateway's tunnels, as first and last port.
func (h *Host) Fence(ports func() [][2]int) *kernel.Fence {
	return h.namespace.NewFence(func() []kernel.PortRange {
		var out []kernel.PortRange
		for _, p := range ports() {
			out = append(out, kernel.PortRange{First: uint16(p[0]), Last: uint16(p[1])})
		}
		return out
	})
}

// Close releases the handles of the host. The kernel state stays.
func (h *Host) Close() error { return h.namespace.Close() }

// Run watches the kernel, processes and connections until ctx is done.
func (h *Host) Run(ctx context.Context) error {
	group, ctx := errgroup.WithContext(ctx)
	for _, run := range []func(context.Context) error{
		func(ctx context.Context) error { return kernel.Monitor(ctx, h.config.Drift) },
		h.ruleset.Monitor, h.wireguardSupervisor().Run, h.ipsecSupervisor.Run, h.syncer.Run,
	} {
		group.Go(func() error { return run(ctx) })
	}
	return group.Wait()
}

// wireguardSupervisor returns the supervisor of this node's userspace WireGuard processes.
func (h *Host) wireguardSupervisor() *userspacewg.Supervisor {
	return &userspacewg.Supervisor{
		Log: h.config.Log,
		Devices: func() []string {
			var names []string
			if n := h.config.Desired(); n != nil {
				for _, d := range n.Devices {
					if d.Type == desired.DeviceWireguard {
						names = append(names, d.Name)
					}
				}
			}
			return names
		},
		LogDir:   h.config.StateDir,
		Appeared: h.config.OnTunnelProcess,
		Replaced: func(name string) {
			h.config.OnTunnelReplaced(name)
			h.config.TriggerRound()
		},
	}
}

// Observe reads the state of this host. It logs and omits parts that it cannot read. gateway means
// that this node is a gateway. hasTunnels reports whether the node has tunnels of a driver, even if
// the fabric no longer uses that driver. found is false if the underlay of the node's address
// cannot be determined.
func (h *Host) Observe(f *fabric.Fabric, nodes []model.Node, gateway bool, hasTunnels func(driver string) bool) (local model.HostState, found bool) {
	local = model.HostState{NoIPv6: kernel.NoIPv6(), NoConnLimit: gateway && h.noConnLimit(f)}
	if slices.Contains(f.Drivers(h.config.Cluster), fabric.DriverIPsec) || hasTunnels(fabric.DriverIPsec) {
		// Without IPsec, and without IPsec tunnels to remove, the result is not needed.
		local.KernelESP = h.charon.InKernel()
	}
	mtu, err := kernel.Underlay(round.NodeAddrs(nodes, h.config.Node))
	if err != nil {
		h.config.Log.Warn("underlay not found", "node", h.config.Node, "err", err)
	}
	local.UnderlayMTU, found = mtu, err == nil
	if cluster := f.Cluster(h.config.Cluster); cluster != nil {
		if cluster.TestsDirect() && len(nodes) > 1 {
			if local.Underlay, err = kernel.UnderlayAddrs(round.NodeAddrs(nodes, h.config.Node)); err != nil {
				h.config.Log.Warn("network of the node's addresses not read", "err", err)
			}
		}
		hostAddrs, err := kernel.AddressesIn(cluster.PodCIDRs)
		if err != nil {
			h.config.Log.Warn("host addresses not read", "err", err)
		}
		if local.PodRoutes, err = podRoutes(cluster.PodCIDRs, nodes, h.config.Node); err != nil {
			h.config.Log.Warn("routes of pods not read", "err", err)
		}
		remote := remotePrefixes(f, cluster)
		if local.ForeignRules, err = kernel.ForeignRules(remote, cluster.PodCIDRs); err != nil {
			h.config.Log.Warn("routing rules not read", "err", err)
		}
		if local.Networks, err = kernel.Networks(slices.Concat(remote, f.ServicePools, f.TunnelPools, cluster.GlobalCIDRs)); err != nil {
			h.config.Log.Warn("networks of the node not read", "err", err)
		}
		// hostAddrs is sorted, so the lowest address of each family remains.
		local.HostSource = slices.CompactFunc(hostAddrs, func(a, b netip.Addr) bool { return a.Is4() == b.Is4() })
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

// podRoutes returns the on-link routes inside a node's Node.spec.podCIDRs, unless the cluster's
// podCIDRs contain them. Such a route proves that the CNI uses Node.spec.podCIDRs, which some CNIs
// ignore.
func podRoutes(podCIDRs []netip.Prefix, nodes []model.Node, node string) ([]netip.Prefix, error) {
	i := slices.IndexFunc(nodes, func(n model.Node) bool { return n.Name == node })
	if i < 0 {
		return nil, nil
	}
	var nodePodCIDRs []netip.Prefix
	for _, p := range nodes[i].PodCIDRs {
		if !slices.ContainsFunc(podCIDRs, func(q netip.Prefix) bool { return q.Bits() <= p.Bits() && q.Contains(p.Addr()) }) {
			nodePodCIDRs = append(nodePodCIDRs, p)
		}
	}
	if len(nodePodCIDRs) == 0 {
		return nil, nil
	}
	return kernel.OnLink(nodePodCIDRs)
}

// noConnLimit reports whether the kernel lacks support for the topology's connection quota. It
// checks once, and only if there is a quota.
func (h *Host) noConnLimit(f *fabric.Fabric) bool {
	if f.Limits.Connections == 0 {
		return false
	}
	if h.connLimitSupported == nil {
		supported, err := h.namespace.CountsConnections(context.Background())
		if err != nil {
			h.config.Log.Warn("support for connection quotas not checked", "err", err)
			return true
		}
		h.connLimitSupported = &supported
	}
	return !*h.connLimitSupported
}

// Addresses returns all addresses of this host.
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

// TunnelCounters reads the counters of tunnels.
func (h *Host) TunnelCounters(ctx context.Context, tunnels []desired.Tunnel) ([]kernel.TunnelCounters, error) {
	return h.namespace.TunnelCounters(ctx, tunnels)
}

// RemotePackets returns the number of packets that this node sent into tunnels, by the first address
// of each prefix of another cluster.
func (h *Host) RemotePackets(ctx context.Context) (map[netip.Addr]uint64, error) {
	return h.namespace.RemotePackets(ctx)
}

// IPsecStates returns the state of the IPsec connections.
func (h *Host) IPsecStates() map[string]ipsec.State { return h.ipsecSupervisor.States() }

// Dropped returns the number of packets that the node's rules dropped, by reason.
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

// Conntrack returns the usage of the conntrack table; nil if unknown.
func (h *Host) Conntrack() *status.Conntrack {
	entries, limit, err := h.namespace.Conntrack()
	if err != nil {
		h.config.Log.Debug("connection table not read", "err", err)
		return nil
	}
	return &status.Conntrack{Entries: entries, Limit: limit}
}

// TunnelsExist reports whether the previous agent left tunnels in the kernel. They still forward
// packets, so the gateway reports ready at once and a restart moves no path.
func TunnelsExist() bool {
	links, err := net.Interfaces()
	return err == nil && slices.ContainsFunc(links, func(l net.Interface) bool {
		return desired.IsTunnel(l.Name)
	})
}

// NodeDeviceExists reports whether the previous agent left the VXLAN between nodes in the kernel.
func NodeDeviceExists() bool {
	_, err := net.InterfaceByName(desired.NodeDevice)
	return err == nil
}

// AcceptsTransit reports whether a node has the device that receives transit traffic.
func AcceptsTransit(n *round.DesiredNode) bool {
	return n != nil && slices.ContainsFunc(n.Devices, func(d desired.Device) bool {
		return strings.HasPrefix(d.Name, desired.TransitDevicePrefix)
	})
}

// RemoveStaleBlocks removes the routing rules of an agent that was killed while it blocked packets of
// flows that moved to another path. No stage manages these rules. It returns their descriptions.
func RemoveStaleBlocks() ([]string, error) { return conntrack.RemoveStaleRules() }

// StateFiles returns patterns of the host's files in the state directory.
func StateFiles() []string { return []string{"sysctls.json", "ipsec", "hw-*.log"} }

// Inventory returns the kernel state of this node, including foreign objects.
func (h *Host) Inventory(ctx context.Context) (k inventory.Kernel, err error) {
	// The engine's own handle is not safe for concurrent use.
	namespace, err := kernel.Open("")
	if err != nil {
		return k, err
	}
	defer func() { err = errors.Join(err, namespace.Close()) }()
	var sysctls []string
	if n := h.config.Desired(); n != nil {
		for _, s := range n.Sysctls {
			sysctls = append(sysctls, s.Name)
		}
	}
	k = namespace.Inventory(ctx, sysctls)
	k.Cluster, k.Node = h.config.Cluster, h.config.Node
	return k, nil
}
