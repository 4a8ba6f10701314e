package reconciler

import (
	"bytes"
	"fmt"
	"os"

	"filippo.io/age"

	"hawser.dev/hawser/render/keys"
)

// ReadRootKey reads a root key file; identityFile holds the age identities that
// open it when it is encrypted, and may be empty. Errors never quote a key.
func ReadRootKey(file, identityFile string) (*keys.Root, error) {
	raw, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("read root key: %w (hawser keys root FILE makes one)", err)
	}
	var identities []age.Identity
	if identityFile != "" {
		text, err := os.ReadFile(identityFile)
		if err != nil {
			return nil, fmt.Errorf("read root identity: %w", err)
		}
		if identities, err = age.ParseIdentities(bytes.NewReader(text)); err != nil {
			return nil, fmt.Errorf("read root identity %s: not a file of age identities", identityFile)
		}
	}
	root, err := keys.ReadRoot(raw, identities...)
	if err != nil {
		return nil, fmt.Errorf("read root key %s: %w", file, err)
	}
	return root, nil
}
