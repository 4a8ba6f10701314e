// Package tlstest makes a test process trust the TLS servers of httptest.
package tlstest

import (
	"encoding/pem"
	"errors"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"
)

// Run runs the tests of a package, and returns the exit status for os.Exit. The process trusts
// httptest's certificate like a system root. Code without configurable roots can thus be tested
// over HTTPS.
func Run(m *testing.M) int {
	srv := httptest.NewTLSServer(nil)
	srv.Close()
	dir, err := os.MkdirTemp("", "tlstest")
	if err != nil {
		panic(err)
	}
	defer func() { _ = os.RemoveAll(dir) }()
	file := filepath.Join(dir, "ca.pem")
	block := &pem.Block{Type: "CERTIFICATE", Bytes: srv.Certificate().Raw}
	if err := errors.Join(os.WriteFile(file, pem.EncodeToMemory(block), 0o600), os.Setenv("SSL_CERT_FILE", file)); err != nil {
		panic(err)
	}
	return m.Run()
}
