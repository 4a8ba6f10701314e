// Package fakeapi has a minimal API server for tests, and trees to apply to it.
package fakeapi

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

	"hawser.dev/hawser/kubeclient"
)

// API is an API server with the features that apply needs: discovery, objects by path, and
// server-side apply. An apply stores the given fields and the field manager of the object. The kind
// of a CRD is served from the next request on.
type API struct {
	Mu        sync.Mutex
	Objects   map[string]map[string]any // by path
	Kinds     map[string][]Resource     // by group/version
	Log       []string                  // changes
	Requests  []string                  // all requests
	Fail      string                    // path whose changes are refused
	ClockSkew time.Duration             // by which its clock is ahead
}

// ServeTrees makes the API serve every kind of a rendered tree that has no CRD.
func (f *API) ServeTrees() {
	f.Mu.Lock()
	defer f.Mu.Unlock()
	f.Kinds["v1"] = append(f.Kinds["v1"], Resource{"serviceaccounts", "ServiceAccount", true, nil})
	f.Kinds["rbac.authorization.k8s.io/v1"] = []Resource{
		{"clusterroles", "ClusterRole", false, nil}, {"clusterrolebindings", "ClusterRoleBinding", false, nil},
		{"roles", "Role", true, nil}, {"rolebindings", "RoleBinding", true, nil},
	}
	f.Kinds["admissionregistration.k8s.io/v1"] = []Resource{
		{"validatingadmissionpolicies", "ValidatingAdmissionPolicy", false, nil},
		{"validatingadmissionpolicybindings", "ValidatingAdmissionPolicyBinding", false, nil},
	}
}

// Resource is a kind that the API serves.
type Resource struct {
	Name       string   `json:"name"`
	Kind       string   `json:"kind"`
	Namespaced bool     `json:"namespaced"`
	Verbs      []string `json:"verbs"`
}

// New starts an API server and returns a client for it. The cluster has the given name.
func New(t testing.TB, name string) (*API, *kubeclient.Client) {
	t.Helper()
	f := &API{Objects: map[string]map[string]any{}, Kinds: map[string][]Resource{
		"v1": {{"namespaces", "Namespace", false, nil}, {"configmaps", "ConfigMap", true, nil}, {"secrets", "Secret", true, nil}, {"pods", "Pod", true, nil},
			{"nodes", "Node", false, nil}, {"services", "Service", true, nil}},
		"apiextensions.k8s.io/v1": {{"customresourcedefinitions", "CustomResourceDefinition", false, nil}},
		"apps/v1":                 {{"daemonsets", "DaemonSet", true, nil}},
	}}
	server := httptest.NewServer(f)
	t.Cleanup(server.Close)
	c, err := kubeclient.Open(name, "ctx-"+name, &rest.Config{Host: server.URL})
	if err != nil {
		t.Fatal(err)
	}
	return f, c
}

