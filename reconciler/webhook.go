package reconciler

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"os"
	"strings"
)

// maxPayload is the maximum size of a webhook's body in bytes. Push payloads have at most some
// hundred kilobytes.
const maxPayload = 4 << 20

// pushEvent contains the field of a push payload that GitHub, GitLab and Gitea share.
type pushEvent struct {
	Ref string `json:"ref"`
}

// Values of the label result.
const (
	webhookAccepted, webhookIgnored, webhookRefused = "accepted", "ignored", "refused"
)

// webhook triggers a pass after a push event of a code host. It uses the payload for nothing else:
// the pass reads git.
type webhook struct {
	secretFile string
	ref        string // refs/heads/...
	trigger    func()
	count      func(result string)
}

// ServeHTTP responds 200 if it triggers a pass, and 202 to other events. It responds 401 to a
// missing or wrong secret, 413 to a large body, and 404 if webhooks are off.
func (h *webhook) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	code, text := h.handle(w, r)
	result := webhookIgnored
	switch {
	case code == http.StatusOK:
		result = webhookAccepted
	case code >= http.StatusBadRequest:
		result = webhookRefused
	}
	h.count(result)
	http.Error(w, text, code)
}

func (h *webhook) handle(w http.ResponseWriter, r *http.Request) (int, string) {
	if h.secretFile == "" {
		return http.StatusNotFound, "webhooks are off: start the reconciler with --webhook-secret FILE"
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxPayload))
	var tooLarge *http.MaxBytesError
	if errors.As(err, &tooLarge) {
		return http.StatusRequestEntityTooLarge, "the payload is too large"
	}
	if err != nil {
		return http.StatusBadRequest, "the payload could not be read"
	}
	secret, err := readSecret(h.secretFile)
	if err != nil {
		return http.StatusInternalServerError, "the webhook secret could not be read"
	}
	event, ok := verifySecret(r.Header, body, secret)
	if !ok {
		return http.StatusUnauthorized, "missing or wrong secret"
	}
	if event != "push" {
		return http.StatusAccepted, "ignored: not a push event"
	}
	var p pushEvent
	if err := json.Unmarshal(body, &p); err != nil {
		return http.StatusBadRequest, "the payload is not JSON: set the webhook's content type to application/json"
	}
	if p.Ref != h.ref {
		return http.StatusAccepted, "ignored: a push to another branch than " + h.ref
	}
	h.trigger()
	return http.StatusOK, "a pass was asked for"
}

// verifySecret checks the secret in the format of the sender, and returns the kind of event. Gitea
// is first because it sends GitHub's headers too.
func verifySecret(header http.Header, body, secret []byte) (event string, ok bool) {
	switch {
	case header.Get("X-Gitea-Event") != "":
		return header.Get("X-Gitea-Event"), validHMAC(header.Get("X-Gitea-Signature"), body, secret)
	case header.Get("X-Gitlab-Event") != "":
		ok := subtle.ConstantTimeCompare(digest([]byte(header.Get("X-Gitlab-Token"))), digest(secret)) == 1
		if header.Get("X-Gitlab-Event") == "Push Hook" {
			return "push", ok
		}
		return header.Get("X-Gitlab-Event"), ok
	default:
		signature, found := strings.CutPrefix(header.Get("X-Hub-Signature-256"), "sha256=")
		return header.Get("X-GitHub-Event"), found && validHMAC(signature, body, secret)
	}
}

// validHMAC reports whether signature is the hex HMAC-SHA256 of the body. It compares in constant
// time.
func validHMAC(signature string, body, secret []byte) bool {
	have, err := hex.DecodeString(signature)
	if err != nil {
		return false
	}
	mac := hmac.New(sha256.New, secret)
	mac.Write(body)
	return hmac.Equal(have, mac.Sum(nil))
}

// digest returns the SHA-256 of a secret. Digests have equal lengths, so that the duration of a
// comparison does not reveal the length of the secret.
func digest(text []byte) []byte {
	sum := sha256.Sum256(text)
	return sum[:]
}

// readSecret returns the secret in a file. The caller reads the file at every request, so that an
// operator can rotate the secret in place. An empty secret is an error.
func readSecret(path string) ([]byte, error) {
	raw, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	secret := bytes.TrimSpace(raw)
	if len(secret) == 0 {
		return nil, errors.New("the webhook secret is empty")
	}
	return secret, nil
}
