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

	"hawser.dev/hawser/internal/diag"
	"hawser.dev/hawser/reconciler/repo"
	"hawser.dev/hawser/schema/fabric/trust"
)

// vouched refuses a source commit that leads to what nobody signed who may, once a
// topology that asks for signatures (trust.commits) was published: each commit from the
// published one on, along first parents, is signed by a key of the allowed_signers file
// of its parent, and what it changes is owned by who signed or approved it. What a merge
// brings in its signer vouches for. Commits of this reconciler count if they change the
// lock alone.
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
	var commits []repo.Hash // newest first
	for at := in.source; at.String() != text; {
		_, _, parent, err := r.source.Signature(at)
		if errors.Is(err, repo.ErrNoCommit) || err == nil && parent.IsZero() {
			return refuse("commit %s does not follow from %s, which is published, along first parents", short(revision), short(text))
		}
		if err != nil {
			return fail(ReasonFetch, revision, err)
		}
		commits, at = append(commits, at), parent
	}
	if len(commits) == 0 {
		return nil
	}
	rights, err := newRights(r.source, r.cfg.Path, file, hash(text), w.have[LockFile], w.files[r.topologyPath()])
	if err != nil {
		return refuse("%v", err)
	}
	for _, at := range slices.Backward(commits) {
		raw, signature, parent, err := r.source.Signature(at)
		if err != nil {
			return fail(ReasonFetch, revision, err)
		}
		signers, err := signersAt(r.source, parent, file)
		if err != nil {
			return refuse("commit %s cannot be checked: %v", short(at.String()), err)
		}
		switch by, err := signerOf(raw, signature); {
		case err != nil:
			return refuse("commit %s is not signed by a key of %s: %v", short(at.String()), file, err)
		case slices.ContainsFunc(signers, func(s signer) bool { return s.key == by && s.commits }):
			c := ruling{commit: at, parent: parent, signers: signers, principals: principalsOf(signers, by), folder: r.cfg.Path}
			if failure := r.owned(in, rights, c); failure != nil {
				return failure
			}
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
	}
	w.compared = rights.last.Source
	return nil
}

// record is what a published commit says of its source.
type record struct{ source, signers, digest string }

// trailers gives the end of the commit's message.
func (p record) trailers() string {
	text := fmt.Sprintf("%s: %s\n%s: %s\n", TrailerSource, p.source, TrailerDigest, p.digest)
	if p.signers != "" {
		text += TrailerSigners + ": " + p.signers + "\n"
	}
	return text
}

func (r *Reconciler) recorded(published repo.Hash) (record, error) {
	if published.IsZero() {
		return record{}, nil
	}
	source, err := r.publish.Trailer(published, TrailerSource)
	if err != nil {
		return record{}, err
	}
	digest, err := r.publish.Trailer(published, TrailerDigest)
	if err != nil {
		return record{}, err
	}
	signers, err := r.publish.Trailer(published, TrailerSigners)
	return record{source, signers, digest}, err
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
	var list diag.List
	if err == nil {
		list, err = CheckOwners(b.Set, file, raw)
	}
	if err != nil {
		return "", fail(ReasonInvalid, in.source.String(), fmt.Errorf("trust.commits: %s: %w", file, err))
	}
	list = Placed(list, b.Source)
	if list.HasErrors() {
		return "", failFindings(ReasonInvalid, in.source.String(), list,
			map[string][]byte{r.topologyPath(): b.Source.Raw, file: raw})
	}
	b.Warnings = append(b.Warnings, list...)
	return file, nil
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

// signer is a line of an allowed_signers file.
type signer struct {
	key        string // as authorized_keys has it
	principals []string
	line       int
	// commits and approvals say what it may sign, by its namespaces.
	commits, approvals bool
}

// signersAt reads the allowed_signers file of a commit.
func signersAt(source *repo.Store, commit repo.Hash, file string) ([]signer, error) {
	raw, err := source.File(commit, file)
	if err != nil {
		return nil, err
	}
	signers, err := parseSigners(raw)
	if err != nil {
		return nil, fmt.Errorf("%s of the commit before: %w", file, err)
	}
	return signers, nil
}

// parseSigners reads an allowed_signers file (ssh-keygen(1)), in which a key may have
// several lines. Of options namespaces counts; others are an error, as they would mean
// less than they say. Errors name the line.
func parseSigners(raw []byte) ([]signer, error) {
	var out []signer
	for i, line := range strings.Split(string(raw), "\n") {
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		names, rest, _ := strings.Cut(line, " ")
		key, _, options, _, err := ssh.ParseAuthorizedKey([]byte(strings.TrimSpace(rest)))
		if err != nil {
			return nil, fmt.Errorf("line %d: want PRINCIPALS [namespaces=\"git\"] KEYTYPE KEY: %w", i+1, err)
		}
		s := signer{key: trust.Line(key), principals: strings.Split(names, ","), line: i + 1, commits: true, approvals: true}
		for _, o := range options {
			name, value, _ := strings.Cut(o, "=")
			if !strings.EqualFold(name, "namespaces") {
				return nil, fmt.Errorf("line %d: option %s is not used here: remove it, and the key when its time is over", i+1, name)
			}
			list := strings.Split(strings.Trim(value, `"`), ",")
			s.commits, s.approvals = slices.Contains(list, gitNamespace), slices.Contains(list, ApprovalNamespace)
		}
		out = append(out, s)
	}
	if !slices.ContainsFunc(out, func(s signer) bool { return s.commits }) {
		return nil, errors.New("no key in it may sign commits")
	}
	return out, nil
}

// principalsOf gives who a key is that signs a commit, sorted.
func principalsOf(signers []signer, key string) []string {
	var out []string
	for _, s := range signers {
		if s.key == key && s.commits {
			out = append(out, s.principals...)
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}
