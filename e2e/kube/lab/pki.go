package main

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"time"
)

// pair is a certificate with its key.
type pair struct {
	cert    *x509.Certificate
	key     *ecdsa.PrivateKey
	certPEM []byte
	keyPEM  []byte
}

// authority is the certificate authority of one cluster.
type authority struct {
	ca  pair
	dir string
}

func newAuthority(dir string) (*authority, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("make directory of certificates: %w", err)
	}
	a := &authority{dir: dir}
	ca, err := a.signCertificate(&x509.Certificate{
		Subject: pkix.Name{CommonName: "kubelab"}, IsCA: true,
		KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
	})
	if err != nil {
		return nil, err
	}
	a.ca = ca
	return a, a.write("ca", ca)
}

// signCertificate issues a certificate for a new key. The first certificate, of the authority
// itself, is self-signed.
func (a *authority) signCertificate(template *x509.Certificate) (pair, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return pair{}, fmt.Errorf("make key: %w", err)
	}
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 100))
	if err != nil {
		return pair{}, fmt.Errorf("make serial number: %w", err)
	}
	now := time.Now()
	template.SerialNumber, template.BasicConstraintsValid = serial, true
	template.NotBefore, template.NotAfter = now.Add(-time.Hour), now.AddDate(1, 0, 0)
	parent, signer := template, key
	if a.ca.cert != nil {
		parent, signer = a.ca.cert, a.ca.key
	}
	raw, err := x509.CreateCertificate(rand.Reader, template, parent, key.Public(), signer)
	if err != nil {
		return pair{}, fmt.Errorf("sign certificate of %s: %w", template.Subject.CommonName, err)
	}
	cert, err := x509.ParseCertificate(raw)
	if err != nil {
		return pair{}, fmt.Errorf("read certificate of %s: %w", template.Subject.CommonName, err)
	}
	secret, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return pair{}, fmt.Errorf("write key of %s: %w", template.Subject.CommonName, err)
	}
	return pair{
		cert: cert, key: key,
		certPEM: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: raw}),
		keyPEM:  pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: secret}),
	}, nil
}

func (a *authority) write(name string, p pair) error {
	for file, data := range map[string][]byte{name + ".crt": p.certPEM, name + ".key": p.keyPEM} {
		if err := os.WriteFile(filepath.Join(a.dir, file), data, 0o600); err != nil {
			return fmt.Errorf("write certificate: %w", err)
		}
	}
	return nil
}

// issueCertificate issues a certificate for a user name with groups. It is valid for TLS servers
// and clients.
func (a *authority) issueCertificate(name string, addrs []net.IP, hosts []string, groups ...string) (pair, error) {
	return a.signCertificate(&x509.Certificate{
		Subject: pkix.Name{CommonName: name, Organization: groups}, IPAddresses: addrs, DNSNames: hosts,
		KeyUsage:    x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	})
}

// save issues a certificate, and writes it and its key to two files.
func (a *authority) save(file, name string, addrs []net.IP, hosts []string, groups ...string) error {
	p, err := a.issueCertificate(name, addrs, hosts, groups...)
	if err != nil {
		return err
	}
	return a.write(file, p)
}

// kubeconfig issues a client certificate and writes a kubeconfig with it.
func (a *authority) kubeconfig(file, server, name string, groups ...string) error {
	p, err := a.issueCertificate(name, nil, nil, groups...)
	if err != nil {
		return err
	}
	var k kubeconfig
	k.add("lab", server, a.ca, p)
	if err := os.WriteFile(filepath.Join(a.dir, file), []byte(k.String()), 0o600); err != nil {
		return fmt.Errorf("write kubeconfig: %w", err)
	}
	return nil
}

func (p pair) encoded() string { return base64.StdEncoding.EncodeToString(p.certPEM) }
func (p pair) secret() string  { return base64.StdEncoding.EncodeToString(p.keyPEM) }

// writeCertificates creates the authority of a cluster, and all certificates and kubeconfigs of its
// programs.
func (l *Lab) writeCertificates(control Node) (*authority, error) {
	a, err := newAuthority(l.path("pki", control.Cluster))
	if err != nil {
		return nil, err
	}
	addrs := []net.IP{net.IPv4(127, 0, 0, 1), l.apiAddr(control.Index).AsSlice()}
	for _, addr := range control.Addrs {
		addrs = append(addrs, addr.AsSlice())
	}
	hosts := []string{"localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc", "kubernetes.default.svc.cluster.local"}
	server := l.apiServerURL(control.Index)
	errs := []error{
		a.save("apiserver", "kube-apiserver", addrs, hosts),
		a.save("kubelet-client", "kube-apiserver-kubelet-client", nil, nil, "system:masters"),
		a.save("front-proxy", "front-proxy", nil, nil),
		a.save("accounts", "accounts", nil, nil),
		a.kubeconfig("admin", server, "admin", "system:masters"),
		a.kubeconfig("controllers", server, "system:kube-controller-manager"),
		a.kubeconfig("scheduler", server, "system:kube-scheduler"),
		a.kubeconfig("proxy", server, "system:kube-proxy"),
	}
	for _, n := range l.peers(control) {
		errs = append(errs, a.writeKubeletConfig(l, n))
	}
	return a, errors.Join(errs...)
}

// writeKubeletConfig writes the kubeconfig of a node's kubelet.
func (a *authority) writeKubeletConfig(l *Lab, n Node) error {
	return a.kubeconfig(n.As, l.apiServerURL(n.Index), "system:node:"+n.As, "system:nodes")
}
