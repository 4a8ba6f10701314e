package ui

import (
	"context"
	"errors"
	"io"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"hawser.dev/hawser/internal/cli"
	"hawser.dev/hawser/internal/cli/agentquery"
	"hawser.dev/hawser/internal/cli/baseline"
	"hawser.dev/hawser/internal/cli/clitest"
	"hawser.dev/hawser/nodeagent/status"
	"hawser.dev/hawser/reconciler"
	"hawser.dev/hawser/render/plan"
	"hawser.dev/hawser/schema/fabric"
)

// newPublishedSource returns a repository with three publications: one cluster, then another
// address of its gateway, then two clusters. It also has a branch that was never published.
func newPublishedSource(t *testing.T) (*uiSource, []baseline.Publication) {
	t.Helper()
	c := &clitest.Repo{T: t, Dir: t.TempDir()}
	work := filepath.Join(c.Dir, "work")
	second := strings.Replace(clitest.Topology, "203.0.113.1", "203.0.113.9", 1)
	third := second + "  - name: g2\n    podCIDRs: [10.8.0.0/16]\n    serviceCIDRs: [10.88.0.0/16]\n" +
		"    recipient: age1c4qh3aws6qp9yjn53gugn2gpfurpcw2rj65zquuj0jmj87zmwcjs3mhndp\n    gateways: [{name: a, node: n2, endpoints: [203.0.113.2]}]\n"
	c.Must(c.Dir, "git init -q -b main work && hawser keys root root.key")
	for _, text := range []string{clitest.Topology, second, third} {
		c.Write(filepath.Join(work, "clusterset.yaml"), text)
		c.Must(work, "hawser allocate && git add . && git commit -q -m change && hawser reconcile --once --root-key ../root.key")
	}
	c.Must(work, "git checkout -q --orphan private && git rm -q -r -f . && echo secret >password && git add . && git commit -q -m private && git checkout -q main")
	s := &uiSource{env: &cli.Env{Out: io.Discard, Err: io.Discard, Color: "never"}, flags: uiFlags{branch: reconciler.DefaultPublishBranch}, args: []string{filepath.Join(work, "clusterset.yaml")}}
	got, err := s.History(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	list := got.(map[string]any)["publications"].([]baseline.Publication)
	if len(list) != 3 {
		t.Fatalf("%d publications", len(list))
	}
	return s, list
}

// TestPlan checks that any two publications can be compared, in both directions, and that the
// plan is cached.
func TestPlan(t *testing.T) {
	t.Parallel()
	s, list := newPublishedSource(t)
	newest, middle, oldest := list[0].Commit, list[1].Commit, list[2].Commit
	for _, tt := range []struct {
		name, from, to string
		add, destroy   bool
		contains       string
	}{
		{"the first and the last", oldest, newest, true, false, "203.0.113.9"},
		{"back", newest, oldest, false, true, "203.0.113.1"},
		{"one change", oldest, middle, false, false, "203.0.113.9"},
		{"from nothing", baseline.None, oldest, true, false, "g1"},
		{"the newest and an earlier publication", "", middle, false, true, "g2"},
		{"the same", middle, middle, false, false, ""},
		{"the newest publication and the topology", "", "", false, false, ""},
	} {
		got, err := s.Plan(t.Context(), tt.from, tt.to)
		if err != nil {
			t.Errorf("%s: %v", tt.name, err)
			continue
		}
		made := got.(*plan.Plan)
		var text strings.Builder
		for _, e := range made.Entries {
			text.WriteString(e.Key + " ")
			for _, f := range e.Fields {
				text.WriteString(f.Want + " ")
			}
		}
		if (made.Summary.Add > 0) != tt.add || (made.Summary.Destroy > 0) != tt.destroy || !strings.Contains(text.String(), tt.contains) || tt.contains == "" && len(made.Entries) > 0 {
			t.Errorf("%s: %+v: %s", tt.name, made.Summary, &text)
		}
	}
	first, err := s.Plan(t.Context(), oldest, newest)
	if err != nil {
		t.Fatal(err)
	}
	var group sync.WaitGroup
	for range 8 {
		group.Go(func() {
			if again, err := s.Plan(t.Context(), oldest, newest); err != nil || again != first {
				t.Errorf("the same question is worked out again: %v", err)
			}
		})
	}
	group.Wait()
	if len(s.plans) > maxPlans {
		t.Errorf("%d plans are kept", len(s.plans))
	}
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := s.Plan(gone, middle, newest); err == nil {
		t.Error("a client that disconnected gets a reply")
	}
}

// TestPlanRefusesOtherCommits checks that the page reads only publications, and no other commits or
// files.
func TestPlanRefusesOtherCommits(t *testing.T) {
	t.Parallel()
	s, list := newPublishedSource(t)
	for _, name := range []string{
		"private", "refs/heads/private", "main", "HEAD", "rendered", "rendered~1", list[0].Commit + "~1", list[0].Commit[:7], strings.ToUpper(list[0].Commit),
		list[0].Source, "/etc", "../work", ".", "file:///etc", "--output=/tmp/x", "\x00", strings.Repeat("0", 40), "none ", " ",
	} {
		for _, ends := range [][2]string{{name, ""}, {name, list[0].Commit}, {list[1].Commit, name}} {
			got, err := s.Plan(t.Context(), ends[0], ends[1])
			if err == nil || !strings.Contains(err.Error(), "is not among the last 3 publications") {
				t.Errorf("from %q to %q: %v, %v", ends[0], ends[1], got, err)
			}
		}
	}
	if _, err := s.Plan(t.Context(), list[0].Commit, baseline.None); err == nil || errors.Is(err, context.Canceled) {
		t.Errorf("to nothing: %v", err)
	}
	if slices.ContainsFunc(s.plans, func(p planned) bool { return strings.Contains(p.of, "private") }) {
		t.Error("a refused plan is kept")
	}
}

// TestMissingGateways checks that a gateway without an agent is listed if the pods of its cluster
// are known.
func TestMissingGateways(t *testing.T) {
	t.Parallel()
	f := &fabric.Fabric{Clusters: []fabric.Cluster{
		{Name: "c1", Gateways: []fabric.Gateway{{Name: "a", Node: "n1"}, {Name: "b", Node: "n2"}, {Name: "c"}, {Name: "d", Node: "n4"}}},
		{Name: "c2", Gateways: []fabric.Gateway{{Name: "a", Node: "m1"}}},
	}}
	got := missingGateways(f, agentquery.PolledReports{Listed: []string{"c1"},
		Agents: []status.Status{{Cluster: "c1", Node: "n1", Gateway: "a"}, {Cluster: "c1", Node: "n3", Gateway: "c"}}, Silent: []status.Unreachable{{Agent: "c1/pod", Cluster: "c1", Node: "n2"}}})
	if len(got) != 1 || got[0].Agent != "c1/n4" || got[0].Node != "n4" || got[0].Cluster != "c1" {
		t.Errorf("%+v", got)
	}
}
