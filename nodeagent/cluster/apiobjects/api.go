// Package apiobjects writes the objects of the Multi-Cluster Services API into a cluster's API. It
// also writes the forwarding of the clusterset's domains into the configuration of the cluster's
// own DNS. All gateways of a cluster want the same objects. The first live gateway writes them at
// once. Each other gateway waits, and writes only objects that are still incorrect. The observed
// state comes from watches, so a pass sends no reads to the API server.
package apiobjects

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	mcsv1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"hawser.dev/hawser/nodeagent/cluster/listwatch"
	"hawser.dev/hawser/nodeagent/converge"
	"hawser.dev/hawser/schema/fabric"
)

// sliceManager is the value of the label endpointslice.kubernetes.io/managed-by of Hawser's
// EndpointSlices.
const sliceManager = "hawser.dev"

const (
	// requestTimeout limits each request.
	requestTimeout = 10 * time.Second
	// maxConcurrent is the maximum number of concurrent requests.
	maxConcurrent = 4
)

// Resources that Hawser writes.
var (
	mcsVersion        = schema.GroupVersion(mcsv1.GroupVersion)
	serviceImports    = mcsVersion.WithResource(mcsv1.ServiceImportPluralName)
	serviceExports    = mcsVersion.WithResource(mcsv1.ServiceExportPluralName)
	endpointSlices    = discoveryv1.SchemeGroupVersion.WithResource("endpointslices")
	clusterProperties = schema.GroupVersionResource{Group: "about.k8s.io", Version: "v1beta1", Resource: "clusterproperties"}
	configMaps        = schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}
)

// List returns the objects of one resource, and false until the watch has synced. The caller must
// not modify the objects, which are shared.
type List[T any] func() ([]T, bool)

// resourceCache reads and writes the objects of one resource. It overlays the objects of the watch
// with later writes of this process. T is a pointer to the type of the objects.
type resourceCache[T metav1.Object] struct {
	client   dynamic.Interface
	resource schema.GroupVersionResource
	kind     string
	list     List[T]

	mu      sync.Mutex
	written map[string]written[T] // by namespace/name
}

// written is the server's response to a write: the object, or its deletion.
type written[T metav1.Object] struct {
	object T // not set if gone
	gone   bool
	uid    types.UID
	at     time.Time
}

// writtenTimeout is the maximum time for which a write overlays the watch. Another writer may have
// reverted the write before the watch could report it.
const writtenTimeout = 10 * time.Second

func newResourceCache[T metav1.Object](client dynamic.Interface, resource schema.GroupVersionResource, kind string, list List[T]) *resourceCache[T] {
	return &resourceCache[T]{client: client, resource: resource, kind: kind, list: list, written: map[string]written[T]{}}
}

// unknown returns the error for a watch that has not synced yet or that fails.
func (t *resourceCache[T]) unknown() error {
	return converge.ErrBlocked{On: "the watch of " + t.resource.GroupResource().String()}
}

