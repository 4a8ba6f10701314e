package reconciler

import (
	"net/http"
	"net/http/cgi"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"hawser.dev/hawser/internal/tlstest"
	"hawser.dev/hawser/reconciler/gitrepo"
)

// TestMain trusts httptest's certificates, because the reconciler sends a login only over https.
func TestMain(m *testing.M) { os.Exit(tlstest.Run(m)) }

const token = "t0ken-of-the-test"

// host serves bare repositories over HTTP with a login, as a code host does. The repository
// readonly.git accepts no push.
type host struct {
	*httptest.Server
	root  string
	down  atomic.Bool
	token atomic.Value // string
}

func newHost(t *testing.T) *host {
	t.Helper()
	out, err := exec.Command("git", "--exec-path").Output()
	if err != nil {
		t.Fatal(err)
	}
	h := &host{root: t.TempDir()}
	h.token.Store(token)
	for name, push := range map[string]string{"set.git": "true", "readonly.git": "false"} {
		dir := filepath.Join(h.root, name)
		git(t, h.root, "init", "-q", "--bare", "-b", "main", dir)
		git(t, dir, "config", "http.receivepack", push)
	}
	backend := &cgi.Handler{
		Path: filepath.Join(strings.TrimSpace(string(out)), "git-http-backend"),
		Env:  []string{"GIT_PROJECT_ROOT=" + h.root, "GIT_HTTP_EXPORT_ALL=1"},
	}
	h.Server = httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, password, _ := r.BasicAuth()
		switch {
		case h.down.Load():
			http.Error(w, "maintenance", http.StatusServiceUnavailable)
		case password != h.token.Load():
			w.Header().Set("WWW-Authenticate", "Basic")
			http.Error(w, "log in", http.StatusUnauthorized)
		default:
			backend.ServeHTTP(w, r)
		}
	}))
	t.Cleanup(h.Close)
	return h
}

// newEnv returns a test environment whose source is a repository of the host.
func (h *host) newEnv(t *testing.T, name string, alter ...func(*Config)) *testEnv {
	t.Helper()
	file := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(file, []byte(token+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	login := func(c *Config) {
		c.Source.URL, c.Source.Auth.PasswordFile = h.URL+"/"+name, file
		c.Source.Auth.Host = gitrepo.HostOf(h.URL)
		c.Publish.Auth = c.Source.Auth
	}
	g := newTestEnv(t, true, append([]func(*Config){login}, alter...)...)
	g.repo = filepath.Join(h.root, name)
	return g
}

func TestRemoteRepository(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	g := h.newEnv(t, "set.git")
	g.mustFail(ReasonNoBranch)
	g.commit(TopologyFile, topologyOf("g1", "g2"))
	out := g.mustPass()
	if out.Published != g.published() || out.LockNotCommitted {
		t.Fatalf("outcome %+v, published %s", out, g.published())
	}
	g.pull()

	h.down.Store(true)
	g.commit(TopologyFile, topologyOf("g1", "g2", "g3"))
	g.mustFail(ReasonFetch)
	if s := g.Status(); s.Published != out.Published || !s.Ready {
		t.Errorf("status %+v", s)
	}
	h.down.Store(false)
	if next := g.mustPass(); !next.Changed || next.Published != g.published() {
		t.Errorf("outcome %+v", next)
	}
	git(t, g.repo, "fsck", "--strict")
}

// TestTokenIsRenewed replaces an expired token in its file while the reconciler runs. For example,
// tokens of a GitHub App expire after an hour.
func TestTokenIsRenewed(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	g := h.newEnv(t, "set.git")
	g.commit(TopologyFile, topologyOf("g1", "g2"))
	before := g.mustPass()
	g.pull()
	h.token.Store("the-next-one")
	g.commit(TopologyFile, topologyOf("g1", "g2", "g3"))
	g.mustFail(ReasonFetch)
	if err := os.WriteFile(g.cfg.Source.Auth.PasswordFile, []byte("the-next-one\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if out := g.mustPass(); out.Published == before.Published || out.Published != g.published() {
		t.Errorf("outcome %+v", out)
	}
}

func TestRemoteReconcilersMeet(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	g := h.newEnv(t, "set.git")
	other := g.newReconciler()
	g.commit(TopologyFile, topologyOf("g1", "g2"))
	g.mustPass()
	if out := onlyOutcome(t, other); out.Changed || out.Published != g.published() {
		t.Errorf("the second published again: %+v", out)
	}
}

// TestReadOnlySource checks that the publish branch keeps a lock that cannot be committed.
func TestReadOnlySource(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	g := h.newEnv(t, "readonly.git", func(c *Config) { c.Publish.URL = h.URL + "/set.git" })
	source := g.commit(TopologyFile, topologyOf("g1", "g2"))
	out := g.mustPass()
	if !out.LockNotCommitted || out.Source.Commit != source {
		t.Errorf("outcome %+v", out)
	}
	if have := git(t, filepath.Join(h.root, "set.git"), "rev-parse", DefaultPublishBranch); have != out.Published {
		t.Errorf("published %s, want %s", have, out.Published)
	}
}

func TestWrongLoginNeverShows(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	const wrong = "wr0ng-password"
	for name, alter := range map[string]func(*Config){
		"file": func(c *Config) { c.Source.Auth.PasswordFile, c.Source.Auth.Password = "", wrong },
		"url": func(c *Config) {
			c.Source.Auth.PasswordFile = ""
			c.Source.URL = strings.Replace(c.Source.URL, "://", "://me:"+wrong+"@", 1)
		},
	} {
		g := h.newEnv(t, "set.git", alter)
		f := g.mustFail(ReasonFetch)
		if strings.Contains(f.Error(), wrong) || strings.Contains(g.Status().Source.Repo, wrong) {
			t.Errorf("%s: the password shows: %s", name, f.Error())
		}
	}
}

// BenchmarkCommitToPublished times a pass for a small clusterset in a local repository. Each
// iteration has a new commit, which is not timed.
func BenchmarkCommitToPublished(b *testing.B) {
	g := newTestEnv(b, false)
	sets := []string{topologyOf("g1", "g2"), topologyOf("g1", "g2", "g3")}
	for i := 0; b.Loop(); i++ {
		b.StopTimer()
		g.commit(TopologyFile, sets[i%2])
		b.StartTimer()
		if !g.mustPass().Changed {
			b.Fatal("nothing was published")
		}
	}
}
