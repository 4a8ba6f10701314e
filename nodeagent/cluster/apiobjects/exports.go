package apiobjects

import (
	"context"
	"slices"
	"strconv"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	mcsv1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"hawser.dev/hawser/internal/diff"
	"hawser.dev/hawser/nodeagent/converge"
	"hawser.dev/hawser/nodeagent/mcs"
)

// Export is Hawser's status and annotation on a ServiceExport, which is a foreign object.
type Export struct {
	Namespace  string
	Name       string
	UID        string // of the ServiceExport
	Generation int64  // observedGeneration of the conditions
	Addresses  string // of mcs.AddressesAnnotation
	Conditions []mcs.Condition
}

// Key returns namespace/name.
func (e Export) Key() string { return e.Namespace + "/" + e.Name }

// Fields returns all fields except the key and the UID.
func (e Export) Fields() []diff.Field {
	return []diff.Field{
		{Name: "addresses", Value: e.Addresses},
		{Name: "generation", Value: strconv.FormatInt(e.Generation, 10)},
		{Name: "conditions", Value: conditionText(e.Conditions)},
	}
}

func desiredExport(s mcs.Status) Export {
	out := Export{Namespace: s.Namespace, Name: s.Name, UID: s.UID, Generation: s.Generation, Conditions: sorted(s.Conditions)}
	out.Addresses = mcs.FormatAddresses(s.Addrs, s.Hosts)
	return out
}

// observedExport returns the annotation and conditions of Hawser on a ServiceExport, and false if
// it has neither.
func observedExport(have *mcsv1.ServiceExport) (Export, bool) {
	out := Export{
		Namespace: have.Namespace, Name: have.Name, UID: string(have.UID),
		Addresses: have.Annotations[mcs.AddressesAnnotation],
	}
	var ours []metav1.Condition
	for _, c := range have.Status.Conditions {
		if !slices.Contains([]string{mcs.Valid, mcs.Ready, mcs.Conflict, mcs.Supported}, c.Type) {
			continue
		}
		if len(ours) == 0 || c.ObservedGeneration < out.Generation {
			out.Generation = c.ObservedGeneration
		}
		ours = append(ours, c)
	}
	out.Conditions = conditionsOf(ours)
	return out, out.Addresses != "" || len(ours) > 0
}

// exportKind is the kind of the status and annotation on ServiceExports.
type exportKind struct {
	*writeContext
	table *resourceCache[*mcsv1.ServiceExport]
}

// Name returns "serviceexport".
func (k *exportKind) Name() string { return "serviceexport" }

// Version returns a string that changes with the objects.
func (k *exportKind) Version(context.Context) (string, error) { return k.table.stamp() }

// Observe returns the ServiceExports with an annotation or conditions of Hawser.
func (k *exportKind) Observe(context.Context) ([]Export, error) {
	all, err := k.table.snapshot()
	if err != nil {
		return nil, err
	}
	var out []Export
	for _, o := range all {
		if have, ok := observedExport(o); ok {
			out = append(out, have)
		}
	}
	return out, nil
}

// Apply applies the changes, several at once.
func (k *exportKind) Apply(ctx context.Context, list []diff.Change[Export]) error {
	all, err := k.table.snapshot()
	if err != nil {
		return err
	}
	return each(ctx, list, func(c diff.Change[Export]) error {
		if err := k.checkDelete(c.Op); err != nil {
			return err
		}
		seen := all[c.Key]
		switch {
		case seen == nil && c.Op == diff.Delete:
			return nil
		case seen == nil, c.Op != diff.Delete && c.Want.UID != string(seen.GetUID()):
			return converge.ErrBlocked{On: "the current ServiceExport"}
		case c.Op == diff.Delete:
			c.Want = Export{Namespace: c.Have.Namespace, Name: c.Have.Name}
		}
		if have := seen.GetAnnotations()[mcs.AddressesAnnotation]; have != c.Want.Addresses {
			if err := k.record(ctx, c.Want, seen); err != nil {
				return err
			}
		}
		if !changes(c, "generation", "conditions") {
			return nil
		}
		o := k.table.body(c.Want.Namespace, c.Want.Name, seen.UID)
		// Not the Go type, which omits an empty list. Server-side apply would then set the
		// status to null when it removes the last field, and the CRD rejects null.
		o.Object["status"] = map[string]any{
			"conditions": conditionBodies(c.Want.Conditions, seen.Status.Conditions, c.Want.Generation, time.Now()),
		}
		return k.table.apply(ctx, o, true, "status")
	})
}

// record writes the annotation. Only a merge patch removes an annotation of another manager.
func (k *exportKind) record(ctx context.Context, want Export, seen *mcsv1.ServiceExport) error {
	if want.Addresses == "" {
		return k.table.merge(ctx, seen, map[string]any{"metadata": map[string]any{
			"annotations": map[string]any{mcs.AddressesAnnotation: nil},
		}})
	}
	o := k.table.body(want.Namespace, want.Name, seen.UID)
	o.SetAnnotations(map[string]string{mcs.AddressesAnnotation: want.Addresses})
	return k.table.apply(ctx, o, true)
}

func conditionsOf(list []metav1.Condition) []mcs.Condition {
	var out []mcs.Condition
	for _, c := range list {
		out = append(out, mcs.Condition{Type: c.Type, Status: string(c.Status), Reason: c.Reason, Message: c.Message})
	}
	return sorted(out)
}

func sorted(list []mcs.Condition) []mcs.Condition {
	out := slices.Clone(list)
	slices.SortFunc(out, func(a, b mcs.Condition) int { return strings.Compare(a.Type, b.Type) })
	return out
}

func conditionText(list []mcs.Condition) string {
	var out []string
	for _, c := range list {
		out = append(out, c.Type+"="+c.Status+" "+c.Reason+": "+c.Message)
	}
	return strings.Join(out, "; ")
}

// conditionBodies returns conditions for the API. A condition retains its last transition time
// while its status does not change.
func conditionBodies(want []mcs.Condition, have []metav1.Condition, generation int64, now time.Time) []metav1.Condition {
	out := make([]metav1.Condition, 0, len(want))
	for _, c := range want {
		changed := metav1.NewTime(now)
		for _, h := range have {
			if h.Type == c.Type && string(h.Status) == c.Status && !h.LastTransitionTime.IsZero() {
				changed = h.LastTransitionTime
			}
		}
		out = append(out, metav1.Condition{
			Type: c.Type, Status: metav1.ConditionStatus(c.Status), Reason: c.Reason, Message: c.Message,
			LastTransitionTime: changed, ObservedGeneration: generation,
		})
	}
	return out
}
