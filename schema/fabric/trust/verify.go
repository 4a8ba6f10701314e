package trust

import (
	"bytes"
	"crypto/rsa"
	"errors"
	"fmt"

	"github.com/hiddeco/sshsig"
	"golang.org/x/crypto/ssh"
)

// MinRSABits is the minimum size of an RSA key in bits.
const MinRSABits = 2048

// CheckKey returns an error for an SSH key whose signatures are invalid: a certificate, whose
// authority is not checked, or an RSA key below MinRSABits. x/crypto does not support DSA keys.
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

// Verify returns an error if a signature of text is not valid in a namespace for the public key in
// the signature. sshsig rejects RSA with SHA-1 when it parses a signature.
func Verify(text []byte, signature *sshsig.Signature, namespace string) error {
	if err := CheckKey(signature.PublicKey); err != nil {
		return fmt.Errorf("its key does not count: %w", err)
	}
	return sshsig.Verify(bytes.NewReader(text), signature, signature.PublicKey, signature.HashAlgorithm, namespace)
}
