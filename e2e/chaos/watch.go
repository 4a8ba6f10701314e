package main

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"path/filepath"
	"slices"
	"strings"

	"hawser.dev/hawser/e2e/chaos/sniff"
	"hawser.dev/hawser/e2e/traffic"
)

// watch captures where nothing wrong may be seen: between the nodes, and at the
// pods that not everybody may reach.
func (s *trafficSet) watch(ctx context.Context) (captures, error) {
	found, err := filepath.Glob(filepath.Join(s.bed.labDir(), "ns", "*-underlay"))
	if err != nil || len(found) != 1 {
		return nil, fmt.Errorf("find the underlay: %v, %w", found, err)
	}
	path := found[0]
	rules := s.rules()
	c, err := sniff.Start(path, func(link string, frame []byte) string {
		if inner := sniff.Inner(frame, rules.VXLAN); inner != nil && sniff.Resets(inner) {
			s.ledger.add(note, "a reset between nodes, from %s: %s", link, sniff.Describe(inner))
		}
		return onUnderlay(rules, link, frame)
	},
		func(f sniff.Finding) { s.ledger.add(safety, "on the underlay, from %s: %s", f.Link, f.Text) })
	if err != nil {
		return nil, err
	}
	all := captures{c}
	for _, pod := range []string{"secret", "vault-0", "private"} {
		at, err := s.bed.pod(ctx, "g2", pod)
		if err == nil {
			check, found := s.guard(pod)
			c, err = sniff.Start(at.net, check, found)
		}
		if err != nil {
			return nil, errors.Join(err, all.close())
		}
		all = append(all, c)
	}
	return all, nil
}

// rules says what the underlay of this lab may carry.
func (s *trafficSet) rules() sniff.Rules {
	v := s.bed.variant
	r := sniff.Rules{
		Endpoints: map[netip.Addr]bool{}, Ports: s.bed.ports(), VXLAN: 4803, Mark: []byte(strings.TrimSpace(traffic.Mark)),
		Nodes: s.nodes, Inside: slices.Concat(s.nodes, v.prefixes(pods4, pods6), v.prefixes(services4, services6)),
	}
	for _, text := range v.endpoints(extraNumber) {
		r.Endpoints[netip.MustParseAddr(text)] = true
	}
	for _, n := range s.bed.status.Nodes {
		for _, text := range n.WAN {
			if addr, err := netip.ParseAddr(text); err == nil {
				r.Endpoints[addr] = true
			}
		}
	}
	return r
}

// onUnderlay applies the rules of the side that a link is of, as the lab names
// them: w... is the wide area, l... a cluster's own network. A link that was gone
// before it could be named passes what one of both sides passes.
func onUnderlay(r sniff.Rules, link string, frame []byte) string {
	switch {
	case link == "lo":
		return "the underlay talks to itself: " + sniff.Describe(frame)
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

// guard checks what arrives at a pod of g2: from g1's pods where the export
// allows that, and from the pod's own node.
func (s *trafficSet) guard(pod string) (check func(string, []byte) string, found func(sniff.Finding)) {
	allowed := map[netip.Addr]bool{}
	for _, family := range s.bed.variant.families() {
		if pod != "private" {
			allowed[s.sources[source("g1/caller", "g2", family)]] = true
		}
		allowed[answering(s.bed.address("g2", pod, family))] = true
	}
	check = func(link string, frame []byte) string {
		source := sniff.Source(frame)
		if link == "lo" || !source.IsValid() || allowed[source] {
			return ""
		}
		if s.isNode(source) && sniff.Refuses(frame) {
			s.ledger.add(note, "pod g2/%s was refused: %s", pod, sniff.Describe(frame))
			return ""
		}
		return sniff.Describe(frame)
	}
	return check, func(f sniff.Finding) { s.ledger.add(safety, "pod g2/%s got what it must not: %s", pod, f.Text) }
}

// answering is the address at which a pod's node answers it: the first one of the
// node's share, which ends with the pod's last byte, or two.
func answering(pod netip.Addr) netip.Addr {
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

// captures are those of a run.
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

// lost says how many frames nobody looked at since the last call.
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
