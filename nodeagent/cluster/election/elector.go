package election

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"sync"
	"time"

	"hawser.dev/hawser/internal/statefile"
	"hawser.dev/hawser/internal/trigger"
)

const (
	// writeTimeout limits the write of a Lease, including the read after a conflict.
	writeTimeout = 2 * time.Second
	// minStepInterval is the minimum wait between two steps if no event occurs.
	minStepInterval = 10 * time.Millisecond
	// HoldersFile is the file in the state directory that saves the holders for the next agent.
	HoldersFile = "holders.json"
)

// ErrConflict reports that a Lease was not written because its stored version differs.
var ErrConflict = errors.New("the Lease changed")

// LeaseStore reads and writes the Leases of a cluster.
type LeaseStore interface {
	// Watch updates the Leases until ctx is done, and triggers changed after each change.
	Watch(ctx context.Context, changed trigger.Trigger)
	// Leases returns the Leases by gateway. It returns false until Watch has read them once.
	Leases() (map[string]Lease, bool)
	// Read reads one Lease from the store.
	Read(ctx context.Context, gateway string) (Lease, error)
	// Write replaces the stored Lease and returns the new one. It returns ErrConflict if the
	// stored Version differs from l.Version.
	Write(ctx context.Context, l Lease) (Lease, error)
}

// Fence makes the kernel drop the packets of a gateway's tunnels from a deadline on. The kernel
// enforces the deadline even if the agent does not run.
type Fence interface {
	// AllowUntil opens the fence until a deadline.
	AllowUntil(deadline time.Time) error
	// Block closes the fence.
	Block() error
	// Remove removes the fence from the kernel.
	Remove() error
}

// Config configures an Elector. All functions may be called from any goroutine and must not block.
type Config struct {
	Node  string
	Store LeaseStore // nil: this node holds no gateway
	Fence Fence
	// View returns the current view without Leases. It returns false while the view is unknown.
	View func() (ClusterView, bool)
	// TunnelsRemoved reports whether this node has no tunnels of a gateway selected by labels.
	// It returns false if no converge round has ended after the given time.
	TunnelsRemoved func(after time.Time) bool
	StateDir       string
	Log            *slog.Logger
	// Trigger wakes the Elector when the view changed.
	Trigger trigger.Trigger
	// OnChange receives the nodes that hold gateways, by gateway, at first and after each
	// change.
	OnChange func(holders map[string]string)
}

// Elector acquires, renews and releases gateways for one node. Its methods may be called from any
// goroutine.
type Elector struct {
	config  Config
	started time.Time
	saved   *statefile.File[map[string]string]

	stepMu sync.Mutex // serializes steps, which write

	mu       sync.Mutex
	state    State
	holders  map[string]string // of the last notification, or saved by the previous agent
	notified bool
	synced   bool // a step has used the Leases, and tried to renew a Lease of this node
	stopping bool
	fenced   bool // the kernel may have a fence
	fencedAt time.Time
	lastErr  error
}

// New returns an Elector that holds no gateway and starts from the saved holders.
func New(config Config) *Elector {
	e := &Elector{
		config: config, started: time.Now(), fenced: true,
		saved: statefile.New[map[string]string](config.StateDir, HoldersFile),
	}
	e.holders = e.saved.LoadOrZero(config.Log)
	maps.DeleteFunc(e.holders, func(gateway, node string) bool { return gateway == "" || node == config.Node })
	return e
}

// Holders returns the nodes that hold gateways, by gateway. ok is false until the Leases show
// whether this node still holds a gateway, for at most RenewDeadline after the start. If the Leases
// are unknown for longer, Holders returns the holders that the previous agent saved.
func (e *Elector) Holders() (holders map[string]string, ok bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	now := time.Now()
	if !e.synced {
		return maps.Clone(e.holders), e.config.Store == nil || now.Sub(e.started) >= RenewDeadline
	}
	return e.state.Holders(e.config.Node, now), true
}

// Err returns the error that prevents this node from acquiring or keeping a gateway; nil if none.
func (e *Elector) Err() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.lastErr
}

// Run takes part in the elections until ctx is done.
func (e *Elector) Run(ctx context.Context) error {
	var wait sync.WaitGroup
	defer wait.Wait()
	if e.config.Store != nil {
		wait.Go(func() { e.config.Store.Watch(ctx, e.config.Trigger) })
	}
	wait.Go(func() {
		e.saved.Run(ctx, time.Second, func() map[string]string { h, _ := e.Holders(); return h }, e.config.Log)
	})
	e.config.Trigger.Run(ctx, func() time.Duration { return e.step(ctx) })
	return nil
}

// Release releases the gateway of this node before the agent stops, if another node can acquire
// it. Release blocks the tunnels first. It returns when the Lease is written or ctx is done.
func (e *Elector) Release(ctx context.Context) {
	e.mu.Lock()
	e.stopping = true
	e.mu.Unlock()
	for ctx.Err() == nil {
		pause := e.step(ctx)
		e.mu.Lock()
		done := e.state.releasing.Gateway == ""
		e.mu.Unlock()
		if done {
			return
		}
		select {
		case <-ctx.Done():
		case <-time.After(min(pause, retryPeriod)):
		}
	}
}

