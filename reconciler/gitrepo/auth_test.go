package gitrepo_test

import (
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"

	"hawser.dev/hawser/reconciler/gitrepo"
)

const password = "s3cret-of-the-test"

// TestLoginGoesToOneHost checks that only Auth.Host receives the credentials, over https.
func TestLoginGoesToOneHost(t *testing.T) {
	t.Parallel()
	var receivedLogin atomic.Pointer[string]
	handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		user, pass, _ := r.BasicAuth()
		text := user + ":" + pass
		receivedLogin.Store(&text)
		http.Error(w, "log in, "+pass, http.StatusUnauthorized)
	})
	plain, tls := httptest.NewServer(handler), httptest.NewTLSServer(handler)
	t.Cleanup(plain.Close)
	t.Cleanup(tls.Close)
	redirector := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, tls.URL+r.URL.String(), http.StatusFound)
	}))
	t.Cleanup(redirector.Close)
	hostOf := func(address string) string {
		u, err := url.Parse(address)
		if err != nil {
			t.Fatal(err)
		}
		return u.Host
	}
	tests := []struct {
		name, address, host    string
		receivedLogin, message string
	}{
		{"its host", tls.URL, hostOf(tls.URL), "git:" + password, "authentication required"},
		{"no host", tls.URL, "", ":", "HAWSER_GIT_HOST=" + hostOf(tls.URL)},
		{"another host", tls.URL, "git.example.org", ":", "the token is only for git.example.org"},
		{"another port", tls.URL, hostOf(redirector.URL), ":", "the token is only for " + hostOf(redirector.URL)},
		{"http", plain.URL, hostOf(plain.URL), "", "use an https address"},
		{"http, not its host", plain.URL, "git.example.org", ":", "only for"},
		{"a redirect", redirector.URL, hostOf(redirector.URL), ":", ""},
	}
	for _, tt := range tests {
		receivedLogin.Store(nil)
		s, err := gitrepo.Open(gitrepo.Config{URL: tt.address + "/net.git", Auth: gitrepo.Auth{Host: tt.host, Password: password}})
		if err != nil {
			t.Fatal(err)
		}
		err = s.Fetch(t.Context(), "main")
		if err == nil || !strings.Contains(err.Error(), tt.message) || strings.Contains(err.Error(), password) {
			t.Errorf("%s: %v, want %s", tt.name, err, tt.message)
		}
		have := ""
		if p := receivedLogin.Load(); p != nil {
			have = *p
		}
		if have != tt.receivedLogin {
			t.Errorf("%s: the server received %q, want %q", tt.name, have, tt.receivedLogin)
		}
	}
}

func TestHostOf(t *testing.T) {
	t.Parallel()
	for address, want := range map[string]string{
		"https://Git.example.org/a.git": "git.example.org", "https://git.example.org:443/a": "git.example.org",
		"https://me:x@git.example.org:8443/a": "git.example.org:8443", "git@git.example.org:a/b": "git.example.org",
		"ssh://git.example.org:2222/a": "git.example.org:2222", "/srv/net.git": "", ".": "", "file:///srv": "",
		"https://[2001:db8::1]:8443/a": "[2001:db8::1]:8443",
	} {
		if have := gitrepo.HostOf(address); have != want {
			t.Errorf("%s: %q, want %q", address, have, want)
		}
	}
}
