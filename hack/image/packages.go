package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
)

// packagesLabel names the Debian packages that an image's files come from, as
// name=version, separated by spaces: scanners and people see in it which version
// of strongSwan an image has.
const packagesLabel = "dev.hawser.packages"

// packages returns the value of packagesLabel for files of this machine. It lists a file without a
// package by its path.
func packages(paths []string) string {
	var out []string
	for _, path := range paths {
		// A package may list the file below /usr/lib instead of /lib, or the reverse.
		found := path
		for _, name := range []string{path, "/usr" + path, strings.TrimPrefix(path, "/usr")} {
			if version := owner(name); version != "" {
				found = version
				break
			}
		}
		out = append(out, found)
	}
	slices.Sort(out)
	return strings.Join(slices.Compact(out), " ")
}

// owner returns the package of a file as name=version; empty without a package.
func owner(path string) string {
	raw, err := exec.Command("dpkg-query", "--search", path).Output()
	name, _, found := bytes.Cut(raw, []byte(": "))
	if err != nil || !found {
		return ""
	}
	version, err := exec.Command("dpkg-query", "--show", "--showformat=${Package}=${Version}", string(name)).Output()
	if err != nil {
		return ""
	}
	return string(version)
}

// pinned says which packages are not those that a file names; without a file all are.
func pinned(have []string, file string) error {
	if file == "" {
		return nil
	}
	raw, err := os.ReadFile(file)
	if err != nil {
		return fmt.Errorf("read pinned packages: %w", err)
	}
	want := strings.Fields(string(raw))
	for _, p := range have {
		if !slices.Contains(want, p) {
			return fmt.Errorf("this machine has %s, which %s does not name: install what it names (apt-get install NAME=VERSION), or name the new version there", p, file)
		}
	}
	for _, p := range want {
		if !slices.Contains(have, p) {
			return fmt.Errorf("%s names %s, and the image has no file of it: take the line out", file, p)
		}
	}
	return nil
}
