package apiobjects

import (
	"encoding/json"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
)

// apiServer implements the part of an API server that the kinds use, with server-side apply. The
// tests in e2e/kube use a real API server.
type apiServer struct {
	*httptest.Server

	mu       sync.Mutex
	version  int
	objects  map[string]*unstructured.Unstructured // by resource, namespace and name
	watchers map[chan event]string                 // by resource
	writes   []string
	down     bool
	lacks    string          // a field that its schemas do not have
	ending   map[string]bool // namespaces
}

type event struct {
	kind   string
	object *unstructured.Unstructured
}

func newAPIServer(t *testing.T) *apiServer {
	s := &apiServer{objects: map[string]*unstructured.Unstructured{}, watchers: map[chan event]string{}, ending: map[string]bool{}}
	s.Server = httptest.NewServer(http.HandlerFunc(s.serve))
	t.Cleanup(func() {
		s.CloseClientConnections()
		s.Close()
	})
	return s
}

func (s *apiServer) client(t *testing.T) dynamic.Interface {
	t.Helper()
	client, err := dynamic.NewForConfig(&rest.Config{Host: s.URL, QPS: -1})
	if err != nil {
		t.Fatal(err)
	}
	return client
}

// request is a parsed path.
type request struct {
	schema.GroupVersionResource
	namespace, name, sub string
}

func (r request) key() string { return r.Resource + " " + r.namespace + "/" + r.name }

func parsePath(path string) request {
	parts := strings.Split(strings.Trim(path, "/"), "/")
	var r request
	if parts[0] == "apis" {
		r.Group, parts = parts[1], parts[1:]
	}
	r.Version, parts = parts[1], parts[2:]
	if parts[0] == "namespaces" && len(parts) > 2 {
		r.namespace, parts = parts[1], parts[2:]
	}
	parts = append(parts, "", "")
	r.Resource, r.name, r.sub = parts[0], parts[1], parts[2]
	return r
}

func (s *apiServer) serve(w http.ResponseWriter, q *http.Request) {
	r := parsePath(q.URL.Path)
	query := q.URL.Query()
	if q.Method == http.MethodGet && query.Get("watch") == "true" {
		s.watch(w, q, r)
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	var out any
	var err error
	switch {
	case s.down:
		err = apierrors.NewServiceUnavailable("down")
	case q.Method == http.MethodGet && r.name == "":
		out = s.list(r, query.Get("labelSelector"), query.Get("fieldSelector"))
	case q.Method == http.MethodPatch:
		body, _ := io.ReadAll(q.Body)
		out, err = s.patch(r, q.Header.Get("Content-Type"), body, query.Get("force") == "true")
	case q.Method == http.MethodDelete:
		var options metav1.DeleteOptions
		_ = json.NewDecoder(q.Body).Decode(&options)
		out, err = s.remove(r, options)
	default:
		err = apierrors.NewMethodNotSupported(r.GroupResource(), q.Method)
	}
	answer(w, out, err)
}

func answer(w http.ResponseWriter, out any, err error) {
	w.Header().Set("Content-Type", "application/json")
	if err != nil {
		status := apierrors.NewInternalError(err).Status()
		if known, is := err.(apierrors.APIStatus); is {
			status = known.Status()
		}
		status.Kind, status.APIVersion = "Status", "v1"
		w.WriteHeader(int(status.Code))
		out = status
	}
	_ = json.NewEncoder(w).Encode(out)
}

func (s *apiServer) list(r request, label, field string) any {
	selector, _ := labels.Parse(label)
	items := []any{}
	for _, key := range slices.Sorted(maps.Keys(s.objects)) {
		o := s.objects[key]
		if !strings.HasPrefix(key, r.Resource+" ") || r.namespace != "" && o.GetNamespace() != r.namespace ||
			!selector.Matches(labels.Set(o.GetLabels())) || field != "" && field != "metadata.name="+o.GetName() {
			continue
		}
		items = append(items, o.Object)
	}
	return map[string]any{
		"apiVersion": r.GroupVersion().String(), "kind": "List",
		"metadata": map[string]any{"resourceVersion": strconv.Itoa(s.version + 1)}, "items": items,
	}
}

// watch streams the events of a resource. It first sends all objects again, because they may have
// changed since the list.
func (s *apiServer) watch(w http.ResponseWriter, q *http.Request, r request) {
	if q.URL.Query().Get("sendInitialEvents") != "" {
		answer(w, nil, apierrors.NewInvalid(schema.GroupKind{}, "", nil))
		return
	}
	events := make(chan event, 10000)
	s.mu.Lock()
	if s.down {
		s.mu.Unlock()
		answer(w, nil, apierrors.NewServiceUnavailable("down"))
		return
	}
	for key, o := range s.objects {
		if strings.HasPrefix(key, r.Resource+" ") {
			events <- event{"MODIFIED", o.DeepCopy()}
		}
	}
	s.watchers[events] = r.Resource
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		delete(s.watchers, events)
		s.mu.Unlock()
	}()
	selector, _ := labels.Parse(q.URL.Query().Get("labelSelector"))
	field := q.URL.Query().Get("fieldSelector")
	w.Header().Set("Content-Type", "application/json")
	flusher := w.(http.Flusher)
	flusher.Flush()
	for {
		select {
		case <-q.Context().Done():
			return
		case e, open := <-events:
			if !open {
				return
			}
			if !selector.Matches(labels.Set(e.object.GetLabels())) || field != "" && field != "metadata.name="+e.object.GetName() {
				continue
			}
			_ = json.NewEncoder(w).Encode(map[string]any{"type": e.kind, "object": e.object.Object})
			flusher.Flush()
		}
	}
}

