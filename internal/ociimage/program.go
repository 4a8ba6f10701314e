package ociimage

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// Programs returns programs and libraries of this machine as files of an image. It adds the loader
// and all libraries that they need. paths maps paths on this machine to paths in the image.
// Libraries keep their paths, because programs name the loader by its full path, and the loader
// searches the same directories. paths must also have the files that a program opens at run time,
// such as plugins and settings.
func Programs(paths map[string]string) ([]File, error) {
	var out []File
	libraries := map[string]bool{}
	for source, path := range paths {
		f, err := readFile(path, source)
		if err != nil {
			return nil, err
		}
		out = append(out, f)
		for _, l := range neededLibraries(source) {
			libraries[l] = true
			// glibc loads it at run time to end a thread (pthread_cancel(3)).
			unwinder := filepath.Join(filepath.Dir(l), "libgcc_s.so.1")
			if _, err := os.Stat(unwinder); err == nil && filepath.Base(l) == "libc.so.6" {
				libraries[unwinder] = true
			}
		}
	}
	for l := range libraries {
		if paths[l] == l {
			continue
		}
		f, err := readFile(l, l)
		if err != nil {
			return nil, err
		}
		out = append(out, f)
	}
	return out, nil
}

func readFile(path, source string) (File, error) {
	data, err := os.ReadFile(source)
	if err != nil {
		return File{}, fmt.Errorf("add %s to the image: %w", path, err)
	}
	return File{Path: strings.TrimPrefix(path, "/"), Mode: 0o755, Data: data}, nil
}

// neededLibraries returns the libraries that ldd(1) lists. For a static program ldd lists none and
// fails.
func neededLibraries(program string) (libraries []string) {
	out, _ := exec.Command("ldd", program).Output()
	for word := range strings.FieldsSeq(string(out)) {
		if strings.HasPrefix(word, "/") && strings.Contains(word, ".so") {
			libraries = append(libraries, strings.TrimSuffix(word, ":"))
		}
	}
	return libraries
}
