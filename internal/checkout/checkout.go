// Package checkout opens the files of an untrusted working tree, such as a pull request that CI
// checks out.
//
// In a repository it uses only regular files, and follows no symbolic link below the top of the
// repository. Git stores only the path of a link's target, and the target can be a secret on this
// machine. A commit cannot contain hard links, devices or FIFOs. Devices and FIFOs are refused,
// because a read of them can block.
//
// Outside of a repository, the same rules apply to relative paths below the current directory. An
// absolute path is the user's own choice: the file may be anything that can be read.
package checkout

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"hawser.dev/hawser/internal/atomicfile"
	"hawser.dev/hawser/internal/diag"
)

// MaxFile is the maximum size of a file that is read, in bytes.
const MaxFile = 32 << 20

// Limits bound the files in a directory and its subdirectories.
type Limits struct {
	Bytes   int // of all files
	Entries int // files and directories
}

// Patches returns the limits of a directory whose files are written by hand.
func Patches() Limits { return Limits{Bytes: 64 << 20, Entries: 10_000} }

// Rendered returns the limits of a directory that `hawser render` writes.
func Rendered() Limits { return Limits{Bytes: 2 << 30, Entries: 1_000_000} }

// Link is the error for a symbolic link in a repository.
type Link struct {
	Name   string // path of the link
	Target string // as stored in the link
}

func (l *Link) Error() string {
	return fmt.Sprintf("%s is a symbolic link to %s: Hawser does not follow links in a repository; "+
		"commit the file itself, or name the directory that holds it", l.Name, diag.Quote(l.Target))
}

// LinkError returns the error for a link, by its path and its target.
func LinkError(name, target string) error { return &Link{Name: name, Target: target} }

// SubmoduleError returns the error for a submodule on the path to a file.
func SubmoduleError(name string) error {
	return fmt.Errorf("%s is a submodule: Hawser does not read submodules; commit the files themselves", name)
}

// ReadNamed returns the content of a file that the user named. It applies the rules of the package.
func ReadNamed(path string) ([]byte, error) {
	loc, err := locate(path)
	if err != nil {
		return nil, err
	}
	if !loc.absolute {
		return loc.read()
	}
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	return readLimited(file, path, MaxFile)
}

// ReadFile returns the content of a file whose name Hawser derived, such as the lock of a
// topology. Outside of a repository it follows links that stay in the file's own directory, which
// a mounted ConfigMap needs.
func ReadFile(path string) ([]byte, error) {
	loc, err := locate(path)
	if err != nil {
		return nil, err
	}
	return loc.read()
}

// ReadTree returns all files below a directory, by slash-separated path relative to the
// directory. A directory that does not exist is empty.
func ReadTree(dir string, limits Limits) (map[string][]byte, error) {
	files := map[string][]byte{}
	entries, total := 0, 0
	var walk func(name string) error
	walk = func(name string) error {
		list, err := readDir(filepath.Join(dir, name), limits.Entries)
		if err != nil {
			return err
		}
		for _, entry := range list {
			rel := filepath.Join(name, entry.Name())
			if entries++; entries > limits.Entries {
				return fmt.Errorf("%s has more than %d files and directories", dir, limits.Entries)
			}
			if entry.IsDir() {
				if err := walk(rel); err != nil {
					return err
				}
				continue
			}
			raw, err := ReadFile(filepath.Join(dir, rel))
			if err != nil {
				return err
			}
			if total += len(raw); total > limits.Bytes {
				return fmt.Errorf("%s has more than %d MiB of files", dir, limits.Bytes>>20)
			}
			files[filepath.ToSlash(rel)] = raw
		}
		return nil
	}
	if err := walk(""); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	return files, nil
}

// ReadDir returns the entries of a directory, sorted by name. It fails if the directory has more
// entries than Patches allows.
func ReadDir(dir string) ([]fs.DirEntry, error) {
	list, err := readDir(dir, Patches().Entries)
	if err == nil && len(list) > Patches().Entries {
		err = fmt.Errorf("%s has more than %d files and directories", dir, Patches().Entries)
	}
	return list, err
}

// readDir returns up to limit+1 entries of a directory, sorted by name.
func readDir(dir string, limit int) ([]fs.DirEntry, error) {
	root, name, err := openDir(dir)
	if err != nil {
		return nil, err
	}
	defer root.Close()
	file, err := root.Open(name)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	list, err := file.ReadDir(limit + 1)
	if errors.Is(err, io.EOF) {
		err = nil
	}
	slices.SortFunc(list, func(a, b fs.DirEntry) int { return strings.Compare(a.Name(), b.Name()) })
	return list, err
}

