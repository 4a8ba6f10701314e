// Package facts reads what only this cluster knows (its nodes, pods, services
// and endpoints) from a folder of YAML files with Kubernetes objects, and maps
// such objects to project.Facts. The mapping is pure and knows nothing of files.
package facts

import (
	"reflect"
	"sync"

	"hawser.dev/hawser/nodeagent/project"
	"hawser.dev/hawser/nodeagent/watch"
)

// Source is a folder of files. Its methods may be called from any goroutine.
type Source struct {
	dir string

	mu    sync.Mutex
	files map[string]Objects // by path: the last good content
	state State
}

// State is what a Source knows.
type State struct {
	Facts project.Facts
	// Loaded is true once every file was read well at least once; until then Facts
	// is not the whole truth and must not be acted on.
	Loaded bool
	// Err says what is wrong with the folder now, with file:line; the last good
	// content of each broken file stays in Facts.
	Err error
}

// Open reads the folder once. A folder that cannot be read shows in the state.
func Open(dir string) *Source {
	s := &Source{dir: dir, files: map[string]Objects{}}
	s.Reload()
	return s
}

// Current gives the facts in force. They are shared: do not change them.
func (s *Source) Current() State {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.state
}

// Reload reads the folder again and reports whether the state differs.
func (s *Source) Reload() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	before := s.state
	s.state = s.read()
	return !equal(before, s.state)
}

// Watched gives the folder to watch: whenever it changes it is reloaded, and
// changed is called when the state differs. changed must not block.
func (s *Source) Watched(changed func()) watch.Dir {
	return watch.Dir{Path: s.dir, Changed: func() {
		if s.Reload() {
			changed()
		}
	}}
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
