package cli

import (
	"errors"
	"fmt"
	"io/fs"
	"os"

	"hawser.dev/hawser/internal/checkout"
)

// WriteNew writes a file that must not exist yet.
func WriteNew(path string, raw []byte, mode fs.FileMode) error {
	if err := checkout.CheckWrite(path); err != nil {
		return fmt.Errorf("write file: %w", err)
	}
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode)
	if errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("%s exists already and is not overwritten: move it away first", path)
	}
	if err != nil {
		return fmt.Errorf("write file: %w", err)
	}
	_, err = f.Write(raw)
	if err := errors.Join(err, f.Close()); err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	return nil
}

// IsMissing reports whether no file with this name exists.
func IsMissing(path string) bool {
	_, err := os.Stat(path)
	return errors.Is(err, fs.ErrNotExist)
}
