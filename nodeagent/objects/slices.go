package objects

import (
	"context"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"hawser.dev/hawser/internal/diff"
	"hawser.dev/hawser/nodeagent/converge"
	"hawser.dev/hawser/nodeagent/mcs"
)

// Labels of the EndpointSlices of an import (KEP-1645).
const (
	labelService = "multicluster.kubernetes.io/service-name"
	labelSource  = "multicluster.kubernetes.io/source-cluster"
)

// Slice is an EndpointSlice in the words of the API.
type Slice struct {
	Namespace string
	Name      string
	Import    string
	Cluster   string
	Type      string // IPv4 | IPv6
	Ports     []mcs.Port
	Endpoints []string // address, and hostname if there is one
	// Owner says what is wrong with the reference to the import; empty = nothing.
	Owner string
}

// Key is namespace/name.
func (s Slice) Key() string { return s.Namespace + "/" + s.Name }

// Fields gives everything else.
func (s Slice) Fields() []diff.Field {
	return []diff.Field{
		{Name: "import", Value: s.Import},
		{Name: "cluster", Value: s.Cluster},
		{Name: "type", Value: s.Type, Immutable: true},
		{Name: "ports", Value: portText(s.Ports)},
		{Name: "endpoints", Value: strings.Join(s.Endpoints, ", ")},
		{Name: "owner", Value: s.Owner},
	}
}

func wantSlice(m mcs.Slice) Slice {
	out := Slice{
		Namespace: m.Namespace, Name: m.Name, Import: m.Import, Cluster: m.Cluster,
		Type: "IPv" + strconv.Itoa(m.Family), Ports: m.Ports,
	}
	for _, e := range m.Endpoints {
		out.Endpoints = append(out.Endpoints, strings.TrimSuffix(e.Addr.String()+" "+e.Hostname, " "))
	}
	return out
}

func haveSlice(o *unstructured.Unstructured, imports map[string]*unstructured.Unstructured) (Slice, error) {
	have, err := read[discoveryv1.EndpointSlice](o)
	if err != nil {
		return Slice{}, err
	}
	out := Slice{
		Namespace: have.Namespace, Name: have.Name, Type: string(have.AddressType),
		Import: have.Labels[labelService], Cluster: have.Labels[labelSource],
	}
	for _, p := range have.Ports {
		out.Ports = append(out.Ports, mcs.Port{
			Name: optional(p.Name), Protocol: string(*orDefault(p.Protocol, corev1.ProtocolTCP)),
			Port: int(*orDefault(p.Port, 0)), AppProtocol: optional(p.AppProtocol),
		})
	}
	for _, e := range have.Endpoints {
		text := strings.TrimSuffix(strings.Join(e.Addresses, "+")+" "+optional(e.Hostname), " ")
		if e.Conditions.Ready == nil || !*e.Conditions.Ready {
			text += " (not ready)"
		}
		out.Endpoints = append(out.Endpoints, text)
	}
	if owner := imports[have.Namespace+"/"+out.Import]; owner == nil {
		out.Owner = "there is no such import"
	} else if len(have.OwnerReferences) != 1 || have.OwnerReferences[0].UID != owner.GetUID() {
		out.Owner = "not its import"
	}
	return out, nil
}

func optional(text *string) string { return *orDefault(text, "") }

func orDefault[T any](value *T, otherwise T) *T {
	if value == nil {
		return &otherwise
	}
	return value
}

// sliceKind is the kind of the EndpointSlices of imports.
type sliceKind struct {
	*turn
	table   *table
	imports *table
}

// Name is endpointslice.
func (k *sliceKind) Name() string { return "endpointslice" }

// Stamp changes with the objects and with their owners.
func (k *sliceKind) Stamp(context.Context) (string, error) {
	own, err := k.table.stamp()
	if err != nil {
		return "", err
	}
	owners, err := k.imports.stamp()
	return own + " of " + owners, err
}

// Observe gives those that say that we keep them.
func (k *sliceKind) Observe(context.Context) ([]Slice, error) {
	all, err := k.table.all()
	if err != nil {
		return nil, err
	}
	owners, err := k.imports.all()
	if err != nil {
		return nil, err
	}
	var out []Slice
	for _, o := range all {
		if o.GetLabels()[discoveryv1.LabelManagedBy] != sliceManager || isFront(o) {
			continue
		}
		have, err := haveSlice(o, owners)
		if err != nil {
			return nil, err
		}
		out = append(out, have)
	}
	return out, nil
}

// Apply makes the changes, several at once.
func (k *sliceKind) Apply(ctx context.Context, list []diff.Change[Slice]) error {
	all, err := k.table.all()
	if err != nil {
		return err
	}
	owners, err := k.imports.all()
	if err != nil {
		return err
	}
	return each(ctx, list, func(c diff.Change[Slice]) error {
		if err := k.may(c.Op); err != nil {
			return err
		}
		seen := all[c.Key]
		if (c.Op == diff.Delete || c.Op == diff.Replace) && seen != nil {
			if err := k.table.remove(ctx, seen); err != nil || c.Op == diff.Delete {
				return err
			}
			seen = nil
		}
		if c.Op == diff.Delete {
			return nil
		}
		owner := owners[c.Want.Namespace+"/"+c.Want.Import]
		if owner == nil || !isMarked(owner) || owner.GetDeletionTimestamp() != nil {
			return converge.ErrBlocked{On: "serviceimport " + c.Want.Namespace + "/" + c.Want.Import}
		}
		return k.table.apply(ctx, k.object(c.Want, seen, owner), seen != nil)
	})
}

func (k *sliceKind) object(s Slice, seen, owner *unstructured.Unstructured) *unstructured.Unstructured {
	o := k.table.body(s.Namespace, s.Name)
	if seen != nil {
		o.SetUID(seen.GetUID())
	}
	o.SetLabels(map[string]string{
		labelService: s.Import, labelSource: s.Cluster,
		discoveryv1.LabelManagedBy: sliceManager, managedBy: manager,
	})
	_ = unstructured.SetNestedSlice(o.Object, []any{map[string]any{
		"apiVersion": serviceImports.GroupVersion().String(), "kind": "ServiceImport", "name": s.Import, "uid": string(owner.GetUID()),
	}}, "metadata", "ownerReferences")
	o.Object["addressType"] = s.Type
	ports := portBodies(s.Ports)
	for i, body := range ports {
		body.(map[string]any)["name"] = s.Ports[i].Name // may be empty, but must be there
	}
	o.Object["ports"] = ports
	endpoints := make([]any, len(s.Endpoints))
	for i, text := range s.Endpoints {
		address, hostname, _ := strings.Cut(text, " ")
		endpoint := map[string]any{"addresses": []any{address}, "conditions": map[string]any{"ready": true}}
		if hostname != "" {
			endpoint["hostname"] = hostname
		}
		endpoints[i] = endpoint
	}
	o.Object["endpoints"] = endpoints
	return o
}
