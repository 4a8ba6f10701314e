package trust_test

import (
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"golang.org/x/crypto/ssh"

	"hawser.dev/hawser/schema/fabric/trust"
)

func approvers(threshold int, of ...ssh.Signer) trust.Approvers {
	out := trust.Approvers{Threshold: threshold}
	for _, s := range of {
		out.Keys = append(out.Keys, line(s))
	}
	return out
}

func approve(t testing.TB, s trust.Signed, by ...ssh.Signer) trust.Signed {
	t.Helper()
	for _, key := range by {
		armored, err := trust.Approve(s.Statement, key)
		if err != nil {
			t.Fatal(err)
		}
		s.Approvals = append(s.Approvals, armored)
	}
	return s
}

// naming is a fabric's statement that names approvers.
func naming(revision int64, a trust.Approvers) trust.Statement {
	s := fabricAt(revision)
	s.Approvers = a
	return s
}

// approvedProof is what a reconciler publishes after others.
func approvedProof(t testing.TB, changes []trust.Signed, s trust.Signed) []byte {
	t.Helper()
	out, err := json.Marshal(trust.Proof{Changes: changes, Signed: s})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// pinnedBy gives the state of an agent whose pins name approvers, as a file has them.
func pinnedBy(t testing.TB, a trust.Approvers, remembered trust.State, signers ...ssh.Signer) trust.State {
	t.Helper()
	var lines []string
	for _, s := range signers {
		lines = append(lines, line(s))
	}
	pins, err := trust.ParsePins([]byte(trust.PinFile("set", "*", lines, a)))
	if err != nil {
		t.Fatal(err)
	}
	out, err := trust.Pinned(pins, "a", remembered)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// TestApprovals: who has the signing key, as a reconciler that was taken over, has an
// agent act on nothing that too few of the approvers in force approved.
func TestApprovals(t *testing.T) {
	t.Parallel()
	root, alice, bob, carol, eve := signer(t, 'r'), signer(t, 'a'), signer(t, 'b'), signer(t, 'c'), signer(t, 'e')
	two := approvers(2, alice, bob, carol)
	signed := func(s trust.Statement) trust.Signed { return sign(t, trust.Fabric, s, root) }
	other := naming(9, two)
	other.Clusterset = "other"
	next := signed(naming(9, two))
	forSignature := sign(t, trust.Fabric, naming(9, two), root, alice, bob)
	forSignature.Approvals = forSignature.Signatures
	tests := []struct {
		name   string
		proof  trust.Signed
		reason trust.Reason // empty = admitted
	}{
		{"approved by two", approve(t, next, alice, carol), ""},
		{"approved by all, and somebody else", approve(t, next, eve, carol, bob, alice), ""},
		{"not approved", next, trust.Unapproved},
		{"approved by one", approve(t, next, bob), trust.Unapproved},
		{"approved by one key twice", approve(t, next, bob, bob), trust.Unapproved},
		{"approved by one, and somebody else", approve(t, next, bob, eve), trust.Unapproved},
		{"approved by the signing key", approve(t, next, bob, root), trust.Unapproved},
		{"approvals of another revision", trust.Signed{Statement: next.Statement, Signatures: next.Signatures,
			Approvals: approve(t, signed(naming(8, two)), alice, bob).Approvals}, trust.Unapproved},
		{"approvals of another clusterset", trust.Signed{Statement: next.Statement, Signatures: next.Signatures,
			Approvals: approve(t, signed(other), alice, bob).Approvals}, trust.Unapproved},
		{"approved for another clusterset", approve(t, signed(other), alice, bob), trust.OtherClusterset},
		{"signatures for another purpose", forSignature, trust.Unapproved},
		{"another fabric of the same revision", signed(naming(5, two)), trust.Unapproved},
		{"an older one that was approved", approve(t, signed(naming(4, two)), alice, bob), trust.Older},
		{"approvers taken out by the signing key", signed(naming(9, trust.Approvers{})), trust.Unapproved},
		{"approvers taken out by one", approve(t, signed(naming(9, trust.Approvers{})), alice), trust.Unapproved},
		{"approvers taken out", approve(t, signed(naming(9, trust.Approvers{})), alice, bob), ""},
		{"approvers that the signing key chose", approve(t, signed(naming(9, approvers(1, eve))), eve), trust.Unapproved},
		{"a lower threshold", approve(t, signed(naming(9, approvers(1, alice))), alice), trust.Unapproved},
		{"other approvers, who did not approve", approve(t, signed(naming(9, approvers(1, eve))), alice, bob), trust.Unapproved},
		{"other approvers", approve(t, signed(naming(9, approvers(1, eve))), alice, bob, eve), ""},
		{"approvers without a threshold", approve(t, signed(naming(9, approvers(0, alice))), alice, bob), trust.Unapproved},
		{"a threshold below zero", approve(t, signed(naming(9, trust.Approvers{Threshold: -1})), alice, bob), trust.Unapproved},
		{"approved, but signed by nobody", approve(t, sign(t, trust.Fabric, naming(9, two)), alice, bob), trust.UnknownSigner},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			before := pinnedBy(t, two, trust.State{}, root)
			before.Fabric = 5
			after, err := before.Admit(trust.Fabric, "a", document, approvedProof(t, nil, tt.proof))
			var refusal *trust.Refusal
			switch {
			case tt.reason == "" && err != nil:
				t.Fatalf("refused: %v", err)
			case tt.reason != "" && (!errors.As(err, &refusal) || refusal.Reason != tt.reason):
				t.Fatalf("err %v, want %s", err, tt.reason)
			case tt.reason != "":
				if !reflect.DeepEqual(after, before) {
					t.Errorf("a refusal changed the state from %+v to %+v", before, after)
				}
				return
			}
			// What was admitted is admitted at the next look, and by a node that begins today.
			if _, err := after.Admit(trust.Fabric, "a", document, approvedProof(t, nil, tt.proof)); err != nil {
				t.Errorf("the second time: %v", err)
			}
			today := pinnedBy(t, after.Approvers, trust.State{}, root)
			if _, err := today.Admit(trust.Fabric, "a", document, approvedProof(t, nil, tt.proof)); err != nil {
				t.Errorf("a new node: %v", err)
			}
		})
	}
}

