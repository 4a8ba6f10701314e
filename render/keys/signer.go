package keys

import (
	"crypto/ed25519"
	"fmt"

	"golang.org/x/crypto/ssh"
)

// Signers returns the Ed25519 keys that sign the agents' files and published commits. all contains
// one key for each root key. current contains the keys of the root keys that serve the epochs, in
// the same order. A root key has a different signing key for each clusterset.
func (r *Root) Signers(clusterset string, epochs []int) (current, all []ssh.Signer, err error) {
	return r.signers(clusterset, "signer", epochs)
}

// LockSigners returns the keys that sign lock commits on the topology branch, in the order of
// Signers. They differ from the keys of Signers, because such a signature covers the whole topology
// branch, with files that Hawser never reads. Programs that accept published commits must reject
// it.
func (r *Root) LockSigners(clusterset string, epochs []int) (current, all []ssh.Signer, err error) {
	return r.signers(clusterset, "lock", epochs)
}

// signers derives one key for each root key. current contains the keys for the epochs.
func (r *Root) signers(clusterset, purpose string, epochs []int) (current, all []ssh.Signer, err error) {
	currentRoots := map[int]bool{}
	for _, epoch := range epochs {
		from, err := r.EpochRoot(epoch)
		if err != nil {
			return nil, nil, err
		}
		currentRoots[from] = true
	}
	for _, from := range r.Epochs() {
		// The info of a tunnel key never has an empty cluster, so this seed is not a tunnel
		// key.
		seed, err := r.derive(from, clusterset+"///"+purpose)
		if err != nil {
			return nil, nil, err
		}
		signer, err := ssh.NewSignerFromKey(ed25519.NewKeyFromSeed(seed[:]))
		if err != nil {
			return nil, nil, fmt.Errorf("derive the signing key of clusterset %s", clusterset)
		}
		all = append(all, signer)
		if currentRoots[from] {
			current = append(current, signer)
		}
	}
	return current, all, nil
}
