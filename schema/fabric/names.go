package fabric

import "strings"

// Maximum lengths of names, in bytes (RFC 1123, RFC 1035; also the limits of Kubernetes).
const (
	MaxLabel = 63
	MaxName  = 253
)

// Names of Hawser in the API of a cluster.
const (
	// SystemNamespace contains the agents, their configuration, and the Services of gateways.
	SystemNamespace = "hawser-system"
	// FieldManager is the field manager of all objects that agents write.
	FieldManager = "hawser"
	// Objects of Hawser have the label ManagedByLabel with the value ManagedByValue.
	ManagedByLabel = "app.kubernetes.io/managed-by"
	// Objects of the rendered tree have the label PartOfLabel with the same value.
	PartOfLabel    = "app.kubernetes.io/part-of"
	ManagedByValue = "hawser"
)

// LeasePrefix is the prefix of the name of a gateway's Lease; the gateway's name follows.
const LeasePrefix = "hawser-gateway-"

// IsLabel reports whether text is a DNS label of Kubernetes (RFC 1123, lower case):
// letters, digits and hyphens, without a hyphen at either end.
func IsLabel(text string) bool {
	if text == "" || len(text) > MaxLabel || text[0] == '-' || text[len(text)-1] == '-' {
		return false
	}
	return strings.IndexFunc(text, func(r rune) bool { return !IsLabelRune(r) }) < 0
}

// IsLabelRune reports whether a DNS label may contain r.
func IsLabelRune(r rune) bool { return r >= 'a' && r <= 'z' || r >= '0' && r <= '9' || r == '-' }

// IsDomain reports whether text is one or more DNS labels, separated by dots.
func IsDomain(text string) bool {
	if len(text) > MaxName {
		return false
	}
	for part := range strings.SplitSeq(text, ".") {
		if !IsLabel(part) {
			return false
		}
	}
	return true
}

// IsQualified reports whether text may be the key of a Kubernetes label or
// annotation: a name, or a domain, a slash and a name.
func IsQualified(text string) bool {
	prefix, name, found := strings.Cut(text, "/")
	if !found {
		return IsLabelText(text)
	}
	return IsDomain(prefix) && IsLabelText(name)
}

// IsLabelText reports whether text may be the name part of a Kubernetes label's key,
// or a non-empty value.
func IsLabelText(text string) bool {
	if text == "" || len(text) > MaxLabel || strings.ContainsAny(text[:1]+text[len(text)-1:], "-_.") {
		return false
	}
	return strings.IndexFunc(text, func(r rune) bool {
		return !IsLabelRune(r) && !(r >= 'A' && r <= 'Z') && r != '_' && r != '.'
	}) < 0
}