// snapshot returns the objects by namespace/name, with this process's own writes.
func (t *resourceCache[T]) snapshot() (map[string]T, error) {
	list, known := t.list()
	if !known {
		return nil, t.unknown()
	}
	out := make(map[string]T, len(list))
	for _, o := range list {
		out[listwatch.Key(o)] = o
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	for key, w := range t.written {
		have, ok := out[key]
		switch {
		case time.Since(w.at) > writtenTimeout || w.observedBy(have, ok):
			delete(t.written, key)
		case w.gone:
			delete(out, key)
		default:
			out[key] = w.object
		}
	}
	return out, nil
}

// observedBy reports whether have, the object of the watch, is at least as recent as the write.
func (w written[T]) observedBy(have T, ok bool) bool {
	switch {
	case w.gone:
		return !ok || have.GetUID() != w.uid
	case !ok:
		return false
	}
	return have.GetUID() != w.uid || !older(have.GetResourceVersion(), w.object.GetResourceVersion())
}

// older reports whether a resource version is older than another. Resource versions are decimal
// numbers without leading zeros (KEP-5504).
func older(a, b string) bool {
	if len(a) != len(b) {
		return len(a) < len(b)
	}
	return a < b
}

func (t *resourceCache[T]) wrote(key string, w written[T]) {
	t.mu.Lock()
	defer t.mu.Unlock()
	w.at = time.Now()
	t.written[key] = w
}

// body returns a new object for server-side apply: Hawser owns exactly the fields that the caller
// adds. A UID that is not empty binds the request to the observed object.
func (t *resourceCache[T]) body(namespace, name string, seen types.UID) *unstructured.Unstructured {
	o := &unstructured.Unstructured{Object: map[string]any{}}
	o.SetAPIVersion(t.resource.GroupVersion().String())
	o.SetKind(t.kind)
	o.SetNamespace(namespace)
	o.SetName(name)
	o.SetUID(seen)
	return o
}

func (t *resourceCache[T]) in(namespace string) dynamic.ResourceInterface {
	if namespace == "" {
		return t.client.Resource(t.resource)
	}
	return t.client.Resource(t.resource).Namespace(namespace)
}

// apply writes by server-side apply. Without force it fails if another manager owns one of the
// fields: an object that should not exist yet may be foreign.
func (t *resourceCache[T]) apply(ctx context.Context, o *unstructured.Unstructured, force bool, sub ...string) error {
	options := metav1.PatchOptions{FieldManager: fabric.FieldManager, Force: &force}
	return t.patch(ctx, o, types.ApplyPatchType, o, options, sub...)
}

// merge changes fields of a foreign object, unless the object has changed since it was observed.
func (t *resourceCache[T]) merge(ctx context.Context, seen T, change map[string]any) error {
	metadata, _ := change["metadata"].(map[string]any)
	if metadata == nil {
		metadata = map[string]any{}
	}
	metadata["resourceVersion"], metadata["uid"] = seen.GetResourceVersion(), string(seen.GetUID())
	change["metadata"] = metadata
	return t.patch(ctx, seen, types.MergePatchType, change, metav1.PatchOptions{FieldManager: fabric.FieldManager})
}

func (t *resourceCache[T]) patch(ctx context.Context, o metav1.Object, how types.PatchType, change any, options metav1.PatchOptions, sub ...string) error {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	raw, err := json.Marshal(change)
	if err != nil {
		return fmt.Errorf("write %s %s: %w", t.kind, listwatch.Key(o), err)
	}
	answer, err := t.in(o.GetNamespace()).Patch(ctx, o.GetName(), how, raw, options, sub...)
	if err != nil {
		return t.mapError(err, o)
	}
	after, err := read[T](answer)
	if err != nil {
		return err
	}
	t.wrote(listwatch.Key(o), written[T]{object: after, uid: after.GetUID()})
	return nil
}

// remove deletes the observed object, but no later object of the same name.
func (t *resourceCache[T]) remove(ctx context.Context, seen T) error {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	uid := seen.GetUID()
	err := t.in(seen.GetNamespace()).Delete(ctx, seen.GetName(), metav1.DeleteOptions{
		Preconditions: &metav1.Preconditions{UID: &uid},
	})
	if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
		return t.mapError(err, seen)
	}
	t.wrote(listwatch.Key(seen), written[T]{gone: true, uid: uid})
	return nil
}

// mapError distinguishes requests that must wait for another object from failed requests.
func (t *resourceCache[T]) mapError(err error, o metav1.Object) error {
	switch {
	case apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause):
		return converge.ErrBlocked{On: "the deletion of namespace " + o.GetNamespace()}
	case apierrors.IsNotFound(err) && o.GetNamespace() != "":
		return converge.ErrBlocked{On: "namespace " + o.GetNamespace() + " and its objects"}
	case apierrors.HasStatusCause(err, metav1.CauseTypeFieldManagerConflict):
		return fmt.Errorf("%w: %w", converge.ErrConflict, err)
	case apierrors.IsConflict(err):
		return converge.ErrBlocked{On: "a newer version of the object"}
	}
	return fmt.Errorf("write %s: %w", t.resource.GroupResource(), err)
}
