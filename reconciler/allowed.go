package reconciler

import (
	"bytes"
	"crypto"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/ProtonMail/go-crypto/openpgp"
	"github.com/ProtonMail/go-crypto/openpgp/armor"
	pgperrors "github.com/ProtonMail/go-crypto/openpgp/errors"
	"github.com/ProtonMail/go-crypto/openpgp/packet"
	"github.com/hiddeco/sshsig"
	"golang.org/x/crypto/ssh"

	"hawser.dev/hawser/reconciler/gitrepo"
	"hawser.dev/hawser/schema/fabric/trust"
)

// allowedSigner is a key of an allowed_signers file, with its principals.
type allowedSigner struct {
	key          string // in authorized_keys format, or openpgp: and the fingerprint
	principals   []string
	line         int
	signsCommits bool            // its namespaces allow signatures of commits
	openPGP      *openpgp.Entity // nil for an SSH key
}

// armorBegin and armorEnd are the prefixes of the first and last line of an armored block.
// pgpKeyType is the key type of OpenPGP keys.
const (
	armorBegin = "-----BEGIN PGP "
	armorEnd   = "-----END PGP "
	pgpKeyType = "openpgp" // replaces KEYTYPE KEY in the line before a block
)

// maxClockSkew is the maximum time by which a signer's clock can be ahead.
const maxClockSkew = 5 * time.Minute