// step runs one step of the state machine and returns the maximum wait until the next step.
func (e *Elector) step(ctx context.Context) time.Duration {
	e.stepMu.Lock()
	defer e.stepMu.Unlock()
	v, ok := e.config.View()
	if !ok {
		return RenewInterval
	}
	var listed bool
	if e.config.Store != nil {
		v.Leases, listed = e.config.Store.Leases()
	}
	now := time.Now()
	e.mu.Lock()
	v.Stopping = e.stopping
	held := e.state.held.Gateway
	inTime, _ := e.state.Held(now)
	var write *Lease
	var nextAt time.Time
	e.state, write, nextAt = e.state.Step(v, now)
	lost := held != "" && e.state.held.Gateway == ""
	e.mu.Unlock()
	if lost {
		e.closeFence(held, inTime != "")
	}
	if write != nil && listed {
		e.write(ctx, *write)
		nextAt = time.Now() // the next step may have more to do
	}
	e.mu.Lock()
	if listed || len(v.Gateways) == 0 {
		e.synced = true
	} else if unsynced := e.started.Add(RenewDeadline); now.Before(unsynced) && unsynced.Before(nextAt) {
		nextAt = unsynced
	}
	unfence, fencedAt := e.state.held.Gateway == "" && e.fenced, e.fencedAt
	e.mu.Unlock()
	if unfence && e.config.TunnelsRemoved(fencedAt) {
		if err := e.RemoveFence(); err != nil {
			e.config.Log.Debug("fence not removed", "err", err)
		}
	}
	e.notify()
	return max(time.Until(nextAt), minStepInterval)
}

// write stores a Lease, and opens the fence if this node is the stored holder.
func (e *Elector) write(ctx context.Context, l Lease) {
	// The deadlines count from the start of the write: the time at which the server stores the
	// Lease is unknown.
	startedAt := time.Now()
	ctx, cancel := context.WithTimeout(ctx, writeTimeout)
	defer cancel()
	stored, err := e.config.Store.Write(ctx, l)
	var found *Lease
	if errors.Is(err, ErrConflict) {
		if current, readErr := e.config.Store.Read(ctx, l.Gateway); readErr == nil {
			found = &current
		}
	}
	e.mu.Lock()
	held, _ := e.state.Held(startedAt)
	if err == nil {
		e.state = e.state.WriteSucceeded(stored, startedAt)
	} else {
		e.state = e.state.WriteFailed(e.config.Node, found, time.Now())
	}
	if e.lastErr = err; found != nil {
		e.lastErr = nil // another candidate was faster
	}
	lost, fenceUntil := err != nil && held != "" && e.state.held.Gateway == "", e.state.FenceUntil()
	e.mu.Unlock()
	// The fence reads the ports from the view: e.mu must be unlocked.
	switch {
	case lost:
		e.closeFence(held, true)
	case err != nil && found == nil:
		e.config.Log.Warn("Lease not written", "gateway", l.Gateway, "err", err)
	case err != nil:
	case stored.Holder == "":
		e.config.Log.Info("released the gateway", "gateway", l.Gateway)
	default:
		e.openFence(l.Gateway, held == "", fenceUntil)
	}
}

// openFence opens the fence of a gateway that this node holds. If that fails, openFence releases
// the gateway.
func (e *Elector) openFence(gateway string, acquired bool, until time.Time) {
	e.mu.Lock()
	e.fenced = true
	e.mu.Unlock()
	if err := e.config.Fence.AllowUntil(until); err != nil {
		e.mu.Lock()
		e.lastErr = err
		e.state, e.fencedAt = e.state.StartRelease(time.Now()), time.Now()
		e.mu.Unlock()
		e.config.Log.Error("releasing the gateway: its fence cannot be written", "gateway", gateway, "err", err)
		return
	}
	if acquired {
		e.config.Log.Info("acquired the gateway", "gateway", gateway)
	}
}

// closeFence blocks the tunnels of a gateway that this node no longer holds.
func (e *Elector) closeFence(gateway string, inTime bool) {
	e.mu.Lock()
	e.fencedAt = time.Now()
	e.mu.Unlock()
	if err := e.config.Fence.Block(); err != nil {
		e.config.Log.Error("fence not closed; it closes at its deadline", "gateway", gateway, "err", err)
	}
	if !inTime {
		e.config.Log.Warn("lost the gateway: its Lease was not renewed in time", "gateway", gateway)
		return
	}
	e.config.Log.Info("stopped being the gateway", "gateway", gateway)
}

// RemoveFence removes the fence even if this node has tunnels.
func (e *Elector) RemoveFence() error {
	if err := e.config.Fence.Remove(); err != nil {
		return err
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.fenced = false
	return nil
}

// notify saves the holders and calls OnChange, if they are known and changed.
func (e *Elector) notify() {
	holders, ok := e.Holders()
	e.mu.Lock()
	changed := ok && (!e.notified || !maps.Equal(holders, e.holders))
	if changed {
		e.holders, e.notified = holders, true
	}
	e.mu.Unlock()
	if changed {
		e.saved.MarkDirty()
		e.config.OnChange(holders)
	}
}
