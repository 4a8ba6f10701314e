package reconciler

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strings"
	"testing"

	"hawser.dev/hawser/reconciler/gitrepo"
)

// sshHost serves bare repositories with OpenSSH's server, as a code host does. One deploy key can
// push, and a second one can only read.
type sshHost struct {
	dir, url   string // url of the directory of the repositories
	knownHosts string
}

// newSSHHost starts an sshHost. It skips the test if sshd is missing; with REQUIRE_KERNEL=1 it
// fails.
func newSSHHost(t *testing.T) *sshHost {
	t.Helper()
	sshd, err := exec.LookPath("/usr/sbin/sshd")
	if err != nil {
		if os.Getenv("REQUIRE_KERNEL") == "1" {
			t.Fatal("there is no sshd: install openssh-server")
		}
		t.Skip("there is no sshd: install openssh-server")
	}
	me, err := user.Current()
	if err != nil {
		t.Fatal(err)
	}
	// sshd requires its privilege separation directory, which packages leave to the service.
	if me.Uid == "0" {
		if err := os.MkdirAll("/run/sshd", 0o755); err != nil {
			t.Fatal(err)
		}
	}
	h := &sshHost{dir: t.TempDir()}
	for name, passphrase := range map[string]string{"host": "", "writes": "", "reads": "", "stranger": "", "locked": "pass phrase"} {
		h.run(t, "ssh-keygen", "-q", "-t", "ed25519", "-N", passphrase, "-C", name, "-f", filepath.Join(h.dir, name))
	}
	git(t, h.dir, "init", "-q", "--bare", "-b", "main", filepath.Join(h.dir, "set.git"))
	git(t, h.dir, "init", "-q", "--bare", "-b", "main", filepath.Join(h.dir, "rendered.git"))
	serve := `command="git-shell -c \"$SSH_ORIGINAL_COMMAND\"",restrict `
	reads := `command="case \"$SSH_ORIGINAL_COMMAND\" in git-upload-pack*) exec git-shell -c \"$SSH_ORIGINAL_COMMAND\";; esac; echo 'this key may only read' >&2; exit 1",restrict `
	h.write(t, "authorized_keys", serve+h.read(t, "writes.pub")+serve+h.read(t, "locked.pub")+reads+h.read(t, "reads.pub"))
	h.write(t, "config", fmt.Sprintf("HostKey %[1]s/host\nAuthorizedKeysFile %[1]s/authorized_keys\nStrictModes no\nUsePAM yes\nPidFile none\n"+
		"PasswordAuthentication no\nKbdInteractiveAuthentication no\nPermitRootLogin prohibit-password\n", h.dir))

	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		defer close(done)
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			file, err := conn.(*net.TCPConn).File()
			_ = conn.Close()
			if err != nil {
				continue
			}
			one := exec.CommandContext(ctx, sshd, "-i", "-e", "-f", filepath.Join(h.dir, "config"))
			one.Stdin, one.Stdout, one.Dir = file, file, h.dir
			_ = one.Start()
			_ = file.Close()
			go func() { _ = one.Wait() }()
		}
	}()
	t.Cleanup(func() { _ = listener.Close(); cancel(); <-done })
	_, port, _ := net.SplitHostPort(listener.Addr().String())
	h.url = fmt.Sprintf("ssh://%s@127.0.0.1:%s%s", me.Username, port, h.dir)
	h.knownHosts = filepath.Join(h.dir, "known_hosts")
	h.write(t, "known_hosts", "[127.0.0.1]:"+port+" "+h.read(t, "host.pub"))
	return h
}

func (h *sshHost) run(t *testing.T, name string, args ...string) {
	t.Helper()
	if out, err := exec.Command(name, args...).CombinedOutput(); err != nil {
		t.Fatalf("%s: %v: %s", name, err, out)
	}
}

func (h *sshHost) read(t *testing.T, name string) string {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join(h.dir, name))
	if err != nil {
		t.Fatal(err)
	}
	return string(raw)
}

func (h *sshHost) write(t *testing.T, name, text string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(h.dir, name), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// newEnv returns a test environment that logs in with a key.
func (h *sshHost) newEnv(t *testing.T, key string, alter ...func(*Config)) *testEnv {
	t.Helper()
	login := func(c *Config) {
		c.Source.URL = h.url + "/set.git"
		c.Source.Auth.SSHKeyFile, c.Source.Auth.SSHKnownHosts = filepath.Join(h.dir, key), h.knownHosts
		c.Source.Auth.Host = gitrepo.HostOf(h.url)
		c.Publish.Auth = c.Source.Auth
	}
	g := newTestEnv(t, true, append([]func(*Config){login}, alter...)...)
	g.repo = filepath.Join(h.dir, "set.git")
	return g
}

// TestDeployKeys reads and publishes over SSH with deploy keys of a code host.
func TestDeployKeys(t *testing.T) {
	t.Parallel()
	h := newSSHHost(t)
	g := h.newEnv(t, "writes")
	g.mustFail(ReasonNoBranch)
	g.commit(TopologyFile, topologyOf("g1", "g2"))
	if out := g.mustPass(); out.Published == "" || out.Published != g.published() {
		t.Fatalf("outcome %+v, published %s", out, g.published())
	}
	g.pull()
	sameRoot := func(c *Config) { c.RootKeyFile = g.cfg.RootKeyFile }

	t.Run("a key with a passphrase", func(t *testing.T) {
		if out := h.newEnv(t, "locked", sameRoot, func(c *Config) {
			c.Source.Auth.SSHKeyPassword, c.Publish.Auth.SSHKeyPassword = "pass phrase", "pass phrase"
		}).mustPass(); out.Changed {
			t.Errorf("published again: %+v", out)
		}
		h.newEnv(t, "locked", sameRoot).mustFail(ReasonFetch)
	})
	t.Run("a stranger", func(t *testing.T) {
		h.newEnv(t, "stranger").mustFail(ReasonFetch)
	})
	t.Run("another host", func(t *testing.T) {
		other := filepath.Join(t.TempDir(), "known_hosts")
		text := strings.Replace(h.read(t, "known_hosts"), h.read(t, "host.pub"), h.read(t, "stranger.pub"), 1)
		if err := os.WriteFile(other, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		f := h.newEnv(t, "writes", func(c *Config) { c.Source.Auth.SSHKnownHosts, c.Publish.Auth.SSHKnownHosts = other, other }).mustFail(ReasonFetch)
		if !strings.Contains(f.Error(), "key mismatch") {
			t.Errorf("refused with %q", f)
		}
	})
	t.Run("a key that only reads", func(t *testing.T) {
		g := h.newEnv(t, "reads", sameRoot)
		git(t, g.work, "pull", "-q", g.repo, "main")
		g.commit(TopologyFile, topologyOf("g1", "g2", "g3"))
		g.mustFail(ReasonPublish)
		// One repository contains the topology, and a second one the publish branch.
		split := h.newEnv(t, "reads", sameRoot, func(c *Config) {
			c.Publish.URL, c.Publish.Auth.SSHKeyFile = h.url+"/rendered.git", filepath.Join(h.dir, "writes")
		})
		if out := split.mustPass(); !out.LockNotCommitted {
			t.Errorf("outcome %+v", out)
		}
	})
}
