// Package apiobjects brings what the gateways of a cluster write into its API to
// what it should be: the objects of the Multi-Cluster Services API and what leads
// the cluster's own DNS to the agents. Every gateway wants the same; the first one
// that is alive writes, the others only what stays wrong. What is observed comes
// from watches, so a pass asks nothing of the API server.
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

// sliceManager is the value of the label endpointslice.kubernetes.io/managed-by of our EndpointSlices.
const sliceManager = "hawser.dev"

const (
	// deadline of each request.
	deadline = 10 * time.Second
	// atOnce is how many requests are under way at most.
	atOnce = 4
)

// Resources that are written.
var (
	mcsVersion        = schema.GroupVersion(mcsv1.GroupVersion)
	serviceImports    = mcsVersion.WithResource(mcsv1.ServiceImportPluralName)
	serviceExports    = mcsVersion.WithResource(mcsv1.ServiceExportPluralName)
	endpointSlices    = discoveryv1.SchemeGroupVersion.WithResource("endpointslices")
	clusterProperties = schema.GroupVersionResource{Group: "about.k8s.io", Version: "v1beta1", Resource: "clusterproperties"}
	configMaps        = schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}
)

// List gives the objects of one resource as they are, and false while they are not
// known. They are shared: nobody changes them.
type List[T any] func() ([]T, bool)

// resourceCache is one resource, T a pointer to its objects' type: what a watch says of it, and what was
// written since.
type resourceCache[T metav1.Object] struct {
	client   dynamic.Interface
	resource schema.GroupVersionResource
	kind     string
	list     List[T]

	mu      sync.Mutex
	written map[string]written[T] // by namespace/name
}

// written is an object as the server gave it back, or that it is gone.
type written[T metav1.Object] struct {
	object T // if it is not gone
	gone   bool
	uid    types.UID
	at     time.Time
}

// writtenLong is how long a write counts although no watch reports about it: somebody may
// have undone it before the watch could.
const writtenLong = 10 * time.Second

func newTable[T metav1.Object](client dynamic.Interface, resource schema.GroupVersionResource, kind string, list List[T]) *resourceCache[T] {
	return &resourceCache[T]{client: client, resource: resource, kind: kind, list: list, written: map[string]written[T]{}}
}

// unknown says that a watch has not told yet what there is, or cannot.
func (t *resourceCache[T]) unknown() error {
	return converge.ErrBlocked{On: "the watch of " + t.resource.GroupResource().String()}
}

// snapshot gives the objects by namespace/name, our own writes included.
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
		have, there := out[key]
		switch {
		case time.Since(w.at) > writtenLong || w.observedBy(have, there):
			delete(t.written, key)
		case w.gone:
			delete(out, key)
		default:
			out[key] = w.object
		}
	}
	return out, nil
}

// observedBy reports whether the watch knows as much as the write.
func (w written[T]) observedBy(have T, there bool) bool {
	switch {
	case w.gone:
		return !there || have.GetUID() != w.uid
	case !there:
		return false
	}
	return have.GetUID() != w.uid || !older(have.GetResourceVersion(), w.object.GetResourceVersion())
}

// older compares two resource versions, which are numbers (KEP-5504). Those that
// are not count as equal.
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

// body begins an object to be applied: what is not put into it is not ours. It is for the object
// that was seen, and no other.
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

// apply writes by server-side apply. Without force it refuses to take what others
// hold: for objects that should not be there yet.
func (t *resourceCache[T]) apply(ctx context.Context, o *unstructured.Unstructured, force bool, sub ...string) error {
	options := metav1.PatchOptions{FieldManager: fabric.FieldManager, Force: &force}
	return t.patch(ctx, o, types.ApplyPatchType, o, options, sub...)
}

// merge changes fields of an object that is not ours, if it still is as it was seen.
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
	ctx, cancel := context.WithTimeout(ctx, deadline)
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

// remove deletes the object that was seen, and no later one of its name.
func (t *resourceCache[T]) remove(ctx context.Context, seen T) error {
	ctx, cancel := context.WithTimeout(ctx, deadline)
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

// mapError distinguishes what only waits for something from what is wrong.
func (t *resourceCache[T]) mapError(err error, o metav1.Object) error {
	switch {
	case apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause):
		return converge.ErrBlocked{On: "the end of namespace " + o.GetNamespace()}
	case apierrors.IsNotFound(err) && o.GetNamespace() != "":
		return converge.ErrBlocked{On: "namespace " + o.GetNamespace() + " and what is in it"}
	case apierrors.HasStatusCause(err, metav1.CauseTypeFieldManagerConflict):
		return fmt.Errorf("%w: %w", converge.ErrConflict, err)
	case apierrors.IsConflict(err):
		return converge.ErrBlocked{On: "a newer look at it"}
	}
	return fmt.Errorf("write %s: %w", t.resource.GroupResource(), err)
}
