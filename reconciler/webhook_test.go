package reconciler

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func sign(secret, body string) string {
	mac := hmac.New(sha256.New, []byte(secret))
	mac.Write([]byte(body))
	return hex.EncodeToString(mac.Sum(nil))
}

const secret = "s3cret"

func headers(pairs ...string) map[string]string {
	out := map[string]string{}
	for i := 0; i < len(pairs); i += 2 {
		out[pairs[i]] = pairs[i+1]
	}
	return out
}

func github(event, body, key string) map[string]string {
	return headers("X-GitHub-Event", event, "X-Hub-Signature-256", "sha256="+sign(key, body))
}

func gitea(event, body, key string) map[string]string {
	return headers("X-Gitea-Event", event, "X-Gitea-Signature", sign(key, body), "X-GitHub-Event", event)
}

func gitlab(event, token string) map[string]string {
	return headers("X-Gitlab-Event", event, "X-Gitlab-Token", token)
}

func TestWebhook(t *testing.T) {
	t.Parallel()
	const main, other = `{"ref":"refs/heads/main"}`, `{"ref":"refs/heads/other"}`
	large := `{"ref":"` + strings.Repeat("x", maxPayload) + `"}`
	tests := []struct {
		name    string
		headers map[string]string
		body    string
		code    int
		passes  int
	}{
		{"github push", github("push", main, secret), main, 200, 1},
		{"github push of another branch", github("push", other, secret), other, 202, 0},
		{"github ping", github("ping", "{}", secret), "{}", 202, 0},
		{"github wrong secret", github("push", main, "guess"), main, 401, 0},
		{"github wrong secret of an ignored event", github("ping", "{}", "guess"), "{}", 401, 0},
		{"github altered body", github("push", other, secret), main, 401, 0},
		{"github no signature", headers("X-GitHub-Event", "push"), main, 401, 0},
		{"github bare signature", headers("X-GitHub-Event", "push", "X-Hub-Signature-256", sign(secret, main)), main, 401, 0},
		{"github SHA-1 signature", headers("X-GitHub-Event", "push", "X-Hub-Signature", "sha1=00"), main, 401, 0},
		{"gitea push", gitea("push", main, secret), main, 200, 1},
		{"gitea wrong secret", gitea("push", main, "guess"), main, 401, 0},
		{"gitea no hex", headers("X-Gitea-Event", "push", "X-Gitea-Signature", "zz"), main, 401, 0},
		{"gitlab push", gitlab("Push Hook", secret), main, 200, 1},
		{"gitlab tag", gitlab("Tag Push Hook", secret), main, 202, 0},
		{"gitlab wrong token", gitlab("Push Hook", "s3cre"), main, 401, 0},
		{"gitlab no token", headers("X-Gitlab-Event", "Push Hook"), main, 401, 0},
		{"headers of no known host", nil, main, 401, 0},
		{"not JSON", github("push", "ref=x", secret), "ref=x", 400, 0},
		{"too large", github("push", large, secret), large, 413, 0},
	}
	file := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(file, []byte(secret+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			passes, counted := 0, 0
			h := &webhook{secretFile: file, ref: "refs/heads/main", trigger: func() { passes++ }, count: func(string) { counted++ }}
			code, text := call(h, tt.headers, tt.body)
			if code != tt.code || passes != tt.passes || counted != 1 {
				t.Errorf("code %d, passes %d, counted %d; want %d, %d, 1", code, passes, counted, tt.code, tt.passes)
			}
			if strings.Contains(text, secret) {
				t.Errorf("the answer shows the secret: %s", text)
			}
		})
	}
}

func TestWebhookWithoutSecret(t *testing.T) {
	t.Parallel()
	empty := filepath.Join(t.TempDir(), "empty")
	if err := os.WriteFile(empty, []byte("\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	tests := []struct {
		name, file string
		code       int
	}{
		{"switched off", "", http.StatusNotFound},
		{"file gone", filepath.Join(t.TempDir(), "none"), http.StatusInternalServerError},
		{"empty file", empty, http.StatusInternalServerError},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			h := &webhook{secretFile: tt.file, trigger: func() { t.Error("a pass was asked for") }, count: func(string) {}}
			body := `{"ref":""}`
			// Anyone can sign with an empty secret.
			code, _ := call(h, map[string]string{"X-GitHub-Event": "push", "X-Hub-Signature-256": "sha256=" + sign("", body)}, body)
			if code != tt.code {
				t.Errorf("code %d, want %d", code, tt.code)
			}
		})
	}
}

func call(h http.Handler, headers map[string]string, body string) (int, string) {
	req := httptest.NewRequest(http.MethodPost, "/webhook", bytes.NewReader([]byte(body)))
	for k, v := range headers {
		req.Header.Set(k, v)
	}
	rec := httptest.NewRecorder()
	h.ServeHTTP(rec, req)
	return rec.Code, rec.Body.String()
}
