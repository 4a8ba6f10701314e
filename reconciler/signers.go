package reconciler

import (
	"bytes"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/hiddeco/sshsig"
	"golang.org/x/crypto/ssh"

	"hawser.dev/hawser/reconciler/repo"
	"hawser.dev/hawser/schema/fabric/trust"
)

// vouched refuses a source commit that leads to what nobody signed who may, once a
// topology that asks for signatures (trust.commits) was published: each commit from the
// published one on, along first parents, is signed by a key of the allowed_signers file
// of its parent. What a merge brings in its signer vouches for. Commits of this
// reconciler count if they change the lock alone.
func (r *Reconciler) vouched(in inputs, w *work) *Failure {
	revision := in.source.String()
	if in.source.String() == r.cfg.AcceptCommit {
		return nil
	}
	file, text := w.was.signers, w.was.source
	if file == "" {
		return nil
	}
	refuse := func(format string, args ...any) *Failure {
		err := fmt.Errorf(format, args...)
		return fail(ReasonUntrusted, revision, fmt.Errorf("%w; the published topology asks for signed commits (trust.commits): have the commit signed, "+
			"or pass --accept-commit %s once, if this very commit is right", err, revision))
	}
	follows, err := r.source.Descends(hash(text), in.source)
	if err != nil {
		return fail(ReasonFetch, revision, err)
	}
	if !follows {
		return refuse("commit %s does not follow from %s, which is published", short(revision), short(text))
	}
	for at := in.source; at.String() != text; {
		raw, signature, parent, err := r.source.Signature(at)
		if errors.Is(err, repo.ErrNoCommit) || err == nil && parent.IsZero() {
			return refuse("commit %s does not follow from %s, which is published, along first parents", short(revision), short(text))
		}
		if err != nil {
			return fail(ReasonFetch, revision, err)
		}
		allowed, err := r.source.File(parent, file)
		if err != nil {
			return refuse("commit %s cannot be checked: %v", short(at.String()), err)
		}
		signers, err := parseSigners(allowed)
		if err != nil {
			return refuse("commit %s cannot be checked: %s of the commit before: %v", short(at.String()), file, err)
		}
		switch by, err := signerOf(raw, signature); {
		case err != nil:
			return refuse("commit %s is not signed by a key of %s: %v", short(at.String()), file, err)
		case slices.Contains(signers, by):
		case w.signed != nil && slices.Contains(w.signed.valid, by):
			changed, err := r.source.Changed(parent, at)
			if err != nil {
				return fail(ReasonFetch, revision, err)
			}
			if !slices.Equal(changed, []string{r.lockPath()}) {
				return refuse("commit %s is signed with the clusterset's key and changes more than the lock: %s", short(at.String()), strings.Join(changed, ", "))
			}
		default:
			return refuse("commit %s is signed by %s, who is not in %s of the commit before", short(at.String()), by, file)
		}
		at = parent
	}
	return nil
}

// record is what a published commit says of its source.
type record struct{ source, signers string }

func (r *Reconciler) recorded(published repo.Hash) (record, error) {
	if published.IsZero() {
		return record{}, nil
	}
	source, err := r.publish.Trailer(published, TrailerSource)
	if err != nil {
		return record{}, err
	}
	signers, err := r.publish.Trailer(published, TrailerSigners)
	return record{source, signers}, err
}

// signersFile gives the path of the allowed_signers file that the built topology names,
// from the top of the repository, after a look at it: a file that does not hold would
// have every later commit refused.
func (r *Reconciler) signersFile(in inputs, b *Built) (string, *Failure) {
	if b.Set.Spec.Trust.Commits == "" {
		return "", nil
	}
	file := path.Join(r.cfg.Path, b.Set.Spec.Trust.Commits)
	raw, err := r.source.File(in.source, file)
	if err == nil {
		err = CheckSigners(raw)
	}
	if err != nil {
		return "", fail(ReasonInvalid, in.source.String(), fmt.Errorf("trust.commits: %s: %w", file, err))
	}
	return file, nil
}

// CheckSigners says why an allowed_signers file cannot be that of spec.trust.commits; nil
// when it can.
func CheckSigners(raw []byte) error {
	_, err := parseSigners(raw)
	return err
}

// signerOf gives the key, as authorized_keys has it, that signed a commit.
func signerOf(raw []byte, armored string) (string, error) {
	if armored == "" {
		return "", errors.New("it has no signature")
	}
	signature, err := sshsig.Unarmor([]byte(armored))
	if err != nil {
		return "", errors.New("its signature is none of SSH (git config gpg.format ssh)")
	}
	if err := sshsig.Verify(bytes.NewReader(raw), signature, signature.PublicKey, signature.HashAlgorithm, gitNamespace); err != nil {
		return "", fmt.Errorf("its signature does not hold: %w", err)
	}
	return trust.Line(signature.PublicKey), nil
}

// parseSigners reads an allowed_signers file (ssh-keygen(1)) and gives the keys that may
// sign commits, as authorized_keys has them. Principals say nothing here: whoever is in
// the file may sign. Of options namespaces counts; others are an error, as they would
// mean less than they say. Errors name the line.
func parseSigners(raw []byte) ([]string, error) {
	var out []string
	for i, line := range strings.Split(string(raw), "\n") {
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		_, rest, _ := strings.Cut(line, " ")
		key, _, options, _, err := ssh.ParseAuthorizedKey([]byte(strings.TrimSpace(rest)))
		if err != nil {
			return nil, fmt.Errorf("line %d: want PRINCIPALS [namespaces=\"git\"] KEYTYPE KEY: %w", i+1, err)
		}
		mine := true
		for _, o := range options {
			name, value, _ := strings.Cut(o, "=")
			if !strings.EqualFold(name, "namespaces") {
				return nil, fmt.Errorf("line %d: option %s is not used here: remove it, and the key when its time is over", i+1, name)
			}
			mine = slices.Contains(strings.Split(strings.Trim(value, `"`), ","), gitNamespace)
		}
		if mine {
			out = append(out, trust.Line(key))
		}
	}
	if len(out) == 0 {
		return nil, errors.New("no key in it may sign commits")
	}
	return out, nil
}
