package objects

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

	"hawser.dev/hawser/internal/diff"
	"hawser.dev/hawser/nodeagent/mcs"
)

// importKind is the kind of ServiceImports.
type importKind struct {
	marked[Import]
	// plain says that the cluster's CRD is older than endpointSliceObjects.
	plain atomic.Bool
}

func newImports(turn *turn, table *table) *importKind {
	k := &importKind{}
	k.marked = marked[Import]{turn: turn, table: table, have: haveImport, write: k.write}
	return k
}

// Adopt leaves out what the cluster's CRD does not know.
func (k *importKind) Adopt(want, have Import) Import {
	if k.plain.Load() {
		want.Slices = have.Slices
	}
	return want
}

func (k *importKind) write(ctx context.Context, c diff.Change[Import], seen *unstructured.Unstructured) error {
	// All fields of one part are written together: what is left out would be taken away.
	if seen == nil || !onlyIn(c, statusFields) {
		if err := k.table.apply(ctx, k.specOf(c.Want, seen), seen != nil); err != nil {
			return err
		}
	}
	if seen != nil && !changes(c, statusFields...) {
		return nil
	}
	status := k.statusOf(c.Want, seen)
	err := k.table.apply(ctx, status, true, "status")
	if undeclared(err, "endpointSliceObjects") {
		k.plain.Store(true)
		unstructured.RemoveNestedField(status.Object, "status", "endpointSliceObjects")
		err = k.table.apply(ctx, status, true, "status")
	}
	return err
}

// onlyIn reports whether a change is about nothing but these fields.
func onlyIn[S diff.Spec](c diff.Change[S], names []string) bool {
	return !slices.ContainsFunc(c.Deltas(), func(d diff.Delta) bool { return !slices.Contains(names, d.Name) })
}

// specOf gives all but the status. It is for the object that was seen, and no other.
func (k *importKind) specOf(i Import, seen *unstructured.Unstructured) *unstructured.Unstructured {
	o := k.table.body(i.Namespace, i.Name)
	if seen != nil {
		o.SetUID(seen.GetUID())
	}
	labels, labelKeys := unpaired(i.Labels)
	annotations, annotationKeys := unpaired(i.Annotations)
	labels[managedBy] = manager
	if from, err := json.Marshal(exported{Labels: labelKeys, Annotations: annotationKeys}); err == nil && len(labelKeys)+len(annotationKeys) > 0 {
		annotations[exportedAnnotation] = string(from)
	}
	o.SetLabels(labels)
	if len(annotations) > 0 {
		o.SetAnnotations(annotations)
	}
	spec := map[string]any{"type": i.Type, "ports": portBodies(i.Ports), "sessionAffinity": i.Affinity}
	if i.Affinity == string(corev1.ServiceAffinityClientIP) && i.AffinitySeconds > 0 {
		spec["sessionAffinityConfig"] = map[string]any{"clientIP": map[string]any{"timeoutSeconds": int64(i.AffinitySeconds)}}
	}
	for name, list := range map[string][]string{"ips": i.IPs, "ipFamilies": i.Families} {
		if len(list) > 0 {
			spec[name] = texts(list)
		}
	}
	for name, text := range map[string]string{
		"internalTrafficPolicy": i.InternalTrafficPolicy, "trafficDistribution": i.TrafficDistribution,
	} {
		if text != "" {
			spec[name] = text
		}
	}
	o.Object["spec"] = spec
	return o
}

func (k *importKind) statusOf(i Import, seen *unstructured.Unstructured) *unstructured.Unstructured {
	o := k.table.body(i.Namespace, i.Name)
	var before []metav1.Condition
	if seen != nil {
		if have, err := read[importObject](seen); err == nil {
			before = have.Status.Conditions
		}
	}
	clusters := make([]any, len(i.Clusters))
	for n, name := range i.Clusters {
		clusters[n] = map[string]any{"cluster": name}
	}
	status := map[string]any{"clusters": clusters, "conditions": conditionBodies(i.Conditions, before, 0, time.Now())}
	if i.Slices != "" && !k.plain.Load() {
		status["endpointSliceObjects"] = i.Slices
	}
	o.Object["status"] = status
	return o
}

// unpaired takes key=value apart, and gives the keys in order too. A key holds no
// equals sign.
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

func portBodies(ports []mcs.Port) []any {
	out := make([]any, len(ports))
	for i, p := range ports {
		body := map[string]any{"protocol": p.Protocol, "port": int64(p.Port)}
		if p.Name != "" {
			body["name"] = p.Name
		}
		if p.AppProtocol != "" {
			body["appProtocol"] = p.AppProtocol
		}
		out[i] = body
	}
	return out
}

func texts(list []string) []any {
	out := make([]any, len(list))
	for i, text := range list {
		out[i] = text
	}
	return out
}
