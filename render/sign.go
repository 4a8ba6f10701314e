package render

import (
	"encoding/json"
	"fmt"

	"golang.org/x/crypto/ssh"
	"gopkg.in/yaml.v3"

	"hawser.dev/hawser/internal/diag"
	"hawser.dev/hawser/schema/fabric/trust"
)

// documentSigner signs the documents of the agents. A nil documentSigner signs nothing.
type documentSigner struct {
	clusterset   string
	now          int64
	current, all []ssh.Signer
	lines        []string // public keys of the current signers
}

func newDocumentSigner(in Input) (*documentSigner, error) {
	if in.Root == nil {
		return nil, nil
	}
	n := &documentSigner{clusterset: in.Topology.Metadata.Name, now: in.Now}
	var err error
	epochs := in.Topology.Spec.Keys.Epochs
	if n.current, n.all, err = in.Root.Signers(n.clusterset, epochs); err != nil {
		return nil, err
	}
	for _, s := range n.current {
		n.lines = append(n.lines, trust.Line(s.PublicKey()))
	}
	return n, nil
}

// statement returns the statement in signed. It returns zero if no current signer signed it.
func (n *documentSigner) statement(kind trust.Kind, signed trust.Signed) trust.Statement {
	verified, _ := signed.By(kind, n.lines)
	return verified
}

// sign returns the published statement if it is about the same document. Otherwise it signs a new
// one.
func (n *documentSigner) sign(kind trust.Kind, want trust.Statement, published trust.Signed) (trust.Signed, error) {
	want.Clusterset = n.clusterset
	previous := n.statement(kind, published)
	if previous.Revision > 0 && previous.Clusterset == want.Clusterset && previous.Cluster == want.Cluster && previous.SHA256 == want.SHA256 {
		return published, nil
	}
	newest := previous.Revision
	// A statement with another root key proves nothing. Do not use its revision again, unless
	// it is more than an hour in the future.
	var claimed trust.Statement
	if json.Unmarshal([]byte(published.Statement), &claimed) == nil && claimed.Revision <= n.now+3600 {
		newest = max(newest, claimed.Revision)
	}
	// The minimum is the time, because an attacker may have removed the published tree. Agents
	// reject a revision that is older than the accepted one.
	want.Revision = max(newest+1, n.now)
	return trust.Sign(kind, want, n.current...)
}

// signFabric returns the proof of the packed fabric. If it cannot sign, it returns no proof and a
// warning.
func signFabric(in Input, packed []byte) ([]byte, diag.List) {
	published := fabricProof(in.Previous)
	n, err := newDocumentSigner(in)
	if err != nil {
		return nil, renderError("base", err)
	}
	if n == nil {
		return publishedProof(in, packed, published)
	}
	chain, err := trust.ExtendChain(n.clusterset, published.Chain, n.current, n.all)
	if err != nil {
		return nil, renderError("base", err)
	}
	signed, err := n.sign(trust.Fabric, trust.Statement{SHA256: trust.Hash(packed)}, published.Signed)
	if err != nil {
		return nil, renderError("base", err)
	}
	return encodeProof(trust.Proof{Chain: chain, Signed: signed})
}

func encodeProof(p trust.Proof) ([]byte, diag.List) {
	raw, err := json.Marshal(p)
	if err != nil {
		return nil, renderError("base", fmt.Errorf("encode proof: %w", err))
	}
	if len(raw) > trust.MaxProof {
		return nil, renderError("base", fmt.Errorf("the proof of the fabric has %d bytes; agents accept %d", len(raw), trust.MaxProof))
	}
	return raw, nil
}

// publishedProof returns the published proof if it is about the same fabric. Without the root key
// the signer is unknown: the agents verify the proof.
func publishedProof(in Input, packed []byte, published trust.Proof) ([]byte, diag.List) {
	var statement trust.Statement
	err := json.Unmarshal([]byte(published.Statement), &statement)
	if err == nil && statement.SHA256 == trust.Hash(packed) {
		return encodeProof(published)
	}
	if in.Preview {
		return []byte(KnownAfterPublish), nil
	}
	return nil, diag.List{{Severity: diag.Warning, Code: "unsigned", Path: "base",
		Summary: "the fabric is not signed, as there is no root key: agents with pinned signers will refuse it",
		Hint:    "give the root key with --root-key, or have hawser reconcile publish it"}}
}

// SignersFrom returns the last signers of a tree's chain of signers that starts at from. All
// signers are public keys in authorized_keys format.
func SignersFrom(tree Tree, clusterset string, from []string) []string {
	return trust.ResolveSigners(clusterset, from, fabricProof(tree).Chain)
}

// fabricProof returns the proof of the published fabric. It returns zero if absent.
func fabricProof(tree Tree) trust.Proof {
	var out trust.Proof
	if json.Unmarshal([]byte(proofText(tree)), &out) != nil {
		return trust.Proof{}
	}
	return out
}

func proofText(tree Tree) string {
	var m struct {
		Data map[string]string `yaml:"data"`
	}
	if yaml.Unmarshal(tree["base/fabric.yaml"], &m) != nil {
		return ""
	}
	return m.Data[FabricProofKey]
}

// revisionOf returns the revision in the proof of a cluster's sealed keys. It returns 0 if no
// current signer signed the proof for them.
func (n *documentSigner) revisionOf(cluster, ciphertext, proof string) int64 {
	var p trust.Proof
	if json.Unmarshal([]byte(proof), &p) != nil {
		return 0
	}
	statement := n.statement(trust.Keys, p.Signed)
	if statement.Clusterset != n.clusterset || statement.Cluster != cluster || statement.SHA256 != trust.Hash([]byte(ciphertext)) {
		return 0
	}
	return statement.Revision
}

// FabricAndProof returns the fabric of a tree and its proof as agents receive them.
func FabricAndProof(tree Tree) (packed, proof []byte, err error) {
	if packed, err = compressedFabric(tree); err != nil {
		return nil, nil, err
	}
	return packed, []byte(proofText(tree)), nil
}
