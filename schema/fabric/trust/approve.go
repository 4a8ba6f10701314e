package trust

import (
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/hiddeco/sshsig"
	"golang.org/x/crypto/ssh"
)

// Approval is the namespace of approvals: signatures of a fabric's statement, made
// offline by the keys that the clusterset names.
const Approval Kind = "approval.hawser.dev"

// MaxApprovers bounds how many approvers a clusterset may name.
const MaxApprovers = 32

// maxChanges bounds what a proof carries of earlier changes of approvers, bytes: the
// proof is part of a ConfigMap.
const maxChanges = 64 << 10

// Approvers are keys of which so many must approve a fabric. The zero value asks for
// nothing.
type Approvers struct {
	// Keys are public keys as authorized_keys has them, without comment.
	Keys []string `json:"approvers,omitempty"`
	// Threshold is how many of them it takes, 1 to len(Keys); 0 without keys.
	Threshold int `json:"threshold,omitempty"`
}

// Equal reports whether the same keys are asked for, whatever their order.
func (a Approvers) Equal(o Approvers) bool {
	return a.Threshold == o.Threshold && len(a.Keys) == len(o.Keys) &&
		slices.Equal(slices.Sorted(slices.Values(a.Keys)), slices.Sorted(slices.Values(o.Keys)))
}

// By gives those who approved a statement, each key once, in the order of Keys.
func (a Approvers) By(s Signed) []string {
	approved := map[string]bool{}
	for _, armored := range s.Approvals {
		if key, ok := signerOf(Approval, s.Statement, armored); ok {
			approved[key] = true
		}
	}
	var out []string
	for _, key := range a.Keys {
		if approved[key] && !slices.Contains(out, key) {
			out = append(out, key)
		}
	}
	return out
}

// Enough reports whether so many approved a statement as it takes.
func (a Approvers) Enough(s Signed) bool { return len(a.By(s)) >= a.needed() }

// needed is the threshold; keys without one that can be reached approve nothing.
func (a Approvers) needed() int {
	switch {
	case len(a.Keys) == 0 && a.Threshold == 0:
		return 0
	case a.Threshold < 1:
		return math.MaxInt
	}
	return a.Threshold
}

// Approve gives the armored signature by which a key approves a statement, as
// ssh-keygen -Y sign -n approval.hawser.dev makes it.
func Approve(statement string, with ssh.Signer) (string, error) {
	signature, err := sshsig.Sign(strings.NewReader(statement), with, sshsig.HashSHA512, string(Approval))
	if err != nil {
		return "", fmt.Errorf("approve: %w", err)
	}
	return string(sshsig.Armor(signature)), nil
}

// Approved gives a statement with those of the candidates for approvals added that are
// one by somebody of whom one of groups asks it, in the order of groups; a key that
// approved already is left out.
func (s Signed) Approved(candidates []string, groups ...Approvers) Signed {
	by := map[string]string{}
	for _, armored := range candidates {
		if key, ok := signerOf(Approval, s.Statement, armored); ok {
			by[key] = armored
		}
	}
	for _, armored := range s.Approvals {
		if key, ok := signerOf(Approval, s.Statement, armored); ok {
			delete(by, key)
		}
	}
	s.Approvals = slices.Clone(s.Approvals)
	for _, group := range groups {
		for _, key := range group.Keys {
			if armored := by[key]; armored != "" {
				s.Approvals = append(s.Approvals, armored)
				delete(by, key)
			}
		}
	}
	return s
}

// Asked gives who must approve what a proof is of: those in force before it, and those
// whom it names, where these are others. Who asks for nothing is left out.
func (p Proof) Asked() []Approvers {
	var said, last Statement
	if n := len(p.Changes); n > 0 && json.Unmarshal([]byte(p.Changes[n-1].Statement), &last) != nil {
		last = Statement{}
	}
	if json.Unmarshal([]byte(p.Statement), &said) != nil {
		said = Statement{}
	}
	var out []Approvers
	for _, a := range []Approvers{last.Approvers, said.Approvers} {
		if !a.Equal(Approvers{}) && (len(out) == 0 || !out[0].Equal(a)) {
			out = append(out, a)
		}
	}
	return out
}

// Enough reports whether all who must approve did.
func (p Proof) Enough() bool {
	return !slices.ContainsFunc(p.Asked(), func(a Approvers) bool { return !a.Enough(p.Signed) })
}

// ApproverOf gives the key, as authorized_keys has it, that approved a statement; the
// error says that it is no approval of it.
func ApproverOf(statement, armored string) (string, error) {
	signature, err := sshsig.Unarmor([]byte(armored))
	if err != nil {
		return "", fmt.Errorf("it is no signature of OpenSSH: %w", err)
	}
	if signature.Namespace != string(Approval) {
		return "", fmt.Errorf("it is signed for %q, not for %s", signature.Namespace, Approval)
	}
	key, ok := signerOf(Approval, statement, armored)
	if !ok {
		return "", fmt.Errorf("it is none of this statement")
	}
	return key, nil
}

// followApprovers gives the approvers in force at the end of changes, for who has some
// in force and had a revision of the fabric. A change counts if those in force approved
// it, and those whom it names. Changes that the node saw pass, in what it had, could
// bring back approvers who are none any more: they do not count.
func (a Approvers) followApprovers(clusterset string, had int64, changes []Signed) Approvers {
	for _, c := range changes {
		var s Statement
		if json.Unmarshal([]byte(c.Statement), &s) != nil || s.Clusterset != clusterset || s.Revision <= had {
			continue
		}
		if a.Enough(c) && s.Approvers.Enough(c) {
			a, had = s.Approvers, s.Revision
		}
	}
	return a
}

// ExtendChanges gives the changes of approvers that lead to what follows a published
// proof: those in it, and itself when it names others than the last of them. One that
// lacks approvals changed nobody. The oldest go when they become too large.
func ExtendChanges(published Proof) []Signed {
	var said, last Statement
	out := slices.Clone(published.Changes)
	if len(out) > 0 && json.Unmarshal([]byte(out[len(out)-1].Statement), &last) != nil {
		last = Statement{}
	}
	if json.Unmarshal([]byte(published.Statement), &said) == nil && !said.Approvers.Equal(last.Approvers) && published.Enough() {
		out = append(out, Signed{Statement: published.Statement, Approvals: published.Approvals})
	}
	size := func() (n int) {
		for _, c := range out {
			n += len(c.Statement)
			for _, a := range c.Approvals {
				n += len(a)
			}
		}
		return n
	}
	for size() > maxChanges {
		out = out[1:]
	}
	return out
}

// before gives the changes up to a revision.
func before(changes []Signed, revision int64) []Signed {
	return slices.DeleteFunc(slices.Clone(changes), func(c Signed) bool {
		var s Statement
		return json.Unmarshal([]byte(c.Statement), &s) != nil || s.Revision >= revision
	})
}
