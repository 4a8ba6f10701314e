package render_test

import (
	"crypto/ed25519"
	"fmt"
	"slices"
	"strings"
	"testing"

	"golang.org/x/crypto/ssh"

	"hawser.dev/hawser/internal/diag"
	"hawser.dev/hawser/render"
	"hawser.dev/hawser/schema"
	"hawser.dev/hawser/schema/fabric/trust"
)

// approver is a signer of topologies, by name.
func approver(t *testing.T, name string) (schema.Signer, ssh.Signer) {
	t.Helper()
	key, err := ssh.NewSignerFromKey(ed25519.NewKeyFromSeed([]byte(fmt.Sprintf("%032s", name))))
	if err != nil {
		t.Fatal(err)
	}
	return schema.Signer{Name: name, Key: trust.Line(key.PublicKey()) + " " + name}, key
}

// ask puts signers into a topology.
func ask(t *testing.T, in render.Input, threshold int, names ...string) {
	t.Helper()
	in.Topology.Spec.Trust.Threshold, in.Topology.Spec.Trust.Signers = threshold, nil
	for _, name := range names {
		s, _ := approver(t, name)
		in.Topology.Spec.Trust.Signers = append(in.Topology.Spec.Trust.Signers, s)
	}
}

// approveAs puts approvals of a tree beside the topology.
func approveAs(t *testing.T, in *render.Input, tree render.Tree, names ...string) {
	t.Helper()
	if in.Approvals == nil {
		in.Approvals = render.Tree{}
	}
	a := render.ApprovalOf(tree, in.Topology)
	for _, name := range names {
		_, key := approver(t, name)
		armored, err := trust.Approve(a.Statement, key)
		if err != nil {
			t.Fatal(err)
		}
		in.Approvals[strings.TrimPrefix(a.Dir, render.ApprovalsDir+"/")+"/"+name+".sig"] = []byte(armored)
	}
}

// renderWarned renders and gives what it warns of.
func renderWarned(t *testing.T, in render.Input) (render.Tree, string) {
	t.Helper()
	tree, list := render.Render(in)
	if err := list.Err(); err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, d := range list {
		if d.Severity == diag.Warning {
			out = append(out, d.Summary)
		}
	}
	return tree, strings.Join(out, "\n")
}

