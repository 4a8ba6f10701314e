package nodeagent

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"os"
	"reflect"
	"sync"
	"time"

	"hawser.dev/hawser/internal/atomicfile"
	"hawser.dev/hawser/internal/bell"
	"hawser.dev/hawser/nodeagent/project"
)

// saveLiveEvery is how often at most what was heard is written to the state folder.
const saveLiveEvery = 5 * time.Second

// keptLive is what other clusters said before the agent was started. It counts for
// those that were not heard since, as long as what a lost feed said would.
type keptLive struct {
	path  string
	stale time.Duration
	wake  bell.Bell
	began time.Time

	mu    sync.Mutex
	kept  map[string]project.Live // replaced as a whole
	heard map[string]project.Live // to be saved
}

// restore begins with what the run before heard; nothing when that cannot be read.
func (k *keptLive) restore(now time.Time, log *slog.Logger) {
	var kept map[string]project.Live
	raw, err := os.ReadFile(k.path)
	if err == nil {
		err = json.Unmarshal(raw, &kept)
	}
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		log.Warn("exports of the run before not read", "err", err)
		kept = nil
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.began, k.kept = now, kept
}

// follow gives what counts of it still, and whether clusters that are silent are
// lost: without having been heard for that long.
func (k *keptLive) follow(others int, live map[string]project.Live, now time.Time) (kept map[string]project.Live, settled bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	settled = now.Sub(k.began) >= k.stale
	if settled {
		k.kept = nil
	}
	kept = k.kept
	for cluster := range kept {
		if _, heard := live[cluster]; !heard {
			continue
		}
		next := make(map[string]project.Live, len(kept))
		for other := range kept {
			if _, heard := live[other]; !heard {
				next[other] = kept[other]
			}
		}
		k.kept, kept = next, next
		break
	}
	if !reflect.DeepEqual(live, k.heard) {
		k.heard = live
		k.wake.Ring()
	}
	return kept, settled || len(live) >= others
}

// run saves what is heard until ctx ends, in a goroutine of its own, as a disk may
// hang. What is kept until a cluster is heard anew stays in the file.
func (k *keptLive) run(ctx context.Context, log *slog.Logger) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-k.wake:
		}
		if err := k.save(); err != nil {
			log.Debug("what was heard not saved", "err", err)
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(saveLiveEvery):
		}
	}
}

func (k *keptLive) save() error {
	k.mu.Lock()
	all := make(map[string]project.Live, len(k.kept)+len(k.heard))
	for _, source := range []map[string]project.Live{k.kept, k.heard} {
		for cluster, live := range source {
			if slim := offeredOf(live); len(slim.Exports) > 0 {
				all[cluster] = slim
			}
		}
	}
	k.mu.Unlock()
	if len(all) == 0 {
		if err := os.Remove(k.path); !errors.Is(err, os.ErrNotExist) {
			return err
		}
		return nil
	}
	raw, err := json.Marshal(all)
	if err != nil {
		return err
	}
	return atomicfile.Write(k.path, raw, 0o600)
}

// offeredOf leaves what has to outlive the agent: exports with an offer, and hosts.
func offeredOf(live project.Live) project.Live {
	out := project.Live{Cluster: live.Cluster}
	for _, e := range live.Exports {
		if e.Offer != nil || len(e.Hosts) > 0 {
			out.Exports = append(out.Exports, e)
		}
	}
	return out
}
