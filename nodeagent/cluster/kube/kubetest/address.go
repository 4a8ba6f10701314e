package kubetest

import (
	"encoding/json"
	"io"
	"net/http"
	"net/url"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/yaml"
)

// address is the parsed path and query of a request.
type address struct {
	apiVersion, namespace, resource, name, sub string

	query url.Values
}

func parse(r *http.Request) address {
	a := address{query: r.URL.Query()}
	parts := strings.Split(strings.Trim(r.URL.Path, "/"), "/")
	if len(parts) < 3 {
		return a
	}
	a.apiVersion, parts = parts[1], parts[1:]
	if strings.HasPrefix(r.URL.Path, "/apis/") {
		a.apiVersion, parts = parts[0]+"/"+parts[1], parts[1:]
	}
	parts = parts[1:]
	if len(parts) > 2 && parts[0] == "namespaces" {
		a.namespace, parts = parts[1], parts[2:]
	}
	a.resource = parts[0]
	if len(parts) > 1 {
		a.name = parts[1]
	}
	if len(parts) > 2 {
		a.sub = parts[2]
	}
	return a
}

func (a address) key() string {
	if a.namespace == "" {
		return a.name
	}
	return a.namespace + "/" + a.name
}

func keyOf(object *unstructured.Unstructured) string {
	if object.GetNamespace() == "" {
		return object.GetName()
	}
	return object.GetNamespace() + "/" + object.GetName()
}

// listOf returns the kind of a list of a resource.
func listOf(resource string) string {
	for _, kind := range []string{"Node", "Namespace", "Pod", "Service", "EndpointSlice"} {
		if resourceOf(kind) == resource {
			return kind + "List"
		}
	}
	return "List" // unstructured objects name their own kind
}

// resourceOf returns the resource of a kind that tests use.
func resourceOf(kind string) string {
	if kind == "ClusterProperty" {
		return "clusterproperties"
	}
	return strings.ToLower(kind) + "s"
}

func (a address) selects(object *unstructured.Unstructured) bool {
	if object == nil || a.namespace != "" && object.GetNamespace() != a.namespace {
		return false
	}
	if field, name, ok := strings.Cut(a.query.Get("fieldSelector"), "="); ok && field == "metadata.name" && name != object.GetName() {
		return false
	}
	selector, err := labels.Parse(a.query.Get("labelSelector"))
	return err == nil && selector.Matches(labels.Set(object.GetLabels()))
}

// shows returns an event as the requester sees it; nil if its selector does not match.
func (a address) shows(e event) map[string]any {
	switch before, after := a.selects(e.before), a.selects(e.after); {
	case after && before:
		return map[string]any{"type": "MODIFIED", "object": e.after.Object}
	case after:
		return map[string]any{"type": "ADDED", "object": e.after.Object}
	case before:
		return map[string]any{"type": "DELETED", "object": e.before.Object}
	}
	return nil
}

// write serves POST, PUT, PATCH and DELETE. It treats each patch as an apply by the only manager,
// which replaces the object or the subresource.
func (s *Server) write(w http.ResponseWriter, r *http.Request, a address) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		refuse(w, http.StatusBadRequest, metav1.StatusReasonBadRequest, err.Error())
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if r.Method == http.MethodDelete {
		s.writes = append(s.writes, Write{Method: r.Method, Path: r.URL.Path})
		s.set(a.resource, a.key(), nil)
		send(w, metav1.Status{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: metav1.StatusSuccess})
		return
	}
	raw, err := yaml.YAMLToJSON(body)
	sent := &unstructured.Unstructured{}
	if err == nil {
		err = json.Unmarshal(raw, &sent.Object)
	}
	if err != nil {
		refuse(w, http.StatusBadRequest, metav1.StatusReasonBadRequest, err.Error())
		return
	}
	if a.sub != "" && s.objects[a.resource][a.key()] == nil {
		refuse(w, http.StatusNotFound, metav1.StatusReasonNotFound, a.key()+" not found")
		return
	}
	s.writes = append(s.writes, Write{Method: r.Method, Path: r.URL.Path, Object: sent.DeepCopy()})
	sent.SetNamespace(a.namespace)
	if a.name == "" {
		a.name = sent.GetName()
	}
	before := s.objects[a.resource][a.key()]
	if v := sent.GetResourceVersion(); r.Method == http.MethodPut && before != nil && v != "" && v != before.GetResourceVersion() {
		refuse(w, http.StatusConflict, metav1.StatusReasonConflict, a.key()+" has been modified")
		return
	}
	if before != nil && r.Method == http.MethodPatch {
		sent = joined(before, sent, a.sub)
	}
	send(w, s.set(a.resource, a.key(), sent).Object)
}

// joined returns an object with the requested part replaced.
func joined(before, sent *unstructured.Unstructured, sub string) *unstructured.Unstructured {
	out := before.DeepCopy()
	if sub != "" {
		out.Object[sub] = sent.Object[sub]
		return out
	}
	for field, value := range sent.Object {
		if field != "status" {
			out.Object[field] = value
		}
	}
	return out
}
