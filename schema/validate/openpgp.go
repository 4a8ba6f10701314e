package validate

import (
	"fmt"
	"regexp"
	"strings"

	"hawser.dev/hawser/schema/fieldpath"
)

// maxOpenPGPKeys bounds trust.openPGPKeys.
const maxOpenPGPKeys = 16

// fingerprint matches the fingerprint of an OpenPGP key of version 4 (RFC 9580, section 5.5.4.2),
// the version that gpg creates and Argo CD supports.
var fingerprint = regexp.MustCompile(`^[0-9A-Fa-f]{40}$`)

// openPGPKeys checks the keys that sign the publish branch.
func (c *checker) openPGPKeys() {
	keys := c.set.Spec.Trust.OpenPGPKeys
	if len(keys) > maxOpenPGPKeys {
		c.Fail("too-many", "trust.openPGPKeys", fmt.Sprintf("%d keys, there can be %d", len(keys), maxOpenPGPKeys), "")
	}
	seen := uniqueness{}
	for i, key := range keys {
		path := fieldpath.Index("trust.openPGPKeys", i)
		if !fingerprint.MatchString(key) {
			c.Fail("bad-key", path, "is not the fingerprint of an OpenPGP key, which has 40 hex digits",
				"gpg --list-keys --with-colons KEYID has it in the line fpr")
			continue
		}
		c.unique(seen, strings.ToUpper(key), path, "the key is in the list already")
	}
}
