package main

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"path/filepath"
	"slices"
	"strings"

	"hawser.dev/hawser/e2e/chaos/schedule"
	"hawser.dev/hawser/e2e/chaos/sniff"
	"hawser.dev/hawser/e2e/traffic"
	"hawser.dev/hawser/lab"
)

// startCaptures captures between the nodes, and at the pods that only some callers may reach.
func (s *trafficSet) startCaptures(ctx context.Context) (captures, error) {
	found, err := filepath.Glob(filepath.Join(s.lab.labDir(), "ns", "*-underlay"))
	if err != nil || len(found) != 1 {
		return nil, fmt.Errorf("find the underlay: %v, %w", found, err)
	}
	path := found[0]
	rules := s.rules()
	c, err := sniff.Start(path, func(link string, frame []byte) string {
		if inner := sniff.Inner(frame, rules.VXLAN); inner != nil && sniff.Resets(inner) {
			s.log.add(noteEntry, "a reset between nodes, from %s: %s", link, sniff.Describe(inner))
		}
		return onUnderlay(rules, link, frame)
	},
		func(f sniff.Finding) {
			if s.lab.unprotected.permits(f) {
				s.log.add(noteEntry, "a node without rules, from %s: %s", f.Link, f.Text)
				return
			}
			s.log.add(safety, "on the underlay, from %s: %s", f.Link, f.Text)
		})
	if err != nil {
		return nil, err
	}
	all := captures{c}
	for _, pod := range []string{"secret", "vault-0", "private"} {
		at, err := s.lab.pod(ctx, "g2", pod)
		if err == nil {
			check, found := s.podRules(pod)
			c, err = sniff.Start(at.net, check, found)
		}
		if err != nil {
			return nil, errors.Join(err, all.close())
		}
		all = append(all, c)
	}
	return all, nil
}

// rules returns the packets allowed on the underlay of this lab.
func (s *trafficSet) rules() sniff.Rules {
	v := s.lab.variant
	r := sniff.Rules{
		Endpoints: map[netip.Addr]bool{}, Ports: s.lab.ports(), VXLAN: 4803, Mark: []byte(strings.TrimSpace(traffic.Mark)),
		Nodes: s.nodes, Inside: slices.Concat(s.nodes, v.prefixes(pods4, pods6), v.prefixes(services4, services6)),
		Pods: v.prefixes(pods4, pods6), Global: s.lab.global, Direct: map[sniff.HardwareAddr]sniff.DirectNode{},
	}
	for _, n := range append(slices.Clone(s.lab.topology.Nodes), schedule.Node{ID: extraNode, Cluster: "g2", Gateway: true}) {
		if s.lab.networks[n.Cluster] == autoNetwork {
			r.Direct[sniff.HardwareAddr(lab.HardwareAddr(n.ID, lab.SideLAN))] = sniff.DirectNode{
				Cluster: n.Cluster, Gateway: n.Gateway, Worker: !n.Gateway || n.ID == extraNode, // a worker after the revert
			}
		}
	}
	for _, text := range v.endpoints(extraNumber) {
		r.Endpoints[netip.MustParseAddr(text)] = true
	}
	for _, n := range s.lab.status.Nodes {
		for _, text := range n.WAN {
			if addr, err := netip.ParseAddr(text); err == nil {
				r.Endpoints[addr] = true
			}
		}
	}
	return r
}

// onUnderlay applies the rules of the link's side, by the lab's names: w... is the wide area,
// l... a cluster's own network. A link that was deleted before its name was read may have the
// packets of either side.
func onUnderlay(r sniff.Rules, link string, frame []byte) string {
	switch {
	case link == "lo":
		return "packet on the underlay's loopback: " + sniff.Describe(frame)
	case strings.HasPrefix(link, "w"):
		return r.WAN(frame)
	case strings.HasPrefix(link, "l"):
		return r.LAN(frame)
	}
	if wrong := r.LAN(frame); wrong != "" && r.WAN(frame) != "" {
		return wrong
	}
	return ""
}

// podRules returns the rules for packets that arrive at a pod of g2: from g1's pods if the
// export allows them, and from the pod's own node.
func (s *trafficSet) podRules(pod string) (check func(string, []byte) string, found func(sniff.Finding)) {
	allowed := map[netip.Addr]bool{}
	for _, family := range s.lab.variant.families() {
		if pod != "private" {
			allowed[s.sources[source("g1/caller", "g2", family)]] = true
		}
		allowed[nodeAddress(s.lab.address("g2", pod, family))] = true
	}
	check = func(link string, frame []byte) string {
		source := sniff.Source(frame)
		if link == "lo" || !source.IsValid() || allowed[source] {
			return ""
		}
		if s.isNode(source) && sniff.Refuses(frame) {
			s.log.add(noteEntry, "pod g2/%s was refused: %s", pod, sniff.Describe(frame))
			return ""
		}
		return sniff.Describe(frame)
	}
	return check, func(f sniff.Finding) { s.log.add(safety, "pod g2/%s received a forbidden packet: %s", pod, f.Text) }
}

// nodeAddress returns the address from which a pod's node answers it: the first address of the
// node's pod prefix. The pod's host part has one byte in IPv4 and two bytes in IPv6.
func nodeAddress(pod netip.Addr) netip.Addr {
	raw := pod.AsSlice()
	if len(raw) == 16 {
		raw[14] = 0
	}
	if len(raw) > 0 {
		raw[len(raw)-1] = 1
	}
	out, _ := netip.AddrFromSlice(raw)
	return out
}

func (s *trafficSet) isNode(a netip.Addr) bool {
	return slices.ContainsFunc(s.nodes, func(p netip.Prefix) bool { return p.Contains(a) })
}

// captures are all captures of a run.
type captures []*sniff.Capture

func (c captures) close() error {
	var errs []error
	for _, one := range c {
		errs = append(errs, one.Close())
	}
	return errors.Join(errs...)
}

func (c captures) frames() (n int64) {
	for _, one := range c {
		n += one.Frames()
	}
	return n
}

// lost returns the number of frames dropped since the last call.
func (c captures) lost() (uint32, error) {
	var sum uint32
	for _, one := range c {
		n, err := one.Lost()
		if err != nil {
			return 0, fmt.Errorf("capture: %w", err)
		}
		sum += n
	}
	return sum, nil
}
