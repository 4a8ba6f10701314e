//go:build kube

package kube

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"
)

// TestStatusFaults injects the faults that new users made. hawser status must name the cause and the
// next step of each in its first line, and report no problem after the repair.
func TestStatusFaults(t *testing.T) {
	s := needClusterset(t, samePrefixes)
	t.Cleanup(func() { s.reset(t) })
	s.firstLine(t, "no problems: 2 clusters", 0)
	second := func(old, new string) { // in the entry of c2
		t.Helper()
		i := strings.Index(s.topology, "- name: c2")
		if i < 0 || !strings.Contains(s.topology[i:], old) {
			t.Fatalf("%q is not in the entry of c2", old)
		}
		s.write(t, s.topology[:i]+strings.Replace(s.topology[i:], old, new, 1))
		s.sync(t)
	}
	var plain string // the Corefile without the block of Hawser
	for _, fault := range []struct {
		name   string
		inject func(t *testing.T)
		repair func(t *testing.T)
		cause  string
		code   int
	}{
		{"pod prefix", func(*testing.T) { second("podCIDRs: [10.7.0.0/16]", "podCIDRs: [10.9.0.0/16]") }, s.reset, "podCIDRs", 1},
		{"endpoints of one side", func(*testing.T) { second("172.31.2.11", "172.31.2.91") }, s.reset,
			"no cluster reaches gateway", 2},
		{"endpoints of both sides", func(t *testing.T) {
			s.write(t, strings.NewReplacer("172.31.2.11", "172.31.2.91", "172.31.1.11", "172.31.1.91").Replace(s.topology))
			s.sync(t)
		}, s.reset, "no cluster reaches gateway", 2},
		{"port", func(t *testing.T) {
			i := strings.Index(s.topology, "name: whereami-cs")
			s.write(t, s.topology[:i]+strings.Replace(s.topology[i:], "port: 80", "port: 8081", 1))
			s.sync(t)
		}, s.reset, "PortConflict", 1},
		{"Service deleted", func(t *testing.T) { s.kubectl(t, "c2", "-n", "sample", "delete", "service", "whereami-cs") }, s.workloads,
			"NoService", 1},
		{"gateway node off", func(t *testing.T) { s.kubelab(t, "stop", "c2n1") }, func(t *testing.T) { s.kubelab(t, "start", "c2n1") },
			"c2/c2n1: the node is NotReady", 1},
		{"DNS block damaged", func(t *testing.T) {
			d := coreDNS{clusterset: s, t: t}
			plain = d.awaitBlock()
			d.write(strings.Replace(d.corefile(), "# hawser: end\n", "", 1))
		}, func(t *testing.T) {
			d := coreDNS{clusterset: s, t: t}
			d.write(plain)
			d.awaitBlock()
			d.awaitResolution()
		}, "the begin mark has no end mark after it", 1},
		{"image", func(t *testing.T) {
			s.kubectl(t, "c1", "-n", "hawser-system", "set", "image", "daemonset/hawser-agent", "agent=hawser.dev/hawser-agent:v9.9.9")
		}, s.reset, "hawser-agent:v9.9.9", 1},
	} {
		t.Run(fault.name, func(t *testing.T) {
			begin, repaired := time.Now(), false
			t.Cleanup(func() {
				if !repaired {
					fault.repair(t)
				}
			})
			fault.inject(t)
			line := s.firstLine(t, fault.cause, fault.code)
			t.Logf("figure: status names the fault %q after %.0f s: %s", fault.name, time.Since(begin).Seconds(), line)
			if !strings.Contains(line, "next: ") {
				t.Errorf("no next step in %q", line)
			}
			repaired = true
			fault.repair(t)
			s.firstLine(t, "no problems: 2 clusters", 0)
		})
	}
}

// firstLine runs hawser status until its first line contains a text and its exit code is as wanted. It
// returns the line.
func (s *clusterset) firstLine(t *testing.T, text string, code int) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), conditionTimeout)
	defer cancel()
	for {
		out, err := s.try(ctx, "", "", "sh", "-c", `hawser status -f "$1" 2>&1; echo "code $?"`, "sh", s.path("repo"))
		line, _, _ := strings.Cut(out, "\n")
		if err == nil && strings.Contains(line, text) && strings.HasSuffix(out, fmt.Sprintf("code %d\n", code)) {
			return line
		}
		select {
		case <-ctx.Done():
			t.Fatalf("the first line of hawser status does not contain %q with exit code %d within %s:\n%s%v", text, code, conditionTimeout, out, err)
		case <-time.After(time.Second):
		}
	}
}
