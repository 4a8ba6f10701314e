package nodeagent

import (
	"bytes"
	"encoding/base64"
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

// maxKeys bounds the decrypted keys document of one cluster, bytes.
const maxKeys = 16 << 20

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
	doc, err := io.ReadAll(io.LimitReader(plain, maxKeys))
	if err != nil {
		return nil, fmt.Errorf("open keys: %w", err)
	}
	return fabric.DecodeKeys(doc)
}

// ownKeys adds the private keys that this host brought itself: a file
// <gateway>.key in the keys folder holds a WireGuard private key in base64.
func ownKeys(keys *fabric.Keys, dir, gateway string) error {
	raw, err := os.ReadFile(filepath.Join(dir, gateway+".key"))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("read private key of gateway %s: %w", gateway, err)
	}
	key, err := base64.StdEncoding.DecodeString(strings.TrimSpace(string(raw)))
	if err != nil || len(key) != len(fabric.Secret{}) {
		return fmt.Errorf("private key of gateway %s in %s is not 32 bytes of base64 (make one with wg genkey)", gateway, dir)
	}
	for i := range keys.Epochs {
		if keys.Epochs[i].Gateways == nil {
			keys.Epochs[i].Gateways = map[string]fabric.Secret{}
		}
		keys.Epochs[i].Gateways[gateway] = fabric.Secret(key)
	}
	return nil
}
