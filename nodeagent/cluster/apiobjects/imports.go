package apiobjects

import (
	"encoding/json"
	"maps"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/utils/ptr"
	mcsv1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"hawser.dev/hawser/internal/diff"
	"hawser.dev/hawser/nodeagent/mcs"
	"hawser.dev/hawser/schema/fabric"
)

// exportedAnnotation is the annotation of a ServiceImport that lists the labels and annotations
// from its exports. All other labels and annotations are foreign.
const exportedAnnotation = "hawser.dev/exported"

// exported is the JSON value of exportedAnnotation.
type exported struct {
	Labels      []string `json:"labels,omitempty"`
	Annotations []string `json:"annotations,omitempty"`
}

// Import is a ServiceImport with the field values of the API.
type Import struct {
	Namespace             string
	Name                  string
	Type                  string
	IPs                   []string
	Families              []string // IPv4, IPv6
	Ports                 []mcs.Port
	Affinity              string // ClientIP | None
	AffinitySeconds       int    // of ClientIP
	InternalTrafficPolicy string
	TrafficDistribution   string
	Labels                []string // from the exports, as key=value
	Annotations           []string // from the exports, as key=value
	Clusters              []string
	Conditions            []mcs.Condition
	Slices                string // Present if EndpointSlices exist
}

// Key returns namespace/name.
func (i Import) Key() string { return i.Namespace + "/" + i.Name }

// Fields returns all fields except the key.
func (i Import) Fields() []diff.Field {
	return []diff.Field{
		{Name: "type", Value: i.Type},
		{Name: "ips", Value: strings.Join(i.IPs, ", ")},
		{Name: "families", Value: strings.Join(i.Families, ", ")},
		{Name: "ports", Value: portText(i.Ports)},
		{Name: "affinity", Value: i.Affinity},
		{Name: "affinity seconds", Value: strconv.Itoa(i.AffinitySeconds)},
		{Name: "internal traffic policy", Value: i.InternalTrafficPolicy},
		{Name: "traffic distribution", Value: i.TrafficDistribution},
		{Name: "labels", Value: strings.Join(i.Labels, ", ")},
		{Name: "annotations", Value: strings.Join(i.Annotations, ", ")},
		{Name: "clusters", Value: strings.Join(i.Clusters, ", ")},
		{Name: "conditions", Value: conditionText(i.Conditions)},
		{Name: "slices", Value: i.Slices},
	}
}

// statusFields are the fields of the status subresource.
var statusFields = []string{"clusters", "conditions", "slices"}

func portText(ports []mcs.Port) string {
	var out []string
	for _, p := range ports {
		text := p.Protocol + "/" + strconv.Itoa(p.Port)
		if p.Name != "" {
			text = p.Name + " " + text
		}
		if p.AppProtocol != "" {
			text += " " + p.AppProtocol
		}
		out = append(out, text)
	}
	return strings.Join(out, ", ")
}

// desiredImport converts a desired import to the fields of the API.
func desiredImport(m mcs.Import) Import {
	out := Import{
		Namespace: m.Namespace, Name: m.Name, Type: m.Type, Ports: m.Ports,
		Affinity: string(corev1.ServiceAffinityNone), InternalTrafficPolicy: m.InternalTrafficPolicy,
		TrafficDistribution: m.TrafficDistribution, Clusters: m.Clusters, Conditions: sorted(m.Conditions), Slices: "Present",
		Labels: pairs(m.Labels, labelFits), Annotations: pairs(m.Annotations, annotationFits),
	}
	if m.Affinity != "" {
		out.Affinity, out.AffinitySeconds = m.Affinity, m.AffinitySeconds
	}
	for _, ip := range m.IPs {
		out.IPs = append(out.IPs, ip.String())
	}
	for _, family := range m.Families {
		out.Families = append(out.Families, "IPv"+strconv.Itoa(family))
	}
	return out
}

// pairs returns the entries that the API accepts: one invalid entry would make the server reject
// the whole object. It omits Hawser's own label and annotation, so that no exporter can set them.
func pairs(entries map[string]string, fits func(key, value string) bool) []string {
	var out []string
	for _, key := range slices.Sorted(maps.Keys(entries)) {
		if key != fabric.ManagedByLabel && key != exportedAnnotation && fits(key, entries[key]) {
			out = append(out, key+"="+entries[key])
		}
	}
	return out
}

func labelFits(key, value string) bool {
	return len(validation.IsQualifiedName(key)) == 0 && len(validation.IsValidLabelValue(value)) == 0
}

func annotationFits(key, _ string) bool {
	return len(validation.IsQualifiedName(strings.ToLower(key))) == 0
}

func observedImport(have *mcsv1.ServiceImport) Import {
	spec := have.Spec
	out := Import{
		Namespace: have.Namespace, Name: have.Name, Type: string(spec.Type), IPs: spec.IPs, Affinity: string(spec.SessionAffinity),
		InternalTrafficPolicy: string(ptr.Deref(spec.InternalTrafficPolicy, "")), TrafficDistribution: ptr.Deref(spec.TrafficDistribution, ""),
		Slices: string(have.Status.EndpointSliceObjects), Conditions: conditionsOf(have.Status.Conditions),
	}
	for _, family := range spec.IPFamilies {
		out.Families = append(out.Families, string(family))
	}
	for _, p := range spec.Ports {
		out.Ports = append(out.Ports, mcs.Port{
			Name: p.Name, Protocol: string(p.Protocol), Port: int(p.Port), AppProtocol: ptr.Deref(p.AppProtocol, ""),
		})
	}
	if c := spec.SessionAffinityConfig; c != nil && c.ClientIP != nil {
		out.AffinitySeconds = int(ptr.Deref(c.ClientIP.TimeoutSeconds, 0))
	}
	var from exported
	if json.Unmarshal([]byte(have.Annotations[exportedAnnotation]), &from) == nil {
		out.Labels, out.Annotations = picked(have.Labels, from.Labels), picked(have.Annotations, from.Annotations)
	}
	for _, c := range have.Status.Clusters {
		out.Clusters = append(out.Clusters, c.Cluster)
	}
	return out
}

func picked(entries map[string]string, keys []string) []string {
	var out []string
	for _, key := range keys {
		if value, ok := entries[key]; ok {
			out = append(out, key+"="+value)
		}
	}
	return out
}
