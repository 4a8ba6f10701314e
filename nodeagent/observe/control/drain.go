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

// DrainedFile marks, in the state folder, that this gateway is to be left.
const DrainedFile = "drained"

// drainRest is how long nobody must have used a drained gateway before it counts
// as left: for packets under way, and for nodes that learn of it last.
const drainRest = time.Second

// Drain is the wish that this gateway be left. That of a person survives restarts;
// that of whoever restarts the agent ends with it, and a drill after a time.
type Drain struct {
	path string

	mu           sync.Mutex
	drained      bool
	untilRestart bool      // until the agent ends
	drillEnds    time.Time // of a drill, which ends by itself
	used         time.Time // when somebody was seen to use it last
}

// OpenDrain reads the wish of the run before from the state folder.
func OpenDrain(dir string) (*Drain, error) {
	path := filepath.Join(dir, DrainedFile)
	d := &Drain{path: path, used: time.Now()}
	_, err := os.Stat(path)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("look for the mark of a drained gateway: %w", err)
	}
	d.drained = err == nil
	return d, nil
}

// set drains, or takes it back.
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
		if err := atomicfile.Write(d.path, []byte("drained by hawser-agent drain; hawser-agent undrain takes it back\n"), 0o600); err != nil {
			return err
		}
	} else if err := os.Remove(d.path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("undrain: %w", err)
	}
	d.drained, d.used = drained, time.Now()
	return nil
}

// drainUntilRestart drains until the agent ends, or until set takes it back.
func (d *Drain) drainUntilRestart() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.untilRestart {
		d.untilRestart, d.used = true, time.Now()
	}
}

// drill drains until a time at most, or ends the drill if that time is now. Other drains stay. It
// reports whether a drill began or ended; a later end of a drill changes nothing.
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

// Active reports whether this gateway is to be left.
func (d *Drain) Active() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.drained || d.untilRestart || time.Now().Before(d.drillEnds)
}

// isIdle reports whether a gateway that is not used now was not for long enough.
func (d *Drain) isIdle(used bool, now time.Time) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if used {
		d.used = now
	}
	return now.Sub(d.used) >= drainRest
}

// drained drains this gateway, or takes it back.
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

// serveDrill answers POST /drain/drill?for=2m: it drains for a time at most, so that a drill ends even
// if its caller is gone. Each request sets a new end; 0s ends it now.
func (c *Control) serveDrill(w http.ResponseWriter, r *http.Request) {
	lasts, err := time.ParseDuration(r.URL.Query().Get("for"))
	if err != nil || lasts < 0 || lasts > maxDrill {
		http.Error(w, fmt.Sprintf("for: a time from 0s to %s", maxDrill), http.StatusBadRequest)
		return
	}
	now := time.Now()
	if c.config.Drain.drill(now, now.Add(lasts)) {
		c.config.Log.Info("drained for a drill", "drained", lasts > 0)
		c.config.OnDrainChange()
	}
	if lasts > 0 { // it may have a later end by then
		time.AfterFunc(lasts+time.Millisecond, c.config.OnDrainChange)
	}
	c.send(w, c.drainState(time.Now()))
}

// drainState reports how far a drain is.
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
	free := false
	for _, u := range users {
		out.Users = append(out.Users, u.String())
		if slices.Contains(needed, u.Cluster) {
			out.NoAlternative = append(out.NoAlternative, u.Cluster)
		} else {
			free = true
		}
	}
	if c.config.Drain.isIdle(free, now) {
		return out
	}
	out.NoAlternative = nil
	if len(out.Users) == 0 {
		out.Users = []string{"packets under way"}
	}
	return out
}