// CheckWrite returns an error if a write to path would follow a link in a repository. It also
// returns an error if path exists and is not a regular file. The file and its directories need not
// exist.
//
// Git cannot change the working tree between the check and the write. CheckWrite does not protect
// against other programs that write to the same working tree at the same time.
func CheckWrite(path string) error {
	loc, err := locate(path)
	if err != nil {
		return err
	}
	if loc.absolute {
		return nil
	}
	root, info, err := loc.inspect()
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer root.Close()
	return checkRegular(info, path)
}

// Replace writes a file with atomicfile.Replace, with the rules of CheckWrite.
func Replace(path string, content []byte, mode fs.FileMode) error {
	if err := CheckWrite(path); err != nil {
		return fmt.Errorf("write file: %w", err)
	}
	return atomicfile.Replace(path, content, mode)
}

// Rewrite writes a file with atomicfile.Rewrite, with the rules of CheckWrite.
func Rewrite(path string, content []byte) error {
	if err := CheckWrite(path); err != nil {
		return fmt.Errorf("write file: %w", err)
	}
	return atomicfile.Rewrite(path, content)
}

// MkdirAll creates a directory and its parents. It fails if the path contains a link in a
// repository.
func MkdirAll(dir string, mode fs.FileMode) error {
	root, _, err := openDir(dir)
	if err == nil {
		return root.Close()
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("make directory: %w", err)
	}
	if err := os.MkdirAll(dir, mode); err != nil {
		return fmt.Errorf("make directory: %w", err)
	}
	return nil
}

// openDir opens the top of a directory's location, and returns the directory's path relative to
// the top.
func openDir(dir string) (*os.Root, string, error) {
	loc, err := locate(filepath.Join(dir, "x")) // the directory can be the top itself
	if err != nil {
		return nil, "", err
	}
	loc.name, loc.userPath = filepath.Dir(loc.name), dir
	root, info, err := loc.inspect()
	if err != nil {
		return nil, "", err
	}
	if !info.IsDir() {
		return nil, "", errors.Join(fmt.Errorf("%s is not a directory", dir), root.Close())
	}
	return root, loc.name, nil
}

// location is a file below a top directory, which links must not leave.
type location struct {
	top      string // directory
	name     string // of the file, relative to top
	userPath string // path as the caller wrote it
	absolute bool   // an absolute path outside of a repository
}

// locate returns the location of the file at path. In a repository the top is the outermost parent
// directory with a .git entry. Otherwise a link in a repository could lead into another repository.
func locate(path string) (location, error) {
	abs, err := filepath.Abs(path)
	if err != nil {
		return location{}, err
	}
	candidates := []string{abs}
	// A link outside of the repository may lead to the directory.
	if dir, err := filepath.EvalSymlinks(filepath.Dir(abs)); err == nil {
		candidates = append(candidates, filepath.Join(dir, filepath.Base(abs)))
	}
	for _, abs := range candidates {
		if top := repository(abs); top != "" {
			name, err := filepath.Rel(top, abs)
			return location{top: top, name: name, userPath: path}, err
		}
	}
	if filepath.IsLocal(path) {
		return location{top: ".", name: filepath.Clean(path), userPath: path}, nil
	}
	return location{top: filepath.Dir(abs), name: filepath.Base(abs), userPath: path, absolute: filepath.IsAbs(path)}, nil
}

// repository returns the outermost parent directory of an absolute path that has a .git entry, or
// "".
func repository(abs string) string {
	top := ""
	for dir := filepath.Dir(abs); ; dir = filepath.Dir(dir) {
		if _, err := os.Lstat(filepath.Join(dir, ".git")); err == nil {
			top = dir
		}
		if dir == filepath.Dir(dir) {
			return top
		}
	}
}

// inspect opens the top and returns the file's info. Links are errors, except for absolute paths
// outside of a repository, where os.Root keeps them below the top.
func (l location) inspect() (*os.Root, fs.FileInfo, error) {
	root, err := os.OpenRoot(l.top)
	if err != nil {
		return nil, nil, err
	}
	info, err := l.lookup(root)
	if err != nil {
		_ = root.Close()
		return nil, nil, err
	}
	return root, info, nil
}

