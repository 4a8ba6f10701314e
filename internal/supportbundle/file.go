package supportbundle

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
)

// CheckNew returns an error if path exists.
func CheckNew(path string) error {
	_, err := os.Lstat(path)
	if err == nil {
		return existsError(path)
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("check whether %s exists: %w", path, err)
	}
	return nil
}

func existsError(path string) error {
	return fmt.Errorf("%s already exists: choose another file name", path)
}

// Create creates a file that only its owner can read. It fails if the file exists, and removes the
// file if write fails.
func Create(path string, write func(io.Writer) error) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if errors.Is(err, fs.ErrExist) {
		return existsError(path)
	}
	if err != nil {
		return fmt.Errorf("create file: %w", err)
	}
	if err := errors.Join(write(f), f.Sync(), f.Close()); err != nil {
		return errors.Join(fmt.Errorf("write %s: %w", path, err), os.Remove(path))
	}
	return nil
}

// slack is the number of bytes beyond its limit that Tail reads before it drops the oldest bytes.
const slack = 1 << 20

// Tail reads to the end and returns the last bytes, up to limit, from the beginning of a line.
// dropped is the number of dropped bytes. On an error it also returns the bytes read before it.
func Tail(r io.Reader, limit int) (text []byte, dropped int64, err error) {
	var kept bytes.Buffer
	for {
		var n int64
		n, err = io.CopyN(&kept, r, slack)
		if over := kept.Len() - limit; over > 0 {
			kept.Next(over)
			dropped += int64(over)
		}
		if err != nil || n == 0 {
			break
		}
	}
	if errors.Is(err, io.EOF) {
		err = nil
	}
	text = kept.Bytes()
	if dropped > 0 {
		if end := bytes.IndexByte(text, '\n'); end >= 0 {
			dropped += int64(end + 1)
			text = text[end+1:]
		}
	}
	return text, dropped, err
}
