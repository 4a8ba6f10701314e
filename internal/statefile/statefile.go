// Package statefile keeps values in the agent's state folder, as JSON, for its next start.
package statefile

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"reflect"
	"sync"
	"time"

	"hawser.dev/hawser/internal/atomicfile"
	"hawser.dev/hawser/internal/trigger"
)

// File is one value in the state folder. Its methods may be called from any goroutine.
type File[T any] struct {
	path string
	wake trigger.Trigger

	mu     sync.Mutex
	raw    []byte // on disk; nil = not read, or absent
	looked bool   // raw was read, or written
	failed error  // of the last save
}

// New names a file; nothing is read or written yet.
func New[T any](dir, name string) *File[T] {
	return &File[T]{path: filepath.Join(dir, name), wake: trigger.New()}
}

// Load returns the saved value; the zero value if nothing was saved.
func (f *File[T]) Load() (T, error) {
	var value, none T
	f.mu.Lock()
	defer f.mu.Unlock()
	raw, err := os.ReadFile(f.path)
	f.raw, f.looked = raw, err == nil
	if errors.Is(err, fs.ErrNotExist) {
		return none, nil
	}
	if err != nil {
		return none, err
	}
	if err := json.Unmarshal(raw, &value); err != nil {
		return none, fmt.Errorf("read %s: %w", f.path, err)
	}
	return value, nil
}

// LoadOrZero is Load for what only spares work: what cannot be read is logged and not there.
func (f *File[T]) LoadOrZero(log *slog.Logger) T {
	value, err := f.Load()
	if err != nil {
		log.Warn("not read what the run before kept", "err", err)
	}
	return value
}

// Save replaces the file unless it is equal. An empty map removes it.
func (f *File[T]) Save(value T) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.failed = f.save(value)
	return f.failed
}

func (f *File[T]) save(value T) error {
	if v := reflect.ValueOf(value); v.Kind() == reflect.Map && v.Len() == 0 {
		f.raw, f.looked = nil, true
		if err := os.Remove(f.path); !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		return nil
	}
	raw, err := json.Marshal(value)
	if err != nil {
		return fmt.Errorf("save %s: %w", f.path, err)
	}
	if !f.looked {
		f.raw, _ = os.ReadFile(f.path) // an unreadable file is replaced
		f.looked = true
	}
	if f.raw != nil && bytes.Equal(f.raw, raw) {
		return nil
	}
	if err := atomicfile.Write(f.path, raw, 0o600); err != nil {
		f.looked = false
		return err
	}
	f.raw = raw
	return nil
}

// Err returns how the last save ended.
func (f *File[T]) Err() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.failed
}

// MarkDirty has Run save soon. It never blocks.
func (f *File[T]) MarkDirty() { f.wake.Fire() }

// Run saves the value of source after each Changed, at most once in every, until ctx is done.
// It needs its own goroutine, as a disk may hang.
func (f *File[T]) Run(ctx context.Context, every time.Duration, source func() T, log *slog.Logger) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-f.wake:
		}
		if err := f.Save(source()); err != nil {
			log.Debug("not kept for the next start", "err", err)
		}
		select {
		case <-ctx.Done():
		case <-time.After(every):
		}
	}
}
