package userspacewg

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"hawser.dev/hawser/internal/trigger"
	"hawser.dev/hawser/nodeagent/kernel/childprocess"
)

const (
	watchInterval = time.Second // between two checks of all processes
	// A process that misses hangMinMisses replies within hangTimeout is replaced.
	hangTimeout   = 3 * time.Second
	hangMinMisses = 3
	// maxHangTimeout is the timeout of a process that waits for a processor: a new process
	// would wait as well.
	maxHangTimeout = 30 * time.Second
)

// Supervisor watches the processes of tunnel devices. It kills a process that hangs. This removes
// its device, and the agent creates both again. The fields must not change while it runs.
type Supervisor struct {
	// Devices returns the names of the desired devices.
	Devices func() []string
	// LogDir is the LogDir of the Launcher.
	LogDir string
	Log    *slog.Logger
	// Appeared is called with each device when its first process is found; may be nil.
	Appeared func(name string)
	// Replaced is called with each device when a new process replaces the previous one; may be
	// nil.
	Replaced func(name string)

	watchdog  childprocess.Watchdog
	processes map[string]process // by device
}

// process is the last known process of one device.
type process struct {
	pid   int
	cause string // why it was killed
}

// Run watches until ctx is done. The processes continue.
func (s *Supervisor) Run(ctx context.Context) error {
	s.init()
	trigger.New().Run(ctx, func() time.Duration {
		now := time.Now()
		s.checkDevices(ctx, now)
		return time.Until(now.Add(watchInterval))
	})
	return nil
}

func (s *Supervisor) init() {
	s.processes = map[string]process{}
	s.watchdog = childprocess.Watchdog{
		MinMisses: hangMinMisses, Timeout: hangTimeout, MaxTimeout: maxHangTimeout,
		Excused: func(_ time.Duration, during childprocess.Usage) time.Duration { return during.Waited },
	}
}

// checkDevices pings all devices at once.
func (s *Supervisor) checkDevices(ctx context.Context, now time.Time) {
	names := s.Devices()
	replies := make([]pingReply, len(names))
	var group sync.WaitGroup
	for i, name := range names {
		group.Go(func() { replies[i] = ping(ctx, name) })
	}
	group.Wait()
	if ctx.Err() != nil {
		return
	}
	for i, name := range names {
		s.record(name, replies[i], now)
		if err := childprocess.TrimLog(logFile(s.LogDir, name)); err != nil {
			s.Log.Debug("log of the tunnel process not trimmed", "device", name, "err", err)
		}
	}
	for name, p := range s.processes {
		if !isLink(name) && !slices.Contains(names, name) {
			s.watchdog.Replied(p.pid)
			delete(s.processes, name)
		}
	}
}

// record compares the answer of a device with the last known process. A device without a
// process is a kernel device, or the agent is about to create it.
func (s *Supervisor) record(name string, reply pingReply, now time.Time) {
	if reply.pid == 0 {
		return
	}
	p, known := s.processes[name]
	if p.pid != reply.pid {
		switch {
		case known:
			s.watchdog.Replied(p.pid)
			s.logReplaced(name, p, reply.pid)
		case s.Appeared != nil:
			s.Appeared(name)
		}
		p = process{pid: reply.pid}
	}
	if reply.err == nil {
		s.watchdog.Replied(reply.pid)
	} else if silent, hangs := s.watchdog.Missed(reply.pid, now.Add(-pingTimeout), now, reply.usage); hangs {
		p.cause = childprocess.Cause(silent)
		if err := killHung(reply.pid, name); err != nil {
			s.Log.Error("tunnel not replaced", "device", name, "pid", reply.pid, "cause", p.cause, "err", err)
		}
	}
	s.processes[name] = p
}

func (s *Supervisor) logReplaced(name string, old process, pid int) {
	s.Log.Warn("tunnel replaced", "device", name, "cause", cmp.Or(old.cause, "its process ended"), "pid", pid, "was", old.pid)
	if s.Replaced != nil {
		s.Replaced(name)
	}
}

const (
	// pingTimeout bounds one ping.
	pingTimeout = watchInterval / 2
	// pingLate accepts a reply that arrived while this process had no processor.
	pingLate = 20 * time.Millisecond
)

// pingReply is the answer of a device to a ping.
type pingReply struct {
	pid   int                // of the process that serves the device; 0: none
	usage childprocess.Usage // of the process
	err   error              // the process did not reply
}

// ping requests an empty change of a device, which needs the locks of every other request.
func ping(ctx context.Context, name string) pingReply {
	ctx, cancel := context.WithTimeout(ctx, pingTimeout)
	defer cancel()
	c, err := (&net.Dialer{}).DialContext(ctx, "unix", socketPath(name))
	if err != nil {
		return pingReply{}
	}
	defer func() { _ = c.Close() }()
	reply := pingReply{}
	if reply.pid, err = serverOf(c); err != nil {
		return pingReply{}
	}
	reply.usage = childprocess.UsageOf(reply.pid)
	if _, reply.err = c.Write([]byte("set=1\n\n")); reply.err != nil {
		return reply
	}
	text := make([]byte, len("errno=0\n\n"))
	for _, timeout := range []time.Duration{pingTimeout, pingLate} {
		if reply.err = c.SetReadDeadline(time.Now().Add(timeout)); reply.err != nil {
			return reply
		}
		n := 0
		n, reply.err = io.ReadFull(c, text)
		if text = text[n:]; !errors.Is(reply.err, os.ErrDeadlineExceeded) {
			return reply
		}
	}
	return reply
}

// serverOf returns the ID of the process that listens at the remote end of a Unix connection.
func serverOf(c net.Conn) (int, error) {
	raw, err := c.(*net.UnixConn).SyscallConn()
	if err != nil {
		return 0, err
	}
	var peer *unix.Ucred
	var optErr error
	err = raw.Control(func(fd uintptr) {
		peer, optErr = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
	})
	if err = errors.Join(err, optErr); err != nil {
		return 0, err
	}
	return int(peer.Pid), nil
}

// killHung kills the process of a device, if it is one of ours. A stopped process cannot exit by
// itself.
func killHung(pid int, name string) error {
	return childprocess.Kill(pid, func(proc string) error {
		line, err := os.ReadFile(proc + "/cmdline")
		if err != nil {
			return err
		}
		if !bytes.HasSuffix(line, []byte("\x00wireguard\x00"+name+"\x00")) {
			return fmt.Errorf("it is not one of ours: %q", line)
		}
		return nil
	})
}
