package main

import (
	"encoding/pem"
	"io"
	"net"
	"net/http"
	"net/http/cgi"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/rogpeppe/go-internal/testscript"
)

// gitProxy DIRECTORY LOG serves the bare repositories of a directory at https://example.com, which
// is reachable only through the proxy in HTTPS_PROXY. The proxy writes its requests to LOG. Both
// end with the script.
func gitProxy(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: gitproxy DIRECTORY LOG")
	}
	core, err := exec.Command("git", "--exec-path").Output()
	ts.Check(err)
	server := httptest.NewTLSServer(&cgi.Handler{
		Path: filepath.Join(strings.TrimSpace(string(core)), "git-http-backend"),
		Env:  []string{"GIT_PROJECT_ROOT=" + ts.MkAbs(args[0]), "GIT_HTTP_EXPORT_ALL=1", "REMOTE_USER=t"},
	})
	ts.Defer(server.Close)
	log, err := os.Create(ts.MkAbs(args[1]))
	ts.Check(err)
	ts.Defer(func() { _ = log.Close() })
	proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(log, r.Method+" "+r.Host+"\n")
		if r.Method != http.MethodConnect || r.Host != "example.com:443" {
			http.Error(w, "not through here", http.StatusForbidden)
			return
		}
		backend, err := net.Dial("tcp", server.Listener.Addr().String())
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadGateway)
			return
		}
		defer func() { _ = backend.Close() }()
		client, _, err := w.(http.Hijacker).Hijack()
		if err != nil {
			return
		}
		defer func() { _ = client.Close() }()
		_, _ = io.WriteString(client, "HTTP/1.1 200 OK\r\n\r\n")
		go func() { _, _ = io.Copy(backend, client) }()
		_, _ = io.Copy(client, backend)
	}))
	ts.Defer(proxy.Close)
	roots := ts.MkAbs("roots.pem")
	ts.Check(os.WriteFile(roots, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}), 0o600))
	ts.Setenv("SSL_CERT_FILE", roots)
	ts.Setenv("HTTPS_PROXY", proxy.URL)
}
