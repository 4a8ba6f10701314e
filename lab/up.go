package lab

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"hawser.dev/hawser/internal/checkout"
	"hawser.dev/hawser/internal/diag"
	"hawser.dev/hawser/lab/workload"
)

// UpOptions are the options of Up.
type UpOptions struct {
	Topology  string // file
	Underlay  string // underlay file; empty = one network
	Workloads string // directory with one directory of manifests per cluster; empty = none
	Workers   int    // nodes per cluster in addition to the gateways
	// Overlay puts the pods of a cluster on one network, like the overlays of Kube-OVN and
	// Cilium. It delivers packets from any node directly to a pod, not through the pod's node.
	// Nodes have no pod prefixes, and check return paths (rp_filter 1). Without Overlay, pod
	// prefixes are routed to their nodes.
	Overlay  bool
	NoHawser bool          // only nodes, pods and services: no reconciler, no agents
	Timeout  time.Duration // maximum time until everything is ready
	Hawser   string        // path of the hawser program
	Version  string        // of the hawser program
	Progress func(Event)   // called for each event
}

// NotReadyError lists the nodes and objects that were not ready in time. The lab keeps running.
type NotReadyError struct {
	After   time.Duration
	Waiting []string
}

// Error returns the list of everything that is not ready.
func (e *NotReadyError) Error() string {
	return fmt.Sprintf("the lab is not ready after %s (it is left running; hawser lab status shows more):\n  %s",
		e.After, strings.Join(e.Waiting, "\n  "))
}

// Up creates a lab, or completes a running lab, and waits until every agent is ready. If the daemon
// was killed, Up restarts the lab with its repository, keys and workloads.
func Up(ctx context.Context, l Layout, o UpOptions) error {
	agent, err := requirements(o)
	if err != nil {
		return err
	}
	workloads, warnings, err := readWorkloads(o.Workloads)
	if err != nil {
		return err
	}
	progress := func(format string, args ...any) {
		o.Progress(Event{At: time.Now(), Text: fmt.Sprintf(format, args...)})
	}
	for _, w := range warnings {
		progress("%v", w)
	}
	client := NewClient(l)
	seen := 0
	if client.Running(ctx) {
		if err := l.sameUnderlay(o.Underlay); err != nil {
			return err
		}
		progress("the lab in %s runs: completing it; its topology is %s", l.Dir, l.Topology())
		previous, err := client.events(ctx, 0)
		if err != nil {
			return err
		}
		seen = len(previous)
		if err := client.call(ctx, "POST", "/up", struct{}{}, nil); err != nil {
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
			if err := client.Change(ctx, Change{Cluster: name, Apply: string(raw), File: name}); err != nil {
				return err
			}
		}
	} else {
		unlock, err := l.make(o)
		if err != nil {
			return err
		}
		defer unlock()
		b := builder{layout: l, options: o, agent: agent, workloads: workloads, logf: progress}
		newRepo := !l.hasRepo()
		if err := b.setupLab(ctx); err != nil {
			if newRepo {
				err = errors.Join(err, l.remove(ctx))
			}
			return err
		}
		if err := l.startDaemon(ctx, o.Hawser, client); err != nil {
			return err
		}
	}
	return waitReady(ctx, client, o, seen)
}

// requirements checks the machine, and returns the path of the agent program.
func requirements(o UpOptions) (agent string, err error) {
	if os.Geteuid() != 0 {
		return "", errors.New("the lab makes network namespaces: run it as root")
	}
	if _, err := exec.LookPath("nft"); err != nil {
		return "", errors.New("the lab needs nft: apt-get install nftables")
	}
	if o.NoHawser {
		return "", nil
	}
	agent = filepath.Join(filepath.Dir(o.Hawser), "hawser-agent")
	if _, err := os.Stat(agent); err == nil {
		return agent, nil
	}
	if agent, err = exec.LookPath("hawser-agent"); err != nil {
		return "", fmt.Errorf("hawser-agent not found next to %s or in PATH: %s", o.Hawser, agentSource(o.Version))
	}
	return filepath.Abs(agent)
}

