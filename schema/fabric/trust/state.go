package trust

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Reason is the stable code of a refusal, for metrics and status.
type Reason string

// Reasons.
const (
	Unsigned        Reason = "unsigned"         // there is no proof, or it cannot be read
	UnknownSigner   Reason = "unknown-signer"   // no trusted signer signed it
	DigestMismatch  Reason = "altered"          // the document differs from the signed one
	OtherClusterset Reason = "other-clusterset" // it is for another clusterset
	OtherCluster    Reason = "other-cluster"    // it is for another cluster, or this agent may not be one of it
	Outdated        Reason = "older"            // the node has accepted a newer one
)

// Refusal is the error of a refused document.
type Refusal struct {
	Reason Reason
	text   string
}

// Error returns the reason in words.
func (r *Refusal) Error() string { return r.text }

// Refuse returns the refusal of a document, with its reason in words.
func Refuse(reason Reason, format string, args ...any) *Refusal {
	return &Refusal{Reason: reason, text: fmt.Sprintf(format, args...)}
}

// Remembered is the saved state of an agent. Without it, an agent could accept an older
// document, or a document of previous signers, after a restart.
type Remembered struct {
	Pins       []string `json:"pins"` // pinned signers of the first state
	Clusterset string   `json:"clusterset"`
	Signers    []string `json:"signers"`
	Revisions           // the highest of each kind
	// Proofs prove the newest document of each kind, for a HawserNode.
	Proofs map[Kind]string `json:"proofs,omitempty"`
	// Checked contains the kinds whose first document was compared with Reported.
	Checked []Kind `json:"checked,omitempty"`
	// Reported are the highest revisions that HawserNodes of other nodes prove.
	Reported Revisions `json:"reported,omitzero"`
}

// Equal reports whether two states are the same.
func (s Remembered) Equal(o Remembered) bool {
	return slices.Equal(s.Pins, o.Pins) && s.Clusterset == o.Clusterset && slices.Equal(s.Signers, o.Signers) &&
		s.Revisions == o.Revisions && maps.Equal(s.Proofs, o.Proofs) && slices.Equal(s.Checked, o.Checked) && s.Reported == o.Reported
}

// MaxReported is the maximum size of a proof in a HawserNode in bytes: chains of some 15 changes of
// signers.
const MaxReported = 8 << 10

// Check returns the state with the highest revision of a kind that proofs of other nodes show. A
// proof counts if a signer of the clusterset signed it for this clusterset, and keys for this
// cluster. The others are ignored, so a node can raise the revision to a signed one only.
func (s Remembered) Check(kind Kind, cluster string, proofs []string) Remembered {
	s.Checked = append(slices.Clone(s.Checked), kind)
	highest := s.Reported.byKind(kind)
	for _, raw := range proofs {
		var p Proof
		if len(raw) > MaxReported || json.Unmarshal([]byte(raw), &p) != nil {
			continue
		}
		statement, ok := p.By(kind, ResolveSigners(s.Clusterset, s.Signers, p.Chain))
		if ok && statement.Clusterset == s.Clusterset && (kind != Keys || statement.Cluster == cluster) {
			*highest = max(*highest, statement.Revision)
		}
	}
	s.Revisions = s.Revisions.Max(s.Reported)
	return s
}

// Pinned returns the state of an agent of a cluster with these pins: remembered if it has
// the same pins, otherwise a new state. So new pins recover from a lost signing key. The
// floors of the pins apply in both cases. It fails if no pin is for the cluster.
func Pinned(pins []Pin, cluster string, remembered Remembered) (Remembered, error) {
	var lines []string
	initial := Remembered{}
	for _, p := range pins {
		lines = append(lines, p.String())
		if !p.forCluster(cluster) {
			continue
		}
		if initial.Clusterset != "" && p.Clusterset != initial.Clusterset {
			return Remembered{}, Refuse(OtherClusterset, "pinned signers are of two clustersets, %s and %s", initial.Clusterset, p.Clusterset)
		}
		initial.Clusterset, initial.Signers = p.Clusterset, append(initial.Signers, p.Key)
		initial.Revisions = initial.Revisions.Max(p.Floors)
	}
	slices.Sort(lines)
	lines = slices.Compact(lines)
	if len(initial.Signers) == 0 {
		var pinned []string
		for _, p := range pins {
			if name := p.Clusterset + "/" + p.Cluster; !slices.Contains(pinned, name) {
				pinned = append(pinned, name)
			}
		}
		return Remembered{}, Refuse(OtherCluster, "no signer is pinned for cluster %s, only for %s", cluster, strings.Join(pinned, ", "))
	}
	initial.Pins = lines
	if slices.Equal(remembered.Pins, lines) && remembered.Clusterset == initial.Clusterset && len(remembered.Signers) > 0 {
		remembered.Revisions = remembered.Revisions.Max(initial.Revisions)
		return remembered, nil
	}
	return initial, nil
}

// Admit decides whether an agent of a cluster accepts a document, and returns the next
// state. If it returns an error, a *Refusal, the state does not change.
func (s Remembered) Admit(kind Kind, cluster string, document, proof []byte) (Remembered, error) {
	if len(proof) == 0 {
		return s, Refuse(Unsigned, "is not signed")
	}
	var p Proof
	if len(proof) > MaxProof {
		return s, Refuse(Unsigned, "its signature is larger than %d bytes", MaxProof)
	}
	if err := json.Unmarshal(proof, &p); err != nil || len(p.Chain) > maxChain {
		return s, Refuse(Unsigned, "its signature cannot be read")
	}
	next := s
	next.Signers = ResolveSigners(s.Clusterset, s.Signers, p.Chain)
	statement, signature, ok := p.verifyBy(kind, next.Signers)
	if !ok {
		return s, Refuse(UnknownSigner, "is not signed by a signer of clusterset %s (%s)", s.Clusterset, strings.Join(next.Signers, ", "))
	}
	revision := next.Revisions.byKind(kind)
	switch {
	case statement.Clusterset != s.Clusterset:
		return s, Refuse(OtherClusterset, "is signed for clusterset %s, and this is %s", statement.Clusterset, s.Clusterset)
	case kind == Keys && statement.Cluster != cluster:
		return s, Refuse(OtherCluster, "is signed for cluster %s, and this is %s",
			statement.Cluster, cluster)
	case statement.SHA256 != Hash(document):
		return s, Refuse(DigestMismatch, "differs from the document signed as revision %d",
			statement.Revision)
	case statement.Revision < *next.Reported.byKind(kind):
		return s, Refuse(Outdated, "is revision %d, but other nodes of the cluster had revision %d: deliver the published revision",
			statement.Revision, *next.Reported.byKind(kind))
	case statement.Revision < *revision:
		return s, Refuse(Outdated, "is revision %d, older than revision %d",
			statement.Revision, *revision)
	}
	*revision = statement.Revision
	next.Proofs = maps.Clone(s.Proofs)
	if next.Proofs == nil {
		next.Proofs = map[Kind]string{}
	}
	next.Proofs[kind] = reportedProof(p.Chain, Signed{Statement: p.Statement, Signatures: []string{signature}})
	return next, nil
}

// reportedProof returns the proof that a HawserNode has: one signature and nothing that is not
// signed, so padding cannot make it too large. A chain that is too large is left out. Then nodes
// whose pins name the signer accept the proof.
func reportedProof(chain []Signed, signed Signed) string {
	for _, p := range []Proof{{Chain: chain, Signed: signed}, {Signed: signed}} {
		if raw, err := json.Marshal(p); err == nil && len(raw) <= MaxReported {
			return string(raw)
		}
	}
	return ""
}