// readSigners reads the allowed_signers file of a commit.
func readSigners(source *gitrepo.Store, commit gitrepo.Hash, file string) ([]allowedSigner, error) {
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

// parseSigners parses an allowed_signers file (ssh-keygen(1)). A key can be on several lines. The
// file can also contain armored OpenPGP key rings (RFC 9580, section 6.2). A line with the key type
// openpgp lists the principals of the next block. Without such a line the principal of a key is its
// fingerprint: the owner of a key can choose any user ID. parseSigners supports the option
// namespaces. Other options are an error, because they would have no effect. Errors contain the
// line number.
func parseSigners(raw []byte) ([]allowedSigner, error) {
	if !utf8.Valid(raw) {
		return nil, errors.New("it is not text: gpg --armor --export KEYID writes an OpenPGP key ring as text")
	}
	var out []allowedSigner
	var blockLine *allowedSigner // the openpgp line before the next block
	lines := strings.Split(string(raw), "\n")
	for i := 0; i < len(lines); i++ {
		line := strings.TrimSpace(lines[i])
		if strings.HasPrefix(line, armorBegin) {
			length := slices.IndexFunc(lines[i:], func(l string) bool { return strings.HasPrefix(l, armorEnd) }) + 1
			if length == 0 {
				return nil, fmt.Errorf("line %d: the OpenPGP block has no end", i+1)
			}
			keys, err := parseBlock(strings.Join(lines[i:i+length], "\n") + "\n")
			if err != nil {
				return nil, fmt.Errorf("line %d: %w", i+1, err)
			}
			for _, key := range keys {
				s := allowedSigner{principals: []string{fmt.Sprintf("%X", key.PrimaryKey.Fingerprint)},
					line: i + 1, signsCommits: true}
				if blockLine != nil {
					s = *blockLine
				}
				s.key, s.openPGP = openPGPKeyID(key), key
				sameKey := func(o allowedSigner) bool { return o.key == s.key }
				if earlier := slices.IndexFunc(out, sameKey); earlier >= 0 {
					return nil, fmt.Errorf("line %d: %s is in line %d already: keep the newer export only, "+
						"with all principals in one line before it", i+1, s.key, out[earlier].line)
				}
				out = append(out, s)
			}
			i, blockLine = i+length-1, nil
			continue
		}
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		if blockLine != nil {
			break
		}
		s, err := parseSigner(line)
		if err != nil {
			return nil, fmt.Errorf("line %d: %w", i+1, err)
		}
		s.line = i + 1
		if s.key == pgpKeyType {
			blockLine = &s
			continue
		}
		out = append(out, s)
	}
	if blockLine != nil {
		return nil, fmt.Errorf("line %d: no OpenPGP block follows: gpg --armor --export KEYID writes one", blockLine.line)
	}
	if !slices.ContainsFunc(out, func(s allowedSigner) bool { return s.signsCommits }) {
		return nil, errors.New("no key in it may sign commits")
	}
	return out, nil
}

// parseSigner parses a line. The key of the result is pgpKeyType if the next block contains the
// key.
func parseSigner(line string) (allowedSigner, error) {
	names, keyFields, _ := strings.Cut(line, " ")
	s := allowedSigner{key: pgpKeyType, principals: strings.Split(names, ","), signsCommits: true}
	var options []string
	if fields := strings.Fields(keyFields); len(fields) > 0 && fields[len(fields)-1] == pgpKeyType {
		options = fields[:len(fields)-1]
	} else {
		key, _, keyOptions, _, err := ssh.ParseAuthorizedKey([]byte(strings.TrimSpace(keyFields)))
		if err != nil {
			return s, fmt.Errorf("want PRINCIPALS [namespaces=\"git\"] KEYTYPE KEY: %w", err)
		}
		if err := trust.CheckKey(key); err != nil {
			return s, fmt.Errorf("the key cannot sign: %w", err)
		}
		s.key, options = trust.Line(key), keyOptions
	}
	for _, o := range options {
		name, value, _ := strings.Cut(o, "=")
		if !strings.EqualFold(name, "namespaces") {
			return s, fmt.Errorf("option %s is not used here: remove it, and the key when its time is over", name)
		}
		list := strings.Split(strings.Trim(value, `"`), ",")
		s.signsCommits = slices.Contains(list, gitNamespace)
	}
	return s, nil
}

// parseBlock returns the public keys of an armored block. An unusable key is an error: if it were
// ignored, the reconciler would refuse its commits without a reason.
func parseBlock(text string) (openpgp.EntityList, error) {
	block, err := armor.Decode(strings.NewReader(text))
	if err != nil {
		return nil, fmt.Errorf("read OpenPGP block: %w", err)
	}
	switch block.Type {
	case openpgp.PublicKeyType:
	case openpgp.PrivateKeyType:
		return nil, errors.New("this is a private key, and everyone who can read the file has it now: revoke it, " +
			"and put a public one here (gpg --armor --export KEYID)")
	default:
		return nil, fmt.Errorf("this is a %s and no key: gpg --armor --export KEYID writes one", block.Type)
	}
	raw, err := io.ReadAll(block.Body)
	if err != nil {
		return nil, fmt.Errorf("read OpenPGP block: %w", err)
	}
	const publicKeyTag = 6 // RFC 9580, section 5: a transferable public key begins with it
	count := 0
	for packets := packet.NewOpaqueReader(bytes.NewReader(raw)); ; {
		p, err := packets.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, fmt.Errorf("read OpenPGP block: %w", err)
		}
		if p.Tag == publicKeyTag {
			count++
		}
	}
	keys, err := openpgp.ReadKeyRing(bytes.NewReader(raw))
	if err != nil {
		return nil, fmt.Errorf("read OpenPGP key: %w", err)
	}
	if len(keys) != count {
		return nil, fmt.Errorf("%d of the %d OpenPGP keys in this block cannot be read: put each into a block of its own to see which",
			count-len(keys), count)
	}
	for _, key := range keys {
		publicKeys := []*packet.PublicKey{key.PrimaryKey}
		for _, sub := range key.Subkeys {
			publicKeys = append(publicKeys, sub.PublicKey)
		}
		for _, k := range publicKeys {
			switch bits, err := k.BitLength(); {
			case k.PubKeyAlgo == packet.PubKeyAlgoDSA:
				return nil, fmt.Errorf("%s is a DSA key, which OpenPGP gave up: use Ed25519 or RSA", openPGPKeyID(key))
			case k.PubKeyAlgo == packet.PubKeyAlgoRSA && (err != nil || bits < trust.MinRSABits):
				return nil, fmt.Errorf("%s has an RSA key of %d bits: at least %d are needed", openPGPKeyID(key), bits, trust.MinRSABits)
			}
		}
	}
	return keys, nil
}

