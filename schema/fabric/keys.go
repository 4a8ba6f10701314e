package fabric

import (
	"bytes"
	"crypto/hkdf"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"log/slog"
	"reflect"
)

// KeysAPIVersion is the only version of the keys document that this package reads.
const KeysAPIVersion = "keys.hawser.dev/v1alpha1"

// Secret is a 32-byte key that is never printed: every formatting verb and slog
// write "(sensitive)". Only its JSON form has the bytes (base64); it is always
// encrypted before it leaves the process.
type Secret [32]byte

// String hides the key.
func (Secret) String() string { return "(sensitive)" }

// GoString hides the key from %#v.
func (Secret) GoString() string { return "(sensitive)" }

// Format hides the key from every verb, %x and %d included.
func (Secret) Format(s fmt.State, _ rune) { _, _ = s.Write([]byte("(sensitive)")) }

// LogValue hides the key from log/slog.
func (Secret) LogValue() slog.Value { return slog.StringValue("(sensitive)") }

// MarshalJSON writes the key as base64.
func (s Secret) MarshalJSON() ([]byte, error) {
	return json.Marshal(base64.StdEncoding.EncodeToString(s[:]))
}

// UnmarshalJSON reads a base64 key of 32 bytes. Its errors never quote the input.
func (s *Secret) UnmarshalJSON(raw []byte) error {
	var text string
	if json.Unmarshal(raw, &text) != nil {
		return fmt.Errorf("a key is not a string")
	}
	key, err := base64.StdEncoding.DecodeString(text)
	if err != nil || len(key) != len(s) {
		return fmt.Errorf("a key is not 32 bytes of base64")
	}
	copy(s[:], key)
	return nil
}

// Keys holds one cluster's private keys: the document inside the age file of its
// Secret. It grows with the cluster's own gateways only.
type Keys struct {
	APIVersion string      `json:"apiVersion"`
	Clusterset string      `json:"clusterset"`
	Cluster    string      `json:"cluster"`
	Epochs     []EpochKeys `json:"epochs"`
}

// Format hides the keys from every verb. Secret alone does not suffice: for a pointer
// with an unsuitable verb, fmt prints the value without calling the Format methods of
// its fields.
func (k Keys) Format(s fmt.State, _ rune) {
	_, _ = s.Write([]byte("keys of " + k.Cluster + " (sensitive)"))
}

// EpochKeys holds the keys of one epoch.
type EpochKeys struct {
	Epoch int `json:"epoch"`
	// PSKSeed is common to the clusterset; the pre-shared key of each pair of
	// gateways is derived from it (see PSK).
	PSKSeed Secret `json:"pskSeed"`
	// Gateways maps the names of this cluster's gateways to their X25519 private
	// keys. Gateways with a user-supplied public key are absent.
	Gateways map[string]Secret `json:"gateways"`
	// Ed25519 maps them to the seeds of their Ed25519 keys (RFC 8032), in the same way.
	Ed25519 map[string]Secret `json:"ed25519,omitempty"`
}

// Format hides the keys from every verb; see Keys.Format.
func (e EpochKeys) Format(s fmt.State, _ rune) {
	_, _ = fmt.Fprintf(s, "keys of epoch %d (sensitive)", e.Epoch)
}

// DecodeKeys reads a keys document. Its errors never quote the input. It fails with
// ErrTooLarge beyond the bounds, before it allocates memory.
func DecodeKeys(raw []byte) (*Keys, error) {
	if len(raw) > MaxKeys {
		return nil, fmt.Errorf("decode keys: %w: more than %d MiB of JSON", ErrTooLarge, MaxKeys>>20)
	}
	if _, err := countMemory(raw, reflect.TypeFor[Keys](), maxKeysDecoded); err != nil {
		return nil, fmt.Errorf("decode keys: %w", err)
	}
	var k Keys
	dec := json.NewDecoder(bytes.NewReader(raw))
	if err := dec.Decode(&k); err != nil {
		return nil, fmt.Errorf("decode keys: not a keys document")
	}
	if k.APIVersion != KeysAPIVersion {
		return nil, fmt.Errorf("decode keys: apiVersion %q is not %q", k.APIVersion, KeysAPIVersion)
	}
	return &k, nil
}

// Epoch returns the keys of an epoch; nil if absent.
func (k *Keys) Epoch(epoch int) *EpochKeys {
	for i := range k.Epochs {
		if k.Epochs[i].Epoch == epoch {
			return &k.Epochs[i]
		}
	}
	return nil
}

// PSK derives the pre-shared key of two gateways, each named cluster/gateway
// (HKDF-SHA256, RFC 5869). The order of the arguments does not matter.
func (e *EpochKeys) PSK(a, b string) (Secret, error) {
	if a > b {
		a, b = b, a
	}
	raw, err := hkdf.Key(sha256.New, e.PSKSeed[:], nil, "hawser psk/"+a+"/"+b, len(Secret{}))
	if err != nil {
		return Secret{}, fmt.Errorf("derive pre-shared key of %s and %s: %w", a, b, err)
	}
	return Secret(raw), nil
}
