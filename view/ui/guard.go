package ui

import (
	"crypto/subtle"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
)

// policy is the content security policy of the page: only resources of this origin, no inline
// script and style, no frames.
const policy = "default-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; object-src 'none'"

// tokenHeader is the request header of the token. Browsers never send it by themselves, and scripts
// of other origins cannot send it. An ingress may use Authorization for itself.
const tokenHeader = "Hawser-Token"

// MinTokenLength is the minimum length of a user's token in characters: 128 bits in hexadecimal.
const MinTokenLength = 32

// CheckToken returns an error if text is not allowed as a token, which appears in URLs and headers.
func CheckToken(text string) error {
	switch {
	case len(text) < MinTokenLength:
		return fmt.Errorf("the token has %d characters, %d are needed (openssl rand -hex 32 makes one)", len(text), MinTokenLength)
	case strings.ContainsFunc(text, func(r rune) bool { return r <= ' ' || r > '~' }):
		return errors.New("the token has spaces or characters other than ASCII (openssl rand -hex 32 makes one)")
	}
	return nil
}

func equal(a, b string) bool { return subtle.ConstantTimeCompare([]byte(a), []byte(b)) == 1 }

// requireAuth refuses requests that other sites cause.
//
// Host must be the loopback address or one of Config.Hosts. A foreign page whose name was changed
// to resolve to this server (DNS rebinding) sends another name. The port is not checked, because
// ssh -L may use another port. Origin and Sec-Fetch-Site reveal other sites and other ports of this
// machine; these may only navigate a browser to the page. The same holds for requests with the
// token, because an ingress may add it to every request of a browser.
func (s *Server) requireAuth(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("Content-Security-Policy", policy)
		h.Set("Referrer-Policy", "no-referrer")
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("X-Frame-Options", "DENY")
		h.Set("Cross-Origin-Opener-Policy", "same-origin")
		h.Set("Cross-Origin-Resource-Policy", "same-origin")
		h.Set("Cache-Control", "no-store")
		allowed := slices.ContainsFunc(s.config.Hosts, func(name string) bool { return strings.EqualFold(name, hostName(r.Host)) })
		switch {
		case !allowed && !loopbackName(r.Host):
			suffix := " only, such as localhost"
			if len(s.config.Hosts) > 0 {
				suffix = " and to those that it was given only"
			}
			http.Error(w, "this page is served to names of the loopback address"+suffix, http.StatusMisdirectedRequest)
		case !sameOrigin(r, allowed):
			http.Error(w, "another site may not ask this one", http.StatusForbidden)
		case s.config.Probe != nil && (r.URL.Path == "/healthz" || r.URL.Path == "/readyz"):
			s.probe(w, r)
		default:
			next.ServeHTTP(w, r)
		}
	})
}

// probe responds to the kubelet, which has no token. It only reports whether the page has content.
func (s *Server) probe(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path == "/readyz" && s.config.Probe() != nil {
		http.Error(w, "not ready", http.StatusServiceUnavailable)
		return
	}
	_, _ = io.WriteString(w, "ok\n")
}

// authenticate refuses requests without the token. The token is not in a cookie, because browsers
// send cookies to every port of a host.
func (s *Server) authenticate(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		scheme, bearer, _ := strings.Cut(r.Header.Get("Authorization"), " ")
		byIngress := strings.EqualFold(scheme, "Bearer") &&
			equal(strings.TrimSpace(bearer), s.token)
		if !byIngress && !equal(r.Header.Get(tokenHeader), s.token) {
			http.Error(w, "open the URL that hawser ui printed: it has a token in it", http.StatusUnauthorized)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// forwardedHTTPS reports whether the browser uses HTTPS to the ingress that forwarded a request.
// Other sites cannot make a browser send this header. A client that sends it itself only affects
// its own requests.
func forwardedHTTPS(r *http.Request) bool { return r.Header.Get("X-Forwarded-Proto") == "https" }

// hostName returns the name of a Host header without its port.
func hostName(host string) string {
	if name, _, err := net.SplitHostPort(host); err == nil {
		return name
	}
	return host
}

// loopbackName reports whether a Host header names this machine's loopback address.
func loopbackName(host string) bool {
	name := hostName(host)
	if strings.EqualFold(name, "localhost") {
		return true
	}
	addr, err := netip.ParseAddr(strings.Trim(name, "[]"))
	return err == nil && addr.Zone() == "" && addr.Unmap().IsLoopback()
}

// sameOrigin reports whether a request comes from this page, or from a user who opens it. A request
// that changes something must have an Origin. If the host name is configured (allowed), an
// ingress may terminate TLS for it; then http with the same name is another origin.
func sameOrigin(r *http.Request, allowed bool) bool {
	origin, site := r.Header.Get("Origin"), r.Header.Get("Sec-Fetch-Site")
	reads := r.Method == http.MethodGet || r.Method == http.MethodHead
	plain, secure := origin == "http://"+r.Host, origin == "https://"+r.Host
	switch {
	case origin != "" && !(plain && !(allowed && forwardedHTTPS(r))) && !(secure && allowed):
		return false
	case !reads && origin == "":
		return false
	case site == "" || site == "same-origin" || site == "none":
		return true
	}
	return reads && r.URL.Path == "/" && r.Header.Get("Sec-Fetch-Mode") == "navigate" && r.Header.Get("Sec-Fetch-Dest") == "document"
}
