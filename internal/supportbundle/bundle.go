// Package supportbundle writes texts for support into one .tar.gz. It removes everything that looks
// like a secret.
package supportbundle

import (
	"archive/tar"
	"cmp"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// Names of the first files in the archive.
const (
	Summary = "summary.txt"
	Errors  = "errors.txt"
)

// Bundle collects texts on disk, because the logs of many nodes may exceed the memory. It is safe
// for concurrent use.
type Bundle struct {
	dir string

	mu       sync.Mutex
	files    map[string]string // path of the text on disk, by name in the archive
	failed   []string
	writeErr error // first error of a write to disk
}

// New returns an empty Bundle. Close removes its files on disk.
func New() (*Bundle, error) {
	dir, err := os.MkdirTemp("", "hawser-gather-")
	if err != nil {
		return nil, fmt.Errorf("create a directory for the bundle: %w", err)
	}
	return &Bundle{dir: dir, files: map[string]string{}}, nil
}

// Close removes all collected texts.
func (b *Bundle) Close() error { return os.RemoveAll(b.dir) }

// Add adds a text without its secrets. It replaces an earlier text of the same name.
func (b *Bundle) Add(name string, text []byte) {
	text = Redact(text)
	b.mu.Lock()
	defer b.mu.Unlock()
	if !filepath.IsLocal(name) {
		b.failed = append(b.failed, fmt.Sprintf("%q: not a name for a file", name))
		return
	}
	path := filepath.Join(b.dir, strconv.Itoa(len(b.files)))
	if previous, exists := b.files[name]; exists {
		path = previous
	}
	b.files[name] = path
	if err := os.WriteFile(path, text, 0o600); err != nil {
		b.writeErr = cmp.Or(b.writeErr, fmt.Errorf("keep %s: %w", name, err))
	}
}

// Fail records a text that could not be collected, and the reason.
func (b *Bundle) Fail(what string, err error) {
	text := string(Redact([]byte(what + ": " + strings.ReplaceAll(strings.TrimSpace(err.Error()), "\n", "; "))))
	b.mu.Lock()
	defer b.mu.Unlock()
	b.failed = append(b.failed, text)
}

// Failures returns the recorded failures, sorted.
func (b *Bundle) Failures() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Sorted(slices.Values(b.failed))
}

// Len returns the number of texts.
func (b *Bundle) Len() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.files)
}

// Write writes the archive, with all texts in one directory. Summary and Errors come first. Equal
// texts and times result in equal bytes.
func (b *Bundle) Write(w io.Writer, top string, at time.Time) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.writeErr != nil {
		return b.writeErr
	}
	compressed := gzip.NewWriter(w)
	archive := tar.NewWriter(compressed)
	first := []string{Errors, Summary} // in reverse order of the archive
	inOrder := func(a, b string) int {
		return cmp.Or(slices.Index(first, b)-slices.Index(first, a), strings.Compare(a, b))
	}
	for _, name := range slices.SortedFunc(maps.Keys(b.files), inOrder) {
		if err := writeEntry(archive, top+"/"+name, b.files[name], at); err != nil {
			return fmt.Errorf("write %s: %w", name, err)
		}
	}
	return errors.Join(archive.Close(), compressed.Close())
}

func writeEntry(archive *tar.Writer, name, from string, at time.Time) error {
	file, err := os.Open(from)
	if err != nil {
		return err
	}
	defer func() { _ = file.Close() }()
	info, err := file.Stat()
	if err != nil {
		return err
	}
	header := &tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: 0o644, Size: info.Size(), ModTime: at.UTC().Truncate(time.Second), Format: tar.FormatPAX}
	if err := archive.WriteHeader(header); err != nil {
		return err
	}
	_, err = io.Copy(archive, file)
	return err
}

// redacted replaces secrets.
const redacted = "(not shown)"

// Redact removes text that looks like a secret: texts in a recognisable format, and WireGuard keys
// after the name of a private key. Without the name a private key looks like a public key: such
// keys must not reach a bundle.
func Redact(text []byte) []byte {
	for _, secret := range []struct {
		pattern     *regexp.Regexp
		replacement string
	}{
		{regexp.MustCompile(`AGE-SECRET-KEY-[A-Z0-9-]+`), redacted},
		{regexp.MustCompile(`-----BEGIN (?s:[A-Z0-9 ]*PRIVATE KEY-----.*?(?:-----END [A-Z0-9 ]*PRIVATE KEY-----|\z))`), redacted},
		{regexp.MustCompile(`eyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]*`), redacted}, // JWT, such as the token of a service account
		{regexp.MustCompile(`Bearer [A-Za-z0-9._~+/=-]{8,}`), "Bearer " + redacted},
		{regexp.MustCompile(`://[^\s/@:"']*:[^\s/@"']+@`), "://" + redacted + "@"}, // user:password@host
		{regexp.MustCompile(`(?i)((?:private|preshared)[-_ ]?key"?\s*[:=]\s*"?)[A-Za-z0-9+/]{32,}=*`), "${1}" + redacted},
	} {
		text = secret.pattern.ReplaceAll(text, []byte(secret.replacement))
	}
	return text
}
