package reconciler

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"path"
	"strings"
	"testing"
	"time"

	"hawser.dev/hawser/render"
	"hawser.dev/hawser/schema/fabric/trust"
	"hawser.dev/hawser/schema/load"
)

// asking gives a topology that has so many of the people approve.
func asking(topology string, threshold int, people ...person) string {
	var out strings.Builder
	_, _ = fmt.Fprintf(&out, "spec:\n  trust:\n    threshold: %d\n    signers:\n", threshold)
	for _, p := range people {
		_, _ = fmt.Fprintf(&out, "    - {name: %s, key: %q}\n", p.name, trust.Line(p.PublicKey()))
	}
	return strings.Replace(topology, "spec:\n", out.String(), 1)
}

// approve commits approvals of what waits.
func (g *rig) approve(people ...person) {
	g.t.Helper()
	g.pull()
	w := g.Status().Waiting
	if w == nil {
		g.t.Fatal("nothing waits")
	}
	for _, p := range people {
		armored, err := trust.Approve(w.Approval.Statement, p)
		if err != nil {
			g.t.Fatal(err)
		}
		g.commit(path.Join(w.Approval.Dir, p.name+".sig"), armored)
	}
}

// waits demands that the next pass publishes nothing, and waits.
func (g *rig) waits(text string) {
	g.t.Helper()
	before := g.published()
	out := g.good()
	if out.Waiting == nil || out.Waiting.Approval.String() != text {
		g.t.Fatalf("waiting %+v, want %s", out.Waiting, text)
	}
	if out.Changed || g.published() != before {
		g.t.Error("something was published")
	}
	if s := g.Status(); s.Waiting == nil || s.LastError != nil || s.Commits[0].State != StatePending && before == "" {
		g.t.Errorf("status %+v", s)
	}
}

// publishes demands that the next pass publishes.
func (g *rig) publishes() {
	g.t.Helper()
	if out := g.good(); out.Waiting != nil || !out.Changed {
		g.t.Fatalf("outcome %+v", out)
	}
}

// approval reports the fabric on a branch.
func (g *rig) approval(branch string) render.Approval {
	g.t.Helper()
	tree := render.Tree{"base/fabric.yaml": []byte(g.file(branch, "base/fabric.yaml") + "\n")}
	set, _, list := load.Topology(TopologyFile, []byte(g.file("main", TopologyFile)))
	if err := list.Err(); err != nil {
		g.t.Fatal(err)
	}
	return render.ApprovalOf(tree, set)
}

