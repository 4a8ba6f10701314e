// Package facts converts Kubernetes objects to the facts of this cluster: its nodes, pods, services,
// endpoints and exports. The conversion is pure. A Directory reads the objects from YAML files;
// package kube reads them from the Kubernetes API.
package facts

import (
	"reflect"
	"sync"
	"time"

	"hawser.dev/hawser/internal/dirwatch"
	"hawser.dev/hawser/nodeagent/model"
)

// Directory is a directory of files. It is safe for concurrent use.
type Folder struct {
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
	// Loaded is true once all files were read without error. Until then Facts are incomplete and
	// must not be acted on.
	Loaded bool
	// Err is the current error, with file:line for files. Facts has the last good content of the
	// broken files.
	Err error
	// Source describes the origin of Facts for people. DegradedSince is when a better source failed;
	// zero if this is the best source.
	Source        string
	DegradedSince time.Time
}

// Open reads the directory once, and the directory reports, to which the agents of the cluster
// write their HawserNodes. If reports is empty, all nodes count as protected, unless dir has
// HawserNodes. A directory that cannot be read shows in the state.
func Open(dir, reports string) *Folder {
	s := &Folder{dir: dir, reports: reports, files: map[string]Objects{}}
	s.Reload()
	return s
}

// Current returns the current state. It is shared and must not be changed.
func (s *Folder) Current() State {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.state
}

// HawserNodes returns the HawserNodes of the directories.
func (s *Folder) HawserNodes() []HawserNode {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.hawserNodes
}

// Reload reads the directory again and reports whether the state differs.
func (s *Folder) Reload() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	before := s.state
	s.state = s.read()
	return !equal(before, s.state)
}

// WatchDir returns the directories to watch. A change reads them again, and changed is called if
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
