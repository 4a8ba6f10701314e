package load

import (
	"fmt"
	"net/netip"
	"reflect"
	"strconv"
	"strings"
	"time"

	"gopkg.in/yaml.v3"

	"hawser.dev/hawser/internal/diag"
	"hawser.dev/hawser/schema/syntax"
	"hawser.dev/hawser/schema/tags"
)

// decodeScalar reads one value that is not a collection.
func (d *decoder) decodeScalar(n *yaml.Node, v reflect.Value, t *breadcrumb) {
	if n.Kind != yaml.ScalarNode {
		d.reportWrongType(n, t, kindName(v), scalarHint(t, n))
		return
	}
	if syntax.IsNull(n) {
		return
	}
	if meaning, word := syntax.YAML11Bool(n.Value); word && !syntax.IsQuoted(n) {
		hint := "put it in quotes: " + strconv.Quote(n.Value)
		if v.Kind() == reflect.Bool {
			hint = "write " + strconv.FormatBool(meaning)
		}
		d.report(n, t, "yaml-boolean", n.Value+" is a boolean in YAML 1.1 and text in YAML 1.2", hint)
		return
	}
	switch {
	case v.Kind() == reflect.Bool && n.ShortTag() != "!!bool":
		d.reportWrongType(n, t, "true or false", "")
	case v.Kind() == reflect.Bool:
		v.SetBool(strings.EqualFold(n.Value, "true"))
	case v.Kind() == reflect.Int:
		d.decodeInteger(n, v, t)
	case v.Kind() == reflect.Float64:
		d.decodeDegrees(n, v, t)
	default:
		d.decodeText(n, v, t)
	}
}

func (d *decoder) decodeInteger(n *yaml.Node, v reflect.Value, t *breadcrumb) {
	number, err := strconv.Atoi(n.Value)
	switch {
	case syntax.IsQuoted(n) && err == nil:
		d.reportWrongType(n, t, "a number", "remove the quotes")
	case syntax.IsQuoted(n) || n.ShortTag() != "!!int":
		d.reportWrongType(n, t, "a whole number", "")
	case err != nil || strconv.Itoa(number) != n.Value:
		d.report(n, t, "bad-number", diag.Clip(n.Value)+" is not a plain decimal number",
			"write digits only, without a leading zero, sign or underscore")
	default:
		v.SetInt(int64(number))
	}
}

// decodeDegrees reads a number with a fraction, such as a coordinate.
func (d *decoder) decodeDegrees(n *yaml.Node, v reflect.Value, t *breadcrumb) {
	const hint = "write degrees as a decimal fraction, such as 50.11 or -8.68; south and west are negative"
	tag := n.ShortTag()
	number, err := strconv.ParseFloat(n.Value, 64)
	switch {
	case syntax.IsQuoted(n) && err == nil:
		d.reportWrongType(n, t, "a number", "remove the quotes")
	case syntax.IsQuoted(n) || tag != "!!int" && tag != "!!float":
		d.reportWrongType(n, t, "a number", hint)
	case err != nil || strings.Trim(n.Value, "-.0123456789") != "":
		d.report(n, t, "bad-number", diag.Clip(n.Value)+" is not a plain decimal number", hint)
	default:
		v.SetFloat(number)
	}
}

// decodeText reads a value that is a YAML string: strings, durations, addresses and prefixes.
func (d *decoder) decodeText(n *yaml.Node, v reflect.Value, t *breadcrumb) {
	text, ok := syntax.PlainText(n)
	if !ok {
		d.reportWrongType(n, t, kindName(v), textHint(n, v, t.rules))
		return
	}
	if v.Kind() == reflect.String {
		v.SetString(text)
		return
	}
	err := tags.Set(v, text)
	if p, is := v.Interface().(netip.Prefix); is && err == nil && p.IsValid() && p.Bits() == 0 {
		v.SetZero() // one finding is enough: this prefix overlaps all others
		d.report(n, t, "bad-prefix", diag.Clip(text)+" is every address that there is",
			"write the ranges that are used: a prefix looks like 10.7.0.0/16 or fd00:7::/48")
		return
	}
	if err != nil {
		v.SetZero()
		code, summary, hint := parseProblem(text, v)
		d.report(n, t, code, summary, hint)
	}
}

// textHint returns the most likely text for a number in place of a text.
func textHint(n *yaml.Node, v reflect.Value, f *tags.Field) string {
	switch {
	case v.Type() == tags.DurationType && n.ShortTag() == "!!int":
		return "give the unit: " + diag.Clip(withUnit(n.Value, f))
	case v.Kind() == reflect.String:
		return "put it in quotes: " + diag.Quote(n.Value)
	}
	return ""
}

