package apply

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/rest"
)

// fakeAPI is as much of an API server as apply needs: discovery, objects by path,
// and server-side apply that takes the fields given over and notes who holds the
// object. A definition is served from the request after it on.
type fakeAPI struct {
	mu      sync.Mutex
	objects map[string]map[string]any // by path
	kinds   map[string][]resource     // by group/version
	log     []string                  // what changed
	asked   []string                  // every request
	fail    string                    // a path whose changes are refused
	ahead   time.Duration             // of its clock
}

type resource struct {
	Name       string   `json:"name"`
	Kind       string   `json:"kind"`
	Namespaced bool     `json:"namespaced"`
	Verbs      []string `json:"verbs"`
}

func newFake(t testing.TB, name string) (*fakeAPI, *Client) {
	t.Helper()
	f := &fakeAPI{objects: map[string]map[string]any{}, kinds: map[string][]resource{
		"v1": {{"namespaces", "Namespace", false, nil}, {"configmaps", "ConfigMap", true, nil}, {"secrets", "Secret", true, nil}, {"pods", "Pod", true, nil},
			{"nodes", "Node", false, nil}, {"services", "Service", true, nil}},
		"apiextensions.k8s.io/v1": {{"customresourcedefinitions", "CustomResourceDefinition", false, nil}},
		"apps/v1":                 {{"daemonsets", "DaemonSet", true, nil}},
	}}
	server := httptest.NewServer(f)
	t.Cleanup(server.Close)
	c, err := Open(name, "ctx-"+name, &rest.Config{Host: server.URL})
	if err != nil {
		t.Fatal(err)
	}
	return f, c
}

func (f *fakeAPI) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	f.mu.Lock()
	defer f.mu.Unlock()
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Date", time.Now().Add(f.ahead).UTC().Format(http.TimeFormat))
	path := r.URL.Path
	f.asked = append(f.asked, r.Method+" "+r.URL.String())
	switch {
	case path == "/version":
		reply(w, map[string]any{"gitVersion": "v1.34.0"})
	case path == "/api":
		reply(w, map[string]any{"kind": "APIVersions", "versions": []string{"v1"}})
	case path == "/apis":
		reply(w, map[string]any{"kind": "APIGroupList", "apiVersion": "v1", "groups": f.groups()})
	case f.kinds[strings.TrimPrefix(strings.TrimPrefix(path, "/apis/"), "/api/")] != nil:
		version := strings.TrimPrefix(strings.TrimPrefix(path, "/apis/"), "/api/")
		reply(w, map[string]any{"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": version, "resources": f.kinds[version]})
	case r.Method == http.MethodGet:
		f.read(w, path, r.URL.Query().Get("labelSelector"))
	case r.Method == http.MethodPatch:
		f.apply(w, r, path)
	case r.Method == http.MethodDelete:
		f.delete(w, path)
	default:
		status(w, http.StatusMethodNotAllowed, "MethodNotAllowed", r.Method+" "+path)
	}
}

func (f *fakeAPI) groups() []any {
	var out []any
	for _, version := range slices.Sorted(maps.Keys(f.kinds)) {
		group, v, ok := strings.Cut(version, "/")
		if ok {
			at := map[string]any{"groupVersion": version, "version": v}
			out = append(out, map[string]any{"name": group, "versions": []any{at}, "preferredVersion": at})
		}
	}
	return out
}

func (f *fakeAPI) read(w http.ResponseWriter, path, selector string) {
	wanted, err := labels.Parse(selector)
	if err != nil {
		status(w, http.StatusBadRequest, "BadRequest", path)
		return
	}
	if o := f.objects[path]; o != nil {
		reply(w, o)
		return
	}
	items := []any{}
	for _, at := range slices.Sorted(maps.Keys(f.objects)) {
		o := &unstructured.Unstructured{Object: f.objects[at]}
		if strings.HasPrefix(at, path+"/") && !strings.Contains(at[len(path)+1:], "/") && wanted.Matches(labels.Set(o.GetLabels())) {
			items = append(items, f.objects[at])
		}
	}
	if len(items) == 0 {
		status(w, http.StatusNotFound, "NotFound", path)
		return
	}
	reply(w, map[string]any{"kind": "List", "apiVersion": "v1", "metadata": map[string]any{}, "items": items})
}

func (f *fakeAPI) apply(w http.ResponseWriter, r *http.Request, path string) {
	raw, err := io.ReadAll(r.Body)
	var given map[string]any
	if err != nil || json.Unmarshal(raw, &given) != nil {
		status(w, http.StatusBadRequest, "BadRequest", path)
		return
	}
	if path == f.fail {
		status(w, http.StatusForbidden, "Forbidden", path)
		return
	}
	if at := strings.Index(path, "/namespaces/"); at >= 0 && strings.Count(path[at:], "/") > 2 &&
		f.objects["/api/v1/namespaces/"+strings.Split(path[at:], "/")[2]] == nil {
		status(w, http.StatusNotFound, "NotFound", "namespace of "+path)
		return
	}
	meta, _ := given["metadata"].(map[string]any)
	meta["uid"] = "uid-" + path
	meta["managedFields"] = []any{map[string]any{"manager": r.URL.Query().Get("fieldManager"), "operation": "Apply", "apiVersion": "v1",
		"fieldsType": "FieldsV1", "fieldsV1": map[string]any{"f:metadata": map[string]any{}}}}
	if r.URL.Query().Get("dryRun") == "" {
		f.objects[path] = given
		f.log = append(f.log, "apply "+path)
		f.define(given)
	}
	reply(w, given)
}

// define serves the kind of a definition.
func (f *fakeAPI) define(o map[string]any) {
	spec, _ := o["spec"].(map[string]any)
	names, _ := spec["names"].(map[string]any)
	if o["kind"] != "CustomResourceDefinition" || names == nil {
		return
	}
	o["status"] = map[string]any{"conditions": []any{map[string]any{"type": "Established", "status": "True"}}}
	for _, v := range spec["versions"].([]any) {
		at := fmt.Sprint(spec["group"], "/", v.(map[string]any)["name"])
		f.kinds[at] = append(slices.DeleteFunc(f.kinds[at], func(r resource) bool { return r.Kind == names["kind"] }),
			resource{fmt.Sprint(names["plural"]), fmt.Sprint(names["kind"]), spec["scope"] == "Namespaced", nil})
	}
}

func (f *fakeAPI) delete(w http.ResponseWriter, path string) {
	if f.objects[path] == nil {
		status(w, http.StatusNotFound, "NotFound", path)
		return
	}
	if path == f.fail {
		status(w, http.StatusForbidden, "Forbidden", path)
		return
	}
	delete(f.objects, path)
	f.log = append(f.log, "delete "+path)
	reply(w, map[string]any{"kind": "Status", "apiVersion": "v1", "status": "Success"})
}

// changed gives what changed since it was asked last.
func (f *fakeAPI) changed() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	out := f.log
	f.log = nil
	return out
}

// edit changes an object as another manager would.
func (f *fakeAPI) edit(path string, change func(map[string]any)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change(f.objects[path])
}

func reply(w http.ResponseWriter, v any) { _ = json.NewEncoder(w).Encode(v) }

func status(w http.ResponseWriter, code int, reason, message string) {
	w.WriteHeader(code)
	reply(w, map[string]any{"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": reason, "message": message, "code": code})
}
