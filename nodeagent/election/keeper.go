package election

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"sync"
	"time"

	"hawser.dev/hawser/internal/bell"
	"hawser.dev/hawser/nodeagent/statefile"
)

const (
	// writeTime is how long a write or a read of one Lease may take.
	writeTime = 2 * time.Second
	// HoldersFile is where the holders are kept for the next start, in the state folder.
	HoldersFile = "holders.json"
)

// ErrConflict says that a Lease was not written, as it is another one than was read.
var ErrConflict = errors.New("the Lease changed")

// Store keeps the Leases of a cluster.
type Store interface {
	// Follow keeps Leases up to date until ctx ends, and rings when they changed.
	Follow(ctx context.Context, changed bell.Bell)
	// Leases gives them by gateway, and false until they were read once.
	Leases() (map[string]Lease, bool)
	// Read gives one as it is now.
	Read(ctx context.Context, gateway string) (Lease, error)
	// Write stores one in place of that of its Version, and gives what is there then. The
	// error is ErrConflict where that is another one.
	Write(ctx context.Context, l Lease) (Lease, error)
}

// Guard lets the kernel pass what a gateway's tunnels carry, up to a time at most, whoever
// runs then; all of it is closed otherwise.
type Guard interface {
	Open(until time.Time) error
	Close() error
	// Remove takes the guard away, where no tunnels are left that it guards.
	Remove() error
}

// Config is what a Keeper needs.
type Config struct {
	Node  string
	Store Store // nil = there is none, and this node holds nothing
	Guard Guard
	// View gives what is seen now, without Leases; false while it is not known.
	View func() (View, bool)
	// Clear reports whether the node has stood since a time, and without the tunnels of a
	// gateway that labels pick.
	Clear    func(since time.Time) bool
	StateDir string
	Log      *slog.Logger
	// Changed is called when this node, or another, holds another gateway. It must not block.
	Changed func()
}

// Keeper holds gateways for a node. Its methods may be called from any goroutine.
type Keeper struct {
	config Config
	wake   bell.Bell
	began  time.Time
	kept   *statefile.File[map[string]string]

	turn sync.Mutex // of look, which writes

	mu      sync.Mutex
	state   State
	told    map[string]string // holders, as they were told last
	decided bool              // the Leases were looked at, and what was ours is again
	leaving bool
	guarded bool // the guard may stand in the kernel
	shutAt  time.Time
	assumed map[string]string // holders for a plan; nil = none
	trouble error
}

// New makes a Keeper, which knows what the run before left and holds nothing.
func New(config Config) *Keeper {
	k := &Keeper{config: config, wake: bell.New(), began: time.Now(), guarded: true,
		kept: statefile.New[map[string]string](config.StateDir, HoldersFile)}
	k.told = k.kept.Restore(config.Log)
	delete(k.told, "")
	maps.DeleteFunc(k.told, func(_, node string) bool { return node == config.Node })
	return k
}

// Look has the Keeper look at what changed. It never blocks.
func (k *Keeper) Look() { k.wake.Ring() }

// Holders gives the nodes that hold gateways now, by gateway. It is not ok for some moments
// after the start, until the Leases say whether this node still is what it was.
func (k *Keeper) Holders() (holders map[string]string, ok bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	now := time.Now()
	if k.assumed != nil {
		return k.assumed, true
	}
	if !k.decided {
		return maps.Clone(k.told), k.config.Store == nil || now.Sub(k.began) > StopAfter
	}
	return k.state.Holders(k.config.Node, now), true
}

// Assume makes the Keeper of an agent that only plans say what the one that runs said, nil =
// what is kept of the run before.
func (k *Keeper) Assume(holders map[string]string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.assumed = holders; holders == nil {
		k.assumed = k.told
	}
	if k.assumed == nil {
		k.assumed = map[string]string{}
	}
}

// Err gives what keeps this node from being a gateway that it should be; nil = nothing.
func (k *Keeper) Err() error {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.trouble
}

// Run holds what this node can until ctx ends.
func (k *Keeper) Run(ctx context.Context) error {
	var wait sync.WaitGroup
	defer wait.Wait()
	if k.config.Store != nil {
		wait.Go(func() { k.config.Store.Follow(ctx, k.wake) })
	}
	wait.Go(func() {
		k.kept.Run(ctx, time.Second, func() map[string]string { h, _ := k.Holders(); return h }, k.config.Log)
	})
	k.wake.Loop(ctx, func() time.Duration { return k.look(ctx) })
	return nil
}

// Leave gives back what this node holds where another one can have it, as its agent ends:
// nothing passes its tunnels any more when the Lease is free. It returns when that is done,
// or ctx ends.
func (k *Keeper) Leave(ctx context.Context) {
	k.mu.Lock()
	k.leaving = true
	k.mu.Unlock()
	for ctx.Err() == nil {
		pause := k.look(ctx)
		k.mu.Lock()
		done := k.state.back.Gateway == ""
		k.mu.Unlock()
		if done {
			return
		}
		select {
		case <-ctx.Done():
		case <-time.After(min(pause, retryEvery)):
		}
	}
}

