package lab

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"hawser.dev/hawser/lab/netnsexec"
	"hawser.dev/hawser/reconciler"
	"hawser.dev/hawser/schema/fabric/trust"
)

// Delays before the restarts of a program that exits by itself: none before the first, then
// doubling.
const (
	minBackoff = 200 * time.Millisecond
	maxBackoff = 5 * time.Second
	// stableTime is the run time after which the delay starts at zero again.
	stableTime = 10 * time.Second
)

// program is what a child process runs.
type program struct {
	name string // readable name
	argv []string
	env  []string
	log  string // file for its output, appended
}

// child is a program that the daemon restarts until it is stopped.
type child struct {
	program
	slog   *slog.Logger
	cancel context.CancelFunc
	done   chan struct{}

	mu         sync.Mutex
	process    netnsexec.Process // zero if it does not run
	restarts   int
	lastEnd    string
	terminated bool // stop or end was called
}

// startChild starts the program, and restarts it after each exit.
func startChild(p program, log *slog.Logger) *child {
	ctx, cancel := context.WithCancel(context.Background())
	c := &child{program: p, slog: log, cancel: cancel, done: make(chan struct{})}
	go func() {
		defer close(c.done)
		backoff := minBackoff
		for {
			startedAt := time.Now()
			err := c.run(ctx)
			c.mu.Lock()
			if ctx.Err() != nil || c.terminated {
				c.mu.Unlock()
				return
			}
			if time.Since(startedAt) > stableTime {
				backoff = minBackoff
			}
			c.restarts++
			c.lastEnd = fmt.Sprint(err)
			c.mu.Unlock()
			c.slog.Warn("program ended, starting it again", "program", c.name, "err", err, "pause", backoff)
			select {
			case <-ctx.Done():
				return
			case <-time.After(backoff):
			}
			backoff = min(2*backoff, maxBackoff)
		}
	}()
	return c
}

// stop kills the program with SIGKILL, without a restart, and waits for its exit.
func (c *child) stop() {
	c.cancel()
	<-c.done
}

// terminate stops the program with SIGTERM, without a restart, and waits for its exit.
func (c *child) terminate(timeout time.Duration) error {
	c.mu.Lock()
	c.terminated = true
	process := c.process
	c.mu.Unlock()
	defer c.stop()
	if process.PID == 0 {
		return nil // waits for a restart
	}
	if err := process.Signal(unix.SIGTERM); err != nil {
		return err
	}
	select {
	case <-c.done:
		return nil
	case <-time.After(timeout):
		return fmt.Errorf("%s did not end within %s of SIGTERM: it was killed", c.name, timeout)
	}
}

// crash kills the program with SIGKILL; the daemon restarts it.
func (c *child) crash() error {
	process, _, _ := c.state()
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	return netnsexec.Kill(ctx, []netnsexec.Process{process})
}

func (c *child) state() (process netnsexec.Process, restarts int, lastEnd string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.process, c.restarts, c.lastEnd
}

func (c *child) run(ctx context.Context) error {
	log, err := os.OpenFile(c.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return fmt.Errorf("open log of %s: %w", c.name, err)
	}
	defer log.Close()
	cmd := exec.CommandContext(ctx, c.argv[0], c.argv[1:]...)
	cmd.Env, cmd.Stdout, cmd.Stderr = c.env, log, log
	// In its own session, it shares the processors like on its own host (sched(7), autogroup).
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start %s: %w", c.name, err)
	}
	process, err := netnsexec.Find(cmd.Process.Pid)
	c.mu.Lock()
	c.process = process
	c.mu.Unlock()
	err = errors.Join(err, cmd.Wait())
	c.mu.Lock()
	c.process = netnsexec.Process{}
	c.mu.Unlock()
	if err == nil {
		return errors.New("it ended without an error")
	}
	return err
}

// pinSigners writes the pinned signers of a new node, once. Like a real node, it learns later
// signers from signed content.
func (d *daemon) pinSigners(n *node, path string) error {
	if _, err := os.Stat(path); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	root, err := reconciler.ReadRootKey(d.layout.RootKey(), "")
	if err != nil {
		return fmt.Errorf("pin signers on node %s: %w", n.id(), err)
	}
	signers, _, err := root.Signers(d.topology.name, d.topology.epochs)
	if err != nil {
		return fmt.Errorf("pin signers on node %s: %w", n.id(), err)
	}
	var keys []string
	for _, s := range signers {
		keys = append(keys, trust.Line(s.PublicKey()))
	}
	_, err = writeFile(path, []byte(trust.PinFile(d.topology.name, n.cluster, keys)), 0o644)
	return err
}
