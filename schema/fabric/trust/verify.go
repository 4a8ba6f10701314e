package trust

import (
	"bytes"
	"crypto/rsa"
	"errors"
	"fmt"

	"github.com/hiddeco/sshsig"
	"golang.org/x/crypto/ssh"
)

// MinRSABits is the smallest size of an RSA key whose signatures count.
const MinRSABits = 2048

// CheckKey returns an error if signatures of an SSH key must not count: for certificates, whose
// authority is not checked, and for RSA keys below MinRSABits. x/crypto knows no DSA keys.
func CheckKey(key ssh.PublicKey) error {
	if _, certificate := key.(*ssh.Certificate); certificate {
		return errors.New("it is a certificate: use the key itself")
	}
	if wrapped, ok := key.(ssh.CryptoPublicKey); ok {
		if public, ok := wrapped.CryptoPublicKey().(*rsa.PublicKey); ok && public.N.BitLen() < MinRSABits {
			return fmt.Errorf("it is an RSA key of %d bits, at least %d are needed: use Ed25519", public.N.BitLen(), MinRSABits)
		}
	}
	return nil
}

// Verify returns why a signature of text by its own public key does not count in a namespace; nil if
// it does. sshsig refuses RSA with SHA-1 when it reads a signature.
func Verify(text []byte, signature *sshsig.Signature, namespace string) error {
	if err := CheckKey(signature.PublicKey); err != nil {
		return fmt.Errorf("its key does not count: %w", err)
	}
	return sshsig.Verify(bytes.NewReader(text), signature, signature.PublicKey, signature.HashAlgorithm, namespace)
}