// withUnit returns a number as a duration: with the first unit that puts it into the range of the
// field, seconds first.
func withUnit(number string, f *tags.Field) string {
	for _, unit := range []string{"s", "ms", "m"} {
		d, err := time.ParseDuration(number + unit)
		if err == nil && (f == nil || f.MaxText == "" || int64(d) >= f.Min && int64(d) <= f.Max) {
			return number + unit
		}
	}
	return number + "s"
}

// parseProblem returns the finding for a text that is not a value of v's type.
func parseProblem(text string, v reflect.Value) (code, summary, hint string) {
	if v.Type() == tags.DurationType {
		return "bad-duration", fmt.Sprintf("%s is not a duration", diag.Quote(text)),
			"a duration looks like 250ms, 25s or 5m"
	}
	if v.Type() != tags.PrefixType {
		return "bad-address", fmt.Sprintf("%s is not an IP address", diag.Quote(text)),
			"an address looks like 169.254.73.53 or fd00::53"
	}
	if a, err := netip.ParseAddr(text); err == nil {
		return "bad-prefix", diag.Clip(text) + " has no prefix length",
			fmt.Sprintf("write %s/%d for the one address, or the length of the network", a.WithZone(""), a.BitLen())
	}
	address, length, _ := strings.Cut(text, "/")
	if a, err := netip.ParseAddr(address); err == nil && a.Zone() == "" && length != "" && strings.Trim(length, "0123456789") == "" {
		return "bad-prefix", fmt.Sprintf("%s has the prefix length %s", diag.Clip(text), diag.Clip(length)),
			fmt.Sprintf("the length of an IPv%d prefix is 0 to %d", map[bool]int{true: 4, false: 6}[a.Is4()], a.BitLen())
	}
	return "bad-prefix", fmt.Sprintf("%s is not a prefix", diag.Quote(text)),
		"a prefix looks like 10.7.0.0/16 or fd00:7::/48"
}

// reportWrongType records a node of another type than the field.
func (d *decoder) reportWrongType(n *yaml.Node, t *breadcrumb, want, hint string) {
	d.report(n, t, "wrong-type", "want "+want+", have "+nodeKind(n), hint)
}

// mappingHint returns the most likely mapping for a bare word in place of a mapping.
func mappingHint(t *breadcrumb, n *yaml.Node) string {
	switch {
	case t != nil && t.label == "balance" && n.Kind == yaml.ScalarNode: // documents name policies without their key
		return "write balance: {policy: " + diag.Clip(n.Value) + "}"
	}
	return ""
}

// scalarHint returns how a policy with parameters is written.
func scalarHint(t *breadcrumb, n *yaml.Node) string {
	if t.label == "policy" && n.Kind == yaml.MappingNode {
		return "write {policy: weighted, weights: {a: 3, b: 1}} or {policy: failover, order: [a, b]}"
	}
	return ""
}

// kindName returns the type of a field, for messages.
func kindName(v reflect.Value) string {
	switch {
	case v.Type() == tags.DurationType:
		return "a duration"
	case v.Type() == tags.PrefixType:
		return "a prefix"
	case tags.IsText(v):
		return "an IP address"
	case v.Kind() == reflect.Bool:
		return "true or false"
	case v.Kind() == reflect.Int || v.Kind() == reflect.Float64:
		return "a number"
	}
	return "text"
}

// nodeKind returns the type of a node, for messages.
func nodeKind(n *yaml.Node) string {
	switch n.Kind {
	case yaml.MappingNode:
		return "a mapping"
	case yaml.SequenceNode:
		return "a list"
	}
	switch n.ShortTag() {
	case "!!int", "!!float":
		return "the number " + diag.Clip(n.Value)
	case "!!bool":
		return "the boolean " + n.Value
	case "!!timestamp":
		return "the date " + diag.Clip(n.Value)
	case "!!null":
		return "nothing"
	}
	return "the text " + diag.Quote(n.Value)
}

// checkExplicitZero rejects an explicit zero in a field that must not be zero. Default could not
// distinguish it from a missing field.
func (d *decoder) checkExplicitZero(n *yaml.Node, v reflect.Value, f tags.Field, t *breadcrumb) {
	numeric := v.Kind() == reflect.Int || v.Type() == tags.DurationType
	if !numeric || syntax.IsNull(n) || !v.IsZero() || f.Min <= 0 || f.Def == "" && !f.Required || d.badPaths[t.String()] {
		return
	}
	d.report(n, t, "out-of-range", tags.OutOfRange(v, f), "")
}