// look looks once, and gives how long it may take until the next look.
func (k *Keeper) look(ctx context.Context) time.Duration {
	k.turn.Lock()
	defer k.turn.Unlock()
	v, ok := k.config.View()
	var listed bool
	if ok && k.config.Store != nil {
		v.Leases, listed = k.config.Store.Leases()
	}
	if !ok {
		return RenewEvery
	}
	now := time.Now()
	k.mu.Lock()
	v.Leaving = k.leaving
	before, _ := k.state.Holds(now)
	held := k.state.mine.Gateway
	var write *Write
	var again time.Time
	k.state, write, again = k.state.Look(v, now)
	gone := held != "" && k.state.mine.Gateway == ""
	k.mu.Unlock()
	if gone {
		k.shut(held, before)
	}
	if write != nil && listed {
		k.write(ctx, write.Lease)
		again = time.Now() // perhaps there is more to do
	}
	k.mu.Lock()
	if listed || len(v.Gateways) == 0 {
		k.decided = true
	}
	idle, since := k.state.mine.Gateway == "" && k.guarded, k.shutAt
	k.mu.Unlock()
	if idle && k.config.Clear(since) {
		k.unguard()
	}
	k.tell()
	return max(time.Until(again), 10*time.Millisecond)
}

// shut closes the kernel for what this node holds no longer.
func (k *Keeper) shut(gateway, before string) {
	k.mu.Lock()
	k.shutAt = time.Now()
	k.mu.Unlock()
	if err := k.config.Guard.Close(); err != nil {
		k.config.Log.Error("guard not closed; it closes by itself", "gateway", gateway, "err", err)
	}
	if before == "" {
		k.config.Log.Warn("this node is the gateway no longer: its Lease could not be renewed in time", "gateway", gateway)
		return
	}
	k.config.Log.Info("this node is the gateway no longer", "gateway", gateway)
}

// write stores a Lease, and opens the kernel for what this node holds by it.
func (k *Keeper) write(ctx context.Context, l Lease) {
	// The deadlines count from before the write: from when it was taken is not known.
	began := time.Now()
	ctx, cancel := context.WithTimeout(ctx, writeTime)
	defer cancel()
	stored, err := k.config.Store.Write(ctx, l)
	var found *Lease
	if errors.Is(err, ErrConflict) {
		if now, readErr := k.config.Store.Read(ctx, l.Gateway); readErr == nil {
			found = &now
		}
	}
	k.mu.Lock()
	held, _ := k.state.Holds(began)
	k.trouble = err
	switch {
	case err == nil:
		k.state = k.state.Wrote(stored, began)
	default:
		k.state = k.state.Refused(k.config.Node, found, time.Now())
		if found != nil {
			k.trouble = nil // another one was faster, as it may be
		}
	}
	lost, until := err != nil && held != "" && k.state.mine.Gateway == "", k.state.Guarded()
	k.mu.Unlock()
	// No lock is held now: the guard asks for the ports, and who tells them may ask who holds what.
	switch {
	case lost:
		k.shut(held, held)
	case err != nil && found == nil:
		k.config.Log.Warn("Lease not written", "gateway", l.Gateway, "err", err)
	case err != nil:
	case stored.Holder == "":
		k.config.Log.Info("gave the gateway back", "gateway", l.Gateway)
	default:
		k.open(l.Gateway, held, until)
	}
}

// open lets the kernel pass what a gateway carries that this node holds.
func (k *Keeper) open(gateway, held string, until time.Time) {
	k.mu.Lock()
	k.guarded = true
	k.mu.Unlock()
	if err := k.config.Guard.Open(until); err != nil {
		k.mu.Lock()
		k.trouble = err
		k.state, k.shutAt = k.state.Drop(time.Now()), time.Now()
		k.mu.Unlock()
		k.config.Log.Error("not a gateway: its guard cannot be set", "gateway", gateway, "err", err)
		return
	}
	if held == "" {
		k.config.Log.Info("this node is the gateway", "gateway", gateway)
	}
}

// Unguard takes the guard of a gateway away, as nothing of Hawser's is to stay.
func (k *Keeper) Unguard() error { return k.config.Guard.Remove() }

// unguard takes the guard away that nothing needs.
func (k *Keeper) unguard() {
	err := k.Unguard()
	k.mu.Lock()
	defer k.mu.Unlock()
	if err == nil {
		k.guarded = false
		return
	}
	k.config.Log.Debug("guard not removed", "err", err)
}

// tell says who holds what when that changed.
func (k *Keeper) tell() {
	now, ok := k.Holders()
	k.mu.Lock()
	same := maps.Equal(now, k.told)
	decided := k.decided
	if decided {
		k.told = now
	}
	k.mu.Unlock()
	if !ok || same || !decided {
		return
	}
	k.kept.Changed()
	k.config.Changed()
}
