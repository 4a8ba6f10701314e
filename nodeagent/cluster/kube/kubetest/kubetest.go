// Package kubetest provides a small API server for tests. The server lists, watches, selects and
// applies objects of any kind, and fails on request. It has no schemas, defaults or controllers.
package kubetest

import (
	"encoding/json"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"
)

// Server is an API server.
type Server struct {
	http *httptest.Server

	mu          sync.Mutex
	changed     chan struct{} // closed and replaced at each change
	version     int64
	objects     map[string]map[string]*unstructured.Unstructured // by resource, then namespace/name
	events      []event
	unreachable bool
	denied      map[string]bool // resources
	missing     map[string]bool
	requests    []string
	writes      []Write
}

// event is one change. before is nil for a created object, after for a deleted one.
type event struct {
	version       int64
	resource      string
	before, after *unstructured.Unstructured
}

// Write is one request that changes an object.
type Write struct {
	Method, Path string
	Object       *unstructured.Unstructured
}

// New starts a server that stops at the end of the test.
func New(t testing.TB) *Server {
	s := &Server{
		changed: make(chan struct{}), version: 1,
		objects: map[string]map[string]*unstructured.Unstructured{}, denied: map[string]bool{}, missing: map[string]bool{},
	}
	s.http = httptest.NewServer(s)
	t.Cleanup(func() {
		s.http.CloseClientConnections()
		s.http.Close()
	})
	return s
}

// Kubeconfig writes a kubeconfig of the server and returns its path.
func (s *Server) Kubeconfig(t testing.TB) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "kubeconfig")
	text := "apiVersion: v1\nkind: Config\ncurrent-context: test\n" +
		"clusters: [{name: test, cluster: {server: \"" + s.http.URL + "\"}}]\n" +
		"users: [{name: test, user: {token: test}}]\n" +
		"contexts: [{name: test, context: {cluster: test, user: test}}]\n"
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// Put creates or replaces objects from YAML documents.
func (s *Server) Put(t testing.TB, texts ...string) {
	t.Helper()
	for _, text := range texts {
		for document := range strings.SplitSeq(text, "\n---\n") {
			var object map[string]any
			if err := yaml.Unmarshal([]byte(document), &object); err != nil {
				t.Fatal(err)
			}
			s.put(&unstructured.Unstructured{Object: object})
		}
	}
}

func (s *Server) put(object *unstructured.Unstructured) *unstructured.Unstructured {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.set(resourceOf(object.GetKind()), keyOf(object), object)
}

// Delete removes an object by resource and name or namespace/name.
func (s *Server) Delete(resource, key string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.set(resource, key, nil)
}

// Get returns an object; nil if absent.
func (s *Server) Get(resource, key string) *unstructured.Unstructured {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.objects[resource][key]
}

// SetUnreachable makes the server drop all connections, or accept them again.
func (s *Server) SetUnreachable(unreachable bool) {
	s.mu.Lock()
	s.unreachable = unreachable
	s.wake()
	s.mu.Unlock()
	if unreachable {
		s.http.CloseClientConnections()
	}
}

// SetForbidden denies a resource to all users, or allows it again. It closes all connections, which
// ends all watches.
func (s *Server) SetForbidden(resource string, denied bool) {
	s.mu.Lock()
	s.denied[resource] = denied
	s.mu.Unlock()
	s.http.CloseClientConnections()
}

// SetResourceMissing makes a resource unknown to the server, or known again.
func (s *Server) SetResourceMissing(resource string, missing bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.missing[resource] = missing
}

// Requests returns the URL of each request so far.
func (s *Server) Requests() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.requests)
}

// Writes returns the requests that changed an object so far.
func (s *Server) Writes() []Write {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.writes)
}

// set stores an object. s.mu must be locked.
func (s *Server) set(resource, key string, object *unstructured.Unstructured) *unstructured.Unstructured {
	before := s.objects[resource][key]
	if before == nil && object == nil {
		return nil
	}
	s.version++
	if s.objects[resource] == nil {
		s.objects[resource] = map[string]*unstructured.Unstructured{}
	}
	if object == nil {
		delete(s.objects[resource], key)
	} else {
		object.SetResourceVersion(strconv.FormatInt(s.version, 10))
		s.objects[resource][key] = object
	}
	s.events = append(s.events, event{version: s.version, resource: resource, before: before, after: object})
	s.wake()
	return object
}

func (s *Server) wake() {
	close(s.changed)
	s.changed = make(chan struct{})
}

// ServeHTTP implements http.Handler.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	a := parse(r)
	s.mu.Lock()
	unreachable, denied, missing := s.unreachable, s.denied[a.resource], s.missing[a.resource]
	s.requests = append(s.requests, r.URL.String())
	s.mu.Unlock()
	switch {
	case unreachable:
		panic(http.ErrAbortHandler)
	case missing:
		refuse(w, http.StatusNotFound, metav1.StatusReasonNotFound, "the server could not find the requested resource")
	case denied:
		refuse(w, http.StatusForbidden, metav1.StatusReasonForbidden, a.resource+" is forbidden: User \"test\" cannot list resource \""+a.resource+"\"")
	case r.Method != http.MethodGet:
		s.write(w, r, a)
	case a.query.Get("watch") != "" && a.query.Get("sendInitialEvents") != "":
		refuse(w, http.StatusUnprocessableEntity, metav1.StatusReasonInvalid, "sendInitialEvents is forbidden")
	case a.query.Get("watch") != "":
		s.watch(w, r, a)
	default:
		s.list(w, a)
	}
}

func refuse(w http.ResponseWriter, code int, reason metav1.StatusReason, message string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(metav1.Status{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"},
		Status:   metav1.StatusFailure, Code: int32(code), Reason: reason, Message: message,
	})
}

func (s *Server) list(w http.ResponseWriter, a address) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if a.name != "" {
		object := s.objects[a.resource][a.key()]
		if object == nil {
			refuse(w, http.StatusNotFound, metav1.StatusReasonNotFound, a.key()+" not found")
			return
		}
		send(w, object.Object)
		return
	}
	items := []any{}
	for _, key := range slices.Sorted(maps.Keys(s.objects[a.resource])) {
		if object := s.objects[a.resource][key]; a.selects(object) {
			items = append(items, object.Object)
		}
	}
	send(w, map[string]any{
		"apiVersion": a.apiVersion, "kind": listOf(a.resource), "items": items,
		"metadata": map[string]any{"resourceVersion": strconv.FormatInt(s.version, 10)},
	})
}

func send(w http.ResponseWriter, object any) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(object)
}

// watch sends the changes after the requested version until the client disconnects.
func (s *Server) watch(w http.ResponseWriter, r *http.Request, a address) {
	version, _ := strconv.ParseInt(a.query.Get("resourceVersion"), 10, 64)
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusOK)
	w.(http.Flusher).Flush()
	out := json.NewEncoder(w)
	for {
		s.mu.Lock()
		changed, unreachable := s.changed, s.unreachable
		var events []map[string]any
		for _, e := range s.events {
			if e.version > version && e.resource == a.resource {
				if shown := a.shows(e); shown != nil {
					events = append(events, shown)
				}
			}
		}
		version = s.version
		s.mu.Unlock()
		if unreachable {
			panic(http.ErrAbortHandler)
		}
		for _, e := range events {
			if out.Encode(e) != nil {
				return
			}
		}
		w.(http.Flusher).Flush()
		select {
		case <-r.Context().Done():
			return
		case <-changed:
		}
	}
}
