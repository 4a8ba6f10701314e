package validate

import (
	"fmt"
	"regexp"
	"strings"

	"hawser.dev/hawser/schema/fabric/trust"
	"hawser.dev/hawser/schema/paths"
)

// signers checks who approves.
func (c *checker) signers() {
	t := &c.set.Spec.Trust
	switch {
	case len(t.Signers) > 0 && t.Threshold == 0:
		c.Fail("required", "trust.threshold", "is missing: it says how many of trust.signers must approve",
			fmt.Sprintf("threshold: %d", (len(t.Signers)+2)/2))
	case len(t.Signers) == 0 && t.Threshold != 0:
		c.Fail("misplaced", "trust.threshold", "is used with trust.signers only", "")
	case len(t.Signers) > trust.MaxApprovers:
		c.Fail("too-many", "trust.signers",
			fmt.Sprintf("%d signers, there can be %d", len(t.Signers), trust.MaxApprovers), "")
	case t.Threshold < 0 || t.Threshold > len(t.Signers):
		c.Fail("out-of-range", "trust.threshold",
			fmt.Sprintf("%d is not between 1 and %d, the number of trust.signers", t.Threshold, len(t.Signers)), "")
	}
	names, keys := uniqueness{}, uniqueness{}
	for i := range t.Signers {
		path := paths.Nth("trust.signers", i)
		c.label(path+".name", t.Signers[i].Name)
		c.unique(names, t.Signers[i].Name, path, "the name "+t.Signers[i].Name+" is taken by another signer")
		if t.Signers[i].Key == "" {
			continue // reported as missing
		}
		line, err := t.Signers[i].Line()
		if err != nil {
			// Not quoted: somebody may have put the private key there.
			c.Fail("bad-key", path+".key", "is not a public key of OpenSSH: "+err.Error(),
				"write what ~/.ssh/id_ed25519.pub holds: ssh-ed25519 AAAA...")
			continue
		}
		c.unique(keys, line, path+".key", "the key is that of another signer")
	}
}

// maxOpenPGPKeys bounds trust.openPGPKeys.
const maxOpenPGPKeys = 16

// fingerprint is that of an OpenPGP key of version 4 (RFC 9580, section 5.5.4.2), the one that gpg
// makes and Argo CD knows.
var fingerprint = regexp.MustCompile(`^[0-9A-Fa-f]{40}$`)

// openPGPKeys checks who signs what is published.
func (c *checker) openPGPKeys() {
	keys := c.set.Spec.Trust.OpenPGPKeys
	if len(keys) > maxOpenPGPKeys {
		c.Fail("too-many", "trust.openPGPKeys", fmt.Sprintf("%d keys, there can be %d", len(keys), maxOpenPGPKeys), "")
	}
	seen := uniqueness{}
	for i, key := range keys {
		path := paths.Nth("trust.openPGPKeys", i)
		if !fingerprint.MatchString(key) {
			c.Fail("bad-key", path, "is not the fingerprint of an OpenPGP key, which has 40 hex digits",
				"gpg --list-keys --with-colons KEYID has it in the line fpr")
			continue
		}
		c.unique(seen, strings.ToUpper(key), path, "the key is in the list already")
	}
}
