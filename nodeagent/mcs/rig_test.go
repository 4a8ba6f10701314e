package mcs_test

import (
	"net/netip"
	"time"

	"hawser.dev/hawser/nodeagent/mcs"
	"hawser.dev/hawser/schema/fabric"
)

func addr(text string) netip.Addr { return netip.MustParseAddr(text) }

func addrs(texts ...string) []netip.Addr {
	var out []netip.Addr
	for _, text := range texts {
		out = append(out, addr(text))
	}
	return out
}

func prefixes(texts ...string) []netip.Prefix {
	var out []netip.Prefix
	for _, text := range texts {
		out = append(out, netip.MustParsePrefix(text))
	}
	return out
}

// at returns a time by its minute.
func at(minute int) time.Time { return time.Date(2026, 1, 2, 3, minute, 0, 0, time.UTC) }

// sample returns a clusterset of three clusters with dynamic exports in team-*.
func sample() *fabric.Fabric {
	f := &fabric.Fabric{
		Name: "demo",
		DynamicExports: &fabric.DynamicExports{
			Namespaces: []string{"team-*"}, VIPs: prefixes("243.0.128.0/20", "fd43:0:0:8000::/112"),
		},
		Exports: []fabric.Export{{
			Namespace: "shop", Name: "web", Type: fabric.ClusterSetIP, VIPs: addrs("243.0.0.1"),
			Ports:    []fabric.Port{{Name: "http", Protocol: "TCP", Port: 80}},
			Clusters: []fabric.ExportCluster{{Name: "g1", IPs: addrs("242.1.0.1")}, {Name: "g2", IPs: addrs("242.2.0.1")}},
		}},
	}
	for _, c := range []struct{ name, number string }{{"g1", "1"}, {"g2", "2"}, {"g3", "3"}} {
		f.Clusters = append(f.Clusters, fabric.Cluster{
			Name: c.name, PodCIDRs: prefixes("10."+c.number+".0.0/16", "fd0"+c.number+"::/48"),
			GlobalCIDRs: prefixes("242."+c.number+".0.0/16", "fd42:"+c.number+"::/48"),
			Dynamic:     prefixes("242."+c.number+".192.0/18", "fd42:"+c.number+":0:8000::/112"),
		})
	}
	return f
}

func tcp(name string, port int) mcs.Port { return mcs.Port{Name: name, Protocol: "TCP", Port: port} }

func service(ports ...mcs.Port) *mcs.Service {
	return &mcs.Service{Type: "ClusterIP", Ports: ports, Families: []int{4}, InternalTrafficPolicy: "Cluster"}
}

func export(namespace, name string, minute int, s *mcs.Service) mcs.Export {
	return mcs.Export{Namespace: namespace, Name: name, UID: namespace + name, Created: at(minute), Generation: 1, Service: s}
}

// seenFrom returns the view of one cluster: its own exports, and the offers of the others.
func seenFrom(f *fabric.Fabric, cluster string, all map[string][]mcs.Export) mcs.ClusterView {
	w := mcs.ClusterView{Fabric: f, Cluster: cluster, Exports: all[cluster], Offers: map[string][]mcs.NamedOffer{}}
	for other, exports := range all {
		if other == cluster {
			continue
		}
		for _, v := range mcs.Decide(mcs.ClusterView{Fabric: f, Cluster: other, Exports: exports}).Exports {
			if v.Offer != nil {
				w.Offers[other] = append(w.Offers[other], mcs.NamedOffer{
					Namespace: v.Export.Namespace, Name: v.Export.Name, Offer: v.Offer,
				})
			}
		}
	}
	return w
}

// stateOf returns the desired objects of a view in which the state of all clusters arrived.
func stateOf(w mcs.ClusterView, sources map[string][]mcs.Backend) mcs.DesiredObjects {
	return mcs.Desired(w, mcs.Decide(w), true, sources)
}

func condition(list []mcs.Condition, of string) mcs.Condition {
	for _, c := range list {
		if c.Type == of {
			return c
		}
	}
	return mcs.Condition{}
}

func one(t interface{ Fatalf(string, ...any) }, s mcs.DesiredObjects, namespace, name string) mcs.Import {
	for _, m := range s.Imports {
		if m.Namespace == namespace && m.Name == name {
			return m
		}
	}
	t.Fatalf("no import %s/%s in %v", namespace, name, s.Imports)
	return mcs.Import{}
}