// TestApproverRotation changes approvers, takes them away and brings some back; agents
// of all times read what is published at the end, and none takes approvals of those who
// were removed.
func TestApproverRotation(t *testing.T) {
	t.Parallel()
	root, alice, bob, carol, dave := signer(t, 'r'), signer(t, 'a'), signer(t, 'b'), signer(t, 'c'), signer(t, 'd')
	agent := pinned(t, trust.State{}, root)
	var published trust.Proof
	var states []trust.State // of agents that read everything up to some time
	var changes [][]trust.Signed
	for i, step := range []struct {
		named trust.Approvers
		by    []ssh.Signer
	}{
		{trust.Approvers{}, nil},
		{approvers(2, alice, bob), []ssh.Signer{alice, bob}},
		{approvers(2, alice, bob, carol), []ssh.Signer{bob, alice}}, // by two commits: first carol comes
		{approvers(2, bob, carol), []ssh.Signer{carol, bob}},        // then alice goes
		{approvers(2, bob, carol), []ssh.Signer{carol, bob}},
		{trust.Approvers{}, []ssh.Signer{carol, bob}},
		{approvers(1, dave), []ssh.Signer{dave}},
		{approvers(1, dave), []ssh.Signer{dave}},
	} {
		published = trust.Proof{Changes: trust.ExtendChanges(published), Signed: approve(t, sign(t, trust.Fabric, naming(int64(10+i), step.named), root), step.by...)}
		var err error
		raw := approvedProof(t, published.Changes, published.Signed)
		if agent, err = agent.Admit(trust.Fabric, "a", document, raw); err != nil {
			t.Fatalf("step %d: %v", i, err)
		}
		if !agent.Approvers.Equal(step.named) {
			t.Fatalf("step %d: %+v is in force", i, agent.Approvers)
		}
		states, changes = append(states, agent), append(changes, published.Changes)
		// Whoever comes now with pins of the first day, or of today.
		for j, named := range []trust.Approvers{approvers(2, alice, bob), step.named} {
			if i < 1 || i < 6 && j == 0 && i > 4 {
				continue
			}
			if _, err := pinnedBy(t, named, trust.State{}, root).Admit(trust.Fabric, "a", document, raw); err != nil {
				t.Errorf("step %d: a new node with pins %d: %v", i, j, err)
			}
		}
	}
	if n := len(published.Changes); n != 5 {
		t.Errorf("%d changes, want 5", n)
	}
	last := approvedProof(t, published.Changes, published.Signed)
	for i, state := range states {
		if after, err := state.Admit(trust.Fabric, "a", document, last); err != nil || !after.Approvers.Equal(approvers(1, dave)) {
			t.Errorf("agent %d: %v, %+v", i, err, after.Approvers)
		}
	}
	// Who was removed approves nothing more, on nodes that know it; the changes that once
	// made them approvers do not help.
	for name, forged := range map[string][]byte{
		"removed":                      approvedProof(t, published.Changes, approve(t, sign(t, trust.Fabric, naming(99, approvers(2, alice, bob)), root), alice, bob)),
		"removed, with a cut chain":    approvedProof(t, changes[3][:1], approve(t, sign(t, trust.Fabric, naming(99, approvers(2, alice, bob)), root), alice, bob)),
		"removed, and names none":      approvedProof(t, changes[3], approve(t, sign(t, trust.Fabric, naming(99, trust.Approvers{}), root), alice, bob)),
		"a change newer than the rest": approvedProof(t, []trust.Signed{approve(t, sign(t, trust.Fabric, naming(98, approvers(2, alice, bob)), root), alice, bob)}, approve(t, sign(t, trust.Fabric, naming(99, approvers(2, alice, bob)), root), alice, bob)),
	} {
		var refusal *trust.Refusal
		if _, err := agent.Admit(trust.Fabric, "a", document, forged); !errors.As(err, &refusal) || refusal.Reason != trust.Unapproved {
			t.Errorf("%s: %v", name, err)
		}
	}
	// A new node whose pins name approvers is not led astray by a chain that was cut.
	for name, pins := range map[string]trust.Approvers{"first day": approvers(2, alice, bob), "third day": approvers(2, bob, carol)} {
		cut := approvedProof(t, nil, sign(t, trust.Fabric, naming(99, trust.Approvers{}), root))
		if _, err := pinnedBy(t, pins, trust.State{}, root).Admit(trust.Fabric, "a", document, cut); err == nil {
			t.Errorf("%s: a new node takes what nobody approved", name)
		}
	}
}

