package plan_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"golang.org/x/tools/txtar"
)

// claims are what the plans of testdata say of disruption, each with the scenario of
// e2e/testdata that measures it: that the file is there is all that is tested here.
var claims = []struct{ text, scenario string }{
	{`end: connections whose access is removed`, "impactmore"},
	{`may end: connections to exports and ports that are gone: there are no new ones`, "impactmay"},
	{`may end: export \S+: (its clusterset IP moves|its type changes: .*)`, "impactmay"},
	{`may end: export in cluster .*: its global addresses move`, "impactmay"},
	{`may end: egress rule .*`, "impactmay"},
	{`may end: cluster \S+: egress addresses of \S+ move`, "impactmay"},
	{`may end: cluster \S+: pods of \S+ go out with other addresses`, "impactrest"},
	{`may end: cluster \S+: pods in .* no longer reach other clusters`, "impactmay"},
	{`may end: cluster \S+: \S+ changes from global to flat: .*`, "impactmay"},
	{`end: cluster \S+: \S+ changes from flat to global: .*`, "impactmore"},
	{`end: cluster \S+: the global addresses of \S+ move(; egress addresses of \S+ move)?`, "impactends"},
	{`end: cluster \S+: the global addresses of \S+ move; .*; egress addresses of pods in .* move`, "impactwhole"},
	{`end: egress rule .*: its pods go out with other addresses`, "impactends"},
	{`end: export in cluster .*: its global addresses move`, "impactends"},
	{`end: cluster \S+: prefixes of \S+ are no longer known to the others`, "impactrest"},
	{`end: cluster \S+: pods in .* no longer reach other clusters`, "impactrest"},
	{`stand still .*: what goes over \S+: it moves to another node`, "impactstalls"},
	{`stand still .*: what goes over \S+: it may move to another node`, "selector"},
	{`stand still .*: what goes over \S+: its tunnel key changes`, "impactrest"},
	{`stand still .*: what goes over \S+: its tunnel address changes`, "impactwhole"},
	{`stand still .*: what goes over \S+: \S+ takes its place at once`, "impactstalls"},
	{`stand still .*: what goes over \S+: no gateway of \S+ stays`, "impactwhole"},
	{`stand still .*: what goes over IPsec: all IPsec links restart`, "impactmore"},
	{`go on: (pair|clusterset) .*: both tunnels are held until both ends proved the new one: nothing is lost`, "impactmore"},
	{`go on: pair .*: they reach each other through .*`, "impactmore"},
	{`go on: pair .*: they go over their own link as soon as it is good`, "impact"},
	{`go on: what goes over \S+ moves to \S+ before it ends`, "impact"},
	{`load: \S+ carries what \d+ gateways did, .*`, "impact"},
	{`load: \S+ passes on what \d+ pairs? of other clusters send each other, .*`, "impactmore"},

	{`~ pair .*: the MTU of the link changes: .*`, "impactrest"},
	{`~ clusterset \S+: the MTU of every tunnel changes: .*`, "impactrest"},
	{`~ clusterset \S+: every name changes; services.cidr changes: addresses outside the new pool move`, "impactmore"},
	{`~ clusterset \S+: services.cidr changes: addresses outside the new pool move`, "impactrest"},
	{`~ clusterset \S+: (globalnet|tunnel).cidr changes: addresses outside the new pool move`, "impactwhole"},
	{`~ clusterset \S+: all IPsec links restart`, "impactmore"},
	{`~ clusterset \S+: resolvers that ask the old address get no answer`, "impactmore"},
	{`~ clusterset \S+: .* have no path to each other any more`, "impactmore"},
	{`~ clusterset \S+: exports that were made in the clusters end, and the DNS of clusters no longer asks Hawser; .*`, "impactmore"},
	{`~ clusterset \S+: exports that .* end.*`, "impactrest"},
	{`~ agents of all clusters: agent .*`, "impactmore"},
	{`- \d+ pairs: .*: they have no path to each other any more, and connections between them end`, "impactmore"},
	{`~ cluster \S+: pods of \S+ no longer resolve names of the clusterset, unless somebody else sees to it`, "impactmore"},
	{`~ cluster \S+: pods of \S+ go out with other addresses`, "impactrest"},
	{`~ cluster \S+: egress addresses of \S+ move`, "impactmay"},
	{`~ cluster \S+: prefixes of \S+ are no longer known to the others`, "impactrest"},
	{`~ cluster \S+: pods in .* no longer reach other clusters`, "impactrest"},
	{`~ cluster \S+: \S+ changes from flat to global: .*`, "impactmore"},
	{`~ cluster \S+: \S+ changes from global to flat: .*`, "impactmay"},
	{`± cluster \S+: the global addresses of \S+ move; egress addresses of \S+ move`, "impactends"},
	{`± cluster \S+: the global addresses of \S+ move; .*; egress addresses of pods in .* move`, "impactwhole"},
	{`- cluster \S+: everything between \S+ and the other clusters ends`, "impactmore"},
	{`~ gateway \S+: it moves to another node: its links restart`, "impactstalls"},
	{`~ \d+ gateways: .*: its tunnel address changes: its links restart`, "impactwhole"},
	{`~ gateway \S+: its tunnel key changes: its links restart; its IKE key changes: .*`, "impactrest"},
	{`- (gateway \S+|\d+ gateways: .*): its links end; what went through it moves to another gateway of .*`, "impact"},
	{`~ egress rule .*: its pods go out with other addresses`, "impactmay"},
	{`± export \S+: (its clusterset IP moves|its type changes: .*)`, "impactmay"},
	{`~ export \S+: no longer open to clusters .*`, "impactends"},
	{`~ export \S+: a port is gone or changes`, "impactmay"},
	{`- export \S+: the name is gone for every cluster`, "impactmay"},
	{`[~±] export in cluster .*: its global addresses move`, "impactmay"},
	{`- export in cluster .*: connections to its backends in \S+ end`, "impactmore"},
}

// sections of a plan say what it disrupts.
var sections = regexp.MustCompile(`(?m)^(?:Disruptive|Open connections and gateways):\n((?:  .*\n)+)`)

// What plans say of disruption is measured in the lab.
func TestClaims(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("testdata/*.txtar")
	if err != nil || len(files) == 0 {
		t.Fatalf("%d goldens: %v", len(files), err)
	}
	said := map[string]bool{}
	for _, file := range files {
		archive, err := txtar.ParseFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range archive.Files {
			for _, section := range sections.FindAllStringSubmatch(string(f.Data), -1) {
				for line := range strings.Lines(section[1]) {
					text, _, _ := strings.Cut(strings.TrimSpace(line), "  # ")
					said[text] = true
				}
			}
		}
	}
	for _, c := range claims {
		claim, found := regexp.MustCompile(`^`+c.text+`$`), false
		for text := range said {
			if claim.MatchString(text) {
				delete(said, text)
				found = true
			}
		}
		if !found {
			t.Errorf("no plan of testdata claims %q that an earlier line does not", c.text)
		}
		if _, err := os.Stat(filepath.Join("..", "..", "e2e", "testdata", filepath.FromSlash(c.scenario)+".txtar")); err != nil {
			t.Errorf("%q: %v", c.text, err)
		}
	}
	for text := range said {
		t.Errorf("%q is claimed and not in the list: name the scenario that measures it", text)
	}
}
