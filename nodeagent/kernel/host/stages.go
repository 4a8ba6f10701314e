package host

import (
	"path/filepath"

	"hawser.dev/hawser/nodeagent/converge"
	"hawser.dev/hawser/nodeagent/desired"
	"hawser.dev/hawser/nodeagent/dns"
	"hawser.dev/hawser/nodeagent/kernel"
	"hawser.dev/hawser/nodeagent/kernel/ipsec"
	"hawser.dev/hawser/nodeagent/kernel/userspacewg"
	"hawser.dev/hawser/nodeagent/round"
)

// Stages returns the kinds of the kernel in the order of creation: policy before path.
func (h *Host) Stages() []converge.Stage[*round.DesiredNode] {
	userspace := userspacewg.Launcher{LogDir: h.config.StateDir}
	ns := h.namespace
	tables, elements := h.ruleset.Kinds()
	return []converge.Stage[*round.DesiredNode]{
		converge.NewStage(tables,
			func(n *round.DesiredNode) []desired.Table { return n.Tables }, func(t desired.Table) string { return t.Origin }),
		converge.NewStage(elements,
			func(n *round.DesiredNode) []desired.Element { return n.Elements }, func(e desired.Element) string { return e.Origin }),
		converge.NewStage(kernel.NewDevices(ns, userspace).WithESP(h.charon),
			func(n *round.DesiredNode) []desired.Device { return n.Devices }, func(l desired.Device) string { return l.Origin }),
		// After the links, because some settings belong to a link.
		converge.NewStage(kernel.NewSysctls(ns, filepath.Join(h.config.StateDir, "sysctls.json")).WithRoot(h.config.ProcSys),
			func(n *round.DesiredNode) []desired.Sysctl { return n.Sysctls }, func(s desired.Sysctl) string { return s.Origin }),
		converge.NewStage(kernel.NewWireguards(ns),
			func(n *round.DesiredNode) []desired.Wireguard { return n.Wireguards }, func(w desired.Wireguard) string { return w.Origin }),
		converge.NewStage(kernel.NewAddresses(ns),
			func(n *round.DesiredNode) []desired.Address { return n.Addresses }, func(a desired.Address) string { return a.Origin }),
		converge.NewStage(kernel.NewNeighbors(ns),
			func(n *round.DesiredNode) []desired.Neighbor { return n.Neighbors }, func(n desired.Neighbor) string { return n.Origin }),
		converge.NewStage(kernel.NewForwards(ns),
			func(n *round.DesiredNode) []desired.Forward { return n.Forwards }, func(f desired.Forward) string { return f.Origin }),
		converge.MarkUrgent(converge.NewStage(kernel.NewRoutes(ns),
			func(n *round.DesiredNode) []desired.Route { return n.Routes }, func(r desired.Route) string { return r.Origin })),
		converge.NewStage(kernel.NewRules(ns),
			func(n *round.DesiredNode) []desired.Rule { return n.Rules }, func(r desired.Rule) string { return r.Origin }),
		converge.NewStage(ipsec.NewConnections(h.charon),
			func(n *round.DesiredNode) []desired.IPsec { return n.IPsecs }, func(c desired.IPsec) string { return c.Origin }),
		// Peers are last: no packet arrives before its peer exists, and then the replies
		// already leave by our own link.
		converge.NewStage(kernel.NewPeers(ns),
			func(n *round.DesiredNode) []desired.Peer { return n.Peers }, func(p desired.Peer) string { return p.Origin }),
	}
}

// NameStages returns the stages of the DNS data, which only the running agent holds.
func NameStages(records *dns.Store) []converge.Stage[*round.DesiredNode] {
	return []converge.Stage[*round.DesiredNode]{
		converge.NewStage(records.Zones(),
			func(n *round.DesiredNode) []desired.Zone { return n.Zones }, func(z desired.Zone) string { return z.Origin }),
		converge.NewStage(records.Services(),
			func(n *round.DesiredNode) []desired.Service { return n.Services }, func(s desired.Service) string { return s.Origin }),
	}
}
