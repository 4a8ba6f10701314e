package nodeagent

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"os"
	"reflect"
	"time"

	"hawser.dev/hawser/internal/atomicfile"
	"hawser.dev/hawser/internal/bell"
)

// saver writes something to the state folder for the next start when it changed.
// It has a goroutine of its own, as a disk may hang.
type saver[T any] struct {
	what string // it is, for the log
	path string
	wake bell.Bell
	// every is how often it is written at most; 0 = whenever it changed.
	every time.Duration
	last  T
}

func newSaver[T any](what, path string) saver[T] {
	return saver[T]{what: what, path: path, wake: bell.New()}
}

func (s *saver[T]) run(ctx context.Context, kept func() T, log *slog.Logger) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.wake:
			s.save(kept(), log)
		}
		select {
		case <-ctx.Done():
		case <-time.After(s.every):
		}
	}
}

func (s *saver[T]) save(kept T, log *slog.Logger) {
	if reflect.DeepEqual(kept, s.last) {
		return
	}
	raw, err := json.Marshal(kept)
	if err == nil {
		err = atomicfile.Write(s.path, raw, 0o600)
	}
	if err != nil {
		log.Debug("not kept for the next start", "what", s.what, "err", err)
		return
	}
	s.last = kept
}

// load gives what was saved; nothing when that cannot be read, as it only spares
// moves.
func (s *saver[T]) load(log *slog.Logger) T {
	var last T
	raw, err := os.ReadFile(s.path)
	if err == nil {
		err = json.Unmarshal(raw, &last)
	}
	if err != nil {
		var none T
		last = none
		if !errors.Is(err, os.ErrNotExist) {
			log.Warn("not read what the run before kept", "what", s.what, "err", err)
		}
	}
	s.last = last
	return last
}
