package reconciler

import (
	"bytes"
	"fmt"

	"github.com/hiddeco/sshsig"
	"golang.org/x/crypto/ssh"

	"hawser.dev/hawser/render/keys"
	"hawser.dev/hawser/schema/fabric/trust"
)

// gitNamespace is the namespace of signatures of commits (git-commit(1), gpg.format=ssh).
const gitNamespace = "git"

// publicKeys contains the public keys of a clusterset's signers, in authorized_keys format.
type publicKeys struct {
	signers []string // of published commits
	locks   []string // of lock commits
}

// newPublicKeys derives the public keys of all root keys.
func newPublicKeys(root *keys.Root, clusterset string) (publicKeys, error) {
	var out publicKeys
	_, signers, err := root.Signers(clusterset, nil)
	if err != nil {
		return out, err
	}
	_, locks, err := root.LockSigners(clusterset, nil)
	if err != nil {
		return out, err
	}
	for i := range signers {
		out.signers = append(out.signers, trust.Line(signers[i].PublicKey()))
		out.locks = append(out.locks, trust.Line(locks[i].PublicKey()))
	}
	return out, nil
}

// commitSigners contains the keys that sign the commits of a reconciler.
type commitSigners struct{ published, lock ssh.Signer }

// newCommitSigners derives the signing keys of a clusterset for its newest epoch.
func newCommitSigners(root *keys.Root, clusterset string, epochs []int) (*commitSigners, error) {
	published, _, err := root.Signers(clusterset, epochs)
	if err != nil {
		return nil, err
	}
	locks, _, err := root.LockSigners(clusterset, epochs)
	if err != nil {
		return nil, err
	}
	if len(published) == 0 {
		return nil, fmt.Errorf("clusterset %s has no epoch of keys", clusterset)
	}
	// The newest key signs: a rotation drops the other keys.
	return &commitSigners{published: published[len(published)-1], lock: locks[len(locks)-1]}, nil
}

func (s *commitSigners) signPublished(raw []byte) (string, error) {
	return signCommit(s.published, raw)
}

func (s *commitSigners) signLock(raw []byte) (string, error) { return signCommit(s.lock, raw) }

// signCommit returns the armored signature of a commit's bytes.
func signCommit(signer ssh.Signer, raw []byte) (string, error) {
	signature, err := sshsig.Sign(bytes.NewReader(raw), signer, sshsig.HashSHA512, gitNamespace)
	if err != nil {
		return "", fmt.Errorf("sign commit: %w", err)
	}
	return string(sshsig.Armor(signature)), nil
}
