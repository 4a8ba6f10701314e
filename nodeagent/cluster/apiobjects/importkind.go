package apiobjects

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	mcsv1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"hawser.dev/hawser/internal/diff"
	"hawser.dev/hawser/schema/fabric"
)

// importKind is the kind of ServiceImports.
type importKind struct {
	ownedKind[Import, *mcsv1.ServiceImport]
	// plain reports whether the cluster's CRD lacks endpointSliceObjects.
	plain atomic.Bool
}

func newImports(w *writeContext, table *resourceCache[*mcsv1.ServiceImport]) *importKind {
	k := &importKind{}
	k.ownedKind = ownedKind[Import, *mcsv1.ServiceImport]{writeContext: w, table: table, decode: observedImport, write: k.write}
	return k
}

// Normalize omits a field that the cluster's CRD does not have.
func (k *importKind) Normalize(want, have Import) Import {
	if k.plain.Load() {
		want.Slices = have.Slices
	}
	return want
}

func (k *importKind) write(ctx context.Context, c diff.Change[Import], seen *mcsv1.ServiceImport) error {
	// Server-side apply removes absent fields, so all fields of one part are written together.
	if seen == nil || !onlyIn(c, statusFields) {
		if err := k.table.apply(ctx, k.specOf(c.Want, seen), seen != nil); err != nil {
			return err
		}
	}
	if seen != nil && !changes(c, statusFields...) {
		return nil
	}
	err := k.table.apply(ctx, k.statusOf(c.Want, seen), true, "status")
	if err != nil && strings.Contains(err.Error(), "endpointSliceObjects") && strings.Contains(err.Error(), "not declared in schema") {
		k.plain.Store(true)
		err = k.table.apply(ctx, k.statusOf(c.Want, seen), true, "status")
	}
	return err
}

// onlyIn reports whether a change affects only these fields.
func onlyIn[S diff.Spec](c diff.Change[S], names []string) bool {
	return !slices.ContainsFunc(c.Deltas(), func(d diff.Delta) bool { return !slices.Contains(names, d.Name) })
}

// specOf returns the object without its status.
func (k *importKind) specOf(i Import, seen *mcsv1.ServiceImport) *unstructured.Unstructured {
	o := k.table.body(i.Namespace, i.Name, uidOf(seen))
	labels, labelKeys := unpaired(i.Labels)
	annotations, annotationKeys := unpaired(i.Annotations)
	labels[fabric.ManagedByLabel] = fabric.ManagedByValue
	if from, err := json.Marshal(exported{Labels: labelKeys, Annotations: annotationKeys}); err == nil && len(labelKeys)+len(annotationKeys) > 0 {
		annotations[exportedAnnotation] = string(from)
	}
	o.SetLabels(labels)
	if len(annotations) > 0 {
		o.SetAnnotations(annotations)
	}
	spec := mcsv1.ServiceImportSpec{
		Type: mcsv1.ServiceImportType(i.Type), IPs: i.IPs, Ports: make([]mcsv1.ServicePort, len(i.Ports)), // [] if empty, not null
		SessionAffinity:       corev1.ServiceAffinity(i.Affinity),
		InternalTrafficPolicy: filled(corev1.ServiceInternalTrafficPolicy(i.InternalTrafficPolicy)),
		TrafficDistribution:   filled(i.TrafficDistribution),
	}
	for n, p := range i.Ports {
		spec.Ports[n] = mcsv1.ServicePort{
			Name: p.Name, Protocol: corev1.Protocol(p.Protocol), Port: int32(p.Port), AppProtocol: filled(p.AppProtocol),
		}
	}
	for _, family := range i.Families {
		spec.IPFamilies = append(spec.IPFamilies, corev1.IPFamily(family))
	}
	if i.Affinity == string(corev1.ServiceAffinityClientIP) && i.AffinitySeconds > 0 {
		seconds := int32(i.AffinitySeconds)
		spec.SessionAffinityConfig = &corev1.SessionAffinityConfig{ClientIP: &corev1.ClientIPConfig{TimeoutSeconds: &seconds}}
	}
	o.Object["spec"] = spec
	return o
}

func (k *importKind) statusOf(i Import, seen *mcsv1.ServiceImport) *unstructured.Unstructured {
	o := k.table.body(i.Namespace, i.Name, uidOf(seen))
	var before []metav1.Condition
	if seen != nil {
		before = seen.Status.Conditions
	}
	clusters := make([]mcsv1.ClusterStatus, 0, len(i.Clusters))
	for _, name := range i.Clusters {
		clusters = append(clusters, mcsv1.ClusterStatus{Cluster: name})
	}
	// Not the Go type, as for a ServiceExport, because server-side apply may remove the last
	// field.
	status := map[string]any{"clusters": clusters, "conditions": conditionBodies(i.Conditions, before, 0, time.Now())}
	if i.Slices != "" && !k.plain.Load() {
		status["endpointSliceObjects"] = i.Slices
	}
	o.Object["status"] = status
	return o
}

// uidOf returns the UID of an observed object, empty if there was no object.
func uidOf[O any, T interface {
	*O
	metav1.Object
}](seen T) types.UID {
	if seen == nil {
		return ""
	}
	return seen.GetUID()
}

// filled returns a pointer for an optional field, nil if the text is empty.
func filled[S ~string](text S) *S {
	if text == "" {
		return nil
	}
	return &text
}

// unpaired splits key=value entries into a map. It also returns the keys in order. A key contains
// no equals sign.
func unpaired(list []string) (map[string]string, []string) {
	entries := make(map[string]string, len(list))
	var keys []string
	for _, pair := range list {
		key, value, _ := strings.Cut(pair, "=")
		entries[key] = value
		keys = append(keys, key)
	}
	return entries, keys
}
