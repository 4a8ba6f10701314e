// Package facts maps Kubernetes objects to what only this cluster knows: its
// nodes, pods, services, endpoints and exports. The mapping is pure; a Folder reads
// the objects from YAML files, package kube from the Kubernetes API.
package facts

import (
	"reflect"
	"sync"
	"time"

	"hawser.dev/hawser/internal/dirwatch"
	"hawser.dev/hawser/nodeagent/model"
)

// Folder is a folder of files. Its methods may be called from any goroutine.
type Folder struct {
	dir     string
	reports string // folder of HawserNodes; empty = no node reports

	mu          sync.Mutex
	files       map[string]Objects // by path: the last good content
	hawserNodes []HawserNode
	state       State
}

// State is what a source of facts knows.
type State struct {
	Facts model.Facts
	// Loaded is true once everything was read well at least once; until then Facts
	// is not the whole truth and must not be acted on.
	Loaded bool
	// Err says what is wrong now, with file:line for files; the last good content of
	// what is broken stays in Facts.
	Err error
	// Source says in words where Facts come from, and Since when they came from
	// somewhere better last; zero = this is the best.
	Source        string
	DegradedSince time.Time
}

// Open reads the folder once, and the folder reports, to which the agents of the cluster write
// their HawserNodes. If reports is empty, all nodes count as protected, unless dir has
// HawserNodes. A folder that cannot be read shows in the state.
func Open(dir, reports string) *Folder {
	s := &Folder{dir: dir, reports: reports, files: map[string]Objects{}}
	s.Reload()
	return s
}

// Current gives the facts in force. They are shared: do not change them.
func (s *Folder) Current() State {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.state
}

// HawserNodes returns the HawserNodes of the folders.
func (s *Folder) HawserNodes() []HawserNode {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.hawserNodes
}

// Reload reads the folder again and reports whether the state differs.
func (s *Folder) Reload() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	before := s.state
	s.state = s.read()
	return !equal(before, s.state)
}

// WatchDir returns the folders to watch. A change reads them again, and changed is called if
// the state differs. changed must not block.
func (s *Folder) WatchDir(changed func()) []dirwatch.Dir {
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