func (f *API) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	f.Mu.Lock()
	defer f.Mu.Unlock()
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Date", time.Now().Add(f.ClockSkew).UTC().Format(http.TimeFormat))
	path := r.URL.Path
	f.Requests = append(f.Requests, r.Method+" "+r.URL.String())
	switch {
	case path == "/version":
		reply(w, map[string]any{"gitVersion": "v1.34.0"})
	case path == "/api":
		reply(w, map[string]any{"kind": "APIVersions", "versions": []string{"v1"}})
	case path == "/apis":
		reply(w, map[string]any{"kind": "APIGroupList", "apiVersion": "v1", "groups": f.groups()})
	case f.Kinds[strings.TrimPrefix(strings.TrimPrefix(path, "/apis/"), "/api/")] != nil:
		version := strings.TrimPrefix(strings.TrimPrefix(path, "/apis/"), "/api/")
		reply(w, map[string]any{"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": version, "resources": f.Kinds[version]})
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

func (f *API) groups() []any {
	var out []any
	for _, version := range slices.Sorted(maps.Keys(f.Kinds)) {
		group, v, ok := strings.Cut(version, "/")
		if ok {
			versionInfo := map[string]any{"groupVersion": version, "version": v}
			out = append(out, map[string]any{"name": group, "versions": []any{versionInfo}, "preferredVersion": versionInfo})
		}
	}
	return out
}

func (f *API) read(w http.ResponseWriter, path, selector string) {
	selected, err := labels.Parse(selector)
	if err != nil {
		status(w, http.StatusBadRequest, "BadRequest", path)
		return
	}
	if o := f.Objects[path]; o != nil {
		reply(w, o)
		return
	}
	items := []any{}
	for _, key := range slices.Sorted(maps.Keys(f.Objects)) {
		o := &unstructured.Unstructured{Object: f.Objects[key]}
		if strings.HasPrefix(key, path+"/") && !strings.Contains(key[len(path)+1:], "/") && selected.Matches(labels.Set(o.GetLabels())) {
			items = append(items, f.Objects[key])
		}
	}
	if len(items) == 0 {
		status(w, http.StatusNotFound, "NotFound", path)
		return
	}
	reply(w, map[string]any{"kind": "List", "apiVersion": "v1", "metadata": map[string]any{}, "items": items})
}

func (f *API) apply(w http.ResponseWriter, r *http.Request, path string) {
	raw, err := io.ReadAll(r.Body)
	var object map[string]any
	if err != nil || json.Unmarshal(raw, &object) != nil {
		status(w, http.StatusBadRequest, "BadRequest", path)
		return
	}
	if path == f.Fail {
		status(w, http.StatusForbidden, "Forbidden", path)
		return
	}
	if i := strings.Index(path, "/namespaces/"); i >= 0 && strings.Count(path[i:], "/") > 2 &&
		f.Objects["/api/v1/namespaces/"+strings.Split(path[i:], "/")[2]] == nil {
		status(w, http.StatusNotFound, "NotFound", "namespace of "+path)
		return
	}
	meta, _ := object["metadata"].(map[string]any)
	meta["uid"] = "uid-" + path
	meta["managedFields"] = []any{map[string]any{"manager": r.URL.Query().Get("fieldManager"), "operation": "Apply", "apiVersion": "v1",
		"fieldsType": "FieldsV1", "fieldsV1": map[string]any{"f:metadata": map[string]any{}}}}
	if r.URL.Query().Get("dryRun") == "" {
		f.Objects[path] = object
		f.Log = append(f.Log, "apply "+path)
		f.addKind(object)
	}
	reply(w, object)
}

// addKind serves the kind of a CRD.
func (f *API) addKind(o map[string]any) {
	spec, _ := o["spec"].(map[string]any)
	names, _ := spec["names"].(map[string]any)
	if o["kind"] != "CustomResourceDefinition" || names == nil {
		return
	}
	o["status"] = map[string]any{"conditions": []any{map[string]any{"type": "Established", "status": "True"}}}
	for _, v := range spec["versions"].([]any) {
		at := fmt.Sprint(spec["group"], "/", v.(map[string]any)["name"])
		f.Kinds[at] = append(slices.DeleteFunc(f.Kinds[at], func(r Resource) bool { return r.Kind == names["kind"] }),
			Resource{fmt.Sprint(names["plural"]), fmt.Sprint(names["kind"]), spec["scope"] == "Namespaced", nil})
	}
}

func (f *API) delete(w http.ResponseWriter, path string) {
	if f.Objects[path] == nil {
		status(w, http.StatusNotFound, "NotFound", path)
		return
	}
	if path == f.Fail {
		status(w, http.StatusForbidden, "Forbidden", path)
		return
	}
	delete(f.Objects, path)
	f.Log = append(f.Log, "delete "+path)
	reply(w, map[string]any{"kind": "Status", "apiVersion": "v1", "status": "Success"})
}

// Changed returns the changes since the last call.
func (f *API) Changed() []string {
	f.Mu.Lock()
	defer f.Mu.Unlock()
	out := f.Log
	f.Log = nil
	return out
}

// Edit changes an object as another manager would.
func (f *API) Edit(path string, change func(map[string]any)) {
	f.Mu.Lock()
	defer f.Mu.Unlock()
	change(f.Objects[path])
}

func reply(w http.ResponseWriter, v any) { _ = json.NewEncoder(w).Encode(v) }

func status(w http.ResponseWriter, code int, reason, message string) {
	w.WriteHeader(code)
	reply(w, map[string]any{"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": reason, "message": message, "code": code})
}

func Object(kind, namespace, name string, fields map[string]any) map[string]any {
	version := map[string]string{"DaemonSet": "apps/v1"}[kind]
	if version == "" {
		version = "v1"
	}
	meta := map[string]any{
		"name": name, "uid": "u-" + name,
		"managedFields": []any{map[string]any{"manager": "somebody", "operation": "Apply", "apiVersion": "v1", "fieldsType": "FieldsV1", "fieldsV1": map[string]any{"f:x": map[string]any{}}}},
		"annotations":   map[string]any{"kubectl.kubernetes.io/last-applied-configuration": "planted-1", "note": "kept"},
	}
	if namespace != "" {
		meta["namespace"] = namespace
	}
	if strings.HasPrefix(name, "hawser-") {
		meta["labels"] = map[string]any{"app.kubernetes.io/name": "hawser-agent"}
	}
	out := map[string]any{"apiVersion": version, "kind": kind, "metadata": meta}
	maps.Copy(out, fields)
	return out
}
