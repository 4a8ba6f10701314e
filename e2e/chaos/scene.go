package main

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strings"

	"hawser.dev/hawser/e2e/traffic"
)

// trafficSet is all traffic of a run, and what it must look like.
type trafficSet struct {
	bed     *chaosLab
	ledger  *violationLog
	lock    map[string]string // as it was at the begin
	nodes   []netip.Prefix    // the networks of the nodes, the same in every cluster
	callers []pod             // one a cluster
	servers []*traffic.Server
	flows   []flow
	refused []*refused
	sources map[string]netip.Addr // what a server must see, by "CALLER CLUSTER FAMILY"
}

// newScene opens the servers and prepares the traffic.
func newScene(ctx context.Context, b *chaosLab, l *violationLog) (*trafficSet, error) {
	s := &trafficSet{bed: b, ledger: l, sources: map[string]netip.Addr{}, nodes: b.variant.prefixes(nodes4, nodes6)}
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

// mapped is the global address of a pod of a cluster: the prefix that its pods
// are mapped to with the pod's host part.
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
	copy(raw[prefix.Bits()/8:], host[prefix.Bits()/8:]) // all mappings are of whole bytes
	out, _ := netip.AddrFromSlice(raw)
	return out, nil
}

// source names what a caller is seen as.
func source(caller, cluster string, family int) string {
	return fmt.Sprintf("%s %s %d", caller, cluster, family)
}

// expectSources says as whom a cluster's caller is seen: by its own cluster with
// its own address, by others with its global one.
func (s *trafficSet) expectSources(cluster string, family int) error {
	own := s.bed.address(cluster, "caller", family)
	global, err := s.mapped(cluster, own)
	if err != nil {
		return err
	}
	for _, c := range s.bed.topology.Clusters {
		s.sources[source(cluster+"/caller", c, family)] = global
	}
	s.sources[source(cluster+"/caller", cluster, family)] = own
	return nil
}

// saw checks what a server saw: the caller's one address, and nobody whom the
// export keeps out.
func (s *trafficSet) saw(seen traffic.Seen) {
	cluster, pod, _ := strings.Cut(seen.Server, "/")
	want := s.sources[source(seen.Caller, cluster, familyOf(seen.From))]
	if seen.From != want {
		s.ledger.add(safety, "%s was seen by %s as %s, not as %s", seen.Caller, seen.Server, seen.From, want)
	}
	from1 := strings.HasPrefix(seen.Caller, "g1/")
	if pod == "private" || !from1 && (pod == "secret" || pod == "vault-0") {
		s.ledger.add(safety, "%s reached %s, which it must not", seen.Caller, seen.Server)
	}
}

// serve starts servers in the pods that the lab does not serve.
func (s *trafficSet) serve(ctx context.Context) error {
	for _, c := range s.bed.topology.Clusters {
		pods := []string{"web-1", "web-2", "db-0"}
		if c == "g2" {
			pods = append(pods, "secret", "vault-0", "private")
		}
		for _, name := range pods {
			pod, err := s.bed.pod(ctx, c, name)
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

// at gives an address of the lock with a port.
func (s *trafficSet) at(name string, port uint16, family int) (netip.AddrPort, error) {
	addr := ofFamily(s.lock[name], family)
	if !addr.IsValid() {
		return netip.AddrPort{}, fmt.Errorf("address of %s: none of IPv%d in %q", name, family, s.lock[name])
	}
	return netip.AddrPortFrom(addr, port), nil
}

// allowed makes the flows that must come back after every round. Where there are
// two families the clusterset address is called over both, and of the other
// addresses every second one over IPv6: twice the traffic would be another test.
func (s *trafficSet) allowed() error {
	families := s.bed.variant.families()
	var errs []error
	turn := 0
	next := func() int {
		turn++
		return families[turn%len(families)]
	}
	for _, caller := range s.callers {
		own, _, _ := strings.Cut(caller.name, "/")
		for _, family := range families {
			errs = append(errs, s.to(caller, "web", "exports[shop/web].vips", family))
		}
		errs = append(errs, s.wide(caller, next()))
		for _, c := range s.bed.topology.Clusters {
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

// to makes traffic of every kind to one address.
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

// over names a target for people.
func over(target string, family int) string {
	if family == 6 {
		return target + " (IPv6)"
	}
	return target
}

// wide calls an export with a backend on a worker that loses its power; nothing
// that is held open goes there.
func (s *trafficSet) wide(caller pod, family int) error {
	to, err := s.at("exports[shop/wide].vips", tcpPort, family)
	s.flows = append(s.flows, &calls{from: caller, to: to, target: over("wide", family), web: true, saw: s.saw})
	return err
}

// died: no fault of the schedule may end a connection. The pods at both of its
// ends keep their nodes, and TCP is more patient than a round is long.
func (s *trafficSet) died(name string, err error) {
	s.ledger.add(safety, "%s: the connection died: %v", name, err)
}

// forbidden makes the calls that must never be answered: what is exported to g1
// alone, by its addresses of every kind, and what is exported to nobody.
func (s *trafficSet) forbidden() error {
	var errs []error
	for _, family := range s.bed.variant.families() {
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
			if own != "g2" { // a cluster may use what it exports itself
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
			addr, err := s.mapped("g2", s.bed.address("g2", pod, family))
			if err != nil {
				return err
			}
			s.refuse(caller, over("g2/"+pod+" by its global address", family), addr)
		}
	}
	return nil
}

func (s *trafficSet) refuse(caller pod, target string, to netip.Addr) {
	reached := func(name string) { s.ledger.add(safety, "%s was answered", name) }
	tcp, udp := &refused{reached: reached}, &refused{reached: reached}
	tcp.from, tcp.to, tcp.target = caller, netip.AddrPortFrom(to, tcpPort), target
	udp.from, udp.to, udp.target, udp.udp = caller, netip.AddrPortFrom(to, udpPort), target, true
	s.refused = append(s.refused, tcp, udp)
}
