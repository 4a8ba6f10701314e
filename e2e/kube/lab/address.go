package main

import (
	"fmt"
	"net/netip"

	"hawser.dev/hawser/internal/humanize"
)

// The machines of each cluster are in their own network behind the internet namespace. Unless the
// lab is flat, all clusters have the same prefixes of pods and Services. With both families IPv4 is
// first, as in clusters of kubeadm.

// ofFamilies returns the prefixes of the lab's families.
func (l *Lab) ofFamilies(four, six string) []netip.Prefix {
	texts := map[string][]string{"ipv4": {four}, "ipv6": {six}, "dual": {four, six}}[l.Families]
	var out []netip.Prefix
	for _, text := range texts {
		out = append(out, netip.MustParsePrefix(text))
	}
	return out
}

// planned returns the initial addresses of a machine.
func (l *Lab) planned(index, number int) []netip.Addr {
	var out []netip.Addr
	for _, p := range l.ofFamilies(fmt.Sprintf("172.31.%d.%d/24", index, 10+number), fmt.Sprintf("fd00:172:31:%d::%d/64", index, 10+number)) {
		out = append(out, p.Addr())
	}
	return out
}

// routers returns the internet's addresses in a cluster's network, with prefix lengths.
func (l *Lab) routers(index int) []netip.Prefix {
	return l.ofFamilies(fmt.Sprintf("172.31.%d.1/24", index), fmt.Sprintf("fd00:172:31:%d::1/64", index))
}

func (l *Lab) pods(index int) []netip.Prefix {
	return l.ofFamilies(l.podsBegin(index)+".0.0/16", fmt.Sprintf("fd00:10:%d::/56", l.own(7, 10+index)))
}

// podsBegin returns the first two bytes of the cluster's IPv4 pod prefix.
func (l *Lab) podsBegin(index int) string {
	if len(l.Pods) > 0 {
		begin := l.Pods[index-1].Addr().As4()
		return fmt.Sprintf("%d.%d", begin[0], begin[1])
	}
	return fmt.Sprintf("10.%d", l.own(7, 10+index))
}

// nodePods returns a node's part of the cluster's pod prefixes.
func (l *Lab) nodePods(n Node) []netip.Prefix {
	own := l.own(7, 10+n.Index)
	return l.ofFamilies(fmt.Sprintf("%s.%d.0/24", l.podsBegin(n.Index), n.Number), fmt.Sprintf("fd00:10:%d:%d::/64", own, n.Number))
}

func (l *Lab) services(index int) []netip.Prefix {
	own := l.own(77, 100+index)
	return l.ofFamilies(fmt.Sprintf("10.%d.0.0/16", own), fmt.Sprintf("fd00:10:%d::/112", own))
}

// own returns all, the number in the prefixes of every cluster, or in a flat lab the cluster's own
// number.
func (l *Lab) own(all, cluster int) int {
	if l.Flat {
		return cluster
	}
	return all
}

// apiAddr returns the address of the Service kubernetes.default: the first address of the Services'
// prefix.
func (l *Lab) apiAddr(index int) netip.Addr { return l.services(index)[0].Addr().Next() }

// dnsAddr returns the address of the DNS Service: the tenth address of the Services' prefix.
func (l *Lab) dnsAddr(index int) netip.Addr {
	addr := l.services(index)[0].Addr()
	for range 10 {
		addr = addr.Next()
	}
	return addr
}

// server returns the URL of a cluster's API server.
func (l *Lab) server(index int) string {
	return "https://" + netip.AddrPortFrom(l.control(index).Addrs[0], 6443).String()
}

// list joins addresses or prefixes for options of Kubernetes' programs.
func list[T fmt.Stringer](of []T) string {
	return humanize.Join(of, ",")
}
