package userspacewg

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

const (
	watchInterval = time.Second // between two looks at a process
	// hangs is how long a process may go without an answer, and hangsMisses how
	// often, before it is replaced.
	hangs       = 3 * time.Second
	hangsMisses = 3
	// hangsMost is how long when the machine has no processor for it, which is no
	// fault of the process, and which a new one would not get either.
	hangsMost = 30 * time.Second
)

// Watch looks after the processes of tunnel devices: it ends one that hangs, so
// that its device goes with it and the agent makes both anew. Its fields must not
// change while it runs.
type Watch struct {
	// Devices gives the names of the devices that should be there.
	Devices func() []string
	Log     *slog.Logger
	// Seen is called when a device has its first process; may be nil.
	Seen func(name string)
	// Replaced is called when a device has a new process; may be nil.
	Replaced func(name string)

	known map[string]*process
}

// process is what is known of the process behind one device.
type process struct {
	pid    int
	silent time.Time     // since when it does not answer; zero = it does
	waited time.Duration // for a processor, until then
	misses int
	cause  string // why it was ended
}

// Run watches until ctx ends.
func (w *Watch) Run(ctx context.Context) error {
	w.known = map[string]*process{}
	tick := time.NewTicker(watchInterval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
			w.look(ctx, time.Now())
		}
	}
}

// look asks all devices at once.
func (w *Watch) look(ctx context.Context, now time.Time) {
	names := w.Devices()
	answers := make([]answer, len(names))
	var wait sync.WaitGroup
	for i, name := range names {
		wait.Go(func() { answers[i] = ping(ctx, name) })
	}
	wait.Wait()
	if ctx.Err() != nil {
		return
	}
	for i, name := range names {
		w.note(name, answers[i], now)
	}
	for name := range w.known {
		if !isLink(name) && !slices.Contains(names, name) {
			delete(w.known, name)
		}
	}
}

// note compares what a device answered with what was known. A device without a
// process is the kernel's, or the agent is about to make it.
func (w *Watch) note(name string, a answer, now time.Time) {
	if a.pid == 0 {
		return
	}
	p := w.known[name]
	if p == nil || p.pid != a.pid {
		switch {
		case p != nil:
			w.replaced(name, p, a.pid)
		case w.Seen != nil:
			w.Seen(name)
		}
		p = &process{pid: a.pid}
		w.known[name] = p
	}
	if a.err == nil {
		p.silent, p.misses = time.Time{}, 0
		return
	}
	if p.misses++; p.silent.IsZero() {
		p.silent, p.waited = now.Add(-pingTimeout), a.waited
	}
	if quiet := now.Sub(p.silent); p.hangs(quiet, a.waited) {
		p.cause = fmt.Sprintf("it did not answer for %v", quiet.Round(100*time.Millisecond))
		if err := end(a.pid, name); err != nil {
			w.Log.Error("tunnel not replaced", "link", name, "pid", a.pid, "cause", p.cause, "err", err)
		}
	}
}

// hangs reports whether a process that has been silent for so long is to be ended.
// One that waits for a processor may be slow without end and is not stuck.
func (p *process) hangs(quiet, waited time.Duration) bool {
	return p.misses >= hangsMisses && (quiet-max(waited-p.waited, 0) >= hangs || quiet >= hangsMost)
}

func (w *Watch) replaced(name string, old *process, pid int) {
	cause := old.cause
	if cause == "" {
		cause = "its process ended"
	}
	w.Log.Warn("tunnel replaced", "link", name, "cause", cause, "pid", pid, "was", old.pid)
	if w.Replaced != nil {
		w.Replaced(name)
	}
}

const (
	// pingTimeout bounds one question.
	pingTimeout = watchInterval / 2
	// pingLate is for an answer that came while this process had no processor.
	pingLate = 20 * time.Millisecond
)

// answer is what a device said: pid is 0 when no process serves it, err tells
// of a process that is there and silent.
type answer struct {
	pid    int
	waited time.Duration // for a processor, since the process began
	err    error
}

// ping asks for a change of nothing, which takes the locks that every other
// question takes.
func ping(ctx context.Context, name string) answer {
	ctx, cancel := context.WithTimeout(ctx, pingTimeout)
	defer cancel()
	c, err := (&net.Dialer{}).DialContext(ctx, "unix", socketPath(name))
	if err != nil {
		return answer{}
	}
	defer func() { _ = c.Close() }()
	a := answer{}
	if a.pid, err = serverOf(c); err != nil {
		return answer{}
	}
	a.waited = waited(a.pid)
	if _, a.err = c.Write([]byte("set=1\n\n")); a.err != nil {
		return a
	}
	text := make([]byte, len("errno=0\n\n"))
	for _, patience := range []time.Duration{pingTimeout, pingLate} {
		if a.err = c.SetReadDeadline(time.Now().Add(patience)); a.err != nil {
			return a
		}
		n := 0
		n, a.err = io.ReadFull(c, text)
		if text = text[n:]; !errors.Is(a.err, os.ErrDeadlineExceeded) {
			return a
		}
	}
	return a
}

// waited is for how long the threads of a process have been ready to run without a
// processor (Documentation/scheduler/sched-stats.rst); 0 when the kernel does not tell.
func waited(pid int) (sum time.Duration) {
	threads, _ := filepath.Glob("/proc/" + strconv.Itoa(pid) + "/task/*/schedstat")
	for _, file := range threads {
		raw, err := os.ReadFile(file)
		if err != nil {
			continue // it has ended
		}
		if fields := bytes.Fields(raw); len(fields) > 1 {
			nanos, _ := strconv.ParseInt(string(fields[1]), 10, 64)
			sum += time.Duration(nanos)
		}
	}
	return sum
}

// serverOf gives the process that listens on the other end.
func serverOf(c net.Conn) (int, error) {
	raw, err := c.(*net.UnixConn).SyscallConn()
	if err != nil {
		return 0, err
	}
	var peer *unix.Ucred
	var failed error
	err = raw.Control(func(fd uintptr) {
		peer, failed = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
	})
	if err = errors.Join(err, failed); err != nil {
		return 0, err
	}
	return int(peer.Pid), nil
}

// end kills a process that hangs, if it is one of ours. It may be stopped, so
// it is not asked.
func end(pid int, name string) error {
	line, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/cmdline")
	if err != nil {
		return fmt.Errorf("look at process %d: %w", pid, err)
	}
	if !bytes.HasSuffix(line, []byte("\x00wireguard\x00"+name+"\x00")) {
		return fmt.Errorf("process %d is not one of ours: %q", pid, line)
	}
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil && !errors.Is(err, syscall.ESRCH) {
		return fmt.Errorf("kill process %d: %w", pid, err)
	}
	return nil
}
