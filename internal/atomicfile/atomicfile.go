// Package atomicfile replaces files in one step: who reads one meanwhile has all of the old
// content or all of the new.
package atomicfile

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
)

// Write puts content at path, with that mode, and has it on disk before the name leads to it, so
// that a crash leaves the old or the new. The folder has to exist.
func Write(path string, content []byte, mode os.FileMode) error {
	return Fill(path, func(f *os.File) error {
		_, err := f.Write(content)
		return errors.Join(err, f.Chmod(mode), f.Sync())
	})
}

// Replace is Write without the wait for the disk, for what can be made again.
func Replace(path string, content []byte, mode os.FileMode) error {
	return Fill(path, func(f *os.File) error {
		_, err := f.Write(content)
		return errors.Join(err, f.Chmod(mode))
	})
}

// Rewrite is Write for a file that is there, which may be behind a link: its mode and owner stay.
// When it returns nil, the new content survives a crash.
func Rewrite(path string, content []byte) error {
	path, err := filepath.EvalSymlinks(path)
	if err != nil {
		return fmt.Errorf("rewrite file: %w", err)
	}
	if err := Fill(path, func(f *os.File) error {
		_, err := f.Write(content)
		return errors.Join(copyModeAndOwner(f, path), err, f.Sync())
	}); err != nil {
		return err
	}
	folder, err := os.Open(filepath.Dir(path))
	if err == nil {
		err = errors.Join(folder.Sync(), folder.Close()) // what its files are called
	}
	if err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	return nil
}

// copyModeAndOwner sets the mode and the owner of an open file to the values of the file at path.
func copyModeAndOwner(f *os.File, path string) error {
	was, err := os.Stat(path)
	if err != nil {
		return err
	}
	if sys, ok := was.Sys().(*syscall.Stat_t); ok {
		err = f.Chown(int(sys.Uid), int(sys.Gid))
	}
	return errors.Join(err, f.Chmod(was.Mode().Perm()))
}

// Fill puts at path what fill writes; the file is its owner's alone unless fill says otherwise.
// With an error nothing changes.
func Fill(path string, fill func(*os.File) error) error {
	temp, err := os.CreateTemp(filepath.Dir(path), ".new-*") // with mode 0600
	if err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	err = errors.Join(fill(temp), temp.Close())
	if err == nil {
		err = os.Rename(temp.Name(), path)
	}
	if err != nil {
		return errors.Join(fmt.Errorf("write %s: %w", path, err), os.Remove(temp.Name()))
	}
	return nil
}
