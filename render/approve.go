package render

import (
	"encoding/json"
	"fmt"
	"path"
	"slices"
	"strings"

	"golang.org/x/crypto/ssh"

	"hawser.dev/hawser/internal/diag"
	"hawser.dev/hawser/schema"
	"hawser.dev/hawser/schema/fabric/trust"
)

// ApprovalsDir is the folder of approvals beside the topology: a folder for each
// statement, and a file NAME.sig for each signer in there.
const ApprovalsDir = "approvals"

// Approval is how far the approval of a fabric is.
type Approval struct {
	Clusterset string          `json:"clusterset"`
	Revision   int64           `json:"revision"` // of the fabric
	SHA256     string          `json:"sha256"`   // of the fabric as it is delivered, in hex
	Dir        string          `json:"dir"`      // of its approvals, beside the topology
	Groups     []ApprovalGroup `json:"groups"`   // all of which must approve; none = nobody has to
	Statement  string          `json:"-"`        // the very bytes to sign
}

// ApprovalGroup is some of whom must approve.
type ApprovalGroup struct {
	// New are those whom the fabric names in place of those before, who must show that
	// they can.
	New       bool     `json:"new,omitempty"`
	Threshold int      `json:"threshold"`
	Approved  []string `json:"approved"` // names; fingerprints of those who are not in the topology
	Missing   []string `json:"missing"`
}

// Enough reports whether nothing is missing.
func (a Approval) Enough() bool {
	return !slices.ContainsFunc(a.Groups, func(g ApprovalGroup) bool { return len(g.Approved) < g.Threshold })
}

// String tells who approved, and who else could: 1 of 2 (alice; missing: bob or carol).
func (a Approval) String() string {
	var out []string
	for _, g := range a.Groups {
		text := fmt.Sprintf("%d of %d", len(g.Approved), g.Threshold)
		var who []string
		if len(g.Approved) > 0 {
			who = append(who, strings.Join(g.Approved, ", "))
		}
		if len(g.Approved) < g.Threshold {
			who = append(who, "missing: "+either(g.Missing, g.Threshold-len(g.Approved)))
		}
		switch {
		case len(a.Groups) > 1 && g.New:
			text += " of the new signers"
		case len(a.Groups) > 1:
			text += " of the signers in force"
		}
		out = append(out, text+" ("+strings.Join(who, "; ")+")")
	}
	return strings.Join(out, ", and ")
}

// either lists of whom n are needed.
func either(names []string, n int) string {
	switch last := len(names) - 1; {
	case n >= len(names) && last > 0:
		return strings.Join(names[:last], ", ") + " and " + names[last]
	case last < 1:
		return strings.Join(names, "")
	case n == 1:
		return strings.Join(names[:last], ", ") + " or " + names[last]
	}
	return fmt.Sprintf("%d of %s", n, strings.Join(names, ", "))
}

// ApprovalOf tells how far the approval of a tree's fabric is; set names the signers.
func ApprovalOf(tree Tree, set *schema.ClusterSet) Approval {
	return ApprovalIn(set, fabricProof(tree))
}

// ApprovalIn tells how far the approval of a proof's fabric is.
func ApprovalIn(set *schema.ClusterSet, p trust.Proof) Approval {
	var said trust.Statement
	if json.Unmarshal([]byte(p.Statement), &said) != nil {
		return Approval{Groups: []ApprovalGroup{}}
	}
	out := Approval{Clusterset: said.Clusterset, Revision: said.Revision, SHA256: said.SHA256, Statement: p.Statement,
		Dir: path.Join(ApprovalsDir, approvalDir(said)), Groups: []ApprovalGroup{}}
	asked := p.Asked()
	for _, a := range asked {
		g := ApprovalGroup{Threshold: a.Threshold, Approved: []string{}, Missing: []string{}, New: len(asked) > 1 && a.Equal(said.Approvers)}
		by := a.By(p.Signed)
		for _, key := range a.Keys {
			if name := nameOf(set, key); slices.Contains(by, key) {
				g.Approved = append(g.Approved, name)
			} else {
				g.Missing = append(g.Missing, name)
			}
		}
		out.Groups = append(out.Groups, g)
	}
	return out
}

// approvalDir is the folder of the approvals of a statement, below ApprovalsDir.
func approvalDir(s trust.Statement) string {
	return fmt.Sprintf("%d-%s", s.Revision, s.SHA256[:min(len(s.SHA256), 12)])
}

// nameOf gives the name of a signer, or the fingerprint of one who is not in the
// topology any more.
func nameOf(set *schema.ClusterSet, line string) string {
	if name, ok := set.Spec.Trust.SignerOf(line); ok {
		return name
	}
	key, _, _, _, err := ssh.ParseAuthorizedKey([]byte(line))
	if err != nil {
		return line
	}
	return ssh.FingerprintSHA256(key)
}

// finishProof adds the approvals that the source has, and tells when some are missing.
func finishProof(in Input, p trust.Proof) ([]byte, diag.List) {
	var said trust.Statement
	if err := json.Unmarshal([]byte(p.Statement), &said); err != nil {
		return nil, failed("base", fmt.Errorf("read the statement of the fabric: %w", err))
	}
	var found []string
	for _, name := range in.Approvals.Paths() {
		if path.Dir(name) == approvalDir(said) {
			found = append(found, string(in.Approvals[name]))
		}
	}
	p.Signed = p.Approved(found, p.Asked()...)
	raw, err := json.Marshal(p)
	if err != nil {
		return nil, failed("base", fmt.Errorf("encode proof: %w", err))
	}
	if len(raw) > trust.MaxProof {
		return nil, failed("base", fmt.Errorf("the proof of the fabric has %d bytes, agents take %d", len(raw), trust.MaxProof))
	}
	return raw, unapproved(in.Topology, p)
}

// unapproved warns of a fabric that agents refuse until more have approved it.
func unapproved(set *schema.ClusterSet, p trust.Proof) diag.List {
	if p.Enough() {
		return nil
	}
	return diag.List{{Severity: diag.Warning, Code: "unapproved", Path: "trust.signers",
		Summary: "agents act on this fabric once it is approved: " + ApprovalIn(set, p).String(),
		Hint:    "hawser approve, when hawser reconcile has made the candidate"}}
}

// inForce gives the approvers at the end of changes.
func inForce(changes []trust.Signed) trust.Approvers {
	if asked := (trust.Proof{Changes: changes}).Asked(); len(asked) > 0 {
		return asked[0]
	}
	return trust.Approvers{}
}

// SpentApprovals gives the folders of approvals, below ApprovalsDir, of statements that
// a tree has left behind: those of older revisions than that of its fabric.
func SpentApprovals(approvals, tree Tree) []string {
	var said trust.Statement
	if json.Unmarshal([]byte(fabricProof(tree).Statement), &said) != nil {
		return nil
	}
	var out []string
	for _, name := range approvals.Paths() {
		dir, _, below := strings.Cut(name, "/")
		revision, _, ok := strings.Cut(dir, "-")
		var n int64
		if _, err := fmt.Sscan(revision, &n); !below || !ok || err != nil || n >= said.Revision || slices.Contains(out, dir) {
			continue
		}
		out = append(out, dir)
	}
	return out
}
