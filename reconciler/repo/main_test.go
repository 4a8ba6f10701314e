package repo_test

import (
	"encoding/pem"
	"errors"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"
)

// TestMain has the process trust the certificate of httptest's servers: a login is sent
// over https only.
func TestMain(m *testing.M) {
	srv := httptest.NewTLSServer(nil)
	srv.Close()
	dir, err := os.MkdirTemp("", "repo")
	if err != nil {
		panic(err)
	}
	file := filepath.Join(dir, "ca.pem")
	block := &pem.Block{Type: "CERTIFICATE", Bytes: srv.Certificate().Raw}
	if err := errors.Join(os.WriteFile(file, pem.EncodeToMemory(block), 0o600), os.Setenv("SSL_CERT_FILE", file)); err != nil {
		panic(err)
	}
	code := m.Run()
	_ = os.RemoveAll(dir)
	os.Exit(code)
}