// TestWaiting: what changes the fabric of a topology with signers stands on the candidate
// branch until they approved it, through restarts, other branches' troubles and changes of
// signers; the rest goes as before.
func TestWaiting(t *testing.T) {
	t.Parallel()
	alice, bob, carol, eve := newPerson(t, "alice"), newPerson(t, "bob"), newPerson(t, "carol"), newPerson(t, "eve")
	g := newRig(t, true)
	g.commit(TopologyFile, asking(topologyOf("g1"), 2, alice, bob))
	g.waits("0 of 2 (missing: alice and bob)")
	if code, body := ask(g.Reconciler, "/readyz"); code != http.StatusServiceUnavailable || !strings.Contains(body, "not ready: waiting for approval: 0 of 2") {
		t.Errorf("%d %s", code, body)
	}
	candidate := CandidateBranch(DefaultPublishBranch)
	revision := g.approval(candidate).Revision
	g.approve(alice)
	g.waits("1 of 2 (alice; missing: bob)")
	g.Reconciler = g.another() // a restart
	g.waits("1 of 2 (alice; missing: bob)")
	if got := g.approval(candidate); got.Revision != revision || got.String() != "1 of 2 (alice; missing: bob)" {
		t.Errorf("candidate of revision %d: %s, want %d", got.Revision, got, revision)
	}
	g.approve(eve)
	g.waits("1 of 2 (alice; missing: bob)")
	g.approve(bob)
	g.publishes()
	if got := g.approval(DefaultPublishBranch); got.Revision != revision || !got.Enough() {
		t.Errorf("published: %d, %s", got.Revision, got)
	}
	if got := git(t, g.repo, "rev-parse", candidate); got != g.published() {
		t.Error("the candidate branch is not where nothing waits")
	}
	if body := metricsOf(g.Reconciler); !strings.Contains(body, "hawser_reconciler_waiting 0") {
		t.Error("the metric says that something waits")
	}

	// A patch changes no fabric.
	g.pull()
	g.commit("patches/base/label.yaml", "apiVersion: v1\nkind: Namespace\nmetadata: {name: hawser-system, labels: {team: net}}\n")
	g.publishes()

	// Another fabric waits. While it does, whatever is put on the published branch goes
	// again, and what somebody puts on the candidate's does not stand for what waits.
	before := g.approval(DefaultPublishBranch).Revision
	g.commit(TopologyFile, asking(topologyOf("g1", "g2"), 2, alice, bob))
	g.waits("0 of 2 (missing: alice and bob)")
	second := g.approval(candidate).Revision
	if second <= before {
		t.Errorf("revision %d after %d", second, before)
	}
	if body := metricsOf(g.Reconciler); !strings.Contains(body, "hawser_reconciler_waiting 1") {
		t.Error("the metric does not say that something waits")
	}
	if code, body := ask(g.Reconciler, "/readyz"); code != http.StatusOK {
		t.Errorf("%d %s", code, body)
	}
	for _, branch := range []string{DefaultPublishBranch, candidate} {
		clone := t.TempDir()
		git(t, clone, "clone", "-q", "-b", branch, g.repo, ".")
		git(t, clone, "rm", "-q", "-r", "clusters")
		git(t, clone, "commit", "-q", "-m", "forged")
		git(t, clone, "push", "-q")
		g.good()
		if !strings.Contains(g.file(DefaultPublishBranch, "clusters/g1/kustomization.yaml"), "kind") {
			t.Error("the published branch was not set right")
		}
		if got := g.approval(DefaultPublishBranch).Revision; got != before {
			t.Errorf("revision %d is published", got)
		}
		if got := g.approval(candidate).Revision; got != second {
			t.Errorf("%s forged: the candidate has revision %d, want %d", branch, got, second)
		}
	}

	// What was withdrawn does not come back with its approvals.
	g.approve(alice)
	g.waits("1 of 2 (alice; missing: bob)")
	g.pull()
	g.commit(TopologyFile, asking(topologyOf("g1"), 2, alice, bob))
	if out := g.good(); out.Waiting != nil || g.approval(DefaultPublishBranch).Revision != before {
		t.Fatalf("outcome %+v", out)
	}
	for time.Now().Unix() <= second { // a revision is a time, and this one is not given again
		time.Sleep(10 * time.Millisecond)
	}
	g.commit(TopologyFile, asking(topologyOf("g1", "g2"), 2, alice, bob))
	g.waits("0 of 2 (missing: alice and bob)")

	// Approvers change by two commits: carol comes, then alice goes.
	g.commit(TopologyFile, asking(topologyOf("g1", "g2"), 2, alice, bob, carol))
	g.waits("0 of 2 of the signers in force (missing: alice and bob), and 0 of 2 of the new signers (missing: 2 of alice, bob, carol)")
	g.approve(alice, bob)
	g.publishes()
	g.pull()
	g.commit(TopologyFile, asking(topologyOf("g1", "g2"), 2, bob, carol))
	g.good()
	g.approve(bob)
	g.good()
	g.approve(carol)
	g.publishes()
	if out := g.last.outcome; len(out.SpentApprovals) < 2 {
		t.Errorf("spent: %v", out.SpentApprovals)
	}

	// All keys are lost: a person who runs the reconciler replaces them, and the next pass
	// of an ordinary one keeps that.
	g.pull()
	g.commit(TopologyFile, asking(topologyOf("g1", "g2"), 1, eve))
	g.good()
	g.approve(eve)
	if out := g.good(); out.Waiting == nil {
		t.Fatal("published without the signers in force")
	}
	g.cfg.AllowOtherApprovers = true
	g.Reconciler = g.another()
	g.publishes()
	g.cfg.AllowOtherApprovers = false
	g.Reconciler = g.another()
	if out := g.good(); out.Waiting != nil || out.Changed {
		t.Errorf("outcome %+v", out)
	}
}

// TestCandidateOverHTTP: a candidate replaces the one before it, which a server calls no
// fast forward.
func TestCandidateOverHTTP(t *testing.T) {
	t.Parallel()
	alice := newPerson(t, "alice")
	g := newHost(t).onHost(t, "set.git")
	g.commit(TopologyFile, asking(topologyOf("g1"), 1, alice))
	g.waits("0 of 1 (missing: alice)")
	g.pull()
	g.commit(TopologyFile, asking(topologyOf("g1", "g2"), 1, alice))
	g.waits("0 of 1 (missing: alice)")
	g.pull()
	g.commit(TopologyFile, asking(topologyOf("g2", "g1"), 1, alice))
	g.waits("0 of 1 (missing: alice)")
	g.approve(alice)
	g.publishes()
}

func ask(r *Reconciler, url string) (code int, body string) {
	answer := httptest.NewRecorder()
	r.Handler().ServeHTTP(answer, httptest.NewRequest(http.MethodGet, url, nil))
	return answer.Code, answer.Body.String()
}

func metricsOf(r *Reconciler) string {
	_, body := ask(r, "/metrics")
	return body
}
