package gitrepo

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/go-git/go-git/v5/plumbing/format/packfile"
	"github.com/go-git/go-git/v5/plumbing/storer"
)

// Limits of one fetch. go-git inflates each object of a pack in memory.
const (
	maxPackObject  = 100 << 20 // bytes of one object in the pack
	maxPackDelta   = 64 << 20  // of a delta and of its result: go-git makes several copies
	maxPackBytes   = 64 << 30  // bytes of all objects: a small delta can produce a large object
	maxPackObjects = 1_000_000
	maxFetch       = 4 << 30 // bytes of a pack
	maxMemory      = 2 << 30 // bytes of all objects of a mirror in memory
	maxMessage     = 1000    // characters of an error, and of the server's messages
)

// transferMonitor detects that a server sends nothing. It records the server's messages to the
// user, which are in the sideband of gitprotocol-pack(5).
type transferMonitor struct {
	idleTimeout time.Duration
	timer       *time.Timer

	mu       sync.Mutex
	messages bytes.Buffer
}

func newTransferMonitor(idleTimeout time.Duration, onIdle func()) *transferMonitor {
	return &transferMonitor{idleTimeout: idleTimeout, timer: time.AfterFunc(idleTimeout, onIdle)}
}

func (l *transferMonitor) reset() { l.timer.Reset(l.idleTimeout) }
func (l *transferMonitor) stop()  { l.timer.Stop() }

// Write implements io.Writer for the server's messages.
func (l *transferMonitor) Write(p []byte) (int, error) {
	l.reset()
	l.mu.Lock()
	defer l.mu.Unlock()
	if remaining := 4*maxMessage - l.messages.Len(); remaining > 0 {
		l.messages.Write(p[:min(remaining, len(p))])
	}
	return len(p), nil
}

// text returns the server's messages as a suffix for an error.
func (l *transferMonitor) text() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	var lines []string
	for line := range strings.Lines(l.messages.String()) {
		if lastReturn := strings.LastIndexByte(strings.TrimRight(line, "\r\n"), '\r'); lastReturn >= 0 {
			line = line[lastReturn+1:] // a progress counter overwrites its line
		}
		if line = strings.TrimSpace(oneLine(line, maxMessage)); line != "" {
			lines = append(lines, line)
		}
	}
	if len(lines) == 0 {
		return ""
	}
	return "; remote: " + oneLine(strings.Join(lines, "; remote: "), maxMessage)
}

// receiver is the storage of a mirror during a fetch. It checks a pack before go-git reads it.
type receiver struct {
	*boundedStorage
	dir           string // of a mirror on disk; empty = it is in memory
	maxFetchBytes int64  // bytes of a pack
	monitor       *transferMonitor
}

// PackfileWriter implements storer.PackfileWriter.
func (r *receiver) PackfileWriter() (io.WriteCloser, error) {
	dir := ""
	if r.dir != "" {
		if dir = filepath.Join(r.dir, "objects", "pack"); os.MkdirAll(dir, 0o700) != nil {
			dir = r.dir
		}
	}
	file, err := os.CreateTemp(dir, "tmp_received_")
	if err != nil {
		return nil, fmt.Errorf("make a file for the pack: %w", err)
	}
	return &packWriter{receiver: r, file: file}, nil
}

// packWriter receives a pack in a temporary file.
type packWriter struct {
	*receiver
	file *os.File
	size int64
}

// Write implements io.Writer.
func (r *packWriter) Write(p []byte) (int, error) {
	r.monitor.reset()
	if r.size += int64(len(p)); r.size > r.maxFetchBytes {
		return 0, tooLarge("the server sends more than %d bytes: no more are fetched at once. Move the topology to a repository of its own", r.maxFetchBytes)
	}
	return r.file.Write(p)
}

// Close checks the pack and stores its objects.
func (r *packWriter) Close() error {
	defer func() { _ = os.Remove(r.file.Name()) }()
	r.monitor.stop() // the transfer is complete
	var err error
	if r.size <= r.maxFetchBytes {
		err = r.storeObjects()
	}
	return errors.Join(err, r.file.Close())
}

func (r *packWriter) storeObjects() error {
	if r.size == 0 {
		return nil
	}
	maxTotal, hint := int64(maxPackBytes), "Move the topology to a repository of its own"
	if r.dir == "" {
		maxTotal, hint = maxMemory, hint+", or keep the mirror in a directory (hawser reconcile --cache)"
	}
	if err := checkPack(r.file, maxTotal, hint); err != nil {
		return err
	}
	if _, err := r.file.Seek(0, io.SeekStart); err != nil {
		return err
	}
	if packStore, onDisk := r.Storer.(storer.PackfileWriter); onDisk {
		return packfile.WritePackfileToObjectStorage(packStore, r.file)
	}
	return packfile.UpdateObjectStorage(r.Storer, r.file)
}

// checkPack checks the sizes in the headers of a pack's objects and in its deltas. It buffers no
// object. limit is the maximum size of all objects in bytes. The error about a larger pack contains
// hint.
func checkPack(file *os.File, limit int64, hint string) error {
	if _, err := file.Seek(0, io.SeekStart); err != nil {
		return err
	}
	scanner := packfile.NewScanner(file)
	_, count, err := scanner.Header()
	if err != nil {
		return fmt.Errorf("read pack: %w", err)
	}
	if count > maxPackObjects {
		return tooLarge("the pack has %d objects: at most %d are fetched at once", count, maxPackObjects)
	}
	var total int64
	for range count {
		h, err := scanner.NextObjectHeader()
		if err != nil {
			return fmt.Errorf("read pack: %w", err)
		}
		size, maxSize := h.Length, int64(maxPackObject)
		if h.Type.IsDelta() {
			maxSize = maxPackDelta
			e, err := readEntryHeader(file, h.Offset)
			if err != nil {
				return fmt.Errorf("read pack: %w", err)
			}
			size = max(size, e.size)
		}
		if size > maxSize {
			return tooLarge("the history has an object of %d bytes: at most %d are fetched. Remove it with git filter-repo, or move the topology "+
				"to a repository of its own", size, maxSize)
		}
		if total += size; total > limit {
			return tooLarge("the history has more than %d bytes of objects, and no more are fetched at once. %s", limit, hint)
		}
		if _, _, err := scanner.NextObject(io.Discard); err != nil {
			return fmt.Errorf("read pack: %w", err)
		}
	}
	return nil
}
