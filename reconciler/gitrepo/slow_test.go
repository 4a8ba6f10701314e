package gitrepo_test

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"net/http"
	"net/http/cgi"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"hawser.dev/hawser/reconciler/gitrepo"
)

// slowServer serves a repository over HTTP. send writes the responses to requests whose URL
// contains text. git http-backend writes all other responses.
func slowServer(t *testing.T, text string, send func(w http.ResponseWriter, r *http.Request, body []byte)) (dir, url string) {
	t.Helper()
	core := git(t, t.TempDir(), "--exec-path")
	root := t.TempDir()
	dir = filepath.Join(root, "set.git")
	git(t, root, "init", "-q", "--bare", "-b", "main", dir)
	git(t, dir, "config", "http.receivepack", "true")
	backend := &cgi.Handler{Path: filepath.Join(core, "git-http-backend"), Env: []string{"GIT_PROJECT_ROOT=" + root, "GIT_HTTP_EXPORT_ALL=1"}}
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !strings.Contains(r.URL.String(), text) {
			backend.ServeHTTP(w, r)
			return
		}
		recorder := httptest.NewRecorder()
		backend.ServeHTTP(recorder, r)
		for name, values := range recorder.Header() {
			w.Header()[name] = slices.Clone(values)
		}
		w.WriteHeader(recorder.Code)
		send(w, r, recorder.Body.Bytes())
	}))
	t.Cleanup(srv.Close)
	return dir, srv.URL + "/set.git"
}

// commitNoise commits an incompressible file and pushes main.
func commitNoise(t *testing.T, dir string, size int) string {
	t.Helper()
	raw, random := make([]byte, size), rand.NewChaCha8([32]byte{1})
	if _, err := random.Read(raw); err != nil {
		t.Fatal(err)
	}
	work := workTree(t)
	head := commitFile(t, work, "noise", string(raw))
	git(t, work, "push", "-q", dir, "main")
	return head
}

func openMirror(t *testing.T, url, cache string, silence time.Duration) *gitrepo.Store {
	t.Helper()
	s, err := gitrepo.Open(gitrepo.Config{URL: url, Cache: cache, IdleTimeout: silence})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// unfinished returns the files of a mirror that belong to no complete pack.
func unfinished(t *testing.T, cache string) []string {
	t.Helper()
	var out []string
	files, err := os.ReadDir(filepath.Join(cache, "objects", "pack"))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
	for _, f := range files {
		if !strings.HasPrefix(f.Name(), "pack-") {
			out = append(out, f.Name())
		}
	}
	return out
}

// TestSlowServer checks that a transfer can last longer than Config.IdleTimeout.
func TestSlowServer(t *testing.T) {
	t.Parallel()
	for name, cache := range map[string]string{"memory": "", "disk": filepath.Join(t.TempDir(), "cache")} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for silence := time.Second; !slowFetch(t, cache, silence); silence *= 2 {
				t.Logf("the machine is too slow for a silence of %s", silence)
			}
		})
	}
}

// slowFetch runs a fetch that lasts longer than silence. It reports whether the server sent in
// time: a loaded machine can stop the whole process.
func slowFetch(t *testing.T, cache string, silence time.Duration) bool {
	t.Helper()
	const chunks = 40
	var late atomic.Bool
	var last atomic.Pointer[time.Time]
	sent := func() { // records the time of the server's last bytes, and whether they were late
		now := time.Now()
		if before := last.Swap(&now); before != nil && now.Sub(*before) > silence/4 {
			late.Store(true)
		}
	}
	dir, url := slowServer(t, "/set.git/git-upload-pack", func(w http.ResponseWriter, _ *http.Request, body []byte) {
		tick := time.NewTicker(silence / 30)
		defer tick.Stop()
		for chunk := range slices.Chunk(body, max(1, len(body)/chunks)) {
			<-tick.C
			_, _ = w.Write(chunk)
			w.(http.Flusher).Flush()
			sent()
		}
	})
	want := commitNoise(t, dir, 2<<20)
	s, start := openMirror(t, url, cache, silence), time.Now()
	sent()
	err := s.Fetch(t.Context(), "main")
	took := time.Since(start)
	sent()
	if err != nil && late.Load() && strings.Contains(err.Error(), "the server sent nothing") {
		return false
	}
	if err != nil || took < silence {
		t.Fatalf("after %s of a transfer that may be silent for %s: %v", took, silence, err)
	}
	if have := head(t, s, "main").String(); have != want {
		t.Errorf("head %s, want %s", have, want)
	}
	if left := unfinished(t, cache); len(left) > 0 {
		t.Errorf("files left: %q", left)
	}
	return true
}

