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

// pinned returns an error that names the packages that differ from those in a file; nil if file is empty.
func pinned(have []string, file string) error {
	if file == "" {
		return nil
	}
	raw, err := os.ReadFile(file)
	if err != nil {
		return fmt.Errorf("read pinned packages: %w", err)
	}
	want := strings.Fields(string(raw))
	var other []string
	for _, p := range have {
		if !slices.Contains(want, p) {
			other = append(other, p)
		}
	}
	if len(other) > 0 {
		return fmt.Errorf("packages of this machine differ from %s: %s: write these versions there if the distribution updated them, "+
			"install the pinned ones (apt-get install NAME=VERSION), or leave the image out (make release IPSEC=0)", file, strings.Join(other, " "))
	}
	for _, p := range want {
		if !slices.Contains(have, p) {
			return fmt.Errorf("%s names %s, and the image has no file of it: take the line out", file, p)
		}
	}
	return nil
}
