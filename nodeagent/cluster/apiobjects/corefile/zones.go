package corefile

import "hawser.dev/hawser/schema/fabric"

// ForwardOf returns the zones that a cluster's DNS forwards, and the name servers for them.
func ForwardOf(f *fabric.Fabric, cluster *fabric.Cluster) Forward {
	return Forward{
		Zones: f.ForwardedZones(), Domains: append([]string{f.Domain}, f.ExtraDomains...), Servers: f.NameServers(cluster),
	}
}
