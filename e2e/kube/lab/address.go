package main

import (
	"fmt"
	"net/netip"

	"hawser.dev/hawser/internal/humanize"
)

// The machines of each cluster are in their own network behind the internet namespace. Unless the
// lab is flat, all clusters have the same prefixes of pods and Services. With both families IPv4 is
// first, as in clusters of kubeadm.

// familyPrefixes returns the prefixes of the lab's families.
func (l *Lab) familyPrefixes(four, six string) []netip.Prefix {
	texts := map[string][]string{"ipv4": {four}, "ipv6": {six}, "dual": {four, six}}[l.Families]
	var out []netip.Prefix
	for _, text := range texts {
		out = append(out, netip.MustParsePrefix(text))
	}
	return out
}

// plannedAddrs returns the initial addresses of a machine.
func (l *Lab) plannedAddrs(index, number int) []netip.Addr {
	var out []netip.Addr
	for _, p := range l.familyPrefixes(fmt.Sprintf("172.31.%d.%d/24", index, 10+number), fmt.Sprintf("fd00:172:31:%d::%d/64", index, 10+number)) {
		out = append(out, p.Addr())
	}
	return out
}

// routerPrefixes returns the internet's addresses in a cluster's network, with prefix lengths.
func (l *Lab) routerPrefixes(index int) []netip.Prefix {
	return l.familyPrefixes(fmt.Sprintf("172.31.%d.1/24", index), fmt.Sprintf("fd00:172:31:%d::1/64", index))
}

func (l *Lab) podPrefixes(index int) []netip.Prefix {
	return l.familyPrefixes(l.podsBegin(index)+".0.0/16", fmt.Sprintf("fd00:10:%d::/56", l.prefixNumber(7, 10+index)))
}

// podsBegin returns the first two bytes of the cluster's IPv4 pod prefix.
func (l *Lab) podsBegin(index int) string {
	if len(l.Pods) > 0 {
		begin := l.Pods[index-1].Addr().As4()
		return fmt.Sprintf("%d.%d", begin[0], begin[1])
	}
	return fmt.Sprintf("10.%d", l.prefixNumber(7, 10+index))
}

// nodePodPrefixes returns a node's part of the cluster's pod prefixes.
func (l *Lab) nodePodPrefixes(n Node) []netip.Prefix {
	own := l.prefixNumber(7, 10+n.Index)
	return l.familyPrefixes(fmt.Sprintf("%s.%d.0/24", l.podsBegin(n.Index), n.Number), fmt.Sprintf("fd00:10:%d:%d::/64", own, n.Number))
}

func (l *Lab) servicePrefixes(index int) []netip.Prefix {
	own := l.prefixNumber(77, 100+index)
	return l.familyPrefixes(fmt.Sprintf("10.%d.0.0/16", own), fmt.Sprintf("fd00:10:%d::/112", own))
}

// prefixNumber returns all, the number in the prefixes of every cluster. In a flat lab it returns
// cluster, the cluster's own number.
func (l *Lab) prefixNumber(all, cluster int) int {
	if l.Flat {
		return cluster
	}
	return all
}

// apiAddr returns the address of the Service kubernetes.default: the first address of the Services'
// prefix.
func (l *Lab) apiAddr(index int) netip.Addr { return l.servicePrefixes(index)[0].Addr().Next() }

// dnsAddr returns the address of the DNS Service: the tenth address of the Services' prefix.
func (l *Lab) dnsAddr(index int) netip.Addr {
	addr := l.servicePrefixes(index)[0].Addr()
	for range 10 {
		addr = addr.Next()
	}
	return addr
}

// apiServerURL returns the URL of a cluster's API server.
func (l *Lab) apiServerURL(index int) string {
	return "https://" + netip.AddrPortFrom(l.controlNode(index).Addrs[0], 6443).String()
}

// joinList joins addresses or prefixes for options of Kubernetes' programs.
func joinList[T fmt.Stringer](of []T) string {
	return humanize.Join(of, ",")
}
