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
	clusterset string
	now        int64
	today, all []ssh.Signer
	lines      []string // public keys of the current signers
}

func newNotary(in Input) (*documentSigner, error) {
	if in.Root == nil {
		return nil, nil
	}
	n := &documentSigner{clusterset: in.Topology.Metadata.Name, now: in.Now}
	var err error
	if n.today, n.all, err = in.Root.Signers(n.clusterset, in.Topology.Spec.Keys.Epochs); err != nil {
		return nil, err
	}
	for _, s := range n.today {
		n.lines = append(n.lines, trust.Line(s.PublicKey()))
	}
	return n, nil
}

// before returns the statement in signed if a current signer signed it, zero otherwise.
func (n *documentSigner) before(kind trust.Kind, signed trust.Signed) trust.Statement {
	said, _ := signed.By(kind, n.lines)
	return said
}

// sign returns the published statement if it is about the same document, else a new one.
func (n *documentSigner) sign(kind trust.Kind, want trust.Statement, published trust.Signed) (trust.Signed, error) {
	want.Clusterset = n.clusterset
	said := n.before(kind, published)
	if said.Revision > 0 && said.Clusterset == want.Clusterset && said.Cluster == want.Cluster && said.SHA256 == want.SHA256 {
		return published, nil
	}
	newest := said.Revision
	// A statement of another root key proves nothing. Its revision is still not used again, unless
	// it is more than an hour in the future.
	var claimed trust.Statement
	if json.Unmarshal([]byte(published.Statement), &claimed) == nil && claimed.Revision <= n.now+3600 {
		newest = max(newest, claimed.Revision)
	}
	// The time is the minimum because an attacker may have removed the published tree: agents
	// reject a revision that they have accepted before.
	want.Revision = max(newest+1, n.now)
	return trust.Sign(kind, want, n.today...)
}

// signFabric returns the proof of the packed fabric. It is empty, with a warning, if the fabric
// cannot be signed.
func signFabric(in Input, packed []byte) ([]byte, diag.List) {
	published := fabricProof(in.Previous)
	n, err := newNotary(in)
	if err != nil {
		return nil, failed("base", err)
	}
	if n == nil {
		return publishedProof(in, packed, published)
	}
	chain, err := trust.ExtendChain(n.clusterset, published.Chain, n.today, n.all)
	if err != nil {
		return nil, failed("base", err)
	}
	signed, err := n.sign(trust.Fabric, trust.Statement{SHA256: trust.Hash(packed)}, published.Signed)
	if err != nil {
		return nil, failed("base", err)
	}
	return encodeProof(trust.Proof{Chain: chain, Signed: signed})
}

func encodeProof(p trust.Proof) ([]byte, diag.List) {
	raw, err := json.Marshal(p)
	if err != nil {
		return nil, failed("base", fmt.Errorf("encode proof: %w", err))
	}
	if len(raw) > trust.MaxProof {
		return nil, failed("base", fmt.Errorf("the proof of the fabric has %d bytes; agents accept %d", len(raw), trust.MaxProof))
	}
	return raw, nil
}

// publishedProof returns the published proof if it is about the same fabric. Without the root key
// its signer is unknown; the agents verify it.
func publishedProof(in Input, packed []byte, published trust.Proof) ([]byte, diag.List) {
	var said trust.Statement
	if json.Unmarshal([]byte(published.Statement), &said) == nil && said.SHA256 == trust.Hash(packed) {
		return encodeProof(published)
	}
	if in.Preview {
		return []byte(KnownAfterPublish), nil
	}
	return nil, diag.List{{Severity: diag.Warning, Code: "unsigned", Path: "base",
		Summary: "the fabric is not signed, as there is no root key: agents with pinned signers will refuse it",
		Hint:    "give the root key with --root-key, or have hawser reconcile publish it"}}
}

// SignersFrom returns the signers at the end of the chain of a rendered tree that starts at from.
// All are public keys in authorized_keys format.
func SignersFrom(tree Tree, clusterset string, from []string) []string {
	return trust.ResolveSigners(clusterset, from, fabricProof(tree).Chain)
}

// fabricProof returns the proof of the published fabric, zero if absent.
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

// revisionOf returns the revision in a proof of these keys by one of the current signers, 0 if the
// proof is invalid.
func (n *documentSigner) revisionOf(cluster, ciphertext, proof string) int64 {
	var p trust.Proof
	if json.Unmarshal([]byte(proof), &p) != nil {
		return 0
	}
	said := n.before(trust.Keys, p.Signed)
	if said.Clusterset != n.clusterset || said.Cluster != cluster || said.SHA256 != trust.Hash([]byte(ciphertext)) {
		return 0
	}
	return said.Revision
}

// FabricAndProof returns the fabric of a tree and its proof as agents receive them.
func FabricAndProof(tree Tree) (packed, proof []byte, err error) {
	if packed, err = packedFabric(tree); err != nil {
		return nil, nil, err
	}
	return packed, []byte(proofText(tree)), nil
}
