package lab

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"hawser.dev/hawser/lab/netnsexec"
	"hawser.dev/hawser/lab/workload"
)

// daemon owns a running lab. Only the daemon changes namespaces, workloads and faults.
type daemon struct {
	layout Layout
	config Config
	log    *slog.Logger
	events events

	mu           sync.Mutex // guards the fields below; never held during a wait for other programs
	topology     topology
	sets         map[string]*workload.Set
	state        *state
	world        *desiredLab
	underlay     *underlay
	nodes        map[string]*runningNode
	routers      map[string]*runningRouter // by router
	reconciler   *child
	reconcilerNS *netNS // network namespace of the reconciler, so that several labs can use the same port
	published    published
	lastErr      error // error of the last pass
}

// Serve runs the daemon of the lab in l until SIGTERM. It expects a directory created by Up, and no
// namespaces.
func Serve(ctx context.Context, l Layout, log *slog.Logger) error {
	ctx, stop := signal.NotifyContext(ctx, syscall.SIGTERM)
	defer stop()
	d, err := newDaemon(l, log)
	if err != nil {
		return err
	}
	listener, err := net.Listen("unix", l.Socket())
	if err != nil {
		return fmt.Errorf("serve the lab: %w", err)
	}
	if err := d.start(); err != nil {
		return errors.Join(err, listener.Close())
	}
	server := &http.Server{Handler: d.handler(), ReadHeaderTimeout: 5 * time.Second}
	var group sync.WaitGroup
	group.Go(func() { d.syncLoop(ctx) })
	group.Go(func() { d.retry(ctx) })
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(listener) }()
	select {
	case err = <-ended:
	case <-ctx.Done():
		err = server.Close()
		<-ended
	}
	stop()
	group.Wait()
	return errors.Join(err, d.stopAll())
}

func newDaemon(l Layout, log *slog.Logger) (*daemon, error) {
	config, err := readConfig(l)
	if err != nil {
		return nil, err
	}
	s, err := readState(l.state())
	if err != nil {
		return nil, err
	}
	d := &daemon{layout: l, config: config, log: log, state: s, sets: map[string]*workload.Set{}, nodes: map[string]*runningNode{}, routers: map[string]*runningRouter{}}
	if err := d.readObjects(); err != nil {
		return nil, err
	}
	raw, err := os.ReadFile(l.Topology())
	if err != nil {
		return nil, fmt.Errorf("read topology: %w", err)
	}
	if d.topology, err = parseTopology(raw); err != nil {
		return nil, err
	}
	if s.Underlay, err = l.readUnderlay(nil); err != nil {
		return nil, err
	}
	s.Overlay = config.Overlay
	self, err := netnsexec.Find(os.Getpid())
	if err != nil {
		return nil, err
	}
	record, err := json.Marshal(self)
	if err != nil {
		return nil, fmt.Errorf("record the daemon: %w", err)
	}
	_, err = writeFile(l.daemon(), record, 0o644)
	return d, err
}

// readObjects loads the applied workloads.
func (d *daemon) readObjects() error {
	paths, err := filepath.Glob(d.layout.objects("*"))
	if err != nil {
		return fmt.Errorf("read workloads: %w", err)
	}
	for _, path := range paths {
		raw, err := os.ReadFile(path)
		if err != nil {
			return fmt.Errorf("read workloads: %w", err)
		}
		objects, _, err := workload.Parse(path, raw)
		if err != nil {
			return fmt.Errorf("read workloads: %w", err)
		}
		set := &workload.Set{}
		if err := set.Apply(objects); err != nil {
			return fmt.Errorf("read workloads: %w", err)
		}
		d.sets[strings.TrimSuffix(filepath.Base(path), ".yaml")] = set
	}
	return nil
}

// start builds the lab. The method retry repeats failed parts.
func (d *daemon) start() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := netnsexec.Prepare(d.layout.namespaces()); err != nil {
		return err
	}
	var err error
	if d.underlay, err = newUnderlay(d.layout.namespace(d.config, "underlay")); err != nil {
		return err
	}
	if d.reconcilerNS, err = newNetNS(d.layout.namespace(d.config, "control"), settings(false)); err != nil {
		return err
	}
	d.events.add("building %d clusters: %s", len(d.topology.clusters), d.topology.names())
	if !d.config.NoHawser {
		d.startReconciler()
	}
	d.converge()
	return nil
}

// stopAll stops all programs and removes every namespace.
func (d *daemon) stopAll() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.reconciler != nil {
		d.reconciler.stop()
	}
	var errs []error
	for _, id := range slices.Sorted(maps.Keys(d.nodes)) {
		errs = append(errs, d.nodes[id].stop(d.underlay))
	}
	for _, g := range d.routers {
		errs = append(errs, g.close(d.underlay))
	}
	errs = append(errs, d.reconcilerNS.close(), d.underlay.close(), os.Remove(d.layout.Socket()))
	if err := errors.Join(errs...); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return nil
}

// retryInterval is the time between a failed pass and the next pass.
const retryInterval = time.Second

func (d *daemon) retry(ctx context.Context) {
	tick := time.NewTicker(retryInterval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			d.mu.Lock()
			if d.lastErr != nil {
				d.converge()
			}
			d.mu.Unlock()
		}
	}
}

// environment returns the environment of the lab's programs. It is the daemon's environment with
// the lab's directory first in PATH, and the mark by which Down finds the programs.
func environment(l Layout, c Config) []string {
	excluded := []string{"PATH=", DirEnv + "=", markEnv + "="}
	env := slices.DeleteFunc(os.Environ(), func(v string) bool {
		return slices.ContainsFunc(excluded, func(prefix string) bool { return strings.HasPrefix(v, prefix) })
	})
	path := filepath.Dir(c.Hawser) + ":" + os.Getenv("PATH") + ":/usr/sbin:/sbin:/usr/bin:/bin"
	return append(env, "PATH="+path, DirEnv+"="+l.Dir, markEnv+"="+c.ID)
}

// events are progress messages for the user.
type events struct {
	mu    sync.Mutex
	lines []Event
}

// Event is one line of progress.
type Event struct {
	At   time.Time `json:"at"`
	Text string    `json:"text"`
}

func (e *events) add(format string, args ...any) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.lines = append(e.lines, Event{At: time.Now(), Text: fmt.Sprintf(format, args...)})
}

// from returns the events after the first n.
func (e *events) from(n int) []Event {
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.Clone(e.lines[min(max(n, 0), len(e.lines)):])
}
