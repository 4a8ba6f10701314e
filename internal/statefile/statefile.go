// Package statefile saves values as JSON in the agent's state directory, for the next start of the
// agent.
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

// File is one value in the state directory. It is safe for concurrent use.
type File[T any] struct {
	path string
	wake trigger.Trigger

	mu      sync.Mutex
	raw     []byte // content on disk; nil if not read or absent
	current bool   // raw is current
	saveErr error  // error of the last save
}

// New returns a File in a directory. It does not read or write the file.
func New[T any](dir, name string) *File[T] {
	return &File[T]{path: filepath.Join(dir, name), wake: trigger.New()}
}

// Load returns the saved value; the zero value if absent.
func (f *File[T]) Load() (T, error) {
	var value, zero T
	f.mu.Lock()
	defer f.mu.Unlock()
	raw, err := os.ReadFile(f.path)
	f.raw, f.current = raw, err == nil
	if errors.Is(err, fs.ErrNotExist) {
		return zero, nil
	}
	if err != nil {
		return zero, err
	}
	if err := json.Unmarshal(raw, &value); err != nil {
		return zero, fmt.Errorf("read %s: %w", f.path, err)
	}
	return value, nil
}

// LoadOrZero is like Load for values that can be computed again. On an error it logs the error and
// returns the zero value.
func (f *File[T]) LoadOrZero(log *slog.Logger) T {
	value, err := f.Load()
	if err != nil {
		log.Warn("state file not read", "err", err)
	}
	return value
}

// Save writes the value unless the file already has it. An empty map removes the file.
func (f *File[T]) Save(value T) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.saveErr = f.save(value)
	return f.saveErr
}

func (f *File[T]) save(value T) error {
	if v := reflect.ValueOf(value); v.Kind() == reflect.Map && v.Len() == 0 {
		f.raw, f.current = nil, true
		if err := os.Remove(f.path); !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		return nil
	}
	raw, err := json.Marshal(value)
	if err != nil {
		return fmt.Errorf("save %s: %w", f.path, err)
	}
	if !f.current {
		f.raw, _ = os.ReadFile(f.path) // replace an unreadable file
		f.current = true
	}
	if f.raw != nil && bytes.Equal(f.raw, raw) {
		return nil
	}
	if err := atomicfile.Write(f.path, raw, 0o600); err != nil {
		f.current = false
		return err
	}
	f.raw = raw
	return nil
}

// Err returns the error of the last save.
func (f *File[T]) Err() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.saveErr
}

// MarkDirty makes Run save the value soon. It never blocks.
func (f *File[T]) MarkDirty() { f.wake.Fire() }

// Run saves the result of value after MarkDirty, at most once per period, until ctx is done. It
// needs its own goroutine, because I/O on a disk may hang.
func (f *File[T]) Run(ctx context.Context, period time.Duration, value func() T, log *slog.Logger) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-f.wake:
		}
		if err := f.Save(value()); err != nil {
			log.Debug("state not saved", "err", err)
		}
		select {
		case <-ctx.Done():
		case <-time.After(period):
		}
	}
}
