package ociimage

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// Programs returns programs and libraries of this machine as files of an image. It adds the loader
// and all libraries that they need. to maps paths on this machine to paths in the image. Libraries
// keep their paths, because programs name the loader by its full path, and the loader searches the
// same folders. to must also name the files that a program opens at run time, such as plugins and
// settings.
func Programs(to map[string]string) ([]File, error) {
	var out []File
	libraries := map[string]bool{}
	for from, at := range to {
		f, err := read(at, from)
		if err != nil {
			return nil, err
		}
		out = append(out, f)
		for _, l := range needed(from) {
			libraries[l] = true
			// glibc loads it at run time to end a thread (pthread_cancel(3)).
			unwinder := filepath.Join(filepath.Dir(l), "libgcc_s.so.1")
			if _, err := os.Stat(unwinder); err == nil && filepath.Base(l) == "libc.so.6" {
				libraries[unwinder] = true
			}
		}
	}
	for l := range libraries {
		if to[l] == l {
			continue
		}
		f, err := read(l, l)
		if err != nil {
			return nil, err
		}
		out = append(out, f)
	}
	return out, nil
}

func read(at, from string) (File, error) {
	data, err := os.ReadFile(from)
	if err != nil {
		return File{}, fmt.Errorf("take %s into an image: %w", at, err)
	}
	return File{Path: strings.TrimPrefix(at, "/"), Mode: 0o755, Data: data}, nil
}

// needed returns the libraries that ldd(1) lists. For a static program ldd lists none and fails.
func needed(program string) (libraries []string) {
	out, _ := exec.Command("ldd", program).Output()
	for word := range strings.FieldsSeq(string(out)) {
		if strings.HasPrefix(word, "/") && strings.Contains(word, ".so") {
			libraries = append(libraries, strings.TrimSuffix(word, ":"))
		}
	}
	return libraries
}