// TestSilentServer checks that an exchange fails at any point if the server sends nothing for
// Config.IdleTimeout. It leaves no partial pack, and the next exchange succeeds.
func TestSilentServer(t *testing.T) {
	t.Parallel()
	const silence = 300 * time.Millisecond
	for name, test := range map[string]struct {
		request string
		percent int // of the response that the server sends
		cut     bool
	}{
		"refs":               {"/set.git/info/refs", 0, false},
		"half of the refs":   {"/set.git/info/refs", 50, false},
		"pack":               {"/set.git/git-upload-pack", 0, false},
		"half of the pack":   {"/set.git/git-upload-pack", 50, false},
		"cut in the pack":    {"/set.git/git-upload-pack", 50, true},
		"end of the pack":    {"/set.git/git-upload-pack", 99, false},
		"answer to the push": {"/set.git/git-receive-pack", 0, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var silent, reached atomic.Bool
			dir, url := slowServer(t, test.request, func(w http.ResponseWriter, r *http.Request, body []byte) {
				if !silent.Load() {
					_, _ = w.Write(body)
					return
				}
				reached.Store(true)
				_, _ = w.Write(body[:len(body)*test.percent/100])
				w.(http.Flusher).Flush()
				if test.cut {
					panic(http.ErrAbortHandler)
				}
				<-r.Context().Done()
			})
			want := commitNoise(t, dir, 1<<20)
			cache := filepath.Join(t.TempDir(), "cache")
			push := strings.Contains(name, "push")
			if push {
				sync(t, openMirror(t, url, cache, 0), "main")
			}
			// On a loaded machine another request can be late. Then retry with a longer
			// timeout.
			for silence := silence; !reached.Load(); silence *= 2 {
				message := "the server sent nothing for " + silence.String()
				s := openMirror(t, url, cache, silence)
				if test.cut {
					s, message = openMirror(t, url, cache, 0), "unexpected EOF"
				}
				silent.Store(true)
				var err error
				if push {
					err = pushFirst(t, s)
				} else {
					err = s.Fetch(t.Context(), "main")
				}
				silent.Store(false)
				if err == nil || !strings.Contains(err.Error(), message) {
					t.Fatalf("%v, want %q", err, message)
				}
				if left := unfinished(t, cache); len(left) > 0 {
					t.Fatalf("files left: %q", left)
				}
			}
			s := openMirror(t, url, cache, 0)
			sync(t, s, "main")
			if have := head(t, s, "main").String(); have != want {
				t.Errorf("head %s, want %s", have, want)
			}
			if err := pushFirst(t, s); err != nil && !errors.Is(err, gitrepo.ErrRefChanged) { // the first push may have succeeded
				t.Error(err)
			}
		})
	}
}

// pushFirst pushes a first commit to branch rendered.
func pushFirst(t *testing.T, s *gitrepo.Store) error {
	t.Helper()
	hash, err := s.Write(gitrepo.Commit{Files: map[string][]byte{"x": nil}, When: when})
	if err != nil {
		t.Fatal(err)
	}
	return s.FastForward(t.Context(), "rendered", gitrepo.Hash{}, hash)
}

// TestUnfinishedPacksOfAKilledProcess checks that the next process removes only unfinished packs.
func TestUnfinishedPacksOfAKilledProcess(t *testing.T) {
	t.Parallel()
	dir, url := serve(t)
	want := commitNoise(t, dir, 100)
	cache := filepath.Join(t.TempDir(), "cache")
	sync(t, openMirror(t, url, cache, 0), "main")
	for _, name := range []string{"tmp_pack_1", "tmp_received_2", "tmp_idx_3"} {
		put(t, cache, "objects/pack/"+name, "part")
	}
	s := openMirror(t, url, cache, 0)
	if diff := cmp.Diff([]string(nil), unfinished(t, cache)); diff != "" {
		t.Errorf("files left (-want +got):\n%s", diff)
	}
	if have := head(t, s, "main").String(); have != want {
		t.Errorf("head %s, want %s", have, want)
	}
}

// TestHookMessage checks that the error of a push contains the output of the server's hook. The
// output is limited in length, and has no control characters and no password.
func TestHookMessage(t *testing.T) {
	t.Parallel()
	dir, url := serve(t)
	url = strings.Replace(url, "://", "://me:"+password+"@", 1)
	s := open(t, url)
	sync(t, s, "rendered")
	hash, err := s.Write(gitrepo.Commit{Files: map[string][]byte{"x": nil}, When: when})
	if err != nil {
		t.Fatal(err)
	}
	for script, want := range map[string]string{
		"echo 'GL-HOOK-ERR: pushes to rendered need the role Maintainer'; exit 1": "; remote: GL-HOOK-ERR: pushes to rendered need the role Maintainer",
		"echo first; echo; printf 'second\\033[31m'; exit 1":                      "; remote: first; remote: second [31m",
		"echo 'do not send " + password + "'; exit 1":                             "; remote: do not send ***",
		"head -c 1000000 /dev/zero | tr '\\0' x; exit 1":                          "xxx...",
	} {
		hook := filepath.Join(dir, "hooks", "pre-receive")
		if err := os.WriteFile(hook, []byte("#!/bin/sh\n"+script+"\n"), 0o755); err != nil {
			t.Fatal(err)
		}
		err := s.FastForward(t.Context(), "rendered", gitrepo.Hash{}, hash)
		if err == nil || !strings.Contains(err.Error(), "pre-receive hook declined"+want) && !strings.HasSuffix(err.Error(), want) {
			t.Fatalf("%s: %v", script, err)
		}
		if text := []byte(err.Error()); len(text) > 3000 || bytes.ContainsAny(text, "\x1b\r\n") || bytes.Contains(text, []byte(password)) {
			t.Errorf("%s: %d bytes: %.100q", script, len(text), text)
		}
	}
	sync(t, s, "rendered")
	if _, err := s.Head("rendered"); !errors.Is(err, gitrepo.ErrNoBranch) {
		t.Errorf("the branch exists: %v", err)
	}
}
