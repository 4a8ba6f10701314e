package ui

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"
)

// policy is what a browser may load and do for the page: nothing that is not from here, no
// script and no style in the page itself, no frame around it.
const policy = "default-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; object-src 'none'"

// secret lets in who knows it. The token stands in the URL that is opened first; the cookie
// holds another text, so that a token in a history or a log is not what browsers send.
type secret struct{ token, session string }

// newSecret makes a secret of a token, or with none one of its own. Of a token that was given
// the cookie follows, so that a server that is started anew knows the browsers of before.
func newSecret(token string) secret {
	if token == "" {
		return secret{rand.Text(), rand.Text()}
	}
	mac := hmac.New(sha256.New, []byte(token))
	mac.Write([]byte("cookie of hawser ui"))
	return secret{token, hex.EncodeToString(mac.Sum(nil))}
}

// LeastToken is how many characters a token that is given must have: those of 128 bits in
// hexadecimal.
const LeastToken = 32

// CheckToken says what keeps text from being a token: it stands in URLs and headers.
func CheckToken(text string) error {
	switch {
	case len(text) < LeastToken:
		return fmt.Errorf("the token has %d characters, %d are needed (openssl rand -hex 32 makes one)", len(text), LeastToken)
	case strings.ContainsFunc(text, func(r rune) bool { return r <= ' ' || r > '~' }):
		return errors.New("the token has spaces or characters other than ASCII (openssl rand -hex 32 makes one)")
	}
	return nil
}

func same(a, b string) bool { return subtle.ConstantTimeCompare([]byte(a), []byte(b)) == 1 }

// cookieName has the port in it: cookies do not tell ports apart.
func cookieName(r *http.Request) string {
	_, port, err := net.SplitHostPort(r.Host)
	if err != nil {
		port = "80"
	}
	return "hawser-ui-" + port
}

// guard lets through what comes from this page, from its URL with the token, or with the
// token in a header.
//
// The name in Host must be one of the loopback address, or one that the page was given: a page
// elsewhere whose name came to point here (DNS rebinding) is of another one. The port is not
// looked at, as ssh -L may have another. Other sites, and other ports of this machine, are told
// by Origin and Sec-Fetch-Site; they may lead a person here, and no more. That holds for who
// has the token too, as an ingress may add it to whatever a browser sends.
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
		given := slices.ContainsFunc(s.config.Hosts, func(name string) bool { return strings.EqualFold(name, nameOf(r.Host)) })
		switch {
		case !given && !loopbackName(r.Host):
			also := " only, such as localhost"
			if len(s.config.Hosts) > 0 {
				also = " and to those that it was given only"
			}
			http.Error(w, "this page is served to names of the loopback address"+also, http.StatusMisdirectedRequest)
		case !ownOrigin(r, given):
			http.Error(w, "another site may not ask this one", http.StatusForbidden)
		case s.config.Probe != nil && (r.URL.Path == "/healthz" || r.URL.Path == "/readyz"):
			s.probe(w, r)
		case r.URL.Path == "/" && r.URL.Query().Has("token"):
			s.enter(w, r, given)
		case !s.known(r):
			http.Error(w, "open the URL that hawser ui printed: it has a token in it", http.StatusUnauthorized)
		default:
			next.ServeHTTP(w, r)
		}
	})
}

// probe tells kubelet, which has no token, whether there is something to show, and nothing
// else.
func (s *Server) probe(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path == "/readyz" && s.config.Probe() != nil {
		http.Error(w, "not ready", http.StatusServiceUnavailable)
		return
	}
	_, _ = io.WriteString(w, "ok\n")
}

// enter moves the token from the URL into a cookie.
func (s *Server) enter(w http.ResponseWriter, r *http.Request, given bool) {
	query := r.URL.Query()
	if r.Method != http.MethodGet || !same(query.Get("token"), s.secret.token) {
		http.Error(w, "the token is not that of this hawser ui: open the URL that it printed", http.StatusUnauthorized)
		return
	}
	query.Del("token")
	http.SetCookie(w, &http.Cookie{Name: cookieName(r), Value: s.secret.session, Path: "/", HttpOnly: true,
		SameSite: http.SameSiteStrictMode, Secure: given && endedTLS(r)})
	http.Redirect(w, r, (&url.URL{Path: "/", RawQuery: query.Encode()}).String(), http.StatusSeeOther)
}

// known says that a request has the cookie, or the token as a bearer.
func (s *Server) known(r *http.Request) bool {
	for _, c := range r.CookiesNamed(cookieName(r)) {
		if same(c.Value, s.secret.session) {
			return true
		}
	}
	scheme, token, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	return strings.EqualFold(scheme, "Bearer") && same(strings.TrimSpace(token), s.secret.token)
}

// endedTLS says that a browser speaks HTTPS to the ingress that sent a request on. A browser
// cannot be made to say it for a page elsewhere, and who says it for himself deceives himself.
func endedTLS(r *http.Request) bool { return r.Header.Get("X-Forwarded-Proto") == "https" }

// nameOf gives the name of a Host header without its port.
func nameOf(host string) string {
	if name, _, err := net.SplitHostPort(host); err == nil {
		return name
	}
	return host
}

// loopbackName says that a Host header names this machine's loopback address.
func loopbackName(host string) bool {
	name := nameOf(host)
	if strings.EqualFold(name, "localhost") {
		return true
	}
	addr, err := netip.ParseAddr(strings.Trim(name, "[]"))
	return err == nil && addr.Zone() == "" && addr.Unmap().IsLoopback()
}

// ownOrigin says that a request comes from this page, or from a person who opens it. What
// changes something must say where it is from. A page that was given a name may have an
// ingress before it that ends TLS; http of the same name is another origin then.
func ownOrigin(r *http.Request, given bool) bool {
	origin, site := r.Header.Get("Origin"), r.Header.Get("Sec-Fetch-Site")
	reads := r.Method == http.MethodGet || r.Method == http.MethodHead
	clear, secure := origin == "http://"+r.Host, origin == "https://"+r.Host
	switch {
	case origin != "" && !(clear && !(given && endedTLS(r))) && !(secure && given):
		return false
	case !reads && origin == "":
		return false
	case site == "" || site == "same-origin" || site == "none":
		return true
	}
	return reads && r.URL.Path == "/" && r.Header.Get("Sec-Fetch-Mode") == "navigate" && r.Header.Get("Sec-Fetch-Dest") == "document"
}
