package input

import (
	"bytes"
	"crypto/ecdh"
	"crypto/ed25519"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"filippo.io/age"
	"filippo.io/age/armor"

	"hawser.dev/hawser/schema/fabric"
)

// openKeys decrypts a cluster's keys with its age identity. Errors contain neither the plain text
// nor the identity.
func openKeys(sealed []byte, identityFile string) (*fabric.Keys, error) {
	raw, err := os.ReadFile(identityFile)
	if err != nil {
		return nil, fmt.Errorf("read age identity: %w", err)
	}
	identities, err := age.ParseIdentities(bytes.NewReader(raw))
	if err != nil {
		return nil, fmt.Errorf("read age identity %s: not an age identity file", identityFile)
	}
	var in io.Reader = bytes.NewReader(sealed)
	if strings.HasPrefix(string(sealed), armor.Header) {
		in = armor.NewReader(in)
	}
	plain, err := age.Decrypt(in, identities...)
	if err != nil {
		var noMatch *age.NoIdentityMatchError
		if errors.As(err, &noMatch) {
			return nil, fmt.Errorf("open keys: encrypted to another recipient than the identity in %s", identityFile)
		}
		return nil, fmt.Errorf("open keys: %w", err)
	}
	doc, err := io.ReadAll(io.LimitReader(plain, fabric.MaxKeys+1)) // DecodeKeys refuses one byte more
	if err != nil {
		return nil, fmt.Errorf("open keys: %w", err)
	}
	return fabric.DecodeKeys(doc)
}

// ownKeys are the private keys of a gateway from the keys directory; nil = none. The root key does not
// derive them.
type ownKeys struct {
	wireguard, ike *fabric.Secret
}

// readOwnKeys reads the own keys of a gateway: <gateway>.key has the WireGuard key,
// <gateway>.ike.key the IKE key.
func readOwnKeys(dir, gateway string) (own ownKeys, err error) {
	if own.wireguard, err = readOwnKey(filepath.Join(dir, gateway+".key"), wireguardKey); err != nil {
		return own, fmt.Errorf("read private key of gateway %s: %w", gateway, err)
	}
	if own.ike, err = readOwnKey(filepath.Join(dir, gateway+".ike.key"), ikeKey); err != nil {
		return own, fmt.Errorf("read private key for IKE of gateway %s: %w", gateway, err)
	}
	return own, nil
}

// replaceDerived returns keys in which the gateway's own keys replace derived keys. It uses an own key
// if the fabric names its public key, or if keys has no key of the gateway. So a key file may exist
// before the commit that names it and after the commit that removes it.
func (own ownKeys) replaceDerived(keys *fabric.Keys, g *fabric.Gateway) *fabric.Keys {
	if keys == nil || own == (ownKeys{}) {
		return keys
	}
	out := *keys
	out.Epochs = slices.Clone(keys.Epochs)
	for i := range out.Epochs {
		e := &out.Epochs[i]
		var public fabric.Key
		if j := slices.IndexFunc(g.Keys, func(k fabric.Key) bool { return k.Epoch == e.Epoch }); j >= 0 {
			public = g.Keys[j]
		}
		if _, derived := e.Gateways[g.Name]; own.wireguard != nil && (!derived || matchesX25519(*own.wireguard, public.Public)) {
			e.Gateways = withKey(e.Gateways, g.Name, *own.wireguard)
		}
		if _, derived := e.Ed25519[g.Name]; own.ike != nil && (!derived || matchesEd25519(*own.ike, public.Ed25519)) {
			e.Ed25519 = withKey(e.Ed25519, g.Name, *own.ike)
		}
	}
	return &out
}

// withKey returns a copy of keys with the key of one gateway replaced.
func withKey(keys map[string]fabric.Secret, gateway string, key fabric.Secret) map[string]fabric.Secret {
	out := map[string]fabric.Secret{gateway: key}
	for name, other := range keys {
		if name != gateway {
			out[name] = other
		}
	}
	return out
}

// readOwnKey reads a key from a file; nil if the file does not exist.
func readOwnKey(path string, decode func([]byte) (fabric.Secret, error)) (*fabric.Secret, error) {
	raw, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	key, err := decode(raw)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return &key, nil
}

func wireguardKey(raw []byte) (fabric.Secret, error) {
	key, err := base64.StdEncoding.DecodeString(strings.TrimSpace(string(raw)))
	if err != nil || len(key) != len(fabric.Secret{}) {
		return fabric.Secret{}, errors.New("not 32 bytes of base64 (make one with wg genkey)")
	}
	return fabric.Secret(key), nil
}

// ikeKey returns the seed of an Ed25519 key in PKCS #8 (RFC 8410). It drops errors of the decoder,
// because they might quote the key.
func ikeKey(raw []byte) (fabric.Secret, error) {
	bad := errors.New("not an Ed25519 key in PEM (make one with openssl genpkey -algorithm ed25519)")
	block, _ := pem.Decode(raw)
	if block == nil {
		return fabric.Secret{}, bad
	}
	key, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	private, ok := key.(ed25519.PrivateKey)
	if err != nil || !ok {
		return fabric.Secret{}, bad
	}
	return fabric.Secret(private.Seed()), nil
}

// matchesX25519 reports whether a secret is the private key of an X25519 public key in base64.
func matchesX25519(secret fabric.Secret, public string) bool {
	private, err := ecdh.X25519().NewPrivateKey(secret[:])
	return err == nil && base64.StdEncoding.EncodeToString(private.PublicKey().Bytes()) == public
}

// matchesEd25519 reports whether a seed yields an Ed25519 public key in base64.
func matchesEd25519(seed fabric.Secret, public string) bool {
	return base64.StdEncoding.EncodeToString(ed25519.NewKeyFromSeed(seed[:])[ed25519.SeedSize:]) == public
}
