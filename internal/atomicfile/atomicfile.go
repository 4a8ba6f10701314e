// Package atomicfile replaces files atomically: readers see either the old content or the new
// content.
package atomicfile

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
)

// Write replaces the file at path with content and the given mode. It syncs the content to disk
// before the rename, so that a crash leaves the old or the new content. The directory must exist.
func Write(path string, content []byte, mode os.FileMode) error {
	return WriteFunc(path, func(f *os.File) error {
		_, err := f.Write(content)
		return errors.Join(err, f.Chmod(mode), f.Sync())
	})
}

// Replace is like Write, but does not sync to disk. Use it for content that can be generated again.
func Replace(path string, content []byte, mode os.FileMode) error {
	return WriteFunc(path, func(f *os.File) error {
		_, err := f.Write(content)
		return errors.Join(err, f.Chmod(mode))
	})
}

// Rewrite is like Write for an existing file. It follows symbolic links, and keeps the mode and the
// owner. If it returns nil, the new content survives a crash.
func Rewrite(path string, content []byte) error {
	path, err := filepath.EvalSymlinks(path)
	if err != nil {
		return fmt.Errorf("rewrite file: %w", err)
	}
	if err := WriteFunc(path, func(f *os.File) error {
		_, err := f.Write(content)
		return errors.Join(copyModeAndOwner(f, path), err, f.Sync())
	}); err != nil {
		return err
	}
	dir, err := os.Open(filepath.Dir(path))
	if err == nil {
		err = errors.Join(dir.Sync(), dir.Close()) // persists the rename
	}
	if err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	return nil
}

// copyModeAndOwner sets the mode and the owner of an open file to the values of the file at path.
func copyModeAndOwner(f *os.File, path string) error {
	info, err := os.Stat(path)
	if err != nil {
		return err
	}
	if sys, ok := info.Sys().(*syscall.Stat_t); ok {
		err = f.Chown(int(sys.Uid), int(sys.Gid))
	}
	return errors.Join(err, f.Chmod(info.Mode().Perm()))
}

// WriteFunc atomically replaces the file at path with the content that write writes. The file has
// mode 0600 unless write changes it. On an error nothing changes.
func WriteFunc(path string, write func(*os.File) error) error {
	temp, err := os.CreateTemp(filepath.Dir(path), ".new-*") // with mode 0600
	if err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	err = errors.Join(write(temp), temp.Close())
	if err == nil {
		err = os.Rename(temp.Name(), path)
	}
	if err != nil {
		return errors.Join(fmt.Errorf("write %s: %w", path, err), os.Remove(temp.Name()))
	}
	return nil
}