// TestChangesAreBounded: what is carried of earlier changes fits beside the fabric.
func TestChangesAreBounded(t *testing.T) {
	t.Parallel()
	alice, bob := signer(t, 'a'), signer(t, 'b')
	var published trust.Proof
	for i := range 300 {
		named := approvers(1, []ssh.Signer{alice, bob}[i%2])
		published = trust.Proof{Changes: trust.ExtendChanges(published), Signed: approve(t, sign(t, trust.Fabric, naming(int64(i+1), named)), alice, bob)}
	}
	raw := approvedProof(t, published.Changes, published.Signed)
	if len(raw) > 80<<10 || len(published.Changes) < 30 {
		t.Errorf("%d bytes, %d changes", len(raw), len(published.Changes))
	}
}

// TestPinnedApprovers: what the file of pins may say of approvers, and that others begin
// anew.
func TestPinnedApprovers(t *testing.T) {
	t.Parallel()
	root, alice, bob := signer(t, 'r'), signer(t, 'a'), signer(t, 'b')
	option := `namespaces="approval.hawser.dev" `
	for text, want := range map[string]string{
		"set/* " + line(root) + "\nset/* " + option + line(alice): "line 2: an approver without a line # threshold: N, which says how many it takes",
		"set/* " + line(root) + "\n# threshold: 1":                `a threshold of 1, and no approver (lines with namespaces="approval.hawser.dev")`,
		"set/* " + line(root) + "\n# threshold: 0\n":              `line 2: the threshold "0" is not a number from 1 to 32`,
		"set/* " + line(root) + "\n# threshold: many":             `line 2: the threshold "many" is not a number from 1 to 32`,
		"# threshold: 1\n# threshold: 2\n":                        "line 2: a threshold of 1 stands above",
		"# threshold: 1\nset/* " + option + line(alice):           "no signer in it: ",
		"set/* namespaces=\"git\" " + line(alice):                 `line 1: option namespaces="git" is not used here (approvers have namespaces="approval.hawser.dev")`,
		"# threshold: 1\nset/* " + line(root) + "\nset/* " + option + line(alice) + " alice\nset/b " + option + line(bob): "",
	} {
		_, err := trust.ParsePins([]byte(text))
		if want == "" && err != nil || want != "" && (err == nil || !strings.HasPrefix(err.Error(), want)) {
			t.Errorf("%q: err %v, want %s", text, err, want)
		}
	}
	pins, err := trust.ParsePins([]byte("# threshold: 2\nset/* " + line(root) + "\nset/* " + option + line(alice) + "\nset/b " + option + line(bob)))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := trust.Pinned(pins, "a", trust.State{}); err == nil || !strings.Contains(err.Error(), "1 approvers are pinned for cluster a, and 2 have to approve") {
		t.Errorf("err %v", err)
	}
	if state, err := trust.Pinned(pins, "b", trust.State{}); err != nil || !state.Approvers.Equal(approvers(2, alice, bob)) {
		t.Errorf("state %+v: %v", state, err)
	}

	remembered := pinnedBy(t, approvers(2, alice, bob), trust.State{}, root)
	remembered.Fabric, remembered.Approvers = 9, approvers(1, bob)
	if got := pinnedBy(t, approvers(2, alice, bob), remembered, root); !reflect.DeepEqual(got, remembered) {
		t.Errorf("forgotten: %+v", got)
	}
	for _, other := range []trust.Approvers{approvers(1, alice, bob), approvers(1, alice), {}} {
		if got := pinnedBy(t, other, remembered, root); got.Fabric != 0 || !got.Approvers.Equal(other) {
			t.Errorf("pins of %+v do not begin anew: %+v", other, got)
		}
	}
	raw, err := json.Marshal(remembered)
	var again trust.State
	if err != nil || json.Unmarshal(raw, &again) != nil || !reflect.DeepEqual(again, remembered) {
		t.Errorf("what is remembered is not what is read: %s, %v", raw, err)
	}
}