func (l location) lookup(root *os.Root) (fs.FileInfo, error) {
	if l.absolute {
		info, err := root.Stat(l.name)
		if link, lstatErr := root.Lstat(l.name); err != nil && !errors.Is(err, fs.ErrNotExist) && lstatErr == nil && link.Mode()&fs.ModeSymlink != 0 {
			return nil, fmt.Errorf("%s is a symbolic link that leads out of its directory: put the file itself there, or name it by its path", l.userPath)
		}
		return info, l.withUserPath(err)
	}
	parts := strings.Split(l.name, string(filepath.Separator))
	var info fs.FileInfo
	for i, part := range parts {
		if strings.EqualFold(part, ".git") { // some file systems ignore case
			return nil, fmt.Errorf("%s is in the directory .git, which is not part of the repository's content", l.userPath)
		}
		name := filepath.Join(parts[:i+1]...)
		var err error
		if info, err = root.Lstat(name); err != nil {
			return nil, l.withUserPath(err)
		}
		if info.Mode()&fs.ModeSymlink != 0 {
			target, err := root.Readlink(name)
			if err != nil {
				return nil, l.withUserPath(err)
			}
			return nil, LinkError(l.userPathUp(len(parts)-1-i), target)
		}
	}
	return info, nil
}

// userPathUp returns the caller's path without its last n elements. If the caller's path has fewer
// elements, it uses the absolute path.
func (l location) userPathUp(n int) string {
	path := filepath.Clean(l.userPath)
	if strings.Count(path, string(filepath.Separator)) < n || strings.Contains(path, "..") {
		path = filepath.Join(l.top, l.name)
	}
	for range n {
		path = filepath.Dir(path)
	}
	return path
}

// withUserPath replaces the path in an error of os.Root by the caller's path.
func (l location) withUserPath(err error) error {
	var pathErr *fs.PathError
	if errors.As(err, &pathErr) {
		return &fs.PathError{Op: "open", Path: l.userPath, Err: pathErr.Err}
	}
	return err
}

// read returns the content of the file. It checks that the opened file is the inspected file.
func (l location) read() ([]byte, error) {
	root, info, err := l.inspect()
	if err != nil {
		return nil, err
	}
	defer root.Close()
	if err := checkRegular(info, l.userPath); err != nil {
		return nil, err
	}
	file, err := root.OpenFile(l.name, os.O_RDONLY|syscall.O_NONBLOCK, 0) // do not block if a FIFO replaced the file
	if err != nil {
		return nil, l.withUserPath(err)
	}
	defer file.Close()
	opened, err := file.Stat()
	if err != nil {
		return nil, l.withUserPath(err)
	}
	if !os.SameFile(info, opened) {
		return nil, fmt.Errorf("%s was replaced while it was opened: run the command again", l.userPath)
	}
	return readLimited(file, l.userPath, MaxFile)
}

// checkRegular returns an error unless the file is regular.
func checkRegular(info fs.FileInfo, path string) error {
	if info.Mode().IsRegular() {
		return nil
	}
	return fmt.Errorf("%s is %s, not a regular file", path, kind(info.Mode()))
}

func kind(mode fs.FileMode) string {
	switch {
	case mode.IsDir():
		return "a directory"
	case mode&fs.ModeNamedPipe != 0:
		return "a FIFO"
	case mode&fs.ModeSocket != 0:
		return "a socket"
	case mode&fs.ModeDevice != 0:
		return "a device"
	}
	return "a special file"
}

// Text returns the content of a text file with LF line endings. Git commits LF, but core.autocrlf,
// core.eol or .gitattributes can make it write CRLF to the working tree. Like git, Text does not
// change a file that contains a NUL or a CR without a following LF.
func Text(raw []byte) []byte {
	if crlf := bytes.Count(raw, []byte("\r\n")); crlf == 0 || crlf != bytes.Count(raw, []byte("\r")) || bytes.IndexByte(raw, 0) >= 0 {
		return raw
	}
	return bytes.ReplaceAll(raw, []byte("\r\n"), []byte("\n"))
}

// readLimited reads a file to its end. It fails if the file is larger than limit bytes.
func readLimited(file io.Reader, path string, limit int64) ([]byte, error) {
	raw, err := io.ReadAll(io.LimitReader(file, limit+1))
	if err == nil && int64(len(raw)) > limit {
		return nil, fmt.Errorf("%s is larger than %d MiB, the most that Hawser reads of one file", path, limit>>20)
	}
	return raw, err
}
