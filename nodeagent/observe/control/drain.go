package control

import (
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"hawser.dev/hawser/internal/atomicfile"
	"hawser.dev/hawser/nodeagent/status"
)

// DrainedFile is the file in the state directory that marks a drained gateway.
const DrainedFile = "drained"

// drainIdleTime is the time for which a drained gateway must be unused before it counts as idle. It
// covers packets in flight, and nodes that learn of the drain late.
const drainIdleTime = time.Second

// Drain is the request to move traffic off this gateway. A drain by a user survives restarts. A
// drain until restart ends when the agent exits. A drill ends at a fixed time.
type Drain struct {
	path string

	mu           sync.Mutex
	drained      bool
	untilRestart bool      // until the agent exits
	drillEnds    time.Time // end of the drill; zero without one
	used         time.Time // when the gateway was last in use
}

// OpenDrain returns the Drain of a state directory. It is drained if the directory has DrainedFile.
func OpenDrain(dir string) (*Drain, error) {
	path := filepath.Join(dir, DrainedFile)
	d := &Drain{path: path, used: time.Now()}
	_, err := os.Stat(path)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("check the mark of a drained gateway: %w", err)
	}
	d.drained = err == nil
	return d, nil
}

// set starts or ends a drain by a user.
func (d *Drain) set(drained bool) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !drained {
		d.untilRestart = false
	}
	if drained == d.drained {
		return nil
	}
	if drained {
		if err := atomicfile.Write(d.path, []byte("drained by hawser-agent drain; end the drain with hawser-agent undrain\n"), 0o600); err != nil {
			return err
		}
	} else if err := os.Remove(d.path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("undrain: %w", err)
	}
	d.drained, d.used = drained, time.Now()
	return nil
}

// drainUntilRestart drains until the agent exits or set(false) ends the drain.
func (d *Drain) drainUntilRestart() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.untilRestart {
		d.untilRestart, d.used = true, time.Now()
	}
}

// drill drains until ends. If ends is now, it ends the drill. Other drains stay. It reports whether
// a drill started or ended; a new end of a running drill is neither.
func (d *Drain) drill(now, ends time.Time) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	before, after := now.Before(d.drillEnds), now.Before(ends)
	d.drillEnds = ends
	if after && !before {
		d.used = now
	}
	return before != after
}

// Active reports whether this gateway is drained.
func (d *Drain) Active() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.drained || d.untilRestart || time.Now().Before(d.drillEnds)
}

// isIdle reports whether the gateway has been unused for drainIdleTime. used reports whether it is
// in use now.
func (d *Drain) isIdle(used bool, now time.Time) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if used {
		d.used = now
	}
	return now.Sub(d.used) >= drainIdleTime
}

// drained starts or ends a drain by a user, and calls OnDrainChange.
func (c *Control) drained(drained bool) error {
	if err := c.config.Drain.set(drained); err != nil {
		return err
	}
	c.config.Log.Info(map[bool]string{true: "drained", false: "undrained"}[drained])
	c.config.OnDrainChange()
	return nil
}

// maxDrill is the maximum duration of a drill.
const maxDrill = 10 * time.Minute

// serveDrill serves POST /drain/drill?for=2m. A drill has a maximum duration, so it ends even if
// its client is gone. Each request sets a new end; 0s ends the drill now.
func (c *Control) serveDrill(w http.ResponseWriter, r *http.Request) {
	duration, err := time.ParseDuration(r.URL.Query().Get("for"))
	if err != nil || duration < 0 || duration > maxDrill {
		http.Error(w, fmt.Sprintf("for: want a duration from 0s to %s", maxDrill), http.StatusBadRequest)
		return
	}
	now := time.Now()
	if c.config.Drain.drill(now, now.Add(duration)) {
		c.config.Log.Info("drill changed", "drained", duration > 0)
		c.config.OnDrainChange()
	}
	if duration > 0 { // the drill may have a later end by then
		time.AfterFunc(duration+time.Millisecond, c.config.OnDrainChange)
	}
	c.send(w, c.drainState(time.Now()))
}

// drainState returns the progress of a drain.
func (c *Control) drainState(now time.Time) status.Drain {
	out := status.Drain{Drained: c.config.Drain.Active()}
	in := c.config.Outcome().Input
	if in.Fabric == nil {
		return out
	}
	own := in.Fabric.Cluster(in.Cluster)
	if own == nil || own.GatewayOn(in.Node) == nil {
		return out
	}
	out.Gateway = own.GatewayOn(in.Node).Name
	users, needed := c.config.State().Users(in, c.config.Links())
	hasMovableUsers := false
	for _, u := range users {
		out.Users = append(out.Users, u.String())
		if slices.Contains(needed, u.Cluster) {
			out.NoAlternative = append(out.NoAlternative, u.Cluster)
		} else {
			hasMovableUsers = true
		}
	}
	if c.config.Drain.isIdle(hasMovableUsers, now) {
		return out
	}
	out.NoAlternative = nil
	if len(out.Users) == 0 {
		out.Users = []string{"packets under way"}
	}
	return out
}
