package render

import (
	"cmp"
	"fmt"
	"slices"

	"hawser.dev/hawser/schema"
	"hawser.dev/hawser/schema/fabric"
)

func (b *builder) export(e *schema.Export) fabric.Export {
	path := fmt.Sprintf("exports[%s]", e.ID())
	out := fabric.Export{Namespace: e.Namespace, Name: e.Name, Type: e.Type, Affinity: e.SessionAffinity,
		Balance: fabric.Balance{Policy: e.Balance.Policy}}
	switch e.Balance.Policy { // copy only the settings of the policy
	case fabric.Weighted:
		out.Balance.Weights = e.Balance.Weights
	case fabric.Failover:
		out.Balance.Order = e.Balance.Order
	}
	if !e.Headless() {
		out.VIPs = b.lockedAddrs(path, b.lock.VIPs(e.ID()), 1, maskedSorted(b.top.ServicePools()))
	}
	for _, p := range e.Ports {
		out.Ports = append(out.Ports, fabric.Port{Name: p.Name, Protocol: p.Protocol, Port: p.Port, AppProtocol: p.AppProtocol})
	}
	slices.SortFunc(out.Ports, func(x, y fabric.Port) int {
		return cmp.Or(cmp.Compare(x.Port, y.Port), cmp.Compare(x.Protocol, y.Protocol), cmp.Compare(x.Name, y.Name))
	})
	if e.Allow != nil {
		// Never leave Allow empty: the document omits empty lists, and a missing list
		// allows every cluster. Exporting clusters are always allowed.
		if out.Allow = sorted(e.Allow.Clusters); len(out.Allow) == 0 {
			out.Allow = sorted(e.Clusters)
		}
	}
	for _, c := range sorted(e.Clusters) {
		out.Clusters = append(out.Clusters, b.exportCluster(e, c, fmt.Sprintf("%s.clusters[%s]", path, c)))
	}
	return out
}

func (b *builder) exportCluster(e *schema.Export, cluster, path string) fabric.ExportCluster {
	out := fabric.ExportCluster{Name: cluster}
	blocks := b.globalBlocks(cluster)
	if !e.Headless() {
		out.IPs = b.lockedAddrs(path, b.lock.ExportIPs(e.ID(), cluster), 1, blocks)
		return out
	}
	hosts := e.Hostnames.Hosts()
	if len(e.Hostnames.Names) > 0 {
		hosts = sorted(hosts)
	}
	for _, h := range hosts {
		out.Hosts = append(out.Hosts, fabric.Host{Name: h, IPs: b.lockedAddrs(path, b.lock.Host(e.ID(), cluster, h), 1, blocks)})
	}
	return out
}
