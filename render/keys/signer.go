package keys

import (
	"crypto/ed25519"
	"fmt"

	"golang.org/x/crypto/ssh"
)

// Signers gives the Ed25519 keys with which what agents read is signed: today's,
// one for each root key that serves an epoch in force, in their order; and those of
// all root keys. A root key signs for every clusterset with another key.
func (r *Root) Signers(clusterset string, epochs []int) (today, all []ssh.Signer, err error) {
	inForce := map[int]bool{}
	for _, epoch := range epochs {
		from, err := r.Serving(epoch)
		if err != nil {
			return nil, nil, err
		}
		inForce[from] = true
	}
	for _, from := range r.Epochs() {
		// No gateway's info has an empty cluster, so that it is nobody's tunnel key.
		seed, err := r.derive(from, clusterset+"///signer")
		if err != nil {
			return nil, nil, err
		}
		signer, err := ssh.NewSignerFromKey(ed25519.NewKeyFromSeed(seed[:]))
		if err != nil {
			return nil, nil, fmt.Errorf("derive the signing key of clusterset %s", clusterset)
		}
		all = append(all, signer)
		if inForce[from] {
			today = append(today, signer)
		}
	}
	return today, all, nil
}
