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

// answers are what the name servers of the clusters say: "CALLER NAME FAMILY" to
// addresses.
type answers map[string]string

// names are asked for in every cluster.
func names(clusters []string) []string {
	out := []string{"web", "wide", "secret", "g2.secret", "db", "vault", "vault-0.g2.vault"}
	for _, c := range clusters {
		out = append(out, c+".web", "db-0."+c+".db")
	}
	return out
}

// question is one name and family that one cluster's name server is asked for.
type question struct {
	caller pod
	name   string // before .shop.svc, as the clusters call it
	family int
}

// key is that of the answer.
func (q question) key() string { return answerKey(q.caller.name, q.name, q.family) }

func answerKey(caller, name string, family int) string {
	return fmt.Sprintf("%s %s %d", caller, name, family)
}

func (s *trafficSet) questions() []question {
	var out []question
	for _, caller := range s.callers {
		for _, name := range names(s.bed.topology.Clusters) {
			for _, family := range s.bed.variant.families() {
				out = append(out, question{caller, name, family})
			}
		}
	}
	return out
}

// Where agents answer questions; every node has both.
const names4, names6 = "169.254.73.53", "fd68:6177:7365:72::53"

// lookup asks once.
func (s *trafficSet) lookup(q question) (string, error) {
	server := names4
	if !slices.Contains(s.bed.variant.families(), 4) {
		server = names6
	}
	got, err := q.caller.lookup(netip.AddrPortFrom(netip.MustParseAddr(server), 53), q.name+".shop.svc.clusterset.local", q.family == 6)
	return strings.Join(got, " "), err
}

// lookup asks a name server from inside the pod for the addresses of a name of one
// family; no such name is no address.
func (p pod) lookup(server netip.AddrPort, name string, six bool) ([]string, error) {
	conn, err := p.socket().Dial(context.Background(), "udp", server.String())
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(impatient)); err != nil {
		return nil, err
	}
	kind := dns.TypeA
	if six {
		kind = dns.TypeAAAA
	}
	question := new(dns.Msg).SetQuestion(dns.Fqdn(name), kind)
	c := &dns.Conn{Conn: conn}
	if err := c.WriteMsg(question); err != nil {
		return nil, fmt.Errorf("%s asks for %s: %w", p.name, name, err)
	}
	reply, err := c.ReadMsg()
	if err != nil {
		return nil, fmt.Errorf("%s asks for %s: %w", p.name, name, err)
	}
	if reply.Rcode != dns.RcodeSuccess && reply.Rcode != dns.RcodeNameError {
		return nil, fmt.Errorf("%s asks for %s: %s", p.name, name, dns.RcodeToString[reply.Rcode])
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

// ask collects all answers.
func (s *trafficSet) ask() (answers, error) {
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

// settle waits for answers that are complete: as the lock has them, and none
// where the export does not allow the cluster.
func (s *trafficSet) settle(ctx context.Context) (answers, error) {
	for {
		got, err := s.ask()
		if err == nil {
			if err = s.complete(got); err == nil {
				return got, nil
			}
		}
		if !wait(ctx, 20*time.Millisecond) {
			return nil, fmt.Errorf("names do not settle: %w", err)
		}
	}
}

func (s *trafficSet) complete(got answers) error {
	for _, key := range slices.Sorted(maps.Keys(got)) {
		caller, name, _ := strings.Cut(key, " ")
		hidden := strings.HasPrefix(caller, "g3") && (strings.Contains(name, "secret") || strings.Contains(name, "vault"))
		if hidden != (got[key] == "") {
			return fmt.Errorf("%s for %s: %q", name, caller, got[key])
		}
	}
	for _, caller := range s.callers {
		for _, family := range s.bed.variant.families() {
			if err := whole(got, caller.name, family, s.bed.topology.Clusters); err != nil {
				return err
			}
		}
	}
	return nil
}

// whole checks that a caller's name server knows the pods of all clusters: it
// answers for a name without a cluster as soon as it knows the first of them.
func whole(got answers, caller string, family int, clusters []string) error {
	var want []string
	for _, c := range clusters {
		want = append(want, strings.Fields(got[answerKey(caller, "db-0."+c+".db", family)])...)
	}
	have := strings.Fields(got[answerKey(caller, "db", family)])
	slices.Sort(want)
	slices.Sort(have)
	if !slices.Equal(want, have) {
		return fmt.Errorf("db for %s: %v, its pods are %v", caller, have, want)
	}
	return nil
}

// unchanged waits until each answer was that of the begin once. An address that was
// never among a name's is wrong at once.
func (s *trafficSet) unchanged(ctx context.Context, want answers) {
	for pending := s.questions(); ; {
		var err error
		pending, err = s.differing(pending, want)
		if len(pending) == 0 {
			return
		}
		if !wait(ctx, 20*time.Millisecond) {
			s.ledger.add(late, "names: %d answers are missing or others: %v", len(pending), err)
			return
		}
	}
}

// differing asks all at once, and gives the questions without the right answer, and
// what the first of them got.
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
			s.ledger.add(safety, "the answer for %s was %q and is %q", q.key(), want, got)
		}
	}
	return fmt.Errorf("the answer for %s was %q and is %q", q.key(), want, got)
}

// allocations checks that nothing of the lock has moved since the begin.
func (s *trafficSet) allocations(ctx context.Context) {
	now, err := s.bed.lock(ctx)
	if err != nil {
		s.ledger.add(safety, "the lock: %v", err)
		return
	}
	for _, name := range slices.Sorted(maps.Keys(s.lock)) {
		if now[name] != s.lock[name] {
			s.ledger.add(safety, "%s was [%s] and is [%s]", name, s.lock[name], now[name])
		}
	}
}
