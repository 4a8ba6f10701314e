package mcs

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// conflictField is one field in which exports of one name can differ.
type conflictField struct {
	reason   string // reason in KEP-1645
	name     string
	declared bool // the topology sets it for declared exports
	// value returns the field of an offer as text.
	value func(o *Offer) string
	// agrees replaces equality with the used value, if set.
	agrees func(r *ResolvedExport, p *ClusterOffer) bool
	used   func(r *ResolvedExport) string
}

func conflictFields() []conflictField {
	return []conflictField{
		{
			reason: "PortConflict", name: "ports", declared: true, agrees: agreeOnPorts,
			used: func(r *ResolvedExport) string { return portsText(r.Ports) },
		},
		{
			reason: "TypeConflict", name: "type", declared: true, value: typeOf,
			used: func(r *ResolvedExport) string { return r.Type },
		},
		{
			reason: "SessionAffinityConflict", name: "session affinity", declared: true,
			value: func(o *Offer) string { return cmp.Or(o.Affinity, "None") },
			used:  func(r *ResolvedExport) string { return cmp.Or(r.Affinity, "None") },
		},
		{
			reason: "SessionAffinityConfigConflict", name: "session affinity config",
			value:  func(o *Offer) string { return strconv.Itoa(o.AffinitySeconds) + " s" },
			agrees: agreeOnSeconds,
			used:   func(r *ResolvedExport) string { return strconv.Itoa(r.AffinitySeconds) + " s" },
		},
		{
			reason: "InternalTrafficPolicyConflict", name: "internal traffic policy",
			value: func(o *Offer) string { return cmp.Or(o.InternalTrafficPolicy, "Cluster") },
			used:  func(r *ResolvedExport) string { return cmp.Or(r.InternalTrafficPolicy, "Cluster") },
		},
		{
			reason: "TrafficDistributionConflict", name: "traffic distribution",
			value: func(o *Offer) string { return o.TrafficDistribution },
			used:  func(r *ResolvedExport) string { return r.TrafficDistribution },
		},
		{
			reason: "LabelsConflict", name: "exported labels",
			value: func(o *Offer) string { return mapText(o.Labels) },
			used:  func(r *ResolvedExport) string { return mapText(r.Labels) },
		},
		{
			reason: "AnnotationsConflict", name: "exported annotations",
			value: func(o *Offer) string { return mapText(o.Annotations) },
			used:  func(r *ResolvedExport) string { return mapText(r.Annotations) },
		},
		{
			reason: "IPFamilyConflict", name: "IP families",
			agrees: func(r *ResolvedExport, p *ClusterOffer) bool { return len(p.Offer.Families) == len(r.Families) },
			used: func(r *ResolvedExport) string {
				texts := make([]string, len(r.Families))
				for i, fam := range r.Families {
					texts[i] = "IPv" + strconv.Itoa(fam)
				}
				return strings.Join(texts, ", ")
			},
		},
	}
}

// conflictCondition returns the condition Conflict, which is the same on all exports of a name.
func conflictCondition(r *ResolvedExport) Condition {
	none := Condition{Conflict, isFalse, reasonNoConflicts, "all service exports of this name agree"}
	if r.Declared == nil && !slices.ContainsFunc(r.Parts[1:], func(p ClusterOffer) bool { return !agree(p.Offer, r.Parts[0].Offer) }) {
		return none // the usual case
	}
	var reasons, messages []string
	for _, a := range conflictFields() {
		against := 0
		for i := range r.Parts {
			if !a.agree(r, &r.Parts[i]) {
				against++
			}
		}
		if against == 0 {
			continue
		}
		reasons = append(reasons, a.reason)
		if a.reason == "PortConflict" && r.Declared != nil {
			messages = append(messages, declaredPortConflict(r))
			continue
		}
		from := fmt.Sprintf("from oldest service export in %q", r.Parts[0].Cluster)
		switch {
		case a.declared && r.Declared != nil:
			from = "from the topology"
		case a.reason == "PortConflict", a.reason == "IPFamilyConflict":
			from = "from all service exports, the oldest first, which is in " + strconv.Quote(r.Parts[0].Cluster)
		}
		messages = append(messages, fmt.Sprintf("Conflicting %s. Using %q %s. %d/%d clusters disagree.",
			a.name, clip(a.used(r)), from, against, len(r.Parts)))
	}
	if len(reasons) == 0 {
		return none
	}
	return Condition{Conflict, isTrue, strings.Join(reasons, ","), strings.Join(messages, " ")}
}

