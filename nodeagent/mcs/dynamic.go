package mcs

import (
	"cmp"
	"slices"

	"hawser.dev/hawser/schema/fabric"
)

// Dynamic gives the exports that were made in clusters as the fabric would have
// them, sorted by namespace/name.
func (d Decision) Dynamic() []fabric.Export {
	var out []fabric.Export
	for i := range d.Services {
		if r := &d.Services[i]; r.Declared == nil && !r.Absent {
			out = append(out, r.export())
		}
	}
	return out
}

func (r *Resolved) export() fabric.Export {
	e := fabric.Export{
		Namespace: r.Namespace, Name: r.Name, Type: r.Type, VIPs: r.VIPs, Ports: dataPorts(r.Ports), Affinity: r.Affinity,
		Balance: fabric.Balance{Policy: fabric.LocalFirst}, Dynamic: true,
	}
	for i := range r.Parts {
		p := &r.Parts[i]
		part := fabric.ExportCluster{Name: p.Cluster}
		if ports := dataPorts(p.Ports); len(ports) < len(e.Ports) {
			part.Ports = ports
		}
		// No Ports would mean all of them: who has none has no address either.
		if r.Type != fabric.Headless && len(dataPorts(p.Ports)) > 0 {
			part.IPs = p.Addrs
		}
		if r.Type == fabric.Headless {
			part.Hosts = p.Hosts
		}
		e.Clusters = append(e.Clusters, part)
	}
	slices.SortFunc(e.Clusters, func(a, b fabric.ExportCluster) int { return cmp.Compare(a.Name, b.Name) })
	return e
}

// dataPorts gives the ports that the data path has: TCP and UDP.
func dataPorts(ports []Port) []fabric.Port {
	var out []fabric.Port
	for _, p := range ports {
		if p.Protocol != "SCTP" {
			out = append(out, fabric.Port{Name: p.Name, Protocol: p.Protocol, Port: p.Port, AppProtocol: p.AppProtocol})
		}
	}
	return out
}
