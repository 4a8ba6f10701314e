package lab

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"hawser.dev/hawser/lab/netspace"
	"hawser.dev/hawser/lab/workload"
)

// UpOptions says what lab to make.
type UpOptions struct {
	Topology  string        // file
	Workloads string        // folder with one folder of manifests a cluster; empty = none
	Workers   int           // nodes a cluster besides its gateways
	Bare      bool          // nodes, pods and services only: no reconciler, no agents
	Timeout   time.Duration // for everything to be ready
	Hawser    string        // path of the hawser program
	Progress  func(Event)   // is told what happens
}

// NotReadyError lists what was not ready in time. The lab is left as it is.
type NotReadyError struct {
	After   time.Duration
	Waiting []string
}

// Error names everything that is not ready.
func (e *NotReadyError) Error() string {
	return fmt.Sprintf("the lab is not ready after %s (it is left running; hawser lab status shows more):\n  %s",
		e.After, strings.Join(e.Waiting, "\n  "))
}

// Up makes a lab, or completes one that runs, and waits until every agent is
// ready. A lab whose daemon was killed is started again with the repository, the
// keys and the workloads that it had.
func Up(ctx context.Context, l Layout, o UpOptions) error {
	agent, err := requirements(o)
	if err != nil {
		return err
	}
	workloads, err := readWorkloads(o.Workloads)
	if err != nil {
		return err
	}
	say := func(format string, args ...any) {
		o.Progress(Event{At: time.Now(), Text: fmt.Sprintf(format, args...)})
	}
	client := NewClient(l)
	seen := 0
	if client.Running(ctx) {
		say("the lab in %s runs: completing it; its topology is %s", l.Dir, l.Topology())
		earlier, err := client.events(ctx, 0)
		if err != nil {
			return err
		}
		seen = len(earlier)
		if err := reapply(ctx, client, workloads); err != nil {
			return err
		}
	} else {
		unlock, err := l.make(o)
		if err != nil {
			return err
		}
		defer unlock()
		if err := l.furnish(ctx, o, agent, workloads, say); err != nil {
			return err
		}
		if err := l.startDaemon(ctx, o.Hawser, client); err != nil {
			return err
		}
	}
	return await(ctx, client, o, seen)
}

// requirements checks what the lab needs of the machine and finds the agent.
func requirements(o UpOptions) (agent string, err error) {
	if os.Geteuid() != 0 {
		return "", errors.New("the lab makes network namespaces: run it as root")
	}
	if _, err := exec.LookPath("nft"); err != nil {
		return "", errors.New("the lab needs nft: apt-get install nftables")
	}
	if o.Bare {
		return "", nil
	}
	agent = filepath.Join(filepath.Dir(o.Hawser), "hawser-agent")
	if _, err := os.Stat(agent); err == nil {
		return agent, nil
	}
	if agent, err = exec.LookPath("hawser-agent"); err != nil {
		return "", fmt.Errorf("no hawser-agent beside %s nor in PATH: make build", o.Hawser)
	}
	return filepath.Abs(agent)
}

// readWorkloads gives the manifests by cluster: one folder a cluster.
func readWorkloads(dir string) (map[string][]workload.Object, error) {
	out := map[string][]workload.Object{}
	if dir == "" {
		return out, nil
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, fmt.Errorf("read workloads: %w", err)
	}
	var errs []error
	for _, entry := range entries {
		if !entry.IsDir() || strings.HasPrefix(entry.Name(), ".") {
			continue
		}
		objects, err := workload.ReadDir(filepath.Join(dir, entry.Name()))
		out[entry.Name()], errs = objects, append(errs, err)
	}
	return out, errors.Join(errs...)
}

func reapply(ctx context.Context, c *Client, workloads map[string][]workload.Object) error {
	if err := c.call(ctx, "POST", "/up", struct{}{}, nil); err != nil {
		return err
	}
	for name, objects := range workloads {
		raw, err := workload.Write(objects)
		if err != nil {
			return err
		}
		if len(objects) == 0 {
			continue
		}
		if err := c.Change(ctx, Change{Cluster: name, Apply: string(raw), File: name}); err != nil {
			return err
		}
	}
	return nil
}

// make creates the lab's folder, or takes over one whose daemon is gone, and
// keeps others out of it until unlock.
func (l Layout) make(o UpOptions) (unlock func(), err error) {
	if entries, err := os.ReadDir(l.Dir); err == nil && len(entries) > 0 {
		if _, err := readConfig(l); err != nil {
			return nil, fmt.Errorf("%s is not empty and not a lab: choose another --dir", l.Dir)
		}
	}
	var parents []string
	for dir := filepath.Dir(l.Dir); ; dir = filepath.Dir(dir) {
		if _, err := os.Stat(dir); err == nil || dir == filepath.Dir(dir) {
			break
		}
		parents = append(parents, dir)
	}
	if err := os.MkdirAll(l.Dir, 0o755); err != nil {
		return nil, fmt.Errorf("make folder of the lab: %w", err)
	}
	unlock, err = l.lock()
	if err != nil {
		return nil, err
	}
	if _, err := os.Stat(l.config()); err == nil {
		return unlock, nil
	}
	var id [5]byte
	_, _ = rand.Read(id[:]) // never fails
	config := Config{ID: hex.EncodeToString(id[:]), Workers: o.Workers, Bare: o.Bare, Parents: parents}
	if err := l.writeConfig(config); err != nil {
		unlock()
		return nil, err
	}
	return unlock, nil
}

