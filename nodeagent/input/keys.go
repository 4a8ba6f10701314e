package input

import (
	"bytes"
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
	"strings"

	"filippo.io/age"
	"filippo.io/age/armor"

	"hawser.dev/hawser/schema/fabric"
)

// openKeys decrypts a cluster's keys with its age identity. Neither the plain
// text nor the identity ever shows in an error.
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
	doc, err := io.ReadAll(io.LimitReader(plain, fabric.MaxKeys+1)) // DecodeKeys refuses the one too many
	if err != nil {
		return nil, fmt.Errorf("open keys: %w", err)
	}
	return fabric.DecodeKeys(doc)
}

// ownKeys adds the private keys that this host brought itself, from files in the
// keys folder: <gateway>.key holds that of WireGuard, <gateway>.ike.key that of IKE.
func ownKeys(keys *fabric.Keys, dir, gateway string) error {
	private, found, err := ownKey(filepath.Join(dir, gateway+".key"), wireguardKey)
	if err != nil {
		return fmt.Errorf("read private key of gateway %s: %w", gateway, err)
	}
	ike, foundIKE, err := ownKey(filepath.Join(dir, gateway+".ike.key"), ikeKey)
	if err != nil {
		return fmt.Errorf("read private key for IKE of gateway %s: %w", gateway, err)
	}
	for i := range keys.Epochs {
		e := &keys.Epochs[i]
		if found {
			e.Gateways = with(e.Gateways, gateway, private)
		}
		if foundIKE {
			e.Ed25519 = with(e.Ed25519, gateway, ike)
		}
	}
	return nil
}

func with(keys map[string]fabric.Secret, gateway string, key fabric.Secret) map[string]fabric.Secret {
	if keys == nil {
		keys = map[string]fabric.Secret{}
	}
	keys[gateway] = key
	return keys
}

func ownKey(path string, decode func([]byte) (fabric.Secret, error)) (key fabric.Secret, found bool, err error) {
	raw, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return key, false, nil
	}
	if err != nil {
		return key, false, err
	}
	if key, err = decode(raw); err != nil {
		return key, false, fmt.Errorf("%s: %w", path, err)
	}
	return key, true, nil
}

func wireguardKey(raw []byte) (fabric.Secret, error) {
	key, err := base64.StdEncoding.DecodeString(strings.TrimSpace(string(raw)))
	if err != nil || len(key) != len(fabric.Secret{}) {
		return fabric.Secret{}, errors.New("not 32 bytes of base64 (make one with wg genkey)")
	}
	return fabric.Secret(key), nil
}

// ikeKey gives the seed of an Ed25519 key in PKCS #8 (RFC 8410). Errors of the
// decoder are not told, as they might quote the key.
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
