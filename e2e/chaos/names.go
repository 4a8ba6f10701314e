package main

import (
	"context"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/miekg/dns"
)

// answers maps "CALLER NAME FAMILY" to the addresses in the answer of the caller's name server.
type answers map[string]string

// names returns the names to query in every cluster.
func names(clusters []string) []string {
	out := []string{"web", "wide", "secret", "g2.secret", "db", "vault", "vault-0.g2.vault"}
	for _, c := range clusters {
		out = append(out, c+".web", "db-0."+c+".db")
	}
	return out
}

// question is a DNS query to the name server of one cluster.
type question struct {
	caller pod
	name   string // without .shop.svc and the domain
	family int
}

// key returns the key in answers.
func (q question) key() string { return answerKey(q.caller.name, q.name, q.family) }

func answerKey(caller, name string, family int) string {
	return fmt.Sprintf("%s %s %d", caller, name, family)
}

func (s *trafficSet) questions() []question {
	var out []question
	for _, caller := range s.callers {
		for _, name := range names(s.lab.topology.Clusters) {
			for _, family := range s.lab.variant.families() {
				out = append(out, question{caller, name, family})
			}
		}
	}
	return out
}

// Addresses of the agents' name servers, on every node.
const names4, names6 = "169.254.73.53", "fd68:6177:7365:72::53"

// lookup sends one query.
func (s *trafficSet) lookup(q question) (string, error) {
	server := names4
	if !slices.Contains(s.lab.variant.families(), 4) {
		server = names6
	}
	got, err := q.caller.lookup(netip.AddrPortFrom(netip.MustParseAddr(server), 53), q.name+".shop.svc.clusterset.local", q.family == 6)
	return strings.Join(got, " "), err
}

// lookup queries a name server from inside the pod for the addresses of one family. A name
// that does not exist has no addresses.
func (p pod) lookup(server netip.AddrPort, name string, six bool) ([]string, error) {
	conn, err := p.socket().Dial(context.Background(), "udp", server.String())
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(callTimeout)); err != nil {
		return nil, err
	}
	kind := dns.TypeA
	if six {
		kind = dns.TypeAAAA
	}
	question := new(dns.Msg).SetQuestion(dns.Fqdn(name), kind)
	c := &dns.Conn{Conn: conn}
	if err := c.WriteMsg(question); err != nil {
		return nil, fmt.Errorf("%s queries %s: %w", p.name, name, err)
	}
	reply, err := c.ReadMsg()
	if err != nil {
		return nil, fmt.Errorf("%s queries %s: %w", p.name, name, err)
	}
	if reply.Rcode != dns.RcodeSuccess && reply.Rcode != dns.RcodeNameError {
		return nil, fmt.Errorf("%s queries %s: %s", p.name, name, dns.RcodeToString[reply.Rcode])
	}
	var out []string
	for _, record := range reply.Answer {
		switch a := record.(type) {
		case *dns.A:
			out = append(out, a.A.String())
		case *dns.AAAA:
			out = append(out, a.AAAA.String())
		}
	}
	slices.Sort(out)
	return out, nil
}

// queryAll sends every query and returns the answers.
func (s *trafficSet) queryAll() (answers, error) {
	out := answers{}
	for _, q := range s.questions() {
		got, err := s.lookup(q)
		if err != nil {
			return nil, err
		}
		out[q.key()] = got
	}
	return out, nil
}

// awaitAnswers waits for complete answers: addresses for every name, except where the export
// does not allow the cluster.
func (s *trafficSet) awaitAnswers(ctx context.Context) (answers, error) {
	for {
		got, err := s.queryAll()
		if err == nil {
			if err = s.checkComplete(got); err == nil {
				return got, nil
			}
		}
		if !wait(ctx, 20*time.Millisecond) {
			return nil, fmt.Errorf("wait for complete DNS answers: %w", err)
		}
	}
}

func (s *trafficSet) checkComplete(got answers) error {
	for _, key := range slices.Sorted(maps.Keys(got)) {
		caller, name, _ := strings.Cut(key, " ")
		hidden := strings.HasPrefix(caller, "g3") && (strings.Contains(name, "secret") || strings.Contains(name, "vault"))
		if hidden != (got[key] == "") {
			return fmt.Errorf("%s for %s: %q", name, caller, got[key])
		}
	}
	for _, caller := range s.callers {
		for _, family := range s.lab.variant.families() {
			if err := checkPods(got, caller.name, family, s.lab.topology.Clusters); err != nil {
				return err
			}
		}
	}
	return nil
}

// checkPods checks that the answer for a name without a cluster has the pods of all clusters.
// A name server answers as soon as it has the first pod.
func checkPods(got answers, caller string, family int, clusters []string) error {
	var want []string
	for _, c := range clusters {
		want = append(want, strings.Fields(got[answerKey(caller, "db-0."+c+".db", family)])...)
	}
	have := strings.Fields(got[answerKey(caller, "db", family)])
	slices.Sort(want)
	slices.Sort(have)
	if !slices.Equal(want, have) {
		return fmt.Errorf("db for %s: got %v, want its pods %v", caller, have, want)
	}
	return nil
}

// awaitUnchanged waits until each query returned its initial answer once. An address that the
// initial answer lacks is a violation at once.
func (s *trafficSet) awaitUnchanged(ctx context.Context, want answers) {
	for pending := s.questions(); ; {
		var err error
		pending, err = s.differing(pending, want)
		if len(pending) == 0 {
			return
		}
		if !wait(ctx, 20*time.Millisecond) {
			s.log.add(late, "names: %d answers are missing or differ: %v", len(pending), err)
			return
		}
	}
}

// differing sends all queries at once. It returns the questions with a different answer, and the
// first error.
func (s *trafficSet) differing(questions []question, want answers) (out []question, first error) {
	wrong := make([]error, len(questions))
	var group sync.WaitGroup
	for i, q := range questions {
		group.Go(func() { wrong[i] = s.differs(q, want[q.key()]) })
	}
	group.Wait()
	for i, err := range wrong {
		if err == nil {
			continue
		}
		if out = append(out, questions[i]); first == nil {
			first = err
		}
	}
	return out, first
}

func (s *trafficSet) differs(q question, want string) error {
	got, err := s.lookup(q)
	if err != nil || got == want {
		return err
	}
	for _, addr := range strings.Fields(got) {
		if !slices.Contains(strings.Fields(want), addr) {
			s.log.add(safety, "the answer for %s was %q and is %q", q.key(), want, got)
		}
	}
	return fmt.Errorf("the answer for %s was %q and is %q", q.key(), want, got)
}

// checkAllocations checks that no allocation of the lock changed since the start.
func (s *trafficSet) checkAllocations(ctx context.Context) {
	now, err := s.lab.lock(ctx)
	if err != nil {
		s.log.add(safety, "the lock: %v", err)
		return
	}
	for _, name := range slices.Sorted(maps.Keys(s.lock)) {
		if now[name] != s.lock[name] {
			s.log.add(safety, "%s was [%s] and is [%s]", name, s.lock[name], now[name])
		}
	}
}
