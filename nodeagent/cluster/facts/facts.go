// Package facts converts Kubernetes objects to the facts of this cluster: its nodes, pods,
// Services, endpoints and exports. The conversion is pure. A DirSource reads the objects from YAML
// files. Package kube reads them from the Kubernetes API.
package facts

import (
	"reflect"
	"sync"
	"time"

	"hawser.dev/hawser/internal/dirwatch"
	"hawser.dev/hawser/nodeagent/model"
)

// DirSource reads Kubernetes objects from the files of a directory. It is safe for concurrent use.
type DirSource struct {
	dir     string
	reports string // directory of HawserNodes; empty = no node reports

	mu          sync.Mutex
	files       map[string]Objects // by path: the last good content
	hawserNodes []HawserNode
	state       State
}

// State is the state of a source of facts.
type State struct {
	Facts model.Facts
	// Loaded reports whether the source was read completely once. Until then Facts are
	// incomplete, and callers must not act on them.
	Loaded bool
	// Err is the current error, with file:line for files. Facts has the last good content of
	// broken files.
	Err error
	// Source is the origin of Facts, as status shows it. DegradedSince is the time at which a
	// better source failed; zero if this is the best source.
	Source        string
	DegradedSince time.Time
}

// Open reads the objects in dir, and the HawserNodes that the agents of the cluster write to the
// directory reports. If reports is empty and dir has no HawserNodes, all nodes count as protected.
// If a directory cannot be read, the state has an error.
func Open(dir, reports string) *DirSource {
	s := &DirSource{dir: dir, reports: reports, files: map[string]Objects{}}
	s.Reload()
	return s
}

// Current returns the current state. It is shared and must not be changed.
func (s *DirSource) Current() State {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.state
}

// HawserNodes returns the HawserNodes of the directories.
func (s *DirSource) HawserNodes() []HawserNode {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.hawserNodes
}

// Reload reads the directory again and reports whether the state differs.
func (s *DirSource) Reload() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	before := s.state
	s.state = s.read()
	return !equal(before, s.state)
}

// WatchDir returns the directories to watch. After a change they are read again, and changed runs
// if the state differs. changed must not block.
func (s *DirSource) WatchDir(changed func()) []dirwatch.Dir {
	reload := func() {
		if s.Reload() {
			changed()
		}
	}
	dirs := []dirwatch.Dir{{Path: s.dir, Changed: reload}}
	if s.reports != "" {
		dirs = append(dirs, dirwatch.Dir{Path: s.reports, Changed: reload})
	}
	return dirs
}

func equal(a, b State) bool {
	return a.Loaded == b.Loaded && text(a.Err) == text(b.Err) && reflect.DeepEqual(a.Facts, b.Facts)
}

func text(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}
