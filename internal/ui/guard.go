package ui

import (
	"crypto/rand"
	"crypto/subtle"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
)

// policy is what a browser may load and do for the page: nothing that is not from here, no
// script and no style in the page itself, no frame around it.
const policy = "default-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; object-src 'none'"

// secret lets in who knows it. The token stands in the URL that is opened first; the cookie
// holds another text, so that a token in a history or a log is not what browsers send.
type secret struct{ token, session string }

func newSecret() secret { return secret{rand.Text(), rand.Text()} }

func same(a, b string) bool { return subtle.ConstantTimeCompare([]byte(a), []byte(b)) == 1 }

// cookieName has the port in it: cookies do not tell ports apart.
func cookieName(r *http.Request) string {
	_, port, err := net.SplitHostPort(r.Host)
	if err != nil {
		port = "80"
	}
	return "hawser-ui-" + port
}

// guard lets through what comes from this page, or from its URL with the token.
//
// The name in Host must be one of the loopback address: a page elsewhere whose name came to
// point here (DNS rebinding) is of another one. The port is not looked at, as ssh -L may have
// another. Other sites, and other ports of this machine, are told by Origin and
// Sec-Fetch-Site; they may lead a person here, and no more.
func (s *Server) guard(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("Content-Security-Policy", policy)
		h.Set("Referrer-Policy", "no-referrer")
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("X-Frame-Options", "DENY")
		h.Set("Cross-Origin-Opener-Policy", "same-origin")
		h.Set("Cross-Origin-Resource-Policy", "same-origin")
		h.Set("Cache-Control", "no-store")
		switch {
		case !loopbackName(r.Host):
			http.Error(w, "this page is served to names of the loopback address only, such as localhost", http.StatusMisdirectedRequest)
		case !ownOrigin(r):
			http.Error(w, "another site may not ask this one", http.StatusForbidden)
		case r.URL.Path == "/" && r.URL.Query().Has("token"):
			s.enter(w, r)
		case !s.known(r):
			http.Error(w, "open the URL that hawser ui printed: it has a token in it", http.StatusUnauthorized)
		default:
			next.ServeHTTP(w, r)
		}
	})
}

// enter moves the token from the URL into a cookie.
func (s *Server) enter(w http.ResponseWriter, r *http.Request) {
	query := r.URL.Query()
	if r.Method != http.MethodGet || !same(query.Get("token"), s.secret.token) {
		http.Error(w, "the token is not that of this hawser ui: open the URL that it printed", http.StatusUnauthorized)
		return
	}
	query.Del("token")
	http.SetCookie(w, &http.Cookie{Name: cookieName(r), Value: s.secret.session, Path: "/", HttpOnly: true, SameSite: http.SameSiteStrictMode})
	http.Redirect(w, r, (&url.URL{Path: "/", RawQuery: query.Encode()}).String(), http.StatusSeeOther)
}

func (s *Server) known(r *http.Request) bool {
	for _, c := range r.CookiesNamed(cookieName(r)) {
		if same(c.Value, s.secret.session) {
			return true
		}
	}
	return false
}

// loopbackName says that a Host header names this machine's loopback address.
func loopbackName(host string) bool {
	name := host
	if h, _, err := net.SplitHostPort(host); err == nil {
		name = h
	}
	if strings.EqualFold(name, "localhost") {
		return true
	}
	addr, err := netip.ParseAddr(strings.Trim(name, "[]"))
	return err == nil && addr.Zone() == "" && addr.Unmap().IsLoopback()
}

// ownOrigin says that a request comes from this page, or from a person who opens it. What
// changes something must say where it is from.
func ownOrigin(r *http.Request) bool {
	origin, site := r.Header.Get("Origin"), r.Header.Get("Sec-Fetch-Site")
	reads := r.Method == http.MethodGet || r.Method == http.MethodHead
	switch {
	case origin != "" && origin != "http://"+r.Host:
		return false
	case !reads && origin == "":
		return false
	case site == "" || site == "same-origin" || site == "none":
		return true
	}
	return reads && r.URL.Path == "/" && r.Header.Get("Sec-Fetch-Mode") == "navigate" && r.Header.Get("Sec-Fetch-Dest") == "document"
}
