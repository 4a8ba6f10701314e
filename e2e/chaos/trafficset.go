package main

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strings"

	"hawser.dev/hawser/e2e/traffic"
)

// trafficSet is all traffic of a run, with its expected properties.
type trafficSet struct {
	lab     *chaosLab
	log     *violationLog
	lock    map[string]string // initial allocations
	nodes   []netip.Prefix    // networks of the nodes, the same in every cluster
	callers []pod             // one per cluster
	servers []*traffic.Server
	flows   []flow
	refused []*refused
	sources map[string]netip.Addr // expected source addresses by "CALLER CLUSTER FAMILY"
}

// newTrafficSet starts the servers and prepares the traffic.
func newTrafficSet(ctx context.Context, b *chaosLab, l *violationLog) (*trafficSet, error) {
	s := &trafficSet{lab: b, log: l, sources: map[string]netip.Addr{}, nodes: b.variant.prefixes(nodes4, nodes6)}
	var err error
	if s.lock, err = b.lock(ctx); err != nil {
		return nil, err
	}
	for _, c := range b.topology.Clusters {
		caller, err := b.pod(ctx, c, "caller")
		if err != nil {
			return nil, err
		}
		s.callers = append(s.callers, caller)
		for _, family := range b.variant.families() {
			if err := s.expectSources(c, family); err != nil {
				return nil, err
			}
		}
	}
	if err := s.serve(ctx); err != nil {
		return nil, errors.Join(err, s.close())
	}
	err = errors.Join(s.allowed(), s.forbidden())
	return s, err
}

func (s *trafficSet) close() error {
	var errs []error
	for _, server := range s.servers {
		errs = append(errs, server.Close())
	}
	return errors.Join(errs...)
}

// mapped returns the global address of a pod: the prefix of its cluster's mapping, with the
// pod's host part.
func (s *trafficSet) mapped(cluster string, pod netip.Addr) (netip.Addr, error) {
	pods := pods4
	if pod.Is6() {
		pods = pods6
	}
	text := s.lock[fmt.Sprintf("clusters[%s].mappings[%s]", cluster, pods)]
	prefix, err := netip.ParsePrefix(text)
	if err != nil || prefix.Addr().BitLen() != pod.BitLen() {
		return netip.Addr{}, fmt.Errorf("map pod %v of cluster %s to %q: %w", pod, cluster, text, err)
	}
	raw, host := prefix.Addr().AsSlice(), pod.AsSlice()
	copy(raw[prefix.Bits()/8:], host[prefix.Bits()/8:]) // the prefix lengths of all mappings are multiples of 8
	out, _ := netip.AddrFromSlice(raw)
	return out, nil
}

// source returns the key in sources.
func source(caller, cluster string, family int) string {
	return fmt.Sprintf("%s %s %d", caller, cluster, family)
}

// expectSources sets the expected source addresses of a cluster's caller: its own address in
// its own cluster, its global address in others.
func (s *trafficSet) expectSources(cluster string, family int) error {
	own := s.lab.address(cluster, "caller", family)
	global, err := s.mapped(cluster, own)
	if err != nil {
		return err
	}
	for _, c := range s.lab.topology.Clusters {
		s.sources[source(cluster+"/caller", c, family)] = global
	}
	s.sources[source(cluster+"/caller", cluster, family)] = own
	return nil
}

// saw checks a call as the server saw it: the source address, and that the export allows the
// caller.
func (s *trafficSet) saw(seen traffic.Seen) {
	cluster, pod, _ := strings.Cut(seen.Server, "/")
	want := s.sources[source(seen.Caller, cluster, familyOf(seen.From))]
	if seen.From != want {
		s.log.add(safety, "%s reached %s with source %s, want %s", seen.Caller, seen.Server, seen.From, want)
	}
	from1 := strings.HasPrefix(seen.Caller, "g1/")
	if pod == "private" || !from1 && (pod == "secret" || pod == "vault-0") {
		s.log.add(safety, "%s reached %s, which it must not", seen.Caller, seen.Server)
	}
}

// serve starts servers in the pods without a server of the lab.
func (s *trafficSet) serve(ctx context.Context) error {
	for _, c := range s.lab.topology.Clusters {
		pods := []string{"web-1", "web-2", "db-0"}
		if c == "g2" {
			pods = append(pods, "secret", "vault-0", "private")
		}
		for _, name := range pods {
			pod, err := s.lab.pod(ctx, c, name)
			if err != nil {
				return err
			}
			server, err := traffic.Serve(pod.socket(), pod.name, s.saw, tcpPort, udpPort)
			if err != nil {
				return err
			}
			s.servers = append(s.servers, server)
		}
	}
	return nil
}

// at returns an address of the lock with a port.
func (s *trafficSet) at(name string, port uint16, family int) (netip.AddrPort, error) {
	addr := ofFamily(s.lock[name], family)
	if !addr.IsValid() {
		return netip.AddrPort{}, fmt.Errorf("address of %s: no IPv%d address in %q", name, family, s.lock[name])
	}
	return netip.AddrPortFrom(addr, port), nil
}

