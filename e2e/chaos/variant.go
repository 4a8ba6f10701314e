package main

import (
	"fmt"
	"io/fs"
	"math/rand/v2"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// variant is a variant of the clusterset: the links between the clusters, and the families of
// the addresses inside and outside.
type variant struct{ shape, family string }

// Shapes and families of variants.
const (
	mesh  = "mesh"
	hub   = "hub"   // g1 forwards between g2 and g3, which have no link
	links = "links" // all have links, and each forwards when one fails

	four = "4"
	six  = "6"
	dual = "dual" // both inside; IPv6 preferred outside
)

// usual is the variant of the files in testdata.
var usual = variant{mesh, four}

func (v variant) check() error {
	if !slices.Contains([]string{mesh, hub, links}, v.shape) || !slices.Contains([]string{four, six, dual}, v.family) {
		return fmt.Errorf("-shape is %s, %s or %s, -family %s, %s or %s", mesh, hub, links, four, six, dual)
	}
	return nil
}

// String returns the variant as arguments of make; empty for the usual one.
func (v variant) String() string {
	if v == usual {
		return ""
	}
	return " SHAPE=" + v.shape + " FAMILY=" + v.family
}

// families returns the address families inside the clusters.
func (v variant) families() []int {
	switch v.family {
	case six:
		return []int{6}
	case dual:
		return []int{4, 6}
	}
	return []int{4}
}

// in selects by family, IPv6 before IPv4.
func (v variant) in(four, six string) []string {
	switch v.family {
	case "6":
		return []string{six}
	case dual:
		return []string{six, four}
	}
	return []string{four}
}

// Ranges that every cluster uses, by family.
const (
	pods4, pods6         = "10.7.0.0/16", "fd00:10:7::/56"
	services4, services6 = "10.77.0.0/16", "fd00:10:77::/112"
	nodes4, nodes6       = "172.18.0.0/16", "fd00:172:18::/64" // the lab's choice
)

func (v variant) prefixes(four, six string) []netip.Prefix {
	var out []netip.Prefix
	for _, text := range v.in(four, six) {
		out = append(out, netip.MustParsePrefix(text))
	}
	return out
}

// list formats addresses or prefixes as a topology file does.
func list(texts []string) string { return `["` + strings.Join(texts, `", "`) + `"]` }

// endpoints returns the endpoints of the gateway with a host number.
func (v variant) endpoints(number string) []string {
	return v.in("203.0.113."+number, "2001:db8::"+number)
}

var endpoint = regexp.MustCompile(`endpoints: \[203\.0\.113\.(\d+)\]`)

// topology converts the topology file of the usual variant to this variant.
func (v variant) topology(text string) string {
	if v.family != four {
		text = strings.NewReplacer("["+pods4+"]", list(v.in(pods4, pods6)), "["+services4+"]", list(v.in(services4, services6))).Replace(text)
		text = endpoint.ReplaceAllStringFunc(text, func(found string) string {
			return "endpoints: " + list(v.endpoints(endpoint.FindStringSubmatch(found)[1]))
		})
	}
	shape := map[string]string{
		hub:   "  connectivity: {mode: hub, hubs: [g1]}\n",
		links: "  connectivity: {mode: links, links: [[g1, g2], [g1, g3], [g2, g3]]}\n",
	}[v.shape]
	return strings.Replace(text, "\nspec:\n", "\nspec:\n"+shape, 1)
}

// Values of nodeNetwork in the topology.
const (
	autoNetwork   = "auto"
	tunnelNetwork = "tunnel"
)

// nodeNetworks draws nodeNetwork for each cluster; three of four have auto.
func nodeNetworks(seed uint64) map[string]string {
	r := rand.New(rand.NewPCG(seed, 0)) // the rounds of a schedule are from 1
	out := map[string]string{}
	for _, cluster := range []string{"g1", "g2", "g3"} {
		out[cluster] = autoNetwork
		if r.IntN(4) == 0 {
			out[cluster] = tunnelNetwork
		}
	}
	return out
}

var clusterHead = regexp.MustCompile(`(?m)^  - name: (\w+)\n(    podCIDRs:)`)

// withNetworks returns the topology with nodeNetwork in each cluster.
func withNetworks(text string, networks map[string]string) string {
	return clusterHead.ReplaceAllStringFunc(text, func(found string) string {
		parts := clusterHead.FindStringSubmatch(found)
		return "  - name: " + parts[1] + "\n    nodeNetwork: " + networks[parts[1]] + "\n" + parts[2]
	})
}

// write writes the files of the lab for this variant.
func (v variant) write(from, to string, networks map[string]string) error {
	if err := os.CopyFS(to, os.DirFS(from)); err != nil {
		return fmt.Errorf("write the clusterset: %w", err)
	}
	path := filepath.Join(to, "clusterset.yaml")
	text, err := fs.ReadFile(os.DirFS(from), "clusterset.yaml")
	if err == nil {
		err = os.WriteFile(path, []byte(withNetworks(v.topology(string(text)), networks)), 0o644)
	}
	if err != nil {
		return fmt.Errorf("write the clusterset: %w", err)
	}
	return nil
}

// ofFamily returns the address of a family from a list as in a lock file, or the zero address.
func ofFamily(text string, family int) netip.Addr {
	for _, part := range strings.Split(text, ", ") {
		if a, err := netip.ParseAddr(strings.Trim(part, `"`)); err == nil && familyOf(a) == family {
			return a
		}
	}
	return netip.Addr{}
}

func familyOf(a netip.Addr) int {
	if a.Is4() {
		return 4
	}
	return 6
}