// lock keeps other ups and downs out until unlock; the lock goes with the process.
func (l Layout) lock() (unlock func(), err error) {
	dir, err := os.Open(l.Dir)
	if err != nil {
		return nil, fmt.Errorf("lock the lab: %w", err)
	}
	if err := unix.Flock(int(dir.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		_ = dir.Close()
		return nil, fmt.Errorf("another hawser lab up or down works on %s: wait for it", l.Dir)
	}
	return func() { _ = dir.Close() }, nil
}

func (l Layout) writeConfig(c Config) error {
	raw, err := json.MarshalIndent(c, "", " ")
	if err != nil {
		return fmt.Errorf("write lab: %w", err)
	}
	_, err = writeFile(l.config(), raw, 0o644)
	return err
}

// furnish prepares everything that the daemon starts from. What an earlier up has
// made stays.
func (l Layout) furnish(ctx context.Context, o UpOptions, agent string, workloads map[string][]workload.Object, say func(string, ...any)) error {
	config, err := readConfig(l)
	if err != nil {
		return err
	}
	if err := l.sweep(ctx, config); err != nil {
		return err
	}
	config.Hawser, config.Agent = o.Hawser, agent
	if err := l.writeConfig(config); err != nil {
		return err
	}
	if l.hasRepo() {
		say("the lab in %s was left behind: starting it again; its topology is %s", l.Dir, l.Topology())
	} else if err := l.makeRepo(o.Topology); err != nil {
		return err
	}
	if err := l.makeRootKey(ctx, config); err != nil {
		return err
	}
	for name, objects := range workloads {
		if err := l.addObjects(name, objects); err != nil {
			return err
		}
	}
	return nil
}

// addObjects adds manifests to those that a cluster has.
func (l Layout) addObjects(cluster string, objects []workload.Object) error {
	set := &workload.Set{}
	raw, err := os.ReadFile(l.objects(cluster))
	if err == nil {
		have, err := workload.Parse(l.objects(cluster), raw)
		if err != nil {
			return err
		}
		objects = slices.Concat(have, objects)
	} else if !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("read workloads: %w", err)
	}
	if err := set.Apply(objects); err != nil {
		return fmt.Errorf("workloads of cluster %s: %w", cluster, err)
	}
	if raw, err = workload.Write(set.Objects()); err != nil {
		return err
	}
	_, err = writeFile(l.objects(cluster), raw, 0o644)
	return err
}

// startDaemon starts the daemon in a session of its own and waits for its API.
func (l Layout) startDaemon(ctx context.Context, hawser string, c *Client) error {
	config, err := readConfig(l)
	if err != nil {
		return err
	}
	log, err := os.OpenFile(l.daemonLog(), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return fmt.Errorf("open log of the lab: %w", err)
	}
	defer log.Close()
	cmd := exec.Command(hawser, "lab", "daemon", "--dir", l.Dir)
	cmd.Env, cmd.Dir = environment(l, config), "/"
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start the lab: %w", err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for !c.Running(ctx) {
		select {
		case <-ctx.Done():
			return fmt.Errorf("start the lab: %w", ctx.Err())
		case err := <-ended:
			return fmt.Errorf("start the lab: its daemon ended (%w): %s", err, lastLine(l.daemonLog()))
		case <-tick.C:
		}
	}
	return nil
}

func lastLine(path string) string {
	raw, err := os.ReadFile(path)
	if err != nil {
		return err.Error()
	}
	lines := strings.Split(strings.TrimSpace(string(raw)), "\n")
	return lines[len(lines)-1]
}

// await passes progress on until everything is ready.
func await(ctx context.Context, c *Client, o UpOptions, seen int) error {
	deadline, cancel := context.WithTimeout(ctx, o.Timeout)
	defer cancel()
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	var last Status
	for {
		lines, err := c.events(deadline, seen)
		if err == nil {
			for _, line := range lines {
				o.Progress(line)
			}
			seen += len(lines)
			var s Status
			if s, err = c.Status(deadline); err == nil {
				last = s
			}
		}
		if err == nil && last.Ready {
			o.Progress(Event{At: time.Now(), Text: fmt.Sprintf("ready: %d nodes, %d pods; the topology is %s",
				len(last.Nodes), len(last.Pods), c.layout.Topology())})
			return nil
		}
		if err != nil && deadline.Err() == nil {
			return err
		}
		select {
		case <-deadline.Done():
			if ctx.Err() != nil {
				return fmt.Errorf("wait for the lab: %w", ctx.Err())
			}
			return &NotReadyError{After: o.Timeout, Waiting: last.Waiting}
		case <-tick.C:
		}
	}
}

// sweep removes the processes and namespaces of a lab whose daemon is gone.
func (l Layout) sweep(ctx context.Context, c Config) error {
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	if err := l.killAll(ctx, c); err != nil {
		return err
	}
	if err := netspace.RemoveAll(l.namespaces()); err != nil {
		return err
	}
	if err := os.Remove(l.Socket()); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("remove socket of the lab: %w", err)
	}
	return nil
}
