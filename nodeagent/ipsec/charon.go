package ipsec

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"hawser.dev/hawser/nodeagent/ipsec/vici"
)

// ErrNoCharon says that no charon answers.
var ErrNoCharon = errors.New("no charon answers")

const (
	startTimeout = 20 * time.Second     // until a charon that was started answers
	stopTimeout  = 3 * time.Second      // until one that was asked to end is killed
	pollInterval = 5 * time.Millisecond // between two looks whether it answers
)

// Program finds charon.
func Program() (string, error) {
	// That of systemd's unit needs no systemd; other than /usr/lib/ipsec/charon it has no process
	// id file that is one for all network namespaces.
	for _, path := range []string{
		"/usr/sbin/charon-systemd", "/usr/lib/ipsec/charon-systemd",
		"/usr/libexec/ipsec/charon-systemd", "/usr/libexec/strongswan/charon-systemd",
	} {
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
	// Kernel finds out whether the kernel has ESP; otherwise, or when nil, charon
	// does it itself. It is asked when the answer is needed.
	Kernel func() bool
	Log    *slog.Logger // may be nil
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

// Dial connects to it; ErrNoCharon when nobody answers. While the queue of its
// socket is full it waits.
func (c *Charon) Dial(ctx context.Context) (*vici.Client, error) {
	for {
		client, err := vici.Dial(ctx, c.Socket())
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ECONNREFUSED) {
			return nil, fmt.Errorf("%w: %w", ErrNoCharon, err)
		}
		if !errors.Is(err, unix.EAGAIN) {
			return client, err
		}
		select {
		case <-ctx.Done():
			return nil, errors.Join(err, ctx.Err())
		case <-time.After(pollInterval):
		}
	}
}

// present reports whether there may be a charon.
func (c *Charon) present() bool {
	_, err := os.Stat(c.Socket())
	return err == nil
}

// Alive reports whether there is one. One that is busy or hangs is: Watch finds out
// which of the two it is.
func (c *Charon) Alive() bool {
	ctx, cancel := context.WithTimeout(context.Background(), 10*pollInterval)
	defer cancel()
	client, err := c.Dial(ctx)
	if err != nil {
		return !errors.Is(err, ErrNoCharon)
	}
	_ = client.Close()
	return true
}

// InKernel reports whether the kernel encrypts.
func (c *Charon) InKernel() bool { return c.Kernel != nil && c.Kernel() }

// Listens gives the UDP ports of IKE and of IKE behind NAT; not ok when charon does
// not answer. Those of the host's charon are not known and 0.
func (c *Charon) Listens() (ike, nat int, ok bool) {
	if !c.Alive() {
		return 0, 0, false
	}
	if !c.Own() {
		return 0, 0, true
	}
	p := c.ports()
	return p.ike, p.nat, p != ports{}
}

// Start starts our own charon in the current network namespace and returns when
// it answers. It is in a session of its own and goes on when the caller ends. The
// host's charon has to be there.
func (c *Charon) Start(ctx context.Context, ike, nat int) error {
	if !c.Own() {
		client, err := c.Dial(ctx)
		if err != nil {
			return err
		}
		return client.Close()
	}
	program, err := Program()
	if err != nil {
		return err
	}
	if err := c.Stop(ctx); err != nil {
		return err
	}
	if err := c.configure(ports{ike, nat}); err != nil {
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
	if err := widen(cmd.Process.Pid); err != nil && c.Log != nil {
		c.Log.Warn("charon has the kernel's own room for packets, and may lose some while it waits for a processor", "err", err)
	}
	return nil
}

// await waits until charon answers a question: its socket takes connections before
// it does.
func (c *Charon) await(ctx context.Context, ended <-chan error) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	answered := make(chan error, 1)
	go func() { answered <- c.ask(ctx) }()
	select {
	case err := <-ended:
		return fmt.Errorf("charon ended at once (%v): %s", err, c.lastWords())
	case err := <-answered:
		if err != nil {
			return fmt.Errorf("charon does not answer: %w", err)
		}
		return nil
	}
}

func (c *Charon) ask(ctx context.Context) error {
	for {
		client, err := c.Dial(ctx)
		if err == nil {
			_, err = client.Call(ctx, "version", nil)
			return errors.Join(err, client.Close())
		}
		if !errors.Is(err, ErrNoCharon) {
			return err
		}
		select {
		case <-ctx.Done():
			return errors.Join(err, ctx.Err())
		case <-time.After(pollInterval):
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

func (c *Charon) file(name string) string { return filepath.Join(c.Dir, name) }

// roomiest is how many bytes charon's sockets hold of what it did not read yet.
// The kernel counts some 800 for a small packet, and by default holds 208 KiB:
// what comes within a quarter of a second at 1000 packets a second, for which a
// process may well have to wait on a machine that is busy. WireGuard's processes
// have as much.
const roomiest = 7 << 20

// widen gives the UDP sockets of our own charon room. There is no setting for
// it, so they are borrowed from the process for a moment.
func widen(pid int) error {
	process, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return fmt.Errorf("open process of charon: %w", err)
	}
	defer unix.Close(process)
	dir := filepath.Join("/proc", strconv.Itoa(pid), "fd")
	entries, err := os.ReadDir(dir)
	if err != nil {
		return fmt.Errorf("list sockets of charon: %w", err)
	}
	var errs []error
	for _, e := range entries {
		what, err := os.Readlink(filepath.Join(dir, e.Name()))
		number, bad := strconv.Atoi(e.Name())
		if err == nil && bad == nil && strings.HasPrefix(what, "socket:") {
			errs = append(errs, widenOne(process, number))
		}
	}
	return errors.Join(errs...)
}

// widenOne widens one socket, if it is one of UDP.
func widenOne(process, number int) error {
	fd, err := unix.PidfdGetfd(process, number, 0)
	if errors.Is(err, unix.EBADF) {
		return nil // closed since
	}
	if err != nil {
		return fmt.Errorf("borrow socket %d of charon: %w", number, err)
	}
	defer unix.Close(fd)
	if protocol, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_PROTOCOL); err != nil || protocol != unix.IPPROTO_UDP {
		return nil
	}
	if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, roomiest); err != nil {
		return fmt.Errorf("widen socket %d of charon: %w", number, err)
	}
	return nil
}
