package input

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"

	"hawser.dev/hawser/internal/atomicfile"
	"hawser.dev/hawser/nodeagent/status"
	"hawser.dev/hawser/schema/fabric/trust"
)

// cachedDocument is an input file whose last good version stays valid: in memory while the
// agent runs, and in the state directory for the next start.
type cachedDocument[T any] struct {
	name   string // for status
	backup string // path of the last good copy
	// read returns the document, and the proof of its origin from the same directory.
	read func() (raw, proof []byte, err error)
	// admit returns an error unless the document is accepted. The last good copy was admitted
	// before.
	admit  func(raw, proof []byte) error
	decode func([]byte) (T, error)

	value T
	have  bool
	raw   []byte // the encoded value; nil if value was decoded from the copy
	saved bool   // the copy contains raw
	state status.InputState
}

// refresh reads the document again. It reports whether value changed, and returns the error if the
// copy could not be written. An unusable input does not change value.
func (d *cachedDocument[T]) refresh() (changed bool, problem error) {
	raw, proof, err := d.read()
	if err == nil {
		err = d.admit(raw, proof)
	}
	if err == nil && d.have && bytes.Equal(raw, d.raw) {
		d.state = status.InputState{Name: d.name, OK: true, From: d.state.From}
		return false, d.save()
	}
	var value T
	if err == nil {
		value, err = d.decode(raw)
	}
	if err != nil {
		return d.fallBack(err), d.save()
	}
	d.value, d.raw, d.have, d.saved = value, raw, true, false
	d.state = status.InputState{Name: d.name, OK: true, From: "file"}
	return true, d.save()
}

// save writes the last good copy unless it is on disk already. Every refresh retries a failed
// write.
func (d *cachedDocument[T]) save() error {
	if d.saved || d.raw == nil {
		return nil
	}
	err := atomicfile.Write(d.backup, d.raw, 0o600)
	d.saved = err == nil
	return err
}

// fallBack keeps the current value, or starts from the last good copy.
func (d *cachedDocument[T]) fallBack(cause error) (changed bool) {
	d.state = status.InputState{Name: d.name, From: d.state.From, Error: cause.Error()}
	var refusal *trust.Refusal
	if errors.As(cause, &refusal) {
		d.state.Refused = string(refusal.Reason)
	}
	if d.have {
		return false
	}
	raw, err := os.ReadFile(d.backup)
	if err != nil {
		return false
	}
	value, err := d.decode(raw)
	if err != nil {
		d.state.Error = errors.Join(cause, fmt.Errorf("last good copy: %w", err)).Error()
		return false
	}
	d.value, d.have = value, true
	d.state.From = "last good copy"
	return true
}

// readProof reads the proof in the directory of a document; nil if absent.
func readProof(dir, name string) ([]byte, error) {
	raw, err := os.ReadFile(filepath.Join(dir, name))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return raw, err
}

// readParts reads name from a directory, or name.0, name.1, ... joined. A fabric that is too large
// for one ConfigMap consists of parts.
func readParts(dir, name string) ([]byte, error) {
	whole, err := os.ReadFile(filepath.Join(dir, name))
	if !errors.Is(err, fs.ErrNotExist) {
		return whole, err
	}
	var joined []byte
	for i := 0; ; i++ {
		part, partErr := os.ReadFile(filepath.Join(dir, name+"."+strconv.Itoa(i)))
		if errors.Is(partErr, fs.ErrNotExist) && i > 0 {
			return joined, nil
		}
		if errors.Is(partErr, fs.ErrNotExist) {
			return nil, err
		}
		if partErr != nil {
			return nil, partErr
		}
		joined = append(joined, part...)
	}
}
