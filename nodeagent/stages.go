package nodeagent

import (
	"hawser.dev/hawser/nodeagent/converge"
	"hawser.dev/hawser/nodeagent/desired"
	"hawser.dev/hawser/nodeagent/ipsec"
	"hawser.dev/hawser/nodeagent/kernel"
	"hawser.dev/hawser/nodeagent/tunnel"
)

// stages gives the kinds in the order of creation: policy before path, name last.
func (a *Agent) stages() []converge.Stage[*node] {
	return append(a.kernelStages(), a.nameStages()...)
}

// nameStages are the DNS data, which only the running agent holds.
func (a *Agent) nameStages() []converge.Stage[*node] {
	return []converge.Stage[*node]{
		converge.NewStage(a.records.Zones(),
			func(n *node) []desired.Zone { return n.Zones }, func(z desired.Zone) string { return z.Origin }),
		converge.NewStage(a.records.Services(),
			func(n *node) []desired.Service { return n.Services }, func(s desired.Service) string { return s.Origin }),
	}
}

func (a *Agent) kernelStages() []converge.Stage[*node] {
	userspace := tunnel.Launcher{LogDir: a.config.StateDir}
	ns := a.namespace
	tables, elements := a.ruleset.Kinds()
	return []converge.Stage[*node]{
		converge.NewStage(tables,
			func(n *node) []desired.Table { return n.Tables }, func(t desired.Table) string { return t.Origin }),
		converge.NewStage(elements,
			func(n *node) []desired.Element { return n.Elements }, func(e desired.Element) string { return e.Origin }),
		converge.NewStage(kernel.NewLinks(ns, userspace).WithESP(a.charon),
			func(n *node) []desired.Link { return n.Links }, func(l desired.Link) string { return l.Origin }),
		// After the links, as some settings are those of a link.
		converge.NewStage(kernel.NewSysctls(ns, a.config.statePath("sysctls.json")).Below(a.config.ProcSys),
			func(n *node) []desired.Sysctl { return n.Sysctls }, func(s desired.Sysctl) string { return s.Origin }),
		converge.NewStage(kernel.NewWireguards(ns),
			func(n *node) []desired.Wireguard { return n.Wireguards }, func(w desired.Wireguard) string { return w.Origin }),
		converge.NewStage(kernel.NewAddresses(ns),
			func(n *node) []desired.Address { return n.Addresses }, func(a desired.Address) string { return a.Origin }),
		converge.NewStage(kernel.NewNeighbours(ns),
			func(n *node) []desired.Neighbour { return n.Neighbours }, func(n desired.Neighbour) string { return n.Origin }),
		converge.NewStage(kernel.NewForwards(ns),
			func(n *node) []desired.Forward { return n.Forwards }, func(f desired.Forward) string { return f.Origin }),
		converge.Urgent(converge.NewStage(kernel.NewRoutes(ns),
			func(n *node) []desired.Route { return n.Routes }, func(r desired.Route) string { return r.Origin })),
		converge.NewStage(kernel.NewRules(ns),
			func(n *node) []desired.Rule { return n.Rules }, func(r desired.Rule) string { return r.Origin }),
		converge.NewStage(ipsec.NewConnections(a.charon),
			func(n *node) []desired.IPsec { return n.IPsecs }, func(c desired.IPsec) string { return c.Origin }),
		// Last, as nothing comes in before: what does finds its way over our own link.
		converge.NewStage(kernel.NewPeers(ns),
			func(n *node) []desired.Peer { return n.Peers }, func(p desired.Peer) string { return p.Origin }),
	}
}
