package main

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"time"

	"hawser.dev/hawser/nodeagent/observe/control"
	"hawser.dev/hawser/nodeagent/status"
)

// scaleAgent is the agent under test: the built program, alone in a namespace.
type scaleAgent struct {
	dir string
	cmd *exec.Cmd
}

func (a *scaleAgent) start(at *space, c config) error {
	log, err := os.Create(filepath.Join(a.dir, "agent.log"))
	if err != nil {
		return err
	}
	defer log.Close()
	in := func(name string) string { return filepath.Join(a.dir, name) }
	a.cmd = exec.Command(filepath.Join(c.bin, "hawser-agent"), "run", "--cluster", scaleOwn, "--node", scaleOwn+"-node",
		"--fabric", in("fabric"), "--keys", in("keys"), "--identity", in("identity"), "--facts", in("facts"),
		"--state", in("state"), "--socket", in("s"))
	a.cmd.Stdout, a.cmd.Stderr = log, log
	// Its own session gets its own share of the processors, as on its own host (sched(7), autogroup).
	a.cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	return at.inside(a.cmd.Start)
}

// stop ends the agent. If the measurement failed, the error contains the end of the agent's log.
func (a *scaleAgent) stop(failed error) error {
	err := a.cmd.Process.Signal(syscall.SIGTERM)
	_ = a.cmd.Wait() // it reports the signal as an error
	if failed != nil {
		raw, _ := os.ReadFile(filepath.Join(a.dir, "agent.log"))
		err = errors.Join(err, fmt.Errorf("log of the agent:\n%s", raw[max(0, len(raw)-4096):]))
	}
	return err
}

// saveLog copies the agent's log to the directory of raw measurements.
func (a *scaleAgent) saveLog(c config, others int) error {
	if c.save == "" {
		return nil
	}
	raw, err := os.ReadFile(filepath.Join(a.dir, "agent.log"))
	return errors.Join(err, os.MkdirAll(c.save, 0o755),
		os.WriteFile(filepath.Join(c.save, fmt.Sprintf("scale-%d.log", others)), raw, 0o644))
}

// connected returns the number of connected links.
func (a *scaleAgent) connected(ctx context.Context) (int, error) {
	var s status.Status
	if runs, err := control.Get(ctx, filepath.Join(a.dir, "s"), "/status", &s); err != nil || !runs {
		return 0, cmp.Or(err, errors.New("the agent is not running"))
	}
	n := 0
	for _, c := range s.Connections {
		if c.Status == status.Connected {
			n++
		}
	}
	return n, nil
}

func (a *scaleAgent) await(ctx context.Context, links int) error {
	return within(ctx, scaleLimit, func() error {
		n, err := a.connected(ctx)
		if err == nil && n < links {
			err = fmt.Errorf("%d of %d links are connected", n, links)
		}
		if err != nil {
			return errors.Join(err, pauseFor(ctx, scalePoll)) // polling costs the agent time
		}
		return nil
	})
}

// awaitFeed waits until the agent's log reports that it received the state of a cluster. Unlike its
// status, reading the log costs the agent no time.
func (a *scaleAgent) awaitFeed(ctx context.Context, cluster string) error {
	line := []byte(`msg="feed connected" cluster=` + cluster + " ")
	return within(ctx, scaleLimit, func() error {
		raw, err := os.ReadFile(filepath.Join(a.dir, "agent.log"))
		if err == nil && !bytes.Contains(raw, line) {
			err = fmt.Errorf("the agent has no feed of %s", cluster)
		}
		if err != nil {
			return errors.Join(err, pauseFor(ctx, scalePoll))
		}
		return nil
	})
}

// onePass is a pass in the agent's log.
type onePass struct {
	changed int
	took    time.Duration
}

var passLine = regexp.MustCompile(`msg="round done".* changed=(\d+) .*took=(\S+)`)

func (a *scaleAgent) passes() ([]onePass, error) {
	f, err := os.Open(filepath.Join(a.dir, "agent.log"))
	if err != nil {
		return nil, err
	}
	defer f.Close()
	var out []onePass
	for lines := bufio.NewReader(f); ; {
		text, err := lines.ReadString('\n')
		if errors.Is(err, io.EOF) {
			return out, nil
		}
		if err != nil {
			return nil, err
		}
		found := passLine.FindStringSubmatch(text)
		if found == nil {
			continue
		}
		changed, err := strconv.Atoi(found[1])
		if err != nil {
			return nil, err
		}
		took, err := time.ParseDuration(found[2])
		if err != nil {
			return nil, err
		}
		out = append(out, onePass{changed, took})
	}
}

// processor returns the processor time of the agent: utime and stime of proc_pid_stat(5), in
// hundredths of a second.
func (a *scaleAgent) processor() time.Duration {
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", a.cmd.Process.Pid))
	fields := strings.Fields(string(raw[strings.LastIndexByte(string(raw), ')')+1:]))
	if err != nil || len(fields) < 13 {
		return 0
	}
	user, _ := strconv.Atoi(fields[11])
	system, _ := strconv.Atoi(fields[12])
	return time.Duration(user+system) * 10 * time.Millisecond
}

// memory returns the agent's resident set in bytes.
func (a *scaleAgent) memory() (int64, error) {
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", a.cmd.Process.Pid))
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(raw)) {
		var kib int64
		if n, _ := fmt.Sscanf(line, "VmRSS: %d kB", &kib); n == 1 {
			return kib << 10, nil
		}
	}
	return 0, errors.New("the agent has no VmRSS")
}
