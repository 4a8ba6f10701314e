package reconciler

import (
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"
	"time"

	"hawser.dev/hawser/reconciler/repo"
	"hawser.dev/hawser/schema/ownership"
)

// Review is what a commit changes of what has owners, as the reconciler will judge it.
type Review struct {
	Commit  string
	Subject string
	// Signers are the principals of who signed it; nobody's signature counts where there
	// are none.
	Signers []string
	Changes []ownership.Difference
	ruling  ruling
	owners  []string // of everything
	now     time.Time
}

// ReviewCommit compares a commit with its first parent. folder is that of the topology in
// the repository; published is the lock that is in force, nil where it is not known; now
// is the time at which keys of OpenPGP have to be good. It fails where the parent's
// topology asks for no signatures or has no owners.
func ReviewCommit(source *repo.Store, folder, commit string, published []byte, now time.Time) (*Review, error) {
	at := hash(commit)
	raw, signature, parent, err := source.Signature(at)
	if err != nil {
		return nil, err
	}
	out := &Review{Commit: at.String(), now: now, ruling: ruling{commit: at, parent: parent, folder: folder}}
	if out.Subject, err = source.Subject(at); err != nil {
		return nil, err
	}
	tip, err := source.File(at, path.Join(folder, TopologyFile))
	if err != nil && !errors.Is(err, repo.ErrNoFile) {
		return nil, err
	}
	if parent.IsZero() {
		return nil, fmt.Errorf("commit %s is the first one: nobody owns anything before", short(commit))
	}
	var r *rights
	for from := parent; ; {
		// A commit whose topology cannot be read changes nothing, so the one before counts.
		if r, err = newRights(source, folder, "", from, published, tip); err == nil {
			break
		}
		_, _, before, failed := source.Signature(from)
		if failed != nil || before.IsZero() {
			return nil, err
		}
		from = before
	}
	if !r.last.Set.Owned() {
		return nil, fmt.Errorf("nothing has an owner in %s before commit %s: set trust.owners to have commits approved",
			path.Join(folder, TopologyFile), short(commit))
	}
	r.signers, out.owners = path.Join(folder, r.last.Set.Spec.Trust.Commits), r.last.Set.Spec.Trust.Owners
	if out.ruling.signers, err = signersAt(source, parent, r.signers); err != nil {
		return nil, err
	}
	if by, err := whoSigned(out.ruling.signers, gitNamespace, raw, signature, now); err == nil {
		out.Signers = principalsOf(out.ruling.signers, by)
	}
	out.ruling.principals = out.Signers
	out.Changes, err = r.next(parent, at)
	return out, err
}

// Owned reports whether principals may make a change.
func (r *Review) Owned(d ownership.Difference, principals []string) bool {
	return covers(r.owners, d, principals)
}

// WhoMay says who could approve a change that the signer does not own.
func (r *Review) WhoMay(d ownership.Difference) string { return whoMay(r.ruling, r.owners, d) }

// Approver gives the principals of who signed an approval of the commit, in the armor of
// SSHSIG or OpenPGP. It fails where the approval would not count.
func (r *Review) Approver(armored string) ([]string, error) {
	who, err := approver(armored, r.Commit, [2][]signer{r.ruling.signers, r.ruling.signers}, r.now)
	if err != nil {
		return nil, err
	}
	owns := slices.ContainsFunc(r.Changes, func(d ownership.Difference) bool {
		return !r.Owned(d, r.Signers) && r.Owned(d, who)
	})
	if !owns {
		return nil, fmt.Errorf("%s owns nothing of what the signer of commit %s does not own",
			strings.Join(who, ", "), short(r.Commit))
	}
	return who, nil
}

// ApprovalFile is where an approval of the commit belongs, from the topology's folder.
func (r *Review) ApprovalFile(principal string) string {
	name := strings.Map(func(c rune) rune {
		if c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || strings.ContainsRune("@._-", c) {
			return c
		}
		return '-'
	}, principal)
	return path.Join(ApprovalsDir, r.Commit, name+".sig")
}
