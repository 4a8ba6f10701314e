package schema

import (
	"errors"
	"fmt"
	"regexp"
	"strings"

	"golang.org/x/crypto/ssh"

	"hawser.dev/hawser/internal/diag"
	"hawser.dev/hawser/schema/fabric/trust"
)

// Approvers gives who must approve the fabric, in the order of the file.
func (t *Trust) Approvers() trust.Approvers {
	out := trust.Approvers{Threshold: t.Threshold}
	for _, s := range t.Signers {
		if line, err := s.line(); err == nil { // validated
			out.Keys = append(out.Keys, line)
		}
	}
	return out
}

// SignerOf gives the name of the signer with a public key, as Approvers has it.
func (t *Trust) SignerOf(key string) (name string, ok bool) {
	for _, s := range t.Signers {
		if line, err := s.line(); err == nil && line == key {
			return s.Name, true
		}
	}
	return "", false
}

// line gives the key as authorized_keys has it, without comment.
func (s *Signer) line() (string, error) {
	if strings.Contains(s.Key, "PRIVATE KEY") {
		return "", errors.New("it is a private key")
	}
	key, _, options, rest, err := ssh.ParseAuthorizedKey([]byte(s.Key))
	switch {
	case err != nil:
		return "", errors.New("it is not KEYTYPE KEY")
	case len(options) > 0:
		return "", fmt.Errorf("it has the option %s", strings.Join(options, ","))
	case strings.TrimSpace(string(rest)) != "":
		return "", errors.New("it is more than one line")
	}
	if _, certificate := key.(*ssh.Certificate); certificate {
		return "", errors.New("it is a certificate")
	}
	return trust.Line(key), nil
}

// signers checks who approves.
func (c *checker) signers() {
	t := &c.set.Spec.Trust
	switch {
	case len(t.Signers) > 0 && t.Threshold == 0:
		c.fail(diag.Diagnostic{Code: "required", Path: "trust.threshold", Summary: "is missing: it says how many of trust.signers must approve",
			Hint: fmt.Sprintf("threshold: %d", (len(t.Signers)+2)/2)})
	case len(t.Signers) == 0 && t.Threshold != 0:
		c.fail(diag.Diagnostic{Code: "misplaced", Path: "trust.threshold", Summary: "is used with trust.signers only"})
	case len(t.Signers) > trust.MaxApprovers:
		c.fail(diag.Diagnostic{Code: "too-many", Path: "trust.signers", Summary: fmt.Sprintf("%d signers, there can be %d", len(t.Signers), trust.MaxApprovers)})
	case t.Threshold < 0 || t.Threshold > len(t.Signers):
		c.fail(diag.Diagnostic{Code: "out-of-range", Path: "trust.threshold",
			Summary: fmt.Sprintf("%d is not between 1 and %d, the number of trust.signers", t.Threshold, len(t.Signers))})
	}
	names, keys := uniqueness{}, uniqueness{}
	for i := range t.Signers {
		path := nth("trust.signers", i)
		c.label(path+".name", t.Signers[i].Name)
		c.unique(names, t.Signers[i].Name, path, "the name "+t.Signers[i].Name+" is taken by another signer")
		if t.Signers[i].Key == "" {
			continue // reported as missing
		}
		line, err := t.Signers[i].line()
		if err != nil {
			// Not quoted: somebody may have put the private key there.
			c.fail(diag.Diagnostic{Code: "bad-key", Path: path + ".key", Summary: "is not a public key of OpenSSH: " + err.Error(),
				Hint: "write what ~/.ssh/id_ed25519.pub holds: ssh-ed25519 AAAA..."})
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
		c.fail(diag.Diagnostic{Code: "too-many", Path: "trust.openPGPKeys", Summary: fmt.Sprintf("%d keys, there can be %d", len(keys), maxOpenPGPKeys)})
	}
	seen := uniqueness{}
	for i, key := range keys {
		path := nth("trust.openPGPKeys", i)
		if !fingerprint.MatchString(key) {
			c.fail(diag.Diagnostic{Code: "bad-key", Path: path, Summary: "is not the fingerprint of an OpenPGP key, which has 40 hex digits",
				Hint: "gpg --list-keys --with-colons KEYID has it in the line fpr"})
			continue
		}
		c.unique(seen, strings.ToUpper(key), path, "the key is in the list already")
	}
}