// declaredPortConflict returns the message about clusters whose Service lacks a port that the
// topology exports.
func declaredPortConflict(r *ResolvedExport) string {
	const most = 3
	var clusters []string
	for i := range r.Parts {
		if p := &r.Parts[i]; !agreeOnPorts(r, p) {
			clusters = append(clusters, fmt.Sprintf("cluster %s has %q", p.Cluster, clip(portsText(p.Offer.Ports))))
		}
	}
	more := ""
	if len(clusters) > most {
		more = fmt.Sprintf(" and %d more differ", len(clusters)-most)
		clusters = clusters[:most]
	}
	return fmt.Sprintf("Conflicting ports. The topology exports %q, the Service in %s%s: correct one of them.",
		clip(portsText(r.Ports)), strings.Join(clusters, ", in "), more)
}

// withImportConflict adds the reason ImportConflict to the condition.
func (c Condition) withImportConflict(cluster string) Condition {
	text := "The ServiceImport of this name in cluster " + strconv.Quote(cluster) + " is written by another controller. Traffic is not affected."
	if c.Status != isTrue {
		return Condition{Conflict, isTrue, reasonImportConflict, text}
	}
	return Condition{Conflict, isTrue, c.Reason + "," + reasonImportConflict, c.Message + " " + text}
}

// agree reports whether two offers have no conflict.
func agree(a, b *Offer) bool {
	return a.Headless == b.Headless && slices.Equal(a.Ports, b.Ports) && slices.Equal(a.Families, b.Families) &&
		a.Affinity == b.Affinity && a.AffinitySeconds == b.AffinitySeconds &&
		a.InternalTrafficPolicy == b.InternalTrafficPolicy && a.TrafficDistribution == b.TrafficDistribution &&
		maps.Equal(a.Labels, b.Labels) && maps.Equal(a.Annotations, b.Annotations)
}

// clip limits a text in a condition's message for readability; the API accepts 32 KiB.
func clip(text string) string {
	const most = 256
	if len(text) <= most {
		return text
	}
	return strings.ToValidUTF8(text[:most], "") + "..."
}

func (a *conflictField) agree(r *ResolvedExport, p *ClusterOffer) bool {
	if a.agrees != nil {
		return a.agrees(r, p)
	}
	return a.value(p.Offer) == a.used(r)
}

// agreeOnPorts reports whether a part has the ports of the export. A missing port is also a
// conflict. If the export is declared, a Service may have further ports.
func agreeOnPorts(r *ResolvedExport, p *ClusterOffer) bool {
	if r.Declared != nil {
		return len(p.Ports) == len(r.Ports)
	}
	return slices.Equal(p.Offer.Ports, r.Ports)
}

// agreeOnSeconds compares only exports with the resolved affinity.
func agreeOnSeconds(r *ResolvedExport, p *ClusterOffer) bool {
	return p.Offer.Affinity != r.Affinity || p.Offer.AffinitySeconds == r.AffinitySeconds
}

func portsText(ports []Port) string {
	texts := make([]string, len(ports))
	for i, p := range ports {
		texts[i] = strings.TrimSpace(p.Name + " " + strconv.Itoa(p.Port) + "/" + p.Protocol)
	}
	return strings.Join(texts, ", ")
}

func mapText(m map[string]string) string {
	var texts []string
	for _, key := range slices.Sorted(maps.Keys(m)) {
		texts = append(texts, key+"="+m[key])
	}
	return strings.Join(texts, ",")
}
