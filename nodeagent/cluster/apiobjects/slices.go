package apiobjects

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/ptr"
	mcsv1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"hawser.dev/hawser/internal/diff"
	"hawser.dev/hawser/nodeagent/converge"
	"hawser.dev/hawser/nodeagent/mcs"
	"hawser.dev/hawser/schema/fabric"
)

// Slice is an EndpointSlice with the field values of the API.
type Slice struct {
	Namespace string
	Name      string
	Import    string
	Cluster   string
	Type      string // IPv4 | IPv6
	Ports     []mcs.Port
	Endpoints []string // address, then hostname if any, then terminating
	// Owner describes a problem with the reference to the import; empty if correct.
	Owner string
}

// terminating is the suffix of an endpoint that terminates and still serves.
const terminating = " (terminating)"

// Key returns namespace/name.
func (s Slice) Key() string { return s.Namespace + "/" + s.Name }

// Fields returns all fields except the key.
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

func desiredSlice(m mcs.Slice) Slice {
	out := Slice{
		Namespace: m.Namespace, Name: m.Name, Import: m.Import, Cluster: m.Cluster,
		Type: "IPv" + strconv.Itoa(m.Family), Ports: m.Ports,
	}
	for _, e := range m.Endpoints {
		text := strings.TrimSuffix(e.Addr.String()+" "+e.Hostname, " ")
		if e.Terminating {
			text += terminating
		}
		out.Endpoints = append(out.Endpoints, text)
	}
	return out
}

func observedSlice(have *discoveryv1.EndpointSlice, imports map[string]*mcsv1.ServiceImport) Slice {
	out := Slice{
		Namespace: have.Namespace, Name: have.Name, Type: string(have.AddressType),
		Import: have.Labels[mcsv1.LabelServiceName], Cluster: have.Labels[mcsv1.LabelSourceCluster],
	}
	out.Ports = observedPorts(have)
	for _, e := range have.Endpoints {
		text := strings.TrimSuffix(strings.Join(e.Addresses, "+")+" "+ptr.Deref(e.Hostname, ""), " ")
		switch ready, serving := ptr.Deref(e.Conditions.Ready, false), ptr.Deref(e.Conditions.Serving, false); {
		case !ready && serving && ptr.Deref(e.Conditions.Terminating, false):
			text += terminating
		case !ready:
			text += " (not ready)"
		}
		out.Endpoints = append(out.Endpoints, text)
	}
	if owner := imports[have.Namespace+"/"+out.Import]; owner == nil {
		out.Owner = "the import does not exist"
	} else if len(have.OwnerReferences) != 1 || have.OwnerReferences[0].UID != owner.GetUID() {
		out.Owner = "the owner is not its import"
	}
	return out
}

func observedPorts(have *discoveryv1.EndpointSlice) []mcs.Port {
	var out []mcs.Port
	for _, p := range have.Ports {
		out = append(out, mcs.Port{
			Name: ptr.Deref(p.Name, ""), Protocol: string(ptr.Deref(p.Protocol, corev1.ProtocolTCP)),
			Port: int(ptr.Deref(p.Port, 0)), AppProtocol: ptr.Deref(p.AppProtocol, ""),
		})
	}
	return out
}

func desiredPorts(ports []mcs.Port) []discoveryv1.EndpointPort {
	out := make([]discoveryv1.EndpointPort, len(ports))
	for i, p := range ports {
		protocol, port := corev1.Protocol(p.Protocol), int32(p.Port)
		// The name may be empty, but must be present.
		out[i] = discoveryv1.EndpointPort{Name: &p.Name, Protocol: &protocol, Port: &port, AppProtocol: filled(p.AppProtocol)}
	}
	return out
}

// sliceKind is the kind of the EndpointSlices of imports.
type sliceKind struct {
	*writeContext
	table   *resourceCache[*discoveryv1.EndpointSlice]
	imports *resourceCache[*mcsv1.ServiceImport]
}

// Name returns "endpointslice".
func (k *sliceKind) Name() string { return "endpointslice" }

// Version returns a string that changes with the objects and with their owners.
func (k *sliceKind) Version(context.Context) (string, error) {
	own, err := k.table.stamp()
	if err != nil {
		return "", err
	}
	owners, err := k.imports.stamp()
	return own + " of " + owners, err
}

// Observe returns the EndpointSlices of imports that Hawser manages.
func (k *sliceKind) Observe(context.Context) ([]Slice, error) {
	all, err := k.table.snapshot()
	if err != nil {
		return nil, err
	}
	owners, err := k.imports.snapshot()
	if err != nil {
		return nil, err
	}
	var out []Slice
	for _, o := range all {
		if o.Labels[discoveryv1.LabelManagedBy] == sliceManager && !isGatewaySlice(o) {
			out = append(out, observedSlice(o, owners))
		}
	}
	return out, nil
}

// Apply applies the changes, several at once.
func (k *sliceKind) Apply(ctx context.Context, list []diff.Change[Slice]) error {
	all, err := k.table.snapshot()
	if err != nil {
		return err
	}
	owners, err := k.imports.snapshot()
	if err != nil {
		return err
	}
	return each(ctx, list, func(c diff.Change[Slice]) error {
		if err := k.checkDelete(c.Op); err != nil {
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
		o, err := k.object(c.Want, seen, owner)
		if err != nil {
			return err
		}
		return k.table.apply(ctx, o, seen != nil)
	})
}

// object returns the complete EndpointSlice. The Go type has all fields that Hawser writes and no
// fields of others.
func (k *sliceKind) object(s Slice, seen *discoveryv1.EndpointSlice, owner *mcsv1.ServiceImport) (*unstructured.Unstructured, error) {
	out := discoveryv1.EndpointSlice{
		TypeMeta: metav1.TypeMeta{APIVersion: discoveryv1.SchemeGroupVersion.String(), Kind: k.table.kind},
		ObjectMeta: metav1.ObjectMeta{
			Namespace: s.Namespace, Name: s.Name, UID: uidOf(seen),
			Labels: map[string]string{
				mcsv1.LabelServiceName: s.Import, mcsv1.LabelSourceCluster: s.Cluster,
				discoveryv1.LabelManagedBy: sliceManager, fabric.ManagedByLabel: fabric.ManagedByValue,
			},
			OwnerReferences: []metav1.OwnerReference{{
				APIVersion: mcsVersion.String(), Kind: mcsv1.ServiceImportKindName, Name: s.Import, UID: owner.UID,
			}},
		},
		AddressType: discoveryv1.AddressType(s.Type),
		Endpoints:   make([]discoveryv1.Endpoint, len(s.Endpoints)),
		Ports:       desiredPorts(s.Ports),
	}
	for i, text := range s.Endpoints {
		text, isTerminating := strings.CutSuffix(text, terminating)
		address, hostname, _ := strings.Cut(text, " ")
		conditions := discoveryv1.EndpointConditions{Ready: ptr.To(true)}
		if isTerminating {
			conditions = discoveryv1.EndpointConditions{Ready: ptr.To(false), Serving: ptr.To(true), Terminating: ptr.To(true)}
		}
		out.Endpoints[i] = discoveryv1.Endpoint{Addresses: []string{address}, Hostname: filled(hostname), Conditions: conditions}
	}
	return untyped(&out)
}

func untyped(s *discoveryv1.EndpointSlice) (*unstructured.Unstructured, error) {
	object, err := runtime.DefaultUnstructuredConverter.ToUnstructured(s)
	if err != nil {
		return nil, fmt.Errorf("write EndpointSlice %s/%s: %w", s.Namespace, s.Name, err)
	}
	return &unstructured.Unstructured{Object: object}, nil
}
