// Command release contains the steps of a release that need more than Go and a shell:
//
//	release deb CONFIG FILE      a Debian package from an nfpm configuration, with its $VARIABLES from the environment
//	release roots FILE           the certificate authorities of Mozilla, for the reconciler's image
//	release key FILE             a new key pair, FILE.key and FILE.pub, as cosign generate-key-pair makes it
//	release sign KEY FILE...     FILE.sig for each file, as cosign sign-blob --key makes it
//
// Keys have the password of COSIGN_PASSWORD. The same input gives the same bytes, except
// for a new key.
package main

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"os"
	"strings"

	"github.com/goreleaser/nfpm/v2"
	_ "github.com/goreleaser/nfpm/v2/deb" // the one format that is made
	"github.com/secure-systems-lab/go-securesystemslib/encrypted"
	"golang.org/x/crypto/x509roots/fallback/bundle"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "release:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	password := []byte(os.Getenv("COSIGN_PASSWORD"))
	switch {
	case len(args) == 3 && args[0] == "deb":
		return deb(args[1], args[2])
	case len(args) == 2 && args[0] == "roots":
		return roots(args[1])
	case len(args) == 2 && args[0] == "key":
		return newKey(args[1], password)
	case len(args) > 2 && args[0] == "sign":
		return sign(args[1], password, args[2:])
	}
	return fmt.Errorf("usage: release deb CONFIG FILE | roots FILE | key FILE | sign KEY FILE")
}

func deb(config, file string) error {
	raw, err := os.ReadFile(config)
	if err != nil {
		return fmt.Errorf("read %s: %w", config, err)
	}
	// nfpm itself puts variables into some fields alone.
	c, err := nfpm.Parse(strings.NewReader(os.ExpandEnv(string(raw))))
	if err != nil {
		return fmt.Errorf("read %s: %w", config, err)
	}
	info, err := c.Get("deb")
	if err != nil {
		return fmt.Errorf("read %s: %w", config, err)
	}
	info = nfpm.WithDefaults(info)
	packager, err := nfpm.Get("deb")
	if err != nil {
		return err
	}
	var out bytes.Buffer
	if err := packager.Package(info, &out); err != nil {
		return fmt.Errorf("make %s: %w", file, err)
	}
	return os.WriteFile(file, out.Bytes(), 0o644)
}

func roots(file string) error {
	var out bytes.Buffer
	for root := range bundle.Roots() {
		// One with a constraint is trusted for a part of what it signs, which PEM cannot say.
		if root.Constraint != nil {
			continue
		}
		if err := pem.Encode(&out, &pem.Block{Type: "CERTIFICATE", Bytes: root.Certificate}); err != nil {
			return fmt.Errorf("write certificate authorities: %w", err)
		}
	}
	return os.WriteFile(file, out.Bytes(), 0o644)
}

// keyType is the PEM type of cosign's key files.
const keyType = "ENCRYPTED SIGSTORE PRIVATE KEY"

func newKey(file string, password []byte) error {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return fmt.Errorf("make key: %w", err)
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return fmt.Errorf("make key: %w", err)
	}
	sealed, err := encrypted.Encrypt(private, password)
	if err != nil {
		return fmt.Errorf("seal key: %w", err)
	}
	public, err := x509.MarshalPKIXPublicKey(key.Public())
	if err != nil {
		return fmt.Errorf("make key: %w", err)
	}
	if err := os.WriteFile(file+".key", pem.EncodeToMemory(&pem.Block{Type: keyType, Bytes: sealed}), 0o600); err != nil {
		return err
	}
	return os.WriteFile(file+".pub", pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: public}), 0o644)
}

func sign(file string, password []byte, files []string) error {
	raw, err := os.ReadFile(file)
	if err != nil {
		return fmt.Errorf("read key: %w", err)
	}
	block, _ := pem.Decode(raw)
	if block == nil || block.Type != keyType {
		return fmt.Errorf("read key %s: not a private key of cosign (release key makes one)", file)
	}
	private, err := encrypted.Decrypt(block.Bytes, password)
	if err != nil {
		return fmt.Errorf("open key %s with the password of COSIGN_PASSWORD: %w", file, err)
	}
	parsed, err := x509.ParsePKCS8PrivateKey(private)
	if err != nil {
		return fmt.Errorf("read key %s: %w", file, err)
	}
	key, ok := parsed.(*ecdsa.PrivateKey)
	if !ok {
		return fmt.Errorf("read key %s: %T, want one of ECDSA", file, parsed)
	}
	for _, f := range files {
		data, err := os.ReadFile(f)
		if err != nil {
			return fmt.Errorf("sign: %w", err)
		}
		sum := sha256.Sum256(data)
		// Without randomness the same file has the same signature (RFC 6979).
		signature, err := key.Sign(nil, sum[:], crypto.SHA256)
		if err != nil {
			return fmt.Errorf("sign %s: %w", f, err)
		}
		if err := os.WriteFile(f+".sig", []byte(base64.StdEncoding.EncodeToString(signature)), 0o644); err != nil {
			return err
		}
	}
	return nil
}
