package lab

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"hawser.dev/hawser/internal/hardening"
	"hawser.dev/hawser/lab/workload"
)

// make creates the lab's directory, or reuses the directory of a lab that has no daemon. It locks
// the directory until unlock is called.
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
		return nil, fmt.Errorf("make directory of the lab: %w", err)
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
	config := Config{ID: hex.EncodeToString(id[:]), Workers: o.Workers, Overlay: o.Overlay, NoHawser: o.NoHawser, Parents: parents}
	if err := l.writeConfig(config); err != nil {
		unlock()
		return nil, err
	}
	return unlock, nil
}

// lock blocks other ups and downs until unlock is called. The exit of the process also releases the
// lock.
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

// builder prepares the daemon's input.
type builder struct {
	layout    Layout
	options   UpOptions
	agent     string // path of the agent program
	workloads map[string][]workload.Object
	logf      func(format string, args ...any)
}

// setupLab creates the files in the lab's directory. It keeps files of an earlier up.
func (b *builder) setupLab(ctx context.Context) error {
	l := b.layout
	config, err := readConfig(l)
	if err != nil {
		return err
	}
	if err := l.sweep(ctx, config); err != nil {
		return err
	}
	config.Hawser, config.Agent = b.options.Hawser, b.agent
	if err := l.writeConfig(config); err != nil {
		return err
	}
	if l.hasRepo() {
		b.logf("the lab in %s was left behind: starting it again; its topology is %s", l.Dir, l.Topology())
		if err := l.sameUnderlay(b.options.Underlay); err != nil {
			return err
		}
	} else {
		if err := l.makeRepo(b.options.Topology); err != nil {
			return err
		}
		if err := l.makeUnderlay(b.options.Underlay, b.options.Topology); err != nil {
			return err
		}
	}
	if err := l.makeRootKey(ctx, config); err != nil {
		return err
	}
	raw, err := os.ReadFile(b.layout.Topology())
	if err != nil {
		return fmt.Errorf("read topology: %w", err)
	}
	t, err := parseTopology(raw)
	if err != nil {
		return err
	}
	for _, name := range slices.Sorted(maps.Keys(b.workloads)) {
		if _, known := t.cluster(name); !known {
			b.logf("workloads of %s wait for a cluster of that name (clusters: %s)", name, t.names())
		}
		if err := b.layout.addObjects(name, b.workloads[name]); err != nil {
			return err
		}
	}
	return nil
}

// addObjects adds manifests to a cluster's manifests.
func (l Layout) addObjects(cluster string, objects []workload.Object) error {
	set := &workload.Set{}
	raw, err := os.ReadFile(l.objects(cluster))
	if err == nil {
		have, _, err := workload.Parse(l.objects(cluster), raw)
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

// startDaemon starts the daemon in its own session and waits for its API.
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
	if err := hardening.CloseOnExec(); err != nil {
		return err
	}
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
