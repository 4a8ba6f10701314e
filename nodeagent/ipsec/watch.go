package ipsec

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"sync"
	"time"

	"hawser.dev/hawser/nodeagent/desired"
	"hawser.dev/hawser/nodeagent/ipsec/vici"
)

const (
	watchInterval = time.Second // between two looks at charon and its connections
	// hangs is how long our own charon may go without an answer, and hangsMisses how
	// often, before it is ended; the agent then makes a new one. One that works
	// meanwhile may only wait for a processor, and carry packets.
	hangs       = 5 * time.Second
	hangsMisses = 3
	hangsBusy   = 30 * time.Second
	// The end that does not begin does so after all when a connection is down for
	// as long: the other one may not know yet that it is.
	patience = 4 * time.Second
)

// Watch looks after charon: it ends one that hangs, opens connections that are
// down, and knows their state. Its exported fields must not change while it runs.
type Watch struct {
	Charon *Charon
	// Wanted gives the connections that should be there.
	Wanted func() []desired.IPsec
	Log    *slog.Logger
	// Look is called when the agent has to look again: a charon that hung was ended,
	// or somebody unloaded a connection.
	Look func()

	silent time.Time // since when charon does not answer; zero = it does
	misses int
	worked int                  // the processor time that it had had by then
	down   map[string]time.Time // since when connections are down

	mu    sync.Mutex
	known map[string]State
}

// States gives the state of each connection, as of a moment ago.
func (w *Watch) States() map[string]State {
	w.mu.Lock()
	defer w.mu.Unlock()
	return maps.Clone(w.known)
}

// Run watches until ctx ends.
func (w *Watch) Run(ctx context.Context) error {
	w.down = map[string]time.Time{}
	tick := time.NewTicker(watchInterval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
			w.look(ctx, time.Now())
		}
	}
}

func (w *Watch) look(ctx context.Context, now time.Time) {
	wanted := w.Wanted()
	if len(wanted) == 0 {
		w.note(nil, now)
		w.silent, w.misses = time.Time{}, 0
		return
	}
	ask, cancel := context.WithTimeout(ctx, hangs/hangsMisses)
	defer cancel()
	client, err := w.Charon.Dial(ask)
	if errors.Is(err, ErrNoCharon) {
		w.note(nil, now) // the agent is about to start it
		return
	}
	var have map[string]State
	if err == nil {
		defer client.Close()
		have, err = states(ask, client)
	}
	if ctx.Err() != nil {
		return
	}
	if err != nil {
		w.missed(now, err)
		return
	}
	w.silent, w.misses = time.Time{}, 0
	w.note(have, now)
	for i := range wanted {
		if err := w.open(ask, client, &wanted[i], have[wanted[i].Name], now); err != nil {
			w.Log.Warn("ipsec connection not opened", "connection", wanted[i].Name, "err", err)
		}
	}
}

// missed counts an answer that did not come, and ends our charon after a few.
func (w *Watch) missed(now time.Time, cause error) {
	w.misses++
	if w.silent.IsZero() {
		w.silent, w.worked = now, w.Charon.worked()
	}
	if !w.Charon.Own() || w.misses < hangsMisses || now.Sub(w.silent) < hangs {
		return
	}
	if w.Charon.worked() > w.worked && now.Sub(w.silent) < hangsBusy {
		return
	}
	w.Log.Warn("charon does not answer, ending it", "silent", now.Sub(w.silent).Round(time.Second), "err", cause)
	w.silent, w.misses = time.Time{}, 0
	if err := w.Charon.kill(); err != nil {
		w.Log.Error("charon not ended", "err", err)
	}
	w.Look()
}

// note keeps what was read, with what only follows from what was before.
func (w *Watch) note(have map[string]State, now time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for name, s := range have {
		before := w.known[name]
		switch {
		case !s.Up:
			continue
		case !before.Up:
			s.Since = now
		default:
			s.Since, s.Rekeys = before.Since, before.Rekeys
			if before.SPIIn != s.SPIIn {
				s.Rekeys++
			}
		}
		have[name] = s
	}
	w.known = have
}

// open opens a connection that is down and has an address to go to.
func (w *Watch) open(ctx context.Context, client *vici.Client, c *desired.IPsec, s State, now time.Time) error {
	if s.Up || s.Connecting {
		delete(w.down, c.Name)
		return nil
	}
	since, known := w.down[c.Name]
	if !known {
		w.down[c.Name] = now
		return nil // charon begins by itself when it is given a connection
	}
	if !c.Remote.IsValid() || !c.Begins && now.Sub(since) < patience {
		return nil
	}
	_, err := client.Call(ctx, "initiate", vici.Section{
		"ike": c.Name, "child": childName(c, w.Charon.InKernel()), "timeout": "-1", "init-limits": "no",
	})
	if errors.Is(err, vici.ErrRefused) {
		w.Look() // it is not loaded
		return nil
	}
	return err
}
