//go:build kube

package kube

import (
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// snapshots returns the state that an uninstall must restore: by node and kind, links, addresses,
// routes, rules, nftables and network settings, and CoreDNS's configuration of each cluster. It leaves
// out kube-proxy's tables, which depend on the Services.
func (pair *clusterPair) snapshots(t *testing.T) map[string]string {
	t.Helper()
	out := map[string]string{}
	for _, c := range pair.clusters {
		out[c+" coredns"] = pair.kubectl(t, c, "-n", "kube-system", "get", "configmap", "coredns", "-o", "jsonpath={.data}")
		for _, node := range []string{c + "n1", c + "n2"} {
			for kind, script := range map[string]string{
				// Without devices created for each pod or at a node's start.
				"links":     "ip -o -d link | grep -v veth | sed -E 's/^[0-9]+: //; s/@if[0-9]+//; s/ state .*//'",
				"addresses": "ip -o address | grep -v 'veth\\| fe80:' | sed -E 's/^[0-9]+: //'",
				"routes":    "{ ip route show table all; ip -6 route show table all; } | grep -v 'veth\\|fe80:\\|ff00:'",
				"rules":     "ip rule; ip -6 rule",
				"nftables":  "nft -s list ruleset",
				// Without counters and the settings of pods' links.
				"sysctls": "sysctl -a 2>/dev/null | grep '^net[.]' | grep -v 'nf_conntrack_count\\|[.]veth\\|stable_secret'",
			} {
				text := pair.must(t, "", "kubelab", "--dir", pair.dir, "node", node, "sh", "-c", script)
				if kind == "nftables" {
					text = withoutProxy(text)
				}
				out[node+" "+kind] = text
			}
		}
	}
	return out
}

// withoutProxy returns a ruleset without kube-proxy's tables.
func withoutProxy(ruleset string) string {
	table := regexp.MustCompile(`(?ms)^table .*?^}\n`)
	return table.ReplaceAllStringFunc(ruleset, func(text string) string {
		name, _, _ := strings.Cut(text, "\n")
		if strings.Contains(name, "kube-proxy") || strings.Contains(text, "KUBE-") {
			return ""
		}
		return text
	})
}

// differences returns the names of the changed snapshots, with the changed lines.
func differences(before, after map[string]string) string {
	var out strings.Builder
	for _, name := range slices.Sorted(maps.Keys(before)) {
		lines := map[string]int{}
		for line := range strings.Lines(before[name]) {
			lines[line]--
		}
		for line := range strings.Lines(after[name]) {
			lines[line]++
		}
		for _, line := range slices.Sorted(maps.Keys(lines)) {
			if n := lines[line]; n != 0 {
				out.WriteString(name + map[bool]string{true: ": + ", false: ": - "}[n > 0] + line)
			}
		}
	}
	return out.String()
}
