package schema

import (
	"errors"
	"fmt"
	"strings"

	"golang.org/x/crypto/ssh"

	"hawser.dev/hawser/schema/fabric/trust"
)

// Approvers gives who must approve the fabric, in the order of the file.
func (t *Trust) Approvers() trust.Approvers {
	out := trust.Approvers{Threshold: t.Threshold}
	for _, s := range t.Signers {
		if line, err := s.Line(); err == nil { // validated
			out.Keys = append(out.Keys, line)
		}
	}
	return out
}

// SignerOf gives the name of the signer with a public key, as Approvers has it.
func (t *Trust) SignerOf(key string) (name string, ok bool) {
	for _, s := range t.Signers {
		if line, err := s.Line(); err == nil && line == key {
			return s.Name, true
		}
	}
	return "", false
}

// Line gives the key as authorized_keys has it, without comment.
func (s *Signer) Line() (string, error) {
	if strings.Contains(s.Key, "PRIVATE KEY") {
		return "", errors.New("it is a private key")
	}
	key, _, options, rest, err := ssh.ParseAuthorizedKey([]byte(s.Key))
	switch {
	case err != nil:
		return "", errors.New("it is not KEYTYPE KEY")
	case len(options) > 0:
		return "", fmt.Errorf("it has the option %s", strings.Join(options, ","))
	case strings.TrimSpace(string(rest)) != "":
		return "", errors.New("it is more than one line")
	}
	if _, certificate := key.(*ssh.Certificate); certificate {
		return "", errors.New("it is a certificate")
	}
	return trust.Line(key), nil
}
