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
	"time"

	"golang.org/x/sys/unix"

	"hawser.dev/hawser/nodeagent/kernel/childprocess"
	"hawser.dev/hawser/nodeagent/kernel/ipsec/vici"
)

// ErrNoCharon means that no charon responds.
var ErrNoCharon = errors.New("no charon answers")

const (
	startTimeout = 20 * time.Second     // until a started charon replies
	stopTimeout  = 3 * time.Second      // between SIGTERM and SIGKILL
	pollInterval = 5 * time.Millisecond // between two attempts to connect

	outputFile = "charon.out"
	logFile    = "charon.log"
)

// Program returns the path of charon.
func Program() (string, error) {
	// charon-systemd works without systemd. Unlike /usr/lib/ipsec/charon, it has no process ID
	// file shared by all network namespaces.
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

// Charon is the IPsec daemon of this node.
type Charon struct {
	// Dir is the directory of our own charon's settings, socket and log.
	Dir string
	// ExternalSocket is the vici socket of a charon that the host runs; empty = our own charon.
	ExternalSocket string
	// Kernel reports whether the kernel has ESP. If not, or if Kernel is nil, charon encrypts.
	// It is called when the result is needed.
	Kernel func() bool
	Log    *slog.Logger // may be nil
}

// Managed reports whether the agent starts and stops the charon.
func (c *Charon) Managed() bool { return c.ExternalSocket == "" }

// Socket returns the path of its vici socket.
func (c *Charon) Socket() string {
	if c.Managed() {
		return filepath.Join(c.Dir, "charon.vici")
	}
	return c.ExternalSocket
}

// Dial connects to charon. It returns ErrNoCharon if charon does not accept. While the queue of
// its socket is full, it waits.
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

// socketExists reports whether charon's socket exists, so that a charon may listen.
func (c *Charon) socketExists() bool {
	_, err := os.Stat(c.Socket())
	return err == nil
}

// Alive reports whether a charon listens, even if it is busy or hangs. The Supervisor detects a
// charon that hangs.
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

// Ports returns the UDP ports of IKE and of IKE behind NAT. ok is false if charon does not
// respond. The ports of the host's charon are unknown and 0.
func (c *Charon) Ports() (ike, nat int, ok bool) {
	if !c.Alive() {
		return 0, 0, false
	}
	if !c.Managed() {
		return 0, 0, true
	}
	p := c.settingsPorts()
	return p.ike, p.nat, p != ports{}
}

// Start starts our own charon in the current network namespace and returns when it replies. The
// process outlives the caller. The host's charon must be running.
func (c *Charon) Start(ctx context.Context, ike, nat int) error {
	if !c.Managed() {
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
	// The socket's path is relative to the directory, as an absolute path may be too long.
	cmd.Dir, cmd.Env = c.Dir, append(os.Environ(), "STRONGSWAN_CONF="+c.path(settingsFile))
	if err := os.Remove(c.path(logFile)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("start charon: %w", err)
	}
	pid, err := childprocess.Command{
		Name: "charon", Cmd: cmd, Log: c.path(outputFile), MoreLogs: []string{c.path(logFile)}, Ready: c.awaitReply, Timeout: startTimeout,
	}.Start(ctx)
	if err != nil {
		return err
	}
	if err := enlargeBuffers(pid); err != nil && c.Log != nil {
		c.Log.Warn("receive buffers of charon not enlarged: it may lose packets while it waits for a processor", "err", err)
	}
	return nil
}

// awaitReply waits until charon replies to a request: its socket accepts connections earlier.
func (c *Charon) awaitReply(ctx context.Context) error {
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

func (c *Charon) path(name string) string { return filepath.Join(c.Dir, name) }

// receiveBuffer is the size of the receive buffers of charon's UDP sockets, bytes, as in
// userspace WireGuard processes. The kernel counts about 800 bytes for a small packet, and its
// default is 208 KiB: a quarter of a second at 1000 packets a second. A process may wait that
// long on a busy machine.
const receiveBuffer = 7 << 20

// enlargeBuffers enlarges the receive buffers of charon's UDP sockets. Charon has no setting for
// them, so the sockets are duplicated from its process.
func enlargeBuffers(pid int) error {
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
		target, err := os.Readlink(filepath.Join(dir, e.Name()))
		number, numberErr := strconv.Atoi(e.Name())
		if err == nil && numberErr == nil && strings.HasPrefix(target, "socket:") {
			errs = append(errs, enlargeBuffer(process, number))
		}
	}
	return errors.Join(errs...)
}

// enlargeBuffer enlarges the receive buffer of one socket if it is a UDP socket.
func enlargeBuffer(process, number int) error {
	fd, err := unix.PidfdGetfd(process, number, 0)
	if errors.Is(err, unix.EBADF) {
		return nil // closed since
	}
	if err != nil {
		return fmt.Errorf("duplicate socket %d of charon: %w", number, err)
	}
	defer unix.Close(fd)
	if protocol, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_PROTOCOL); err != nil || protocol != unix.IPPROTO_UDP {
		return nil
	}
	if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, receiveBuffer); err != nil {
		return fmt.Errorf("enlarge buffer of socket %d of charon: %w", number, err)
	}
	return nil
}
