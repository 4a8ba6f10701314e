package plan

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"hawser.dev/hawser/schema/fabric"
)

func address(a netip.Addr) string {
	if !a.IsValid() {
		return ""
	}
	return a.String()
}

// namespaces returns the patterns of dynamic exports; empty if absent.
func namespaces(d *fabric.DynamicExports) string {
	if d == nil {
		return ""
	}
	return strings.Join(d.Namespaces, ", ")
}

// restrictions returns the namespaces that only some clusters may export, with these clusters.
func restrictions(d *fabric.DynamicExports) string {
	if d == nil {
		return ""
	}
	texts := make([]string, len(d.Restrictions))
	for i, o := range d.Restrictions {
		texts[i] = strings.Join(o.Namespaces, ", ") + ": " + strings.Join(o.Clusters, ", ")
	}
	return strings.Join(texts, "; ")
}

func mtu(n int) string {
	if n == 0 {
		return "computed"
	}
	return strconv.Itoa(n)
}

func boolText(b bool) string {
	if b {
		return "true"
	}
	return ""
}

func join[T any](items []T) string {
	texts := make([]string, len(items))
	for i, v := range items {
		texts[i] = fmt.Sprint(v)
	}
	return strings.Join(texts, ", ")
}

func joinPairs[T any](m map[string]T) string {
	texts := make([]string, 0, len(m))
	for _, k := range slices.Sorted(maps.Keys(m)) {
		texts = append(texts, fmt.Sprintf("%s=%v", k, m[k]))
	}
	return strings.Join(texts, ", ")
}

// ranges returns addresses as text. Adjacent addresses are one range first-last.
func ranges(addrs []netip.Addr) string { return strings.Join(fabric.Ranges(addrs), ", ") }

// hosts returns a headless export's hosts as text. Consecutive ordinals with consecutive addresses
// are one range.
func hosts(list []fabric.Host) string {
	var texts []string
	for i := 0; i < len(list); {
		j := i
		for j+1 < len(list) && isNext(list[j], list[j+1]) {
			j++
		}
		text := list[i].Name
		addrs := slices.Clone(list[i].IPs)
		if j > i {
			text += " to " + list[j].Name
			addrs = append(addrs, list[j].IPs...)
			texts = append(texts, text+": "+addrs[0].String()+"-"+addrs[1].String())
		} else {
			texts = append(texts, text+": "+ranges(addrs))
		}
		i = j + 1
	}
	return strings.Join(texts, ", ")
}

// isNext reports whether b is the next ordinal after a at the next address.
func isNext(a, b fabric.Host) bool {
	x, okA := strings.CutPrefix(a.Name, "*-")
	y, okB := strings.CutPrefix(b.Name, "*-")
	if !okA || !okB || len(a.IPs) != 1 || len(b.IPs) != 1 || a.IPs[0].Next() != b.IPs[0] {
		return false
	}
	m, err := strconv.Atoi(x)
	return err == nil && strconv.Itoa(m+1) == y
}
