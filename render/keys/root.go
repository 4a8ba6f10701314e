// Package keys derives every secret of a clusterset from one root key, and
// seals each cluster's part to that cluster's age recipient. It is pure apart
// from the randomness of age encryption.
package keys

import (
	"bytes"
	"crypto/ecdh"
	"crypto/ed25519"
	"crypto/hkdf"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strconv"
	"strings"

	"filippo.io/age"
	"filippo.io/age/armor"

	"hawser.dev/hawser/schema/fabric"
)

// RootSize is the size of a root key in bytes.
const RootSize = 32

// ErrNotRoot is returned for content that is no root key. It never quotes the content.
var ErrNotRoot = errors.New("not a root key: want 32 bytes, the same in base64, or an age file of either")

// Root is the key that all other keys are derived from. It never prints: every
// formatting verb, slog and JSON give "(sensitive)".
type Root struct {
	// A function, as fmt asks unexported fields of other structs nothing: it
	// prints what they hold, even behind a pointer when the verb does not fit.
	key func() []byte
}

func newRoot(key [RootSize]byte) *Root {
	return &Root{key: func() []byte { return key[:] }}
}

// NewRoot makes a root key from the system's randomness.
func NewRoot() (*Root, error) {
	var key [RootSize]byte
	if _, err := rand.Read(key[:]); err != nil {
		return nil, fmt.Errorf("make root key: %w", err)
	}
	return newRoot(key), nil
}

// ReadRoot reads the content of a root key file: 32 bytes, their base64 on one
// line, or an age file (armored or not) of either, which one of the identities
// opens.
func ReadRoot(raw []byte, identities ...age.Identity) (*Root, error) {
	if sealed(raw) {
		plain, err := open(raw, identities)
		if err != nil {
			return nil, err
		}
		raw = plain
	}
	if len(raw) == RootSize {
		return newRoot([RootSize]byte(raw)), nil
	}
	key, err := base64.StdEncoding.DecodeString(strings.TrimSpace(string(raw)))
	if err != nil || len(key) != RootSize {
		return nil, ErrNotRoot
	}
	return newRoot([RootSize]byte(key)), nil
}

// ageHeader begins every age file (age-encryption.org/v1).
const ageHeader = "age-encryption.org/"

func sealed(raw []byte) bool {
	return bytes.HasPrefix(raw, []byte(ageHeader)) || bytes.HasPrefix(raw, []byte(armor.Header))
}

func open(raw []byte, identities []age.Identity) ([]byte, error) {
	if len(identities) == 0 {
		return nil, errors.New("the root key is encrypted with age, and no identity was given to open it")
	}
	var in io.Reader = bytes.NewReader(raw)
	if bytes.HasPrefix(raw, []byte(armor.Header)) {
		in = armor.NewReader(in)
	}
	out, err := age.Decrypt(in, identities...)
	if err != nil {
		var mismatch *age.NoIdentityMatchError
		if errors.As(err, &mismatch) {
			return nil, errors.New("open root key: none of the identities opens it")
		}
		return nil, fmt.Errorf("open root key: %w", err)
	}
	plain, err := io.ReadAll(io.LimitReader(out, 1024))
	if err != nil {
		return nil, fmt.Errorf("open root key: %w", err)
	}
	return plain, nil
}

// Encode gives the content of a root key file: base64 with a newline.
func (r *Root) Encode() []byte {
	return []byte(base64.StdEncoding.EncodeToString(r.key()) + "\n")
}

// String hides the key.
func (*Root) String() string { return "(sensitive)" }

// Format hides the key from every verb.
func (Root) Format(s fmt.State, _ rune) { _, _ = s.Write([]byte("(sensitive)")) }

// LogValue hides the key from log/slog.
func (Root) LogValue() slog.Value { return slog.StringValue("(sensitive)") }

// MarshalJSON hides the key.
func (Root) MarshalJSON() ([]byte, error) { return json.Marshal("(sensitive)") }

// derive gives 32 bytes for a purpose (HKDF-SHA256, RFC 5869, no salt).
func (r *Root) derive(info string) (fabric.Secret, error) {
	raw, err := hkdf.Key(sha256.New, r.key(), nil, info, len(fabric.Secret{}))
	if err != nil {
		return fabric.Secret{}, fmt.Errorf("derive a key: %w", err)
	}
	return fabric.Secret(raw), nil
}

// private gives a gateway's tunnel key: the derived bytes clamped as RFC 7748
// section 5 says, so that they equal what wg(8) prints.
func (r *Root) private(clusterset, cluster, gateway string, epoch int) (fabric.Secret, error) {
	s, err := r.derive(strings.Join([]string{clusterset, cluster, gateway, strconv.Itoa(epoch)}, "/"))
	if err != nil {
		return s, err
	}
	s[0] &= 248
	s[31] = s[31]&127 | 64
	return s, nil
}

// ed25519 gives the seed of the key with which a gateway proves itself in IKE.
// No gateway's tunnel key has an empty cluster in its info.
func (r *Root) ed25519(clusterset, cluster, gateway string, epoch int) (fabric.Secret, error) {
	return r.derive(strings.Join([]string{clusterset, "", "", "ed25519", cluster, gateway, strconv.Itoa(epoch)}, "/"))
}

// Public gives the public halves of a gateway's keys of an epoch, in base64.
func (r *Root) Public(clusterset, cluster, gateway string, epoch int) (fabric.Key, error) {
	out := fabric.Key{Epoch: epoch}
	s, err := r.private(clusterset, cluster, gateway, epoch)
	if err != nil {
		return out, err
	}
	key, err := ecdh.X25519().NewPrivateKey(s[:])
	if err != nil {
		return out, fmt.Errorf("derive the key of gateway %s/%s: not an X25519 key", cluster, gateway)
	}
	out.Public = base64.StdEncoding.EncodeToString(key.PublicKey().Bytes())
	seed, err := r.ed25519(clusterset, cluster, gateway, epoch)
	if err != nil {
		return out, err
	}
	sign := ed25519.NewKeyFromSeed(seed[:])
	out.Ed25519 = base64.StdEncoding.EncodeToString(sign[ed25519.SeedSize:]) // RFC 8032: the public half stands behind the seed
	return out, nil
}
