package ipsec

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"hawser.dev/hawser/nodeagent/ipsec/vici"
)

// ErrNoCharon says that no charon answers.
var ErrNoCharon = errors.New("no charon answers")

const (
	startTimeout = 20 * time.Second
	stopTimeout  = 3 * time.Second
	pollInterval = 5 * time.Millisecond
)

// programs are the places of charon. That of systemd's unit needs no systemd; other
// than /usr/lib/ipsec/charon it has no process id file that is one for all network
// namespaces.
func programs() []string {
	return []string{"/usr/sbin/charon-systemd", "/usr/lib/ipsec/charon-systemd", "/usr/libexec/ipsec/charon-systemd", "/usr/libexec/strongswan/charon-systemd"}
}

// Program finds charon.
func Program() (string, error) {
	for _, path := range programs() {
		if info, err := os.Stat(path); err == nil && info.Mode().IsRegular() {
			return path, nil
		}
	}
	return "", errors.New("strongSwan's charon-systemd is not installed (Debian: packages charon-systemd, strongswan-swanctl, " +
		"libstrongswan-standard-plugins and, for kernels without ESP, libcharon-extra-plugins)")
}

// Charon is the daemon that this node's IPsec runs in.
type Charon struct {
	// Dir is the folder of our own charon's settings, socket and log.
	Dir string
	// Host is the vici socket of a charon that the host runs; empty = our own.
	Host string
	// Kernel says that the kernel has ESP; otherwise charon does it itself.
	Kernel bool
}

// Own reports whether the charon is ours to start and stop.
func (c *Charon) Own() bool { return c.Host == "" }

// Socket is where it listens.
func (c *Charon) Socket() string {
	if c.Own() {
		return filepath.Join(c.Dir, "charon.vici")
	}
	return c.Host
}

// Dial connects to it; ErrNoCharon when nobody answers.
func (c *Charon) Dial(ctx context.Context) (*vici.Client, error) {
	client, err := vici.Dial(ctx, c.Socket())
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ECONNREFUSED) {
		return nil, fmt.Errorf("%w: %w", ErrNoCharon, err)
	}
	return client, err
}

// present reports whether there may be a charon.
func (c *Charon) present() bool {
	_, err := os.Stat(c.Socket())
	return err == nil
}

// Alive reports whether it answers.
func (c *Charon) Alive() bool {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	client, err := c.Dial(ctx)
	if err != nil {
		return false
	}
	return client.Close() == nil
}

// Start starts our own charon in the current network namespace and returns when
// it answers. It is in a session of its own and goes on when the caller ends.
func (c *Charon) Start(ctx context.Context, ports Ports) error {
	program, err := Program()
	if err != nil {
		return err
	}
	if err := c.Stop(ctx); err != nil {
		return err
	}
	if err := c.configure(ports); err != nil {
		return err
	}
	cmd := exec.Command(program)
	// The socket is given relative to the folder, as its whole path may be too long.
	cmd.Dir, cmd.Env = c.Dir, append(os.Environ(), "STRONGSWAN_CONF="+c.file(settingsFile))
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	out, err := os.Create(c.file("charon.out"))
	if err != nil {
		return fmt.Errorf("start charon: %w", err)
	}
	defer out.Close()
	cmd.Stdout, cmd.Stderr = out, out
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start charon: %w", err)
	}
	ended := make(chan error, 1)
	// Waits for as long as the process lives, so that it never stays as a zombie of a
	// long-running agent; it ends with either of the two.
	go func() { ended <- cmd.Wait() }()
	if err := c.await(ctx, ended); err != nil {
		if killed := cmd.Process.Kill(); !errors.Is(killed, os.ErrProcessDone) {
			err = errors.Join(err, killed)
		}
		return err
	}
	return nil
}

func (c *Charon) await(ctx context.Context, ended <-chan error) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	tick := time.NewTicker(pollInterval)
	defer tick.Stop()
	for {
		select {
		case err := <-ended:
			return fmt.Errorf("charon ended at once (%v): %s", err, c.lastWords())
		case <-ctx.Done():
			return fmt.Errorf("charon does not answer: %w", ctx.Err())
		case <-tick.C:
			if c.Alive() {
				return nil
			}
		}
	}
}

func (c *Charon) lastWords() string {
	const most = 600
	var words []string
	for _, name := range []string{"charon.out", "charon.log"} {
		raw, err := os.ReadFile(c.file(name))
		if text := strings.TrimSpace(string(raw[max(0, len(raw)-most):])); err == nil && text != "" {
			words = append(words, text)
		}
	}
	if len(words) == 0 {
		return "it said nothing"
	}
	return strings.Join(words, "; ")
}

// Stop ends our own charon, which tells all peers, and waits until it is gone.
func (c *Charon) Stop(ctx context.Context) error {
	client, err := c.Dial(ctx)
	if errors.Is(err, ErrNoCharon) {
		_ = os.Remove(c.Socket()) // of one that was killed
		return nil
	}
	if err != nil {
		return err
	}
	pid, err := client.PID()
	if err = errors.Join(err, client.Close()); err != nil {
		return err
	}
	process, err := c.process(pid)
	if err != nil {
		return err
	}
	defer unix.Close(process)
	for _, signal := range []unix.Signal{unix.SIGTERM, unix.SIGKILL} {
		if err := unix.PidfdSendSignal(process, signal, nil, 0); err != nil && !errors.Is(err, unix.ESRCH) {
			return fmt.Errorf("end charon, process %d: %w", pid, err)
		}
		if gone(process, stopTimeout) {
			_ = os.Remove(c.Socket())
			return nil
		}
	}
	return fmt.Errorf("end charon, process %d: it goes on", pid)
}

// process opens the process behind the socket, after a look whether it is a charon.
func (c *Charon) process(pid int) (fd int, err error) {
	fd, err = unix.PidfdOpen(pid, 0)
	if err != nil {
		return 0, fmt.Errorf("find charon, process %d: %w", pid, err)
	}
	exe, err := os.Readlink(fmt.Sprintf("/proc/%d/exe", pid))
	if err != nil || !strings.HasPrefix(filepath.Base(exe), "charon") {
		return 0, errors.Join(fmt.Errorf("process %d behind %s is no charon: %q", pid, c.Socket(), exe), err, unix.Close(fd))
	}
	return fd, nil
}

// gone waits for the end of a process.
func gone(process int, limit time.Duration) bool {
	deadline := time.Now().Add(limit)
	for {
		left := time.Until(deadline)
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(process), Events: unix.POLLIN}}, int(max(left, 0)/time.Millisecond))
		if n > 0 || left <= 0 || err != nil && !errors.Is(err, unix.EINTR) {
			return n > 0
		}
	}
}

func (c *Charon) file(name string) string { return filepath.Join(c.Dir, name) }
