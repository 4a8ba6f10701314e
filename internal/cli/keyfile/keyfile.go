// Package keyfile creates files of age identities and root keys.
package keyfile

import (
	"fmt"

	"filippo.io/age"

	"hawser.dev/hawser/internal/cli"
	"hawser.dev/hawser/render/keys"
)

// WriteIdentity writes a new identity in the format of age-keygen(1) and returns its recipient.
func WriteIdentity(path string, hybrid bool) (recipient string, err error) {
	text, recipient, err := NewIdentity(hybrid)
	if err != nil {
		return "", err
	}
	return recipient, cli.WriteNew(path, []byte(text), 0o600)
}

// NewIdentity returns the text of a new identity and its recipient.
func NewIdentity(hybrid bool) (text, recipient string, err error) {
	var identity fmt.Stringer
	if hybrid {
		var made *age.HybridIdentity
		if made, err = age.GenerateHybridIdentity(); err == nil {
			identity, recipient = made, made.Recipient().String()
		}
	} else {
		var made *age.X25519Identity
		if made, err = age.GenerateX25519Identity(); err == nil {
			identity, recipient = made, made.Recipient().String()
		}
	}
	if err != nil {
		return "", "", fmt.Errorf("make identity: %w", err)
	}
	return "# public key: " + recipient + "\n" + identity.String() + "\n", recipient, nil
}

// WriteRoot creates a file with a new root key.
func WriteRoot(path string) error {
	root, err := keys.NewRoot()
	if err != nil {
		return err
	}
	return cli.WriteNew(path, root.Encode(), 0o600)
}
