package trust_test

import (
	"encoding/json"
	"errors"
	"math"
	"strings"
	"testing"

	"golang.org/x/crypto/ssh"

	"hawser.dev/hawser/schema/fabric/trust"
)

// TestReported checks that a node without saved state refuses documents older than the proof of
// another node. It ignores a proof without a signer's signature, for another clusterset, or for
// keys of another cluster.
func TestReported(t *testing.T) {
	t.Parallel()
	own, old, evil := signer(t, 'o'), signer(t, 'p'), signer(t, 'x')
	at := func(kind trust.Kind, clusterset, cluster string, revision int64, by ssh.Signer) string {
		return string(proof(t, nil, sign(t, kind, trust.Statement{Clusterset: clusterset, Cluster: cluster, Revision: revision, SHA256: "0"}, by)))
	}
	fabricProof := at(trust.Fabric, "set", "", 1000, own)
	link := func(from, to ssh.Signer) []trust.Signed {
		return []trust.Signed{sign(t, trust.Signers, trust.Statement{Clusterset: "set", Signers: []string{line(to)}}, from)}
	}
	chained := func(from ssh.Signer) string {
		return string(proof(t, link(from, own), sign(t, trust.Fabric, fabricAt(1000), own)))
	}
	forged := at(trust.Fabric, "set", "", math.MaxInt64, evil)
	for _, tt := range []struct {
		name   string
		kind   trust.Kind
		pin    ssh.Signer
		proofs []string
		want   int64 // highest valid revision
	}{
		{"no proofs", trust.Fabric, own, nil, 0},
		{"a proof", trust.Fabric, own, []string{fabricProof}, 1000},
		{"the highest one", trust.Fabric, own, []string{at(trust.Fabric, "set", "", 10, own), fabricProof, at(trust.Fabric, "set", "", 999, own)}, 1000},
		{"a giant revision without a signature", trust.Fabric, own, []string{strings.ReplaceAll(fabricProof, "1000", "9223372036854775807"), fabricProof}, 1000},
		{"a giant revision of another signer", trust.Fabric, own, []string{forged, fabricProof}, 1000},
		{"a chain that another signer made", trust.Fabric, own, []string{string(proof(t, link(evil, evil), sign(t, trust.Fabric, fabricAt(math.MaxInt64), evil)))}, 0},
		{"another clusterset", trust.Fabric, own, []string{at(trust.Fabric, "other", "", 5000, own)}, 0},
		{"keys as a fabric", trust.Fabric, own, []string{at(trust.Keys, "set", "a", 5000, own)}, 0},
		{"a chain from the pins", trust.Fabric, old, []string{chained(old)}, 1000},
		{"no chain from the pins", trust.Fabric, old, []string{fabricProof}, 0},
		{"keys", trust.Keys, own, []string{at(trust.Keys, "set", "a", 7, own)}, 7},
		{"keys of another cluster", trust.Keys, own, []string{at(trust.Keys, "set", "b", 5000, own)}, 0},
		{"a fabric as keys", trust.Keys, own, []string{fabricProof}, 0},
		{"no JSON, and an empty object", trust.Fabric, own, []string{"", "{", "{}", "null", "[]"}, 0},
		{"too long", trust.Fabric, own, []string{fabricProof + strings.Repeat(" ", trust.MaxReported)}, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			s := pinned(t, trust.Remembered{}, tt.pin).Check(tt.kind, "a", tt.proofs)
			have := map[trust.Kind]int64{trust.Fabric: s.Fabric, trust.Keys: s.Keys}
			if have[tt.kind] != tt.want || have[trust.Fabric]+have[trust.Keys] != tt.want {
				t.Errorf("revisions %v, want %d", have, tt.want)
			}
		})
	}

	s := pinned(t, trust.Remembered{}, own).Check(trust.Fabric, "a", []string{fabricProof})
	_, err := s.Admit(trust.Fabric, "a", document, proof(t, nil, sign(t, trust.Fabric, fabricAt(10), own)))
	var refusal *trust.Refusal
	const want = "is revision 10, but other nodes of the cluster had revision 1000: deliver the published revision"
	if !errors.As(err, &refusal) || refusal.Reason != trust.Outdated || err.Error() != want {
		t.Errorf("refused with %v, want %s", err, want)
	}
	for _, revision := range []int64{1000, 1001} {
		if _, err := s.Admit(trust.Fabric, "a", document, proof(t, nil, sign(t, trust.Fabric, fabricAt(revision), own))); err != nil {
			t.Errorf("revision %d: %v", revision, err)
		}
	}
}

// TestReportedProof checks that a node without saved state accepts the proof that another node
// reports of its current document. The report omits padding in the delivered proof.
func TestReportedProof(t *testing.T) {
	t.Parallel()
	own, evil := signer(t, 'o'), signer(t, 'x')
	node := pinned(t, trust.Remembered{}, own)
	padding := strings.Repeat("x", 2*trust.MaxReported)
	signed := sign(t, trust.Fabric, fabricAt(1000), own)
	junk := sign(t, trust.Signers, trust.Statement{Clusterset: "set", Signers: []string{line(own), padding}}, evil)
	around := signed
	around.Signatures = []string{padding, sign(t, trust.Fabric, fabricAt(1000), evil).Signatures[0], padding + "\n" + signed.Signatures[0] + padding}
	plain := proof(t, nil, signed)
	for name, delivered := range map[string][]byte{
		"plain":                plain,
		"an unknown field":     []byte(strings.Replace(string(plain), "{", `{"pad":"`+padding+`",`, 1)),
		"a chain of others":    proof(t, []trust.Signed{junk}, signed),
		"signatures of others": proof(t, nil, around),
		"spaces":               append(plain, []byte(strings.Repeat(" ", 2*trust.MaxReported))...),
		"a change of signers":  proof(t, []trust.Signed{sign(t, trust.Signers, trust.Statement{Clusterset: "set", Signers: []string{line(own)}}, own)}, signed),
	} {
		after, err := node.Admit(trust.Fabric, "a", document, delivered)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		report := after.Proofs[trust.Fabric]
		if len(report) > trust.MaxReported {
			t.Errorf("%s: the report has %d bytes", name, len(report))
		}
		if fresh := pinned(t, trust.Remembered{}, own).Check(trust.Fabric, "a", []string{report}); fresh.Fabric != 1000 {
			t.Errorf("%s: a new node begins at %d with the report %s", name, fresh.Fabric, report)
		}
		if node.Proofs != nil {
			t.Errorf("%s: the state of before has %v", name, node.Proofs)
		}
	}
	if len(plain) > trust.MaxReported/8 {
		t.Errorf("a proof has %d bytes", len(plain))
	}

	// The reported proof survives a restart.
	after, err := node.Admit(trust.Fabric, "a", document, plain)
	if err != nil {
		t.Fatal(err)
	}
	raw, err := json.Marshal(after.Check(trust.Keys, "a", nil))
	var restored trust.Remembered
	if err = errors.Join(err, json.Unmarshal(raw, &restored)); err != nil {
		t.Fatal(err)
	}
	if again := pinned(t, restored, own); again.Proofs[trust.Fabric] != after.Proofs[trust.Fabric] || len(again.Checked) != 1 {
		t.Errorf("after a restart: %+v", again)
	}
	if other := pinned(t, restored, own, evil); len(other.Checked) > 0 || other.Reported != (trust.Revisions{}) {
		t.Errorf("with other pins: %+v", other)
	}
}
