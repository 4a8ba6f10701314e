package ipsec

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"sync"
	"time"

	"hawser.dev/hawser/internal/trigger"
	"hawser.dev/hawser/nodeagent/desired"
	"hawser.dev/hawser/nodeagent/kernel/childprocess"
	"hawser.dev/hawser/nodeagent/kernel/ipsec/vici"
)

const (
	watchInterval = time.Second // between two checks of charon and its connections
	// Our own charon is killed when it misses hangMinMisses replies within hangTimeout; the agent
	// then starts a new one.
	hangTimeout   = 5 * time.Second
	hangMinMisses = 3
	// hangTimeoutBusy is the timeout of a charon that uses CPU meanwhile: it may encrypt
	// packets, and reply late.
	hangTimeoutBusy = 30 * time.Second
	// responderInitiateAfter is the time after which the end that does not initiate does so: the
	// peer may not know that the connection is down.
	responderInitiateAfter = 4 * time.Second
)

// Supervisor kills a charon that hangs, initiates connections that are down, and reads the state
// of all connections. Its exported fields must not change while it runs.
type Supervisor struct {
	Charon *Charon
	// Desired returns the desired connections.
	Desired func() []desired.IPsec
	Log     *slog.Logger
	// TriggerRound is called when a charon was killed or a connection is not loaded.
	TriggerRound func()

	watchdog  childprocess.Watchdog
	downSince map[string]time.Time // since when connections are down

	mu     sync.Mutex
	states map[string]State
}

// States returns the state of each connection at the last check.
func (w *Supervisor) States() map[string]State {
	w.mu.Lock()
	defer w.mu.Unlock()
	return maps.Clone(w.states)
}

// Run watches until ctx is done. Charon continues.
func (w *Supervisor) Run(ctx context.Context) error {
	w.init()
	trigger.New().Run(ctx, func() time.Duration {
		now := time.Now()
		w.checkCharon(ctx, now)
		return time.Until(now.Add(watchInterval))
	})
	return nil
}

func (w *Supervisor) init() {
	w.downSince = map[string]time.Time{}
	w.watchdog = childprocess.Watchdog{
		MinMisses: hangMinMisses, Timeout: hangTimeout, MaxTimeout: hangTimeoutBusy,
		Excused: func(silence time.Duration, during childprocess.Usage) time.Duration {
			if during.Ran > 0 {
				return silence
			}
			return 0
		},
	}
}

func (w *Supervisor) checkCharon(ctx context.Context, now time.Time) {
	connections := w.Desired()
	if w.Charon.Managed() {
		for _, name := range []string{outputFile, logFile} {
			if err := childprocess.TrimLog(w.Charon.path(name)); err != nil {
				w.Log.Debug("log of charon not trimmed", "err", err)
			}
		}
	}
	if len(connections) == 0 {
		w.record(nil, now)
		w.watchdog.Reset()
		return
	}
	checkCtx, cancel := context.WithTimeout(ctx, hangTimeout/hangMinMisses)
	defer cancel()
	client, err := w.Charon.Dial(checkCtx)
	if errors.Is(err, ErrNoCharon) {
		w.record(nil, now) // the agent is about to start it
		return
	}
	var have map[string]State
	if err == nil {
		defer client.Close()
		have, err = readStates(checkCtx, client)
	}
	if ctx.Err() != nil {
		return
	}
	if err != nil {
		w.onNoReply(now, err)
		return
	}
	w.watchdog.Reset()
	w.record(have, now)
	for i := range connections {
		if err := w.initiate(checkCtx, client, &connections[i], have[connections[i].Name], now); err != nil {
			w.Log.Warn("ipsec connection not opened", "connection", connections[i].Name, "err", err)
		}
	}
}

// onNoReply kills our own charon if it hangs.
func (w *Supervisor) onNoReply(now time.Time, cause error) {
	if !w.Charon.Managed() {
		return
	}
	pid, err := w.Charon.pid()
	if err != nil || pid == 0 {
		w.Log.Warn("charon does not reply and its process is not found", "err", errors.Join(cause, err))
		return
	}
	silence, hangs := w.watchdog.Missed(pid, now, now, childprocess.UsageOf(pid))
	if !hangs {
		return
	}
	w.watchdog.Reset()
	w.Log.Warn("charon killed", "pid", pid, "cause", childprocess.Cause(silence), "err", cause)
	if err := w.Charon.killHung(pid); err != nil {
		w.Log.Error("charon not killed", "err", err)
	}
	w.TriggerRound()
}

// record stores the states. It derives Since and Rekeys from the previous states.
func (w *Supervisor) record(have map[string]State, now time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for name, s := range have {
		before := w.states[name]
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
	w.states = have
}

// initiate initiates a connection that is down and has a remote address.
func (w *Supervisor) initiate(ctx context.Context, client *vici.Client, c *desired.IPsec, s State, now time.Time) error {
	if s.Up || s.Connecting {
		delete(w.downSince, c.Name)
		return nil
	}
	since, known := w.downSince[c.Name]
	if !known {
		w.downSince[c.Name] = now
		return nil // charon initiates a connection when it is loaded
	}
	if !c.Remote.IsValid() || !c.Initiator && now.Sub(since) < responderInitiateAfter {
		return nil
	}
	_, err := client.Call(ctx, "initiate", vici.Section{
		"ike": c.Name, "child": childName(c, w.Charon.InKernel()), "timeout": "-1", "init-limits": "no",
	})
	if errors.Is(err, vici.ErrRefused) {
		w.TriggerRound() // the connection is not loaded
		return nil
	}
	return err
}
