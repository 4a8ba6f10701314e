package change

import (
	"reflect"
	"slices"
	"time"
)

// keep writes what changed before anybody learns of it.
func (x *Exchange) keep() {
	x.mu.Lock()
	if !x.begun {
		x.mu.Unlock()
		return
	}
	next := make(map[string]Kept, len(x.links))
	for name, l := range x.links {
		next[name] = l.pair.Keep()
	}
	same, news := reflect.DeepEqual(next, x.saved), !reflect.DeepEqual(next, x.kept)
	x.mu.Unlock()
	if !same {
		x.save(next)
	}
	if !news {
		return
	}
	x.mu.Lock()
	x.tell(next)
	for name := range x.kept {
		if x.links[name] == nil {
			delete(x.kept, name)
		}
	}
	for name, k := range next { // but not what came meanwhile
		if x.links[name] != nil {
			x.kept[name] = k
		}
	}
	now := time.Now()
	for _, l := range x.links {
		if len(l.unsaid) > 0 {
			x.queue.Set(l, now)
		}
	}
	x.mu.Unlock()
	x.config.Wake.Ring()
	x.config.OnChange()
}

// save goes on without, should the disk be full: then it matters only if this
// agent restarts before it is done.
func (x *Exchange) save(next map[string]Kept) {
	err := x.config.Keep(next)
	if err == nil {
		x.saved = next
	} else if !x.failed {
		x.config.Log.Warn("tunnels not kept for the next start", "err", err)
	}
	x.failed = err != nil
}

// tell writes changes of what is in use to the log.
func (x *Exchange) tell(next map[string]Kept) {
	for name, k := range next {
		before, known := x.kept[name]
		switch {
		case !known:
		case before.Use != k.Use:
			x.config.Log.Info("tunnel changed", "peer", name, "from", before.Use.String(), "to", k.Use.String())
		case !slices.Equal(before.Tunnels, k.Tunnels):
			x.config.Log.Info("tunnels of a pair", "peer", name, "use", k.Use.String(), "tunnels", k.Tunnels)
		}
	}
}
