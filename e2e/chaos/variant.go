package main

import (
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// variant is what sort of clusterset is broken: which clusters have links, and of
// which families the addresses inside and outside are.
type variant struct{ shape, family string }

// Shapes and families of variants.
const (
	mesh  = "mesh"
	hub   = "hub"   // g1 passes on between g2 and g3, which have no link
	links = "links" // all have links, and each passes on when one is dead

	four = "4"
	six  = "6"
	dual = "dual" // of both inside; outside IPv6 is preferred
)

// usual is the variant that the files are written for.
var usual = variant{mesh, four}

func (v variant) check() error {
	if !slices.Contains([]string{mesh, hub, links}, v.shape) || !slices.Contains([]string{four, six, dual}, v.family) {
		return fmt.Errorf("-shape is %s, %s or %s, -family %s, %s or %s", mesh, hub, links, four, six, dual)
	}
	return nil
}

// String is what is told of a variant, as make takes it; empty for the usual one.
func (v variant) String() string {
	if v == usual {
		return ""
	}
	return " SHAPE=" + v.shape + " FAMILY=" + v.family
}

// families gives those that are in use inside.
func (v variant) families() []int {
	switch v.family {
	case six:
		return []int{6}
	case dual:
		return []int{4, 6}
	}
	return []int{4}
}

// in picks by family, IPv6 before IPv4.
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

// list writes addresses or prefixes as a topology does.
func list(texts []string) string { return `["` + strings.Join(texts, `", "`) + `"]` }

// endpoints gives where a gateway is reached whose number is known.
func (v variant) endpoints(number string) []string {
	return v.in("203.0.113."+number, "2001:db8::"+number)
}

var endpoint = regexp.MustCompile(`endpoints: \[203\.0\.113\.(\d+)\]`)

// topology makes the file that is written for the usual variant one of this one.
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

// write copies the files of the lab, as the variant has them.
func (v variant) write(from, to string) error {
	if err := os.CopyFS(to, os.DirFS(from)); err != nil {
		return fmt.Errorf("write the clusterset: %w", err)
	}
	path := filepath.Join(to, "clusterset.yaml")
	text, err := fs.ReadFile(os.DirFS(from), "clusterset.yaml")
	if err == nil {
		err = os.WriteFile(path, []byte(v.topology(string(text))), 0o644)
	}
	if err != nil {
		return fmt.Errorf("write the clusterset: %w", err)
	}
	return nil
}

// ofFamily picks the address of a family from several in one text, as a lock
// writes them; invalid = there is none.
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