// cut makes the server unreachable, or reachable again.
func (s *apiServer) cut(down bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.down = down
	if down {
		for events := range s.watchers {
			close(events)
			delete(s.watchers, events)
		}
	}
}

func (s *apiServer) publishEvent(kind string, r request, o *unstructured.Unstructured) {
	for events, resource := range s.watchers {
		if resource == r.Resource {
			events <- event{kind, o.DeepCopy()}
		}
	}
}

// put replaces a whole object, as another writer would.
func (s *apiServer) put(resource, text string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	o := &unstructured.Unstructured{}
	if err := json.Unmarshal([]byte(text), &o.Object); err != nil {
		panic(err)
	}
	r := request{GroupVersionResource: schema.GroupVersionResource{Resource: resource}, namespace: o.GetNamespace(), name: o.GetName()}
	live, there := s.objects[r.key()]
	if !there {
		live = &unstructured.Unstructured{Object: map[string]any{}}
	}
	gvk := map[string]schema.GroupVersionKind{
		"serviceimports": serviceImports.GroupVersion().WithKind("ServiceImport"), "serviceexports": serviceExports.GroupVersion().WithKind("ServiceExport"),
		"endpointslices": endpointSlices.GroupVersion().WithKind("EndpointSlice"), "configmaps": configMaps.GroupVersion().WithKind("ConfigMap"),
		"clusterproperties": clusterProperties.GroupVersion().WithKind("ClusterProperty"),
	}[resource]
	o.SetGroupVersionKind(gvk)
	o.SetUID(live.GetUID())
	o.SetManagedFields(live.GetManagedFields())
	s.store(r, live, o, there)
}

// edit changes an object, as another writer would.
func (s *apiServer) edit(key string, change func(o *unstructured.Unstructured)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	resource, name, _ := strings.Cut(key, " ")
	namespace, name, _ := strings.Cut(name, "/")
	r := request{GroupVersionResource: schema.GroupVersionResource{Resource: resource}, namespace: namespace, name: name}
	after := s.objects[key].DeepCopy()
	change(after)
	s.store(r, s.objects[key], after, true)
}

// lose deletes an object, as another writer would.
func (s *apiServer) lose(key string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	resource, name, _ := strings.Cut(key, " ")
	namespace, name, _ := strings.Cut(name, "/")
	_, _ = s.remove(request{GroupVersionResource: schema.GroupVersionResource{Resource: resource}, namespace: namespace, name: name}, metav1.DeleteOptions{})
	s.writes = s.writes[:len(s.writes)-1]
}

// get returns an object, nil if absent.
func (s *apiServer) get(key string) *unstructured.Unstructured {
	s.mu.Lock()
	defer s.mu.Unlock()
	if o := s.objects[key]; o != nil {
		return o.DeepCopy()
	}
	return nil
}

// listing returns a List of the objects of a resource, like a watch without delay.
func listing[T metav1.Object](s *apiServer, resource string) List[T] {
	return func() ([]T, bool) {
		s.mu.Lock()
		defer s.mu.Unlock()
		var out []T
		for key, o := range s.objects {
			if !strings.HasPrefix(key, resource+" ") {
				continue
			}
			object, err := read[T](o)
			if err != nil {
				panic(err)
			}
			out = append(out, object)
		}
		return out, true
	}
}

func (s *apiServer) wrote() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := s.writes
	s.writes = nil
	return out
}
