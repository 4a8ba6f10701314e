package election

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"hawser.dev/hawser/internal/atomicfile"
	"hawser.dev/hawser/internal/statefile"
	"hawser.dev/hawser/internal/trigger"
)

const (
	// dirPollInterval is the time between two reads of a DirStore.
	dirPollInterval = 250 * time.Millisecond
	// lockPollInterval is the wait between two attempts to lock the directory.
	lockPollInterval = 5 * time.Millisecond
)

// DirStore is a LeaseStore without a Kubernetes API: files in a directory that all nodes of a
// cluster share. A missing file is a Lease that no node ever held.
type DirStore struct {
	dir      string
	gateways func() []Gateway
	log      *slog.Logger

	mu     sync.Mutex
	leases map[string]Lease // nil = not read yet
}

// NewDirStore returns a store of the Leases of gateways in a directory.
func NewDirStore(dir string, gateways func() []Gateway, log *slog.Logger) *DirStore {
	return &DirStore{dir: dir, gateways: gateways, log: log}
}

// Watch implements LeaseStore. It logs an error once until it changes.
func (f *DirStore) Watch(ctx context.Context, changed trigger.Trigger) {
	tick := time.NewTicker(dirPollInterval)
	defer tick.Stop()
	logged := ""
	for {
		differs, err := f.readAll()
		if differs {
			changed.Fire()
		}
		if err == nil {
			logged = ""
		} else if err.Error() != logged {
			logged = err.Error()
			f.log.Warn("Leases not read; using the last known Leases", "err", err)
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

func (f *DirStore) readAll() (changed bool, err error) {
	now := map[string]Lease{}
	for _, g := range f.gateways() {
		l, err := f.read(g.Name)
		if err != nil {
			return false, err
		}
		now[g.Name] = l
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	changed = f.leases == nil || len(now) != len(f.leases)
	for name, l := range now {
		changed = changed || f.leases[name] != l
	}
	f.leases = now
	return changed, nil
}

// Leases implements LeaseStore.
func (f *DirStore) Leases() (map[string]Lease, bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.leases, f.leases != nil
}

// Read implements LeaseStore.
func (f *DirStore) Read(_ context.Context, gateway string) (Lease, error) { return f.read(gateway) }

func (f *DirStore) read(gateway string) (Lease, error) {
	l, err := statefile.New[Lease](f.dir, gateway+".json").Load()
	if err != nil {
		return Lease{}, fmt.Errorf("read Lease: %w", err)
	}
	l.Gateway, l.Version = gateway, cmp.Or(l.Version, "0")
	return l, nil
}

// Write implements LeaseStore. It waits for the lock of the directory until ctx is done.
func (f *DirStore) Write(ctx context.Context, l Lease) (Lease, error) {
	if strings.Contains(l.Gateway, "/") {
		return Lease{}, fmt.Errorf("write Lease: %q is not a gateway's name", l.Gateway)
	}
	lock, err := os.OpenFile(filepath.Join(f.dir, ".lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return Lease{}, fmt.Errorf("write Lease: %w", err)
	}
	defer func() { _ = lock.Close() }()
	for unix.Flock(int(lock.Fd()), unix.LOCK_EX|unix.LOCK_NB) != nil {
		select {
		case <-ctx.Done():
			return Lease{}, fmt.Errorf("write Lease: %w", ctx.Err())
		case <-time.After(lockPollInterval):
		}
	}
	now, err := f.read(l.Gateway)
	if err != nil {
		return Lease{}, err
	}
	if now.Version != l.Version {
		return Lease{}, ErrConflict
	}
	version, err := strconv.ParseUint(now.Version, 10, 63)
	if err != nil {
		return Lease{}, fmt.Errorf("write Lease: version %q: %w", now.Version, err)
	}
	l.Version, l.Renewed = strconv.FormatUint(version+1, 10), l.Renewed.Round(0).UTC()
	raw, err := json.Marshal(l)
	if err != nil {
		return Lease{}, fmt.Errorf("write Lease: %w", err)
	}
	return l, atomicfile.Replace(filepath.Join(f.dir, l.Gateway+".json"), raw, 0o600)
}