// agentSource returns where users of a hawser version find the agent program.
func agentSource(version string) string {
	if strings.HasPrefix(version, "v") {
		return fmt.Sprintf("it is in hawser-agent_%s_linux_%s.tar.gz of the release", version, runtime.GOARCH)
	}
	return "run make build"
}

// readWorkloads returns the manifests by cluster, from one directory per cluster, and the warnings
// of Parse.
func readWorkloads(dir string) (map[string][]workload.Object, diag.List, error) {
	out := map[string][]workload.Object{}
	if dir == "" {
		return out, nil, nil
	}
	entries, err := checkout.ReadDir(dir)
	if err != nil {
		return nil, nil, fmt.Errorf("read workloads: %w", err)
	}
	var warnings diag.List
	var errs []error
	for _, entry := range entries {
		if !entry.IsDir() || strings.HasPrefix(entry.Name(), ".") {
			continue
		}
		objects, unused, err := workload.ReadDir(filepath.Join(dir, entry.Name()))
		out[entry.Name()], warnings, errs = objects, append(warnings, unused...), append(errs, err)
	}
	return out, warnings, errors.Join(errs...)
}

// RefusedError means that the reconciler cannot publish the topology, so a longer wait would not
// help. The lab keeps running.
type RefusedError struct {
	Reason string
	Log    string
}

// Error returns the reason and the path of the log.
func (e *RefusedError) Error() string {
	return fmt.Sprintf("the reconciler publishes nothing: %s (the lab keeps running; see %s)", e.Reason, e.Log)
}

const (
	// maxRestarts bounds the restarts of a reconciler that has not published a commit.
	maxRestarts = 3
	// feedGrace bounds the wait for the other clusters' feeds after everything else is ready,
	// because faults may disconnect the feeds.
	feedGrace = 30 * time.Second
)

// waitReady reports progress until everything is ready.
func waitReady(ctx context.Context, c *Client, o UpOptions, seen int) error {
	deadline, cancel := context.WithTimeout(ctx, o.Timeout)
	defer cancel()
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	w := waiter{client: c, options: o, seen: seen}
	for {
		done, err := w.poll(deadline)
		if done || err != nil && deadline.Err() == nil {
			return err
		}
		select {
		case <-deadline.Done():
			if ctx.Err() != nil {
				return fmt.Errorf("wait for the lab: %w", ctx.Err())
			}
			return &NotReadyError{After: o.Timeout, Waiting: w.last.Waiting}
		case <-tick.C:
		}
	}
}

// waiter is the state of await.
type waiter struct {
	client  *Client
	options UpOptions
	seen    int // number of reported events
	last    Status
	ready   time.Time // since when everything except the feeds has been ready
}

// poll reads the events and the status once.
func (w *waiter) poll(ctx context.Context) (done bool, err error) {
	lines, err := w.client.events(ctx, w.seen)
	if err != nil {
		return false, err
	}
	for _, line := range lines {
		w.options.Progress(line)
	}
	w.seen += len(lines)
	s, err := w.client.Status(ctx)
	if err != nil {
		return false, err
	}
	w.last = s
	if r := s.Reconciler; s.Published == "" && r.Error != "" && (r.Refused || r.Restarts >= maxRestarts) {
		return true, &RefusedError{Reason: r.Error, Log: r.Log}
	}
	if !s.Ready {
		w.ready = time.Time{}
		return false, nil
	}
	if w.ready.IsZero() {
		w.ready = time.Now()
	}
	if s.lacksFeeds() && time.Since(w.ready) < feedGrace {
		return false, nil
	}
	w.options.Progress(Event{At: time.Now(), Text: fmt.Sprintf("ready: %d nodes, %d pods; the topology is %s",
		len(s.Nodes), len(s.Pods), w.client.layout.Topology())})
	return true, nil
}
