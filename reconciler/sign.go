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

// publicKeys are the keys of valid signatures of a clusterset, in the format of authorized_keys.
type publicKeys struct {
	signers []string // of published commits
	locks   []string // of commits of the lock
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

// signatures are the keys that sign the commits of a reconciler.
type signatures struct{ published, lock ssh.Signer }

// newSignatures derives the keys that sign for a clusterset with current epochs.
func newSignatures(root *keys.Root, clusterset string, epochs []int) (*signatures, error) {
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
	// Use the newest key: a rotation drops the others.
	return &signatures{published: published[len(published)-1], lock: locks[len(locks)-1]}, nil
}

func (s *signatures) signPublished(raw []byte) (string, error) { return signCommit(s.published, raw) }

func (s *signatures) signLock(raw []byte) (string, error) { return signCommit(s.lock, raw) }

// signCommit returns the signature of a commit's bytes, armored.
func signCommit(with ssh.Signer, raw []byte) (string, error) {
	signature, err := sshsig.Sign(bytes.NewReader(raw), with, sshsig.HashSHA512, gitNamespace)
	if err != nil {
		return "", fmt.Errorf("sign commit: %w", err)
	}
	return string(sshsig.Armor(signature)), nil
}
