package facts

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// maxFile is the maximum size of one file, in bytes.
const maxFile = 64 << 20

// read reads each file of the directories, and uses the last good content of broken files. If a
// directory cannot be listed, the facts do not change.
func (s *DirSource) read() State {
	state := State{Facts: s.state.Facts, Loaded: s.state.Loaded, Source: "files"}
	paths, err := list(s.dir)
	if err == nil && s.reports != "" {
		var reports []string
		reports, err = list(s.reports)
		paths = append(paths, reports...)
	}
	if err != nil {
		state.Err = err
		return state
	}
	files := make(map[string]Objects, len(paths))
	var errs []error
	var all Objects
	if s.reports != "" {
		all.HawserNodes = []HawserNode{} // a node without a report is not protected
	}
	state.Loaded = true
	for _, path := range paths {
		objects, err := readFile(path)
		if err != nil {
			errs = append(errs, err)
			last, known := s.files[path]
			if !known {
				state.Loaded = false
				continue
			}
			objects = last
		}
		files[path] = objects
		all.add(objects)
	}
	s.files, s.hawserNodes = files, all.HawserNodes
	state.Facts = FromObjects(all)
	state.Err = errors.Join(errs...)
	return state
}

// list returns the YAML and JSON files of a directory, sorted by name. It skips names with a
// leading dot: temporary files of editors, and the kubelet's ..data link and its target.
func list(dir string) ([]string, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, fmt.Errorf("read facts: %w", err)
	}
	var paths []string
	for _, entry := range entries {
		name := entry.Name()
		ext := filepath.Ext(name)
		if strings.HasPrefix(name, ".") || (ext != ".yaml" && ext != ".yml" && ext != ".json") {
			continue
		}
		path := filepath.Join(dir, name)
		if info, err := os.Stat(path); err == nil && info.IsDir() {
			continue
		}
		paths = append(paths, path)
	}
	return paths, nil
}

func readFile(path string) (Objects, error) {
	info, err := os.Stat(path)
	if err != nil {
		return Objects{}, fmt.Errorf("read facts: %w", err)
	}
	if info.Size() > maxFile {
		return Objects{}, fmt.Errorf("read facts: %s: %d bytes are more than %d", path, info.Size(), maxFile)
	}
	raw, err := os.ReadFile(path)
	if err != nil {
		return Objects{}, fmt.Errorf("read facts: %w", err)
	}
	return Decode(path, raw)
}
