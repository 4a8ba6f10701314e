package reconciler

import (
	"bytes"
	"encoding/base64"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/ProtonMail/go-crypto/openpgp"
	"github.com/ProtonMail/go-crypto/openpgp/packet"
	"github.com/hiddeco/sshsig"

	"hawser.dev/hawser/reconciler/gitrepo"
)

// TrailerSignature is the trailer of a published commit that has an OpenPGP signature. Its value is
// an SSH signature in base64, which covers the commit without this line. Only the SSH signature
// proves that this reconciler published the commit. OpenPGP signatures are for other programs, and
// their keys can change at any time.
const TrailerSignature = "Hawser-Signature"

// openPGP signs published commits for programs that do not support SSH signatures.
type openPGP struct {
	key         *openpgp.Entity
	fingerprint string // of the key or subkey that signs, as gpg prints it for a verified commit
	now         func() time.Time
}

// readOpenPGP reads the OpenPGP private key for published commits. It returns nil if file is empty.
// Errors contain the file and the next step.
func readOpenPGP(file string, now func() time.Time) (*openPGP, error) {
	if file == "" {
		return nil, nil
	}
	raw, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("read OpenPGP key: %w", err)
	}
	fail := func(what string, args ...any) (*openPGP, error) {
		return nil, fmt.Errorf("read OpenPGP key %s: %w", file, fmt.Errorf(what, args...))
	}
	list, err := openpgp.ReadArmoredKeyRing(bytes.NewReader(raw))
	if err != nil {
		return fail("%w: gpg --armor --export-secret-keys KEYID writes such a file", err)
	}
	if len(list) != 1 {
		return fail("it holds %d keys: export one", len(list))
	}
	signingKey, ok := list[0].SigningKey(now())
	switch {
	case !ok:
		return fail("no key in it may sign today: it has expired, was revoked, or is for something else")
	case signingKey.PrivateKey == nil || signingKey.PrivateKey.Dummy():
		return fail("the private half of the key that signs is missing: gpg --armor --export-secret-keys KEYID")
	case signingKey.PrivateKey.Encrypted:
		return fail("a passphrase protects it: make a key without one for the reconciler alone, as it signs unattended")
	}
	return &openPGP{key: list[0], fingerprint: fmt.Sprintf("%X", signingKey.PublicKey.Fingerprint), now: now}, nil
}

// checkListed returns an error if Argo CD would reject commits that p signs. That is the case if
// the topology has keys, and p is not one of them. file is the path of p.
func (p *openPGP) checkListed(keys []string, file string) error {
	switch {
	case len(keys) == 0:
		return nil
	case p == nil:
		return errors.New("trust.openPGPKeys names keys, but the reconciler has none: Argo CD would reject all published commits; start the reconciler with --sign-openpgp FILE")
	}
	if !slices.ContainsFunc(keys, func(key string) bool { return strings.EqualFold(key, p.fingerprint) }) {
		return fmt.Errorf("the key of %s signs with fingerprint %s, which is not in trust.openPGPKeys: Argo CD would reject all commits that it signs; add it in a commit that is published with the old key, then change the file", file, p.fingerprint)
	}
	return nil
}

func (p *openPGP) sign(raw []byte) (string, error) {
	var out bytes.Buffer
	if err := openpgp.ArmoredDetachSign(&out, p.key, bytes.NewReader(raw), &packet.Config{Time: p.now}); err != nil {
		return "", fmt.Errorf("sign commit with OpenPGP: %w", err)
	}
	return out.String() + "\n", nil
}

// signed reports whether a commit has a valid signature by the key.
func (p *openPGP) signed(s *gitrepo.Store, commit gitrepo.Hash) (bool, error) {
	raw, signature, _, err := s.Signature(commit)
	if err != nil {
		return false, err
	}
	ring, config := openpgp.EntityList{p.key}, &packet.Config{Time: p.now}
	_, err = openpgp.CheckArmoredDetachedSignature(ring, bytes.NewReader(raw), strings.NewReader(signature), config)
	return err == nil, nil
}

// signTrailer returns the trailer with the SSH signature of a commit that has an OpenPGP signature
// in its header.
func (s *commitSigners) signTrailer(raw []byte) (string, error) {
	signature, err := sshsig.Sign(bytes.NewReader(raw), s.published, sshsig.HashSHA512, gitNamespace)
	if err != nil {
		return "", fmt.Errorf("sign commit: %w", err)
	}
	return TrailerSignature + ": " + base64.StdEncoding.EncodeToString(signature.Marshal()), nil
}

// splitTrailer removes the last line, which is the trailer of signTrailer, from a commit's bytes.
// It returns the remaining bytes and the armored signature of the trailer.
func splitTrailer(raw []byte) (rest []byte, armored string, err error) {
	name := []byte("\n" + TrailerSignature + ": ")
	start := bytes.LastIndex(raw, name)
	if start < 0 {
		return nil, "", errors.New("it has no trailer " + TrailerSignature)
	}
	line, complete := bytes.CutSuffix(raw[start+len(name):], []byte("\n"))
	if !complete || bytes.ContainsRune(line, '\n') {
		return nil, "", errors.New("the trailer " + TrailerSignature + " is not its last line")
	}
	blob, err := base64.StdEncoding.Strict().DecodeString(string(line))
	if err != nil {
		return nil, "", fmt.Errorf("read trailer %s: %w", TrailerSignature, err)
	}
	signature, err := sshsig.ParseSignature(blob)
	if err != nil {
		return nil, "", fmt.Errorf("read trailer %s: %w", TrailerSignature, err)
	}
	return bytes.Clone(raw[:start+1]), string(sshsig.Armor(signature)), nil
}
