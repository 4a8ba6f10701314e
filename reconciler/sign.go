package reconciler

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/hiddeco/sshsig"
	"golang.org/x/crypto/ssh"

	"hawser.dev/hawser/reconciler/repo"
	"hawser.dev/hawser/render"
	"hawser.dev/hawser/render/keys"
	"hawser.dev/hawser/schema"
	"hawser.dev/hawser/schema/fabric/trust"
)

// gitNamespace is that of signatures of commits (git-commit(1), gpg.format=ssh).
const gitNamespace = "git"

// signatures are those of published commits. Whoever may push to the publish
// branch can put anything there; only what is signed counts as published.
type signatures struct {
	with  ssh.Signer
	valid []string // public keys, as authorized_keys has them
}

// newSignatures gives those that count for who has a root key and finds a tree on the
// publish branch. Signers that took the place of one of the root's count as well: a
// root key that is too old must meet what was published since, to be refused for it.
func newSignatures(root *keys.Root, set *schema.ClusterSet, found render.Tree) (*signatures, error) {
	today, all, err := root.Signers(set.Metadata.Name, set.Spec.Keys.Epochs)
	if err != nil || len(today) == 0 {
		return nil, err
	}
	// The newest one: it is there still when the others are dropped.
	out := &signatures{with: today[len(today)-1]}
	for _, s := range all {
		out.valid = append(out.valid, trust.Line(s.PublicKey()))
	}
	out.valid = append(out.valid, render.Follow(found, set.Metadata.Name, out.valid)...)
	return out, nil
}

func (s *signatures) sign(raw []byte) (string, error) {
	signature, err := sshsig.Sign(bytes.NewReader(raw), s.with, sshsig.HashSHA512, gitNamespace)
	if err != nil {
		return "", fmt.Errorf("sign commit: %w", err)
	}
	return string(sshsig.Armor(signature)), nil
}

// verify reports whether a commit is one that was published: by its signature, or by the
// trailer beside one of OpenPGP.
func (s *signatures) verify(raw []byte, armored string) bool {
	if strings.HasPrefix(armored, armorBegin) {
		rest, beside, err := vouchedFor(raw)
		if err != nil {
			return false
		}
		raw, armored = rest, beside
	}
	by, err := whoSigned(nil, gitNamespace, raw, armored, time.Time{})
	return err == nil && slices.Contains(s.valid, by)
}

// own gives the newest commit of the publish branch that was signed, or of what
// this reconciler published before, where the branch has none any more. A branch on
// which nothing was ever signed counts as it is: an older version made it.
func (r *Reconciler) own(in inputs, s *signatures) (repo.Hash, error) {
	for _, from := range []repo.Hash{in.published, r.last.inputs.published} {
		found, err := r.publish.Signed(from, s.verify)
		if err != nil {
			return repo.Hash{}, err
		}
		if found.IsZero() {
			continue
		}
		if found != in.published {
			r.cfg.Log.Warn("the publish branch was changed by somebody else, going on from what was signed last",
				"branch", r.cfg.PublishBranch, "found", in.published.String(), "signed", found.String())
		}
		return found, nil
	}
	return in.published, nil
}