// allowed creates the flows that must recover after every round. With two families, the
// clusterset address is called over both, and every second one of the other addresses over
// IPv6: all over both would double the load.
func (s *trafficSet) allowed() error {
	families := s.lab.variant.families()
	var errs []error
	count := 0
	next := func() int {
		count++
		return families[count%len(families)]
	}
	for _, caller := range s.callers {
		own, _, _ := strings.Cut(caller.name, "/")
		for _, family := range families {
			errs = append(errs, s.to(caller, "web", "exports[shop/web].vips", family))
		}
		errs = append(errs, s.wide(caller, next()))
		for _, c := range s.lab.topology.Clusters {
			if c != own {
				errs = append(errs,
					s.to(caller, c+".web", fmt.Sprintf("exports[shop/web].clusters[%s].ips", c), next()),
					s.to(caller, "db-0."+c+".db", fmt.Sprintf("exports[shop/db].clusters[%s].hosts[*-0]", c), next()))
			}
		}
		if own == "g1" {
			errs = append(errs, s.to(caller, "secret", "exports[shop/secret].vips", next()),
				s.to(caller, "vault-0.g2.vault", "exports[shop/vault].clusters[g2].hosts[*-0]", next()))
		}
	}
	return errors.Join(errs...)
}

// to creates traffic of every kind to one address.
func (s *trafficSet) to(caller pod, target, name string, family int) error {
	tcp, err := s.at(name, tcpPort, family)
	if err != nil {
		return err
	}
	target = over(target, family)
	udp := netip.AddrPortFrom(tcp.Addr(), udpPort)
	s.flows = append(s.flows,
		&calls{from: caller, to: tcp, target: target},
		&calls{from: caller, to: udp, target: target, udp: true},
		&calls{from: caller, to: tcp, target: target, burst: true},
		&datagrams{from: caller, to: udp, target: target},
	)
	for _, kind := range []traffic.Kind{traffic.Busy, traffic.ServerPush, traffic.Idle} {
		s.flows = append(s.flows, &longLived{from: caller, to: tcp, target: target, kind: kind, died: s.died})
	}
	return nil
}

// over returns a readable name of a target.
func over(target string, family int) string {
	if family == 6 {
		return target + " (IPv6)"
	}
	return target
}

// wide creates a flow of calls to an export with a backend on a worker that may lose power. No
// long-lived connection uses the export.
func (s *trafficSet) wide(caller pod, family int) error {
	to, err := s.at("exports[shop/wide].vips", tcpPort, family)
	s.flows = append(s.flows, &calls{from: caller, to: to, target: over("wide", family), web: true, saw: s.saw})
	return err
}

// died records the end of a connection. No fault of the schedule may end one: the nodes of both
// pods keep their power, and TCP's timeout is longer than a round.
func (s *trafficSet) died(name string, err error) {
	s.log.add(safety, "%s: the connection died: %v", name, err)
}

// forbidden creates the calls that must never be answered: to exports for g1 only, at all kinds
// of addresses, and to pods without an export.
func (s *trafficSet) forbidden() error {
	var errs []error
	for _, family := range s.lab.variant.families() {
		errs = append(errs, s.unlisted(family), s.unexported(family))
	}
	return errors.Join(errs...)
}

func (s *trafficSet) unlisted(family int) error {
	for _, caller := range s.callers[1:] {
		own, _, _ := strings.Cut(caller.name, "/")
		for _, name := range []string{
			"exports[shop/secret].vips", "exports[shop/secret].clusters[g2].ips", "exports[shop/vault].clusters[g2].hosts[*-0]",
		} {
			to, err := s.at(name, tcpPort, family)
			if err != nil {
				return err
			}
			if own != "g2" { // a cluster may use its own exports
				s.refuse(caller, over(name, family), to.Addr())
			}
		}
	}
	return nil
}

func (s *trafficSet) unexported(family int) error {
	for _, caller := range s.callers {
		own, _, _ := strings.Cut(caller.name, "/")
		for _, pod := range []string{"private", "secret", "vault-0"} {
			if own == "g2" || own == "g1" && pod != "private" {
				continue
			}
			addr, err := s.mapped("g2", s.lab.address("g2", pod, family))
			if err != nil {
				return err
			}
			s.refuse(caller, over("g2/"+pod+" by its global address", family), addr)
		}
	}
	return nil
}

func (s *trafficSet) refuse(caller pod, target string, to netip.Addr) {
	reached := func(name string) { s.log.add(safety, "%s was answered", name) }
	tcp, udp := &refused{reached: reached}, &refused{reached: reached}
	tcp.from, tcp.to, tcp.target = caller, netip.AddrPortFrom(to, tcpPort), target
	udp.from, udp.to, udp.target, udp.udp = caller, netip.AddrPortFrom(to, udpPort), target, true
	s.refused = append(s.refused, tcp, udp)
}