// TestApproval follows a fabric from candidate to publication, through a change of
// approvers: what waits keeps its revision and its keys, an approval counts for the very
// statement, and agents take what counts as approved here.
func TestApproval(t *testing.T) {
	t.Parallel()
	in := input(t, world(2, 1))
	in.Now = 1000
	state := pinnedTo(t, in)
	ask(t, in, 2, "alice", "bob", "carol")
	expect := func(what string, tree render.Tree, text string) {
		t.Helper()
		a := render.ApprovalOf(tree, in.Topology)
		if a.String() != text {
			t.Errorf("%s: %s, want %s", what, a, text)
		}
		next, err := admit(t, state, tree)
		if (err == nil) != a.Enough() {
			t.Errorf("%s: agents: %v", what, err)
		}
		if err == nil {
			state = next
		}
	}
	candidate, warned := renderWarned(t, in)
	expect("new", candidate, "0 of 2 (missing: 2 of alice, bob, carol)")
	if warned != "agents act on this fabric once it is approved: 0 of 2 (missing: 2 of alice, bob, carol)" {
		t.Errorf("warns %q", warned)
	}
	in.Candidate, in.Now = candidate, 2000
	if again, _ := renderWarned(t, in); !again.Equal(candidate) {
		t.Error("what waits changed though the topology did not")
	}
	approveAs(t, &in, candidate, "alice")
	in.Approvals["1-000000000000/bob.sig"] = in.Approvals[strings.TrimPrefix(render.ApprovalOf(candidate, in.Topology).Dir, "approvals/")+"/alice.sig"]
	half, _ := renderWarned(t, in)
	expect("alice", half, "1 of 2 (alice; missing: bob or carol)")
	approveAs(t, &in, candidate, "bob", "eve")
	first, warned := renderWarned(t, in)
	expect("alice and bob", first, "2 of 2 (alice, bob)")
	if warned != "" || state.Fabric != 1000 {
		t.Errorf("warns %q; agents are at %d", warned, state.Fabric)
	}
	in.Previous, in.Candidate, in.Approvals = first, nil, nil
	if again, _ := renderWarned(t, in); !again.Equal(first) {
		t.Error("nothing changed, and the tree did")
	}

	// Another fabric waits anew, and nothing that was approved before counts for it. Who
	// is replaced has to approve that too.
	ask(t, in, 1, "dave")
	in.Topology.Spec.Exports[0].Ports[0].Port++
	candidate, _ = renderWarned(t, in)
	in.Candidate = candidate
	alice, _ := approver(t, "alice")
	key, _, _, _, err := ssh.ParseAuthorizedKey([]byte(alice.Key))
	if err != nil {
		t.Fatal(err)
	}
	approveAs(t, &in, candidate, "dave", "alice")
	half, _ = renderWarned(t, in)
	if text := render.ApprovalOf(half, in.Topology).String(); !strings.HasPrefix(text, "1 of 2 of the signers in force ("+ssh.FingerprintSHA256(key)+"; missing: SHA256:") ||
		!strings.HasSuffix(text, "), and 1 of 1 of the new signers (dave)") {
		t.Errorf("text %s", text)
	}
	if _, err := admit(t, state, half); err == nil {
		t.Error("agents take it")
	}
	approveAs(t, &in, candidate, "carol")
	second, _ := renderWarned(t, in)
	if state, err = admit(t, state, second); err != nil {
		t.Fatal(err)
	}
	in.Previous, in.Candidate, in.Approvals, in.Now = second, nil, nil, 3000
	in.Topology.Spec.Exports[0].Ports[0].Port++
	candidate, _ = renderWarned(t, in)
	expect("after the change", candidate, "0 of 1 (missing: dave)")

	// What waits has the revision of its time: once a newer one was published it is old.
	approveAs(t, &in, candidate, "dave")
	in.Candidate = candidate
	third, _ := renderWarned(t, in)
	expect("third", third, "1 of 1 (dave)")
	in.Previous, in.Candidate, in.Now = third, second, 0
	in.Topology.Spec.Exports[0].Ports[0].Port--
	back, _ := renderWarned(t, in)
	expect("back", back, "0 of 1 (missing: dave)")
	if got := render.ApprovalOf(back, in.Topology).Revision; got != 3001 {
		t.Errorf("revision %d", got)
	}
	if got := render.SpentApprovals(render.Tree{"3000-aa/x.sig": nil, "3000-aa/y.sig": nil, "3001-bb/x.sig": nil, "README": nil, "z-y/x": nil}, back); !slices.Equal(got, []string{"3000-aa"}) {
		t.Errorf("spent: %v", got)
	}

	// The keys of all approvers are lost: others take their place without approval, on
	// nodes that are told so by other pins.
	ask(t, in, 1, "erin")
	in.AllowOtherApprovers, in.Candidate, in.Now = true, nil, 4000
	out, _ := renderWarned(t, in)
	in.Candidate = out
	approveAs(t, &in, out, "erin")
	out, _ = renderWarned(t, in)
	if !render.ApprovalOf(out, in.Topology).Enough() {
		t.Errorf("waits for %s", render.ApprovalOf(out, in.Topology))
	}
	if _, err := admit(t, state, out); err == nil {
		t.Error("agents take it without other pins")
	}
	state = pinnedTo(t, in)
	expect("other pins", out, "1 of 1 (erin)")
	in.AllowOtherApprovers, in.Previous, in.Candidate = false, out, nil
	if again, _ := renderWarned(t, in); !again.Equal(out) {
		t.Error("without the option it does not stay")
	}
	in.Topology.Spec.Exports[0].Ports[0].Port++
	next, _ := renderWarned(t, in)
	expect("after that", next, "0 of 1 (missing: erin)")
}

// TestApprovalPreview: who has no root key sees that approvals will be asked for, and
// can add them to what is rendered.
func TestApprovalPreview(t *testing.T) {
	t.Parallel()
	in := input(t, world(2, 1))
	ask(t, in, 1, "alice")
	candidate, _ := renderWarned(t, in)
	preview := in
	preview.Root, preview.Preview, preview.Previous = nil, true, candidate
	if tree, _ := renderWarned(t, preview); !tree.Equal(candidate) {
		t.Error("the same topology gives another tree")
	}
	approveAs(t, &preview, candidate, "alice")
	if tree, warned := renderWarned(t, preview); warned != "" || !render.ApprovalOf(tree, in.Topology).Enough() {
		t.Errorf("warns %q", warned)
	}
	preview.Topology.Spec.Exports[0].Ports[0].Port++
	if _, warned := renderWarned(t, preview); warned != "agents act on this fabric once it is approved: 0 of 1 (missing: alice)" {
		t.Errorf("warns %q", warned)
	}
}
