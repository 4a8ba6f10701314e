package converge

import (
	"context"
	"errors"
	"log/slog"
	"time"
)

// blockedWarnTime is the time after which a blocked change is logged as a warning.
const blockedWarnTime = time.Minute

type blockedChange struct {
	since  time.Time
	logged bool
}

// log logs the report of a round. Urgent passes made the first urgent changes in r.Changed; these are
// never drift.
func (e *Engine[D]) log(ctx context.Context, r Report, urgent int) {
	if e.Log == nil {
		return
	}
	for i, c := range r.Changed {
		level, message := slog.LevelDebug, "changed"
		if len(r.Drift) > 0 && i >= urgent {
			level, message = slog.LevelWarn, "drift repaired"
		}
		e.Log.Log(ctx, level, message,
			"kind", c.Kind, "op", string(c.Op), "key", c.Key, "origin", c.Origin, "fields", fieldsOf(c))
	}
	for _, p := range r.Failed {
		e.Log.ErrorContext(ctx, "change failed", "kind", p.Kind, "key", p.Key, "err", p.Err)
	}
	for _, p := range r.Fights {
		e.Log.ErrorContext(ctx, "change reverted repeatedly by another program", "kind", p.Kind, "key", p.Key)
	}
	e.logBlocked(ctx, r)
	if len(r.Changed) > 0 {
		e.Log.InfoContext(ctx, "round done", "digest", r.Digest, "changed", len(r.Changed), "blocked", len(r.Blocked),
			"failed", len(r.Failed), "passes", r.Passes, "took", r.Took)
	}
}

// logBlocked logs blocked changes at debug level, and once as a warning after blockedWarnTime.
func (e *Engine[D]) logBlocked(ctx context.Context, r Report) {
	blocked := make(map[string]blockedChange, len(r.Blocked))
	for _, p := range r.Blocked {
		id := p.Kind + " " + p.Key
		b, known := e.blocked[id]
		if !known {
			b.since = r.At
		}
		var cause ErrBlocked
		errors.As(p.Err, &cause)
		level := slog.LevelDebug
		if !b.logged && r.At.Sub(b.since) > blockedWarnTime {
			level, b.logged = slog.LevelWarn, true
		}
		e.Log.Log(ctx, level, "change blocked", "kind", p.Kind, "key", p.Key, "waiting_for", cause.On, "since", b.since)
		blocked[id] = b
	}
	e.blocked = blocked
}

func fieldsOf(c Change) slog.Value {
	attrs := make([]slog.Attr, len(c.Deltas))
	for i, d := range c.Deltas {
		attrs[i] = slog.String(d.Name, orNone(d.Have)+" -> "+orNone(d.Want))
	}
	return slog.GroupValue(attrs...)
}
