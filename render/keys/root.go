// Package keys derives every secret of a clusterset from its root keys. It encrypts each cluster's
// keys to the cluster's age recipient. Each root key serves a range of key epochs. The package does
// no I/O. Only age encryption and new root keys are random.
package keys

import (
	"crypto/ecdh"
	"crypto/ed25519"
	"crypto/hkdf"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"strings"

	"hawser.dev/hawser/schema/fabric"
)

// RootSize is the size of a root key in bytes.
const RootSize = 32

// Root contains the root keys from which all other keys are derived. Each root key serves from its
// first epoch until the first epoch of the next root key. Root never prints its keys: every
// formatting verb, slog and JSON write "(sensitive)".
type Root struct {
	// list is a function to hide the keys from fmt. fmt does not call the Format method of
	// unexported fields of other structs. It prints the content of such a field, even behind a
	// pointer if the verb does not fit.
	list func() []rootKey // at least one, by ascending epoch
}

// rootKey is one root key.
type rootKey struct {
	from int // the first epoch that it serves, from 1
	key  [RootSize]byte
}

func newRoot(list []rootKey) *Root {
	return &Root{list: func() []rootKey { return list }}
}

// NewRoot returns a random root key for all epochs.
func NewRoot() (*Root, error) { return newRoot(nil).Add(1) }

// Add returns the root keys and a new, random root key that serves from an epoch on. The root keys
// of earlier epochs do not change.
func (r *Root) Add(from int) (*Root, error) {
	list := slices.Clone(r.list())
	switch {
	case from < 1:
		return nil, fmt.Errorf("epoch %d is less than 1", from)
	case len(list) > 0 && from <= list[len(list)-1].from:
		last := list[len(list)-1].from
		return nil, fmt.Errorf("the newest root key serves from epoch %d on already: the next one can begin at %d", last, last+1)
	}
	added := rootKey{from: from}
	if _, err := rand.Read(added.key[:]); err != nil {
		return nil, fmt.Errorf("make root key: %w", err)
	}
	return newRoot(append(list, added)), nil
}

// Drop returns the root keys that serve the given epoch or a later one.
func (r *Root) Drop(before int) (*Root, error) {
	list := r.list()
	i := rootKeyIndex(list, before)
	if i <= 0 {
		return nil, fmt.Errorf("no root key serves only epochs before %d: the oldest one serves %s", before, epochRange(list, 0))
	}
	return newRoot(slices.Clone(list[i:])), nil
}

// Epochs returns the first epoch of each root key, ascending.
func (r *Root) Epochs() []int {
	var out []int
	for _, k := range r.list() {
		out = append(out, k.from)
	}
	return out
}

// EpochRoot returns the first epoch of the root key that serves an epoch. It returns an error if
// that root key was dropped.
func (r *Root) EpochRoot(epoch int) (from int, err error) {
	k, err := r.rootKey(epoch)
	if err != nil {
		return 0, err
	}
	return k.from, nil
}

// rootKey returns the root key that serves an epoch.
func (r *Root) rootKey(epoch int) (*rootKey, error) {
	list := r.list()
	if i := rootKeyIndex(list, epoch); i >= 0 {
		return &list[i], nil
	}
	return nil, fmt.Errorf("no root key serves epoch %d: the oldest one serves %s", epoch, epochRange(list, 0))
}

// rootKeyIndex returns the index of the root key that serves an epoch; -1 if absent.
func rootKeyIndex(list []rootKey, epoch int) int {
	for i, k := range slices.Backward(list) {
		if k.from <= epoch {
			return i
		}
	}
	return -1
}

// epochRange returns the epochs of a root key as text.
func epochRange(list []rootKey, i int) string {
	from := list[i].from
	switch {
	case i+1 == len(list):
		return fmt.Sprintf("from epoch %d on", from)
	case list[i+1].from == from+1:
		return fmt.Sprintf("epoch %d", from)
	}
	return fmt.Sprintf("epochs %d to %d", from, list[i+1].from-1)
}

// String returns "(sensitive)".
func (*Root) String() string { return "(sensitive)" }

// Format writes "(sensitive)" for every verb.
func (Root) Format(s fmt.State, _ rune) { _, _ = s.Write([]byte("(sensitive)")) }

// LogValue returns "(sensitive)", for log/slog.
func (Root) LogValue() slog.Value { return slog.StringValue("(sensitive)") }

// MarshalJSON returns "(sensitive)" in JSON.
func (Root) MarshalJSON() ([]byte, error) { return json.Marshal("(sensitive)") }

// derive returns 32 bytes for a purpose, derived from the root key that serves an epoch
// (HKDF-SHA256, RFC 5869, no salt).
func (r *Root) derive(epoch int, info string) (fabric.Secret, error) {
	k, err := r.rootKey(epoch)
	if err != nil {
		return fabric.Secret{}, err
	}
	raw, err := hkdf.Key(sha256.New, k.key[:], nil, info, len(fabric.Secret{}))
	if err != nil {
		return fabric.Secret{}, fmt.Errorf("derive a key: %w", err)
	}
	return fabric.Secret(raw), nil
}

// tunnelKey returns a gateway's tunnel key. It clamps the derived bytes as in RFC 7748, section 5,
// so that wg(8) prints the same bytes.
func (r *Root) tunnelKey(clusterset, cluster, gateway string, epoch int) (fabric.Secret, error) {
	s, err := r.derive(epoch, strings.Join([]string{clusterset, cluster, gateway, strconv.Itoa(epoch)}, "/"))
	if err != nil {
		return s, err
	}
	s[0] &= 248
	s[31] = s[31]&127 | 64
	return s, nil
}

// ikeSeed returns the seed of a gateway's authentication key in IKE. Its HKDF info has an empty
// cluster, and so differs from the info of every tunnel key.
func (r *Root) ikeSeed(clusterset, cluster, gateway string, epoch int) (fabric.Secret, error) {
	return r.derive(epoch, strings.Join([]string{clusterset, "", "", "ed25519", cluster, gateway, strconv.Itoa(epoch)}, "/"))
}

// Public returns the public halves of a gateway's keys of an epoch, in base64.
func (r *Root) Public(clusterset, cluster, gateway string, epoch int) (fabric.Key, error) {
	out := fabric.Key{Epoch: epoch}
	s, err := r.tunnelKey(clusterset, cluster, gateway, epoch)
	if err != nil {
		return out, err
	}
	key, err := ecdh.X25519().NewPrivateKey(s[:])
	if err != nil {
		return out, fmt.Errorf("derive the key of gateway %s/%s: not an X25519 key", cluster, gateway)
	}
	out.Public = base64.StdEncoding.EncodeToString(key.PublicKey().Bytes())
	seed, err := r.ikeSeed(clusterset, cluster, gateway, epoch)
	if err != nil {
		return out, err
	}
	sign := ed25519.NewKeyFromSeed(seed[:])
	out.Ed25519 = base64.StdEncoding.EncodeToString(sign[ed25519.SeedSize:]) // RFC 8032: the public half follows the seed
	return out, nil
}
