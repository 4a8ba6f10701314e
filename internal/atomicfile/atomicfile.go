// Package atomicfile replaces files in one step: who reads one meanwhile has all of the old
// content or all of the new.
//
// Called by nodeagent and nodeagent/kernel for what an agent keeps over restarts, and by
// cmd/hawser, lab and hack/picture for what can be made again.
package atomicfile

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

// Write puts content at path, with that mode, and has it on disk before the name leads to it, so
// that a crash leaves the old or the new. The folder has to exist.
func Write(path string, content []byte, mode os.FileMode) error {
	return replace(path, content, mode, (*os.File).Sync)
}

// Replace is Write without the wait for the disk, for what can be made again.
func Replace(path string, content []byte, mode os.FileMode) error {
	return replace(path, content, mode, func(*os.File) error { return nil })
}

func replace(path string, content []byte, mode os.FileMode, settle func(*os.File) error) error {
	temp, err := os.CreateTemp(filepath.Dir(path), ".new-*")
	if err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	_, err = temp.Write(content)
	err = errors.Join(err, temp.Chmod(mode), settle(temp), temp.Close())
	if err == nil {
		err = os.Rename(temp.Name(), path)
	}
	if err != nil {
		return errors.Join(fmt.Errorf("write %s: %w", path, err), os.Remove(temp.Name()))
	}
	return nil
}
