package baseline

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"

	"gopkg.in/yaml.v3"

	"hawser.dev/hawser/internal/checkout"
	"hawser.dev/hawser/internal/cli/topofile"
	"hawser.dev/hawser/internal/yamlsize"
	"hawser.dev/hawser/reconciler"
	"hawser.dev/hawser/reconciler/gitrepo"
	"hawser.dev/hawser/render/plan"
	"hawser.dev/hawser/schema/fabric/trust"
)

// SignersFile is the name of the committed file of signers next to the topology, in the format of
// hawser keys signers.
const SignersFile = "published.signers"

// SignersHelp is the help of the flag --signers.
const SignersHelp = "file with the signers of published commits, as hawser keys signers prints it (default: " + SignersFile + " next to the topology)"

// NotVerifiedNote is the warning of commands that have no signers.
const NotVerifiedNote = "warning: baseline is not verified: anyone with push access to the branch can change it " +
	"(--signers FILE, or " + SignersFile + " next to the topology, with the output of hawser keys signers)"

// Verifier decides which published commits count.
type Verifier struct {
	clusterset string
	signers    []string // in authorized_keys format
	from       string   // file or Secret with the signers
}

// NewVerifier reads a file of pins. All pins must name the same clusterset.
func NewVerifier(from string, raw []byte) (Verifier, error) {
	pins, err := trust.ParsePins(raw)
	if err != nil {
		return Verifier{}, fmt.Errorf("signers %s: %w", from, err)
	}
	v := Verifier{clusterset: pins[0].Clusterset, from: from}
	for _, p := range pins {
		if p.Clusterset != v.clusterset {
			return Verifier{}, fmt.Errorf("signers %s: they are of two clustersets, %s and %s", from, v.clusterset, p.Clusterset)
		}
		if !slices.Contains(v.signers, p.Key) {
			v.signers = append(v.signers, p.Key)
		}
	}
	return v, nil
}

// Verifiers returns the verifier of the first source that exists: the file of the flag, the root
// key, or published.signers next to the topology. It is empty if none exists. topology is a file,
// or empty.
func Verifiers(flag, topology string, f topofile.BuildFlags) ([]Verifier, error) {
	if flag != "" {
		raw, err := checkout.ReadNamed(flag)
		if err != nil {
			return nil, fmt.Errorf("read --signers: %w", err)
		}
		v, err := NewVerifier(flag, raw)
		return []Verifier{v}, err
	}
	if topology == "" || topology == "-" {
		return nil, nil
	}
	root, err := f.RootKey()
	if err != nil {
		return nil, err
	}
	if root != nil {
		raw, err := checkout.ReadNamed(topology)
		if err != nil {
			return nil, err
		}
		var named struct {
			Metadata struct {
				Name string `yaml:"name"`
			} `yaml:"metadata"`
		}
		if _, large := yamlsize.Excess(topology, raw); large || yaml.Unmarshal(raw, &named) != nil || named.Metadata.Name == "" {
			return nil, nil // the command reports the errors of the topology
		}
		_, all, err := root.Signers(named.Metadata.Name, nil)
		if err != nil {
			return nil, err
		}
		v := Verifier{clusterset: named.Metadata.Name, from: f.Root}
		for _, s := range all {
			v.signers = append(v.signers, trust.Line(s.PublicKey()))
		}
		return []Verifier{v}, nil
	}
	file := filepath.Join(filepath.Dir(topology), SignersFile)
	raw, err := checkout.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	v, err := NewVerifier(file, raw)
	return []Verifier{v}, err
}

// RefusalReason returns why a commit does not count; empty if it counts.
func (v Verifier) RefusalReason(store *gitrepo.Store, commit gitrepo.Hash) (string, error) {
	_, err := reconciler.VerifyPublished(store, v.clusterset, v.signers, commit)
	if errors.Is(err, reconciler.ErrNotPublished) {
		_, text, _ := strings.Cut(err.Error(), ": commit ")
		_, text, _ = strings.Cut(text, ": ")
		return text, nil
	}
	return "", err
}

// maxReasons bounds the number of skipped commits with a separate reason.
const maxReasons = 20

// NewestVerified returns the newest commit that all verifiers accept, from a commit along first
// parents. It also returns the skipped commits, newest first. The error is
// reconciler.ErrNotPublished if no commit counts.
func NewestVerified(store *gitrepo.Store, verifiers []Verifier, from gitrepo.Hash) (reconciler.PublishedCommit, []plan.Skipped, error) {
	at, skipped := reconciler.PublishedCommit{Commit: from}, []plan.Skipped{}
	for i, agreed := 0, 0; agreed < len(verifiers); i++ {
		v := verifiers[i%len(verifiers)]
		found, passed, err := reconciler.NewestPublished(store, v.clusterset, v.signers, at.Commit, gitrepo.Hash{})
		for _, commit := range passed {
			s := plan.Skipped{Commit: commit.String(), Reason: "see the commits above"}
			if len(skipped) < maxReasons {
				var failed error
				if s.Reason, failed = v.RefusalReason(store, commit); failed != nil {
					return found, skipped, failed
				}
			}
			skipped = append(skipped, s)
		}
		if err != nil {
			return found, skipped, err
		}
		if agreed++; found.Commit != at.Commit {
			agreed = 1
		}
		at = found
	}
	return at, skipped, nil
}

// SkippedLines returns the warnings about skipped commits.
func SkippedLines(name string, skipped []plan.Skipped) []string {
	var out []string
	for i, s := range skipped {
		if i == maxReasons {
			return append(out, fmt.Sprintf("WARNING: %d more commits of %s are skipped", len(skipped)-i, name))
		}
		out = append(out, fmt.Sprintf("WARNING: commit %.12s of %s is skipped: %s", s.Commit, name, s.Reason))
	}
	return out
}
