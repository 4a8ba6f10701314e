package main

import (
	"context"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"time"
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

// ask collects all answers.
func (s *scene) ask() (answers, error) {
	server := netip.MustParseAddrPort("169.254.73.53:53")
	families := s.bed.variant.families()
	if !slices.Contains(families, 4) {
		server = netip.MustParseAddrPort("[fd68:6177:7365:72::53]:53")
	}
	out := answers{}
	for _, caller := range s.callers {
		for _, name := range names(s.bed.topology.Clusters) {
			service := name[strings.LastIndexByte(name, '.')+1:]
			full := strings.TrimSuffix(name, service) + service + ".shop.svc.clusterset.local"
			for _, family := range families {
				got, err := caller.Lookup(server, full, family == 6)
				if err != nil {
					return nil, err
				}
				out[question(caller.Name, name, family)] = strings.Join(got, " ")
			}
		}
	}
	return out, nil
}

// question is the key of an answer.
func question(caller, name string, family int) string {
	return fmt.Sprintf("%s %s %d", caller, name, family)
}

// settle waits for answers that are complete: as the lock has them, and none
// where the export does not allow the cluster.
func (s *scene) settle(ctx context.Context) (answers, error) {
	for {
		got, err := s.ask()
		if err == nil {
			if err = s.complete(got); err == nil {
				return got, nil
			}
		}
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("names do not settle: %w", err)
		case <-time.After(20 * time.Millisecond):
		}
	}
}

func (s *scene) complete(got answers) error {
	for _, key := range slices.Sorted(maps.Keys(got)) {
		caller, name, _ := strings.Cut(key, " ")
		hidden := strings.HasPrefix(caller, "g3") && (strings.Contains(name, "secret") || strings.Contains(name, "vault"))
		if hidden != (got[key] == "") {
			return fmt.Errorf("%s for %s: %q", name, caller, got[key])
		}
	}
	for _, caller := range s.callers {
		for _, family := range s.bed.variant.families() {
			if err := whole(got, caller.Name, family, s.bed.topology.Clusters); err != nil {
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
		want = append(want, strings.Fields(got[question(caller, "db-0."+c+".db", family)])...)
	}
	have := strings.Fields(got[question(caller, "db", family)])
	slices.Sort(want)
	slices.Sort(have)
	if !slices.Equal(want, have) {
		return fmt.Errorf("db for %s: %v, its pods are %v", caller, have, want)
	}
	return nil
}

// unchanged waits until the answers are those of the begin. An address that was
// never among a name's is wrong at once.
func (s *scene) unchanged(ctx context.Context, want answers) {
	for {
		got, err := s.ask()
		if err == nil {
			if err = s.compare(want, got); err == nil {
				return
			}
		}
		select {
		case <-ctx.Done():
			s.ledger.add(late, "names: %v", err)
			return
		case <-time.After(20 * time.Millisecond):
		}
	}
}

func (s *scene) compare(want, got answers) error {
	for _, key := range slices.Sorted(maps.Keys(want)) {
		for _, addr := range strings.Fields(got[key]) {
			if !slices.Contains(strings.Fields(want[key]), addr) {
				s.ledger.add(safety, "the answer for %s was %q and is %q", key, want[key], got[key])
			}
		}
	}
	for _, key := range slices.Sorted(maps.Keys(want)) {
		if want[key] != got[key] {
			return fmt.Errorf("the answer for %s was %q and is %q", key, want[key], got[key])
		}
	}
	return nil
}

// allocations checks that nothing of the lock has moved since the begin.
func (s *scene) allocations(ctx context.Context) {
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
