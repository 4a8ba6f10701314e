package trust

import (
	"crypto"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/rsa"
	"strings"
	"testing"

	"github.com/hiddeco/sshsig"
	"golang.org/x/crypto/ssh"
)

// weakSigner signs with an algorithm that sshsig.Sign refuses.
type weakSigner struct {
	ssh.AlgorithmSigner
	algorithm string
}

// armored returns the signature of a text in the form of ssh-keygen -Y sign of an old OpenSSH.
func (w weakSigner) armored(t *testing.T, text, namespace string) string {
	t.Helper()
	h := crypto.SHA512.New()
	h.Write([]byte(text))
	signed := append([]byte("SSHSIG"), ssh.Marshal(struct{ Namespace, Reserved, HashAlgorithm, Hash string }{namespace, "", "sha512", string(h.Sum(nil))})...)
	signature, err := w.SignWithAlgorithm(rand.Reader, signed, w.algorithm)
	if err != nil {
		t.Fatal(err)
	}
	return string(sshsig.Armor(&sshsig.Signature{Version: 1, PublicKey: w.PublicKey(), Namespace: namespace, HashAlgorithm: sshsig.HashSHA512, Signature: signature}))
}

func rsaSigner(t *testing.T, bits int, algorithm string) weakSigner {
	t.Helper()
	key, err := rsa.GenerateKey(rand.Reader, bits)
	if err != nil {
		t.Fatal(err)
	}
	signer, err := ssh.NewSignerFromKey(key)
	if err != nil {
		t.Fatal(err)
	}
	return weakSigner{signer.(ssh.AlgorithmSigner), algorithm}
}

// TestWeakSignatures checks that RSA with SHA-1 and short keys are invalid, for a document and in
// the chain of signers.
func TestWeakSignatures(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name   string
		signer weakSigner
		want   string // in the error; empty if the signature is valid
	}{
		{"RSA with SHA-512", rsaSigner(t, 2048, ssh.KeyAlgoRSASHA512), ""},
		{"RSA with SHA-256", rsaSigner(t, 2048, ssh.KeyAlgoRSASHA256), ""},
		{"RSA with SHA-1", rsaSigner(t, 2048, ssh.KeyAlgoRSA), `invalid signature format "ssh-rsa": expected "rsa-sha2-256" or "rsa-sha2-512"`},
		{"a short RSA key", rsaSigner(t, 1024, ssh.KeyAlgoRSASHA512), "its key does not count: it is an RSA key of 1024 bits, at least 2048 are needed: use Ed25519"},
	} {
		const text = `{"clusterset":"demo"}`
		armored := tt.signer.armored(t, text, string(Fabric))
		signature, unreadable := sshsig.Unarmor([]byte(armored))
		verify := func(text string, kind Kind) error {
			if unreadable != nil {
				return unreadable
			}
			return Verify([]byte(text), signature, string(kind))
		}
		err := verify(text, Fabric)
		if (err == nil) != (tt.want == "") || err != nil && err.Error() != tt.want {
			t.Errorf("%s: %v, want %q", tt.name, err, tt.want)
		}
		if verify(text+" ", Fabric) == nil {
			t.Errorf("%s: counts for another text", tt.name)
		}
		if verify(text, Keys) == nil {
			t.Errorf("%s: counts in another namespace", tt.name)
		}
		s := Signed{Statement: text, Signatures: []string{armored}}
		if _, ok := s.By(Fabric, []string{Line(tt.signer.PublicKey())}); ok != (tt.want == "") {
			t.Errorf("%s: By returns %v", tt.name, ok)
		}
		if _, ok := signerOf(Fabric, text, armored); ok != (tt.want == "") {
			t.Errorf("%s: signerOf returns %v", tt.name, ok)
		}
	}
}

// TestCheckKey checks the keys that can sign.
func TestCheckKey(t *testing.T) {
	t.Parallel()
	public, _, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	good, err := ssh.NewPublicKey(public)
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		name string
		key  ssh.PublicKey
		want string
	}{
		{"Ed25519", good, ""},
		{"a certificate", &ssh.Certificate{Key: good, SignatureKey: good}, "certificate"},
		{"RSA of 2048 bits", rsaSigner(t, 2048, "").PublicKey(), ""},
		{"RSA of 2047 bits", rsaSigner(t, 2047, "").PublicKey(), "RSA key of 2047 bits"},
	} {
		if err := CheckKey(tt.key); (err == nil) != (tt.want == "") || err != nil && !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %v, want %q", tt.name, err, tt.want)
		}
	}
}