// principalsOf returns the principals of a signing key, sorted.
func principalsOf(signers []allowedSigner, key string) []string {
	var out []string
	for _, s := range signers {
		if s.key == key && s.signsCommits {
			out = append(out, s.principals...)
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// verifySignature returns the key that signed a text in a namespace. An SSH key can be any key: the
// caller must check that the key is allowed. An OpenPGP key is one of signers, and is neither
// expired nor revoked at now. The date of a signature does not extend the validity of a key: the
// owner of the key can choose that date.
func verifySignature(signers []allowedSigner, namespace string, text []byte, armored string, now time.Time) (string, error) {
	if armored == "" {
		return "", errors.New("it has no signature")
	}
	if strings.HasPrefix(armored, armorBegin) {
		return verifyOpenPGPSignature(signers, openPGPText(namespace, string(text)), armored, now)
	}
	signature, err := sshsig.Unarmor([]byte(armored))
	switch {
	case err != nil && strings.HasPrefix(armored, "-----BEGIN SSH SIGNATURE-----"):
		return "", fmt.Errorf("its SSH signature does not count: %w", err) // RSA with SHA-1 as well
	case err != nil:
		return "", fmt.Errorf("read its signature, which is neither of SSH nor of OpenPGP (git config gpg.format): %w", err)
	}
	if err := trust.Verify(text, signature, namespace); err != nil {
		return "", fmt.Errorf("its signature does not hold: %w", err)
	}
	return trust.Line(signature.PublicKey), nil
}

// openPGPText returns the text that an OpenPGP key signs. git signs the commit without a namespace,
// because the text itself shows that it is a commit.
func openPGPText(namespace, text string) string {
	if namespace == gitNamespace {
		return text
	}
	return namespace + " " + text
}

func verifyOpenPGPSignature(
	signers []allowedSigner, text, armored string, now time.Time,
) (string, error) {
	block, err := armor.Decode(strings.NewReader(armored))
	if err == nil && block.Type != openpgp.SignatureType {
		err = fmt.Errorf("it is a %s", block.Type)
	}
	var raw []byte
	if err == nil {
		raw, err = io.ReadAll(block.Body)
	}
	if err != nil {
		return "", fmt.Errorf("read its OpenPGP signature: %w", err)
	}
	var ring openpgp.EntityList
	for _, s := range signers {
		if s.openPGP != nil {
			ring = append(ring, s.openPGP)
		}
	}
	// The library rejects a signature or key with a future date as expired. The signer's clock
	// can be ahead, and gpg can have signed after now, which is the start of the pass.
	latest := now.Add(maxClockSkew)
	signature, signedBy, err := openpgp.VerifyDetachedSignature(ring, strings.NewReader(text), bytes.NewReader(raw),
		&packet.Config{Time: func() time.Time { return latest }})
	switch {
	case signature != nil && signedBy != nil && signature.CreationTime.After(latest):
		return "", fmt.Errorf("its OpenPGP signature has the date %s, but the time here is %s: set the clocks of both machines",
			signature.CreationTime.UTC().Format(time.RFC3339), now.UTC().Format(time.RFC3339))
	case errors.Is(err, pgperrors.ErrUnknownIssuer):
		return "", fmt.Errorf("it is signed by OpenPGP key %s, which is not there", issuerKeyID(raw))
	case errors.Is(err, pgperrors.ErrKeyExpired), errors.Is(err, pgperrors.ErrSignatureExpired), errors.Is(err, pgperrors.ErrKeyRevoked):
		return "", fmt.Errorf("it is signed by OpenPGP key %s, which is no longer valid: %w", issuerKeyID(raw), err)
	case err != nil:
		return "", fmt.Errorf("its signature does not hold: %w", err)
	case signature.SigType != packet.SigTypeBinary:
		return "", errors.New("its OpenPGP signature is of text, which holds for other line ends, too: sign without --textmode")
	case !slices.Contains([]crypto.Hash{crypto.SHA256, crypto.SHA384, crypto.SHA512, crypto.SHA3_256, crypto.SHA3_512}, signature.Hash):
		return "", fmt.Errorf("its signature has the hash %s, which can be forged: sign with SHA-256 or better", signature.Hash)
	}
	return openPGPKeyID(signedBy), nil
}

// openPGPKeyID returns the text that identifies an OpenPGP key in allowedSigner.key.
func openPGPKeyID(key *openpgp.Entity) string {
	return fmt.Sprintf("%s:%X", pgpKeyType, key.PrimaryKey.Fingerprint)
}

// issuerKeyID returns the key ID in the first signature packet, for messages.
func issuerKeyID(raw []byte) string {
	p, err := packet.NewReader(bytes.NewReader(raw)).Next()
	if s, ok := p.(*packet.Signature); ok && err == nil && s.IssuerKeyId != nil {
		return fmt.Sprintf("%016X", *s.IssuerKeyId)
	}
	return "without an ID"
}