// TestApprovalsOfOpenSSH: what ssh-keygen signs is an approval, and it checks approvals
// by the file of pins.
func TestApprovalsOfOpenSSH(t *testing.T) {
	t.Parallel()
	program, err := exec.LookPath("ssh-keygen")
	if err != nil {
		t.Skip("no ssh-keygen")
	}
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	call := func(stdin string, args ...string) (string, error) {
		cmd := exec.Command(program, args...)
		cmd.Stdin = strings.NewReader(stdin)
		out, err := cmd.CombinedOutput()
		return string(out), err
	}
	root := signer(t, 'r')
	for _, kind := range []string{"ed25519", "ecdsa", "rsa"} {
		if out, err := call("", "-q", "-t", kind, "-N", "", "-f", at(kind)); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		public, err := os.ReadFile(at(kind + ".pub"))
		if err != nil {
			t.Fatal(err)
		}
		parsed, _, _, _, err := ssh.ParseAuthorizedKey(public)
		if err != nil {
			t.Fatal(err)
		}
		by := trust.Approvers{Keys: []string{trust.Line(parsed)}, Threshold: 1}
		signed := sign(t, trust.Fabric, naming(7, by), root)
		statement, pins := at("statement-"+kind), at("pins-"+kind)
		for name, text := range map[string]string{statement: signed.Statement, pins: trust.PinFile("set", "*", []string{line(root)}, by)} {
			if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if out, err := call("", "-Y", "sign", "-n", string(trust.Approval), "-f", at(kind), statement); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		armored, err := os.ReadFile(statement + ".sig")
		if err != nil {
			t.Fatal(err)
		}
		if key, err := trust.ApproverOf(signed.Statement, string(armored)); err != nil || key != by.Keys[0] {
			t.Errorf("%s: approved by %q, %v", kind, key, err)
		}
		signed.Approvals = []string{string(armored)}
		if _, err := pinnedBy(t, by, trust.State{}, root).Admit(trust.Fabric, "a", document, approvedProof(t, nil, signed)); err != nil {
			t.Errorf("%s: %v", kind, err)
		}
		for text, good := range map[string]bool{signed.Statement: true, signed.Statement + " ": false} {
			out, err := call(text, "-Y", "verify", "-f", pins, "-I", "set/*", "-n", string(trust.Approval), "-s", statement+".sig")
			if (err == nil) != good {
				t.Errorf("%s: %q: %v\n%s", kind, text, err, out)
			}
		}
	}
}

// hardware signs as a security key does (PROTOCOL.u2f); touched is whether somebody was
// there.
type hardware struct {
	key     ed25519.PrivateKey
	touched bool
}

const application = "ssh:"

func (h hardware) PublicKey() ssh.PublicKey {
	blob := ssh.Marshal(struct{ Type, Key, Application string }{ssh.KeyAlgoSKED25519, string(h.key.Public().(ed25519.PublicKey)), application})
	key, err := ssh.ParsePublicKey(blob)
	if err != nil {
		panic(err)
	}
	return key
}

func (h hardware) Sign(_ io.Reader, data []byte) (*ssh.Signature, error) {
	flags := byte(0)
	if h.touched {
		flags = 1
	}
	app, message := sha256.Sum256([]byte(application)), sha256.Sum256(data)
	rest := ssh.Marshal(struct {
		Flags   byte
		Counter uint32
	}{flags, 7})
	raw := append(append(append([]byte{}, app[:]...), rest...), message[:]...)
	return &ssh.Signature{Format: ssh.KeyAlgoSKED25519, Blob: ed25519.Sign(h.key, raw), Rest: rest}, nil
}

// TestHardwareKey: a security key approves, if somebody touched it.
func TestHardwareKey(t *testing.T) {
	t.Parallel()
	root := signer(t, 'r')
	key := hardware{key: ed25519.NewKeyFromSeed([]byte(strings.Repeat("h", ed25519.SeedSize)))}
	for _, key.touched = range []bool{true, false} {
		by := approvers(1, key)
		proof := approvedProof(t, nil, approve(t, sign(t, trust.Fabric, naming(7, by), root), key))
		if _, err := pinnedBy(t, by, trust.State{}, root).Admit(trust.Fabric, "a", document, proof); (err == nil) != key.touched {
			t.Errorf("touched %t: %v", key.touched, err)
		}
	}
}

// FuzzApprovals: whatever lies beside a document, nothing is admitted that two of the
// approvers did not approve, though the signing key is known to everybody.
func FuzzApprovals(f *testing.F) {
	root, alice, bob := signer(f, 'r'), signer(f, 'a'), signer(f, 'b')
	two := approvers(2, alice, bob)
	state := pinnedBy(f, two, trust.State{}, root)
	good := approve(f, sign(f, trust.Fabric, naming(7, two), root), alice, bob)
	half := approve(f, sign(f, trust.Fabric, naming(9, approvers(1, alice)), root), alice)
	f.Add(good.Statement, good.Approvals[0], good.Approvals[1], half.Statement)
	f.Add(half.Statement, half.Approvals[0], half.Approvals[0], good.Statement)
	f.Fuzz(func(t *testing.T, statement, one, two, change string) {
		signature, err := trust.Sign(trust.Fabric, trust.Statement{}, root)
		if err != nil {
			t.Fatal(err)
		}
		var said trust.Statement
		if json.Unmarshal([]byte(statement), &said) == nil {
			if signed, err := trust.Sign(trust.Fabric, said, root); err == nil {
				signature = signed
			}
		}
		signature.Approvals = []string{one, two}
		changes := []trust.Signed{{Statement: change, Approvals: []string{one, two}}}
		_, err = state.Admit(trust.Fabric, "a", document, approvedProof(t, changes, signature))
		if err == nil && (said.Revision != 7 || signature.Statement != good.Statement) {
			t.Fatalf("admitted: %s", signature.Statement)
		}
	})
}
