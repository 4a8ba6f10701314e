// Package trust decides whether an agent accepts a document: a signer of the clusterset
// must have signed it for this clusterset and cluster, and it must not be older than the
// last one. Then nothing between the reconciler and the agent (branch, mirror, Flux,
// ConfigMaps) can change what the agent does.
//
// Signatures have the format of OpenSSH (PROTOCOL.sshsig), so that ssh-keygen -Y verify
// checks them too. Signers have the format of its allowed_signers files.
package trust

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/hiddeco/sshsig"
	"golang.org/x/crypto/ssh"
)

// Kind is the kind of document that a statement signs. It is the namespace of its
// signatures, so that a signature is valid for one kind only.
type Kind string

// Kinds of statements.
const (
	Fabric  Kind = "fabric.hawser.dev"  // the fabric, which all clusters share
	Keys    Kind = "keys.hawser.dev"    // the sealed keys of one cluster
	Signers Kind = "signers.hawser.dev" // the next signers
)

// MaxProof is the maximum size of a proof in bytes.
const MaxProof = 1 << 20

// maxChain is the maximum number of changes of signers in a proof.
const maxChain = 1000

// Statement is the signed content, as JSON.
type Statement struct {
	Clusterset string `json:"clusterset"`
	// Cluster is the cluster of the keys; empty for other kinds.
	Cluster string `json:"cluster,omitempty"`
	// Revision increases with each publication that changes the document.
	Revision int64 `json:"revision,omitempty"`
	// SHA256 is the digest of the delivered document, in hex.
	SHA256 string `json:"sha256,omitempty"`
	// Signers are public keys in authorized_keys format, without comment. In a statement of kind
	// Signers they replace the previous signers.
	Signers []string `json:"signers,omitempty"`
}

// Signed is a statement with its signatures.
type Signed struct {
	Statement  string   `json:"statement"`  // exact signed bytes
	Signatures []string `json:"signatures"` // armored, one per signer
}

// Proof is delivered together with a document.
type Proof struct {
	// Chain leads from earlier signers to the current ones, oldest first.
	Chain []Signed `json:"chain,omitempty"`
	Signed
}

// Hash returns a document's digest in the format of Statement.SHA256.
func Hash(document []byte) string {
	sum := sha256.Sum256(document)
	return hex.EncodeToString(sum[:])
}

// Sign signs a statement with every key.
func Sign(kind Kind, s Statement, signers ...ssh.Signer) (Signed, error) {
	raw, err := json.Marshal(s)
	if err != nil {
		return Signed{}, fmt.Errorf("encode statement: %w", err)
	}
	out := Signed{Statement: string(raw)}
	for _, signer := range signers {
		signature, err := sshsig.Sign(strings.NewReader(out.Statement), signer, sshsig.HashSHA512, string(kind))
		if err != nil {
			return Signed{}, fmt.Errorf("sign: %w", err)
		}
		out.Signatures = append(out.Signatures, string(sshsig.Armor(signature)))
	}
	return out, nil
}

// Line returns a public key in the format of authorized_keys, without comment.
func Line(key ssh.PublicKey) string {
	return strings.TrimSpace(string(ssh.MarshalAuthorizedKey(key)))
}

// By returns the statement if one of the signers signed it for this kind.
func (s Signed) By(kind Kind, signers []string) (Statement, bool) {
	out, _, ok := s.verifyBy(kind, signers)
	return out, ok
}

// verifyBy is like By, and also returns the valid signature, armored again.
func (s Signed) verifyBy(kind Kind, signers []string) (Statement, string, bool) {
	for _, armored := range s.Signatures {
		signature, err := sshsig.Unarmor([]byte(armored))
		if err != nil || !slices.Contains(signers, Line(signature.PublicKey)) {
			continue
		}
		if Verify([]byte(s.Statement), signature, string(kind)) != nil {
			continue
		}
		var out Statement
		if json.Unmarshal([]byte(s.Statement), &out) != nil {
			return Statement{}, "", false
		}
		return out, string(sshsig.Armor(signature)), true
	}
	return Statement{}, "", false
}

// ResolveSigners returns the signers at the end of a chain that starts with the trusted
// signers of a clusterset. It ignores changes without a signature of a signer trusted at
// that point.
func ResolveSigners(clusterset string, signers []string, chain []Signed) []string {
	for _, link := range chain {
		if s, ok := link.By(Signers, signers); ok && s.Clusterset == clusterset && len(s.Signers) > 0 {
			signers = s.Signers
		}
	}
	return signers
}

// ExtendChain returns a chain that ends with the current signers, based on the published chain. It
// drops links that lead to none of them. If the remaining chain does not end with the current
// signers, it adds a link signed by all available signers.
func ExtendChain(
	clusterset string, chain []Signed, current, available []ssh.Signer,
) ([]Signed, error) {
	var lines []string
	for _, signer := range current {
		lines = append(lines, Line(signer.PublicKey()))
	}
	retained, wanted := []Signed(nil), slices.Clone(lines)
	for _, link := range slices.Backward(chain) {
		var s Statement
		if len(retained) == maxChain || json.Unmarshal([]byte(link.Statement), &s) != nil || s.Clusterset != clusterset ||
			!slices.ContainsFunc(s.Signers, func(key string) bool { return slices.Contains(wanted, key) }) {
			continue
		}
		var signedBy []string // trusted or not
		for _, armored := range link.Signatures {
			if key, ok := signerOf(Signers, link.Statement, armored); ok {
				signedBy = append(signedBy, key)
			}
		}
		if len(signedBy) > 0 {
			retained, wanted = append(retained, link), append(wanted, signedBy...)
		}
	}
	slices.Reverse(retained)
	if len(retained) > 0 {
		last, ok := retained[len(retained)-1].By(Signers, lines)
		if ok && slices.Equal(last.Signers, lines) {
			return retained, nil
		}
	}
	link, err := Sign(Signers, Statement{Clusterset: clusterset, Signers: lines}, available...)
	if err != nil {
		return nil, err
	}
	return append(retained, link), nil
}

// signerOf returns the key that signed a statement for this kind, trusted or not.
func signerOf(kind Kind, statement, armored string) (string, bool) {
	signature, err := sshsig.Unarmor([]byte(armored))
	if err != nil || Verify([]byte(statement), signature, string(kind)) != nil {
		return "", false
	}
	return Line(signature.PublicKey), true
}
