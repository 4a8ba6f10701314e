package plan_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"golang.org/x/tools/txtar"
)

// claims contains the statements about disruption in the plans of testdata. Each has the scenario
// of e2e/testdata that measures it. The test only checks that the file of the scenario exists.
var claims = []struct{ text, scenario string }{
	{`break: connections whose access is removed`, "impactmore"},
	{`may break: connections to removed exports and ports: new ones fail`, "impactmay"},
	{`may break: export \S+: (clusterset IP changes|type changes: .*)`, "impactmay"},
	{`may break: export in cluster .*: its global addresses move`, "impactmay"},
	{`may break: egress rule .*`, "impactmay"},
	{`may break: cluster \S+: egress addresses of \S+ move`, "impactmay"},
	{`may break: cluster \S+: pods of \S+ go out with other addresses`, "impactrest"},
	{`may break: cluster \S+: pods in .* no longer reach other clusters`, "impactmay"},
	{`may break: cluster \S+: \S+ changes from global to flat: .*`, "impactmay"},
	{`break: cluster \S+: \S+ changes from flat to global: .*`, "impactmore"},
	{`break: cluster \S+: the global addresses of \S+ move(; egress addresses of \S+ move)?`, "impactends"},
	{`break: cluster \S+: the global addresses of \S+ move; .*; egress addresses of pods in .* move`, "impactwhole"},
	{`break: egress rule .*: its pods go out with other addresses`, "impactends"},
	{`break: export in cluster .*: its global addresses move`, "impactends"},
	{`break: cluster \S+: prefixes of \S+ are no longer known to the others`, "impactrest"},
	{`break: cluster \S+: pods in .* no longer reach other clusters`, "impactrest"},
	{`pause .*: traffic through \S+: it moves to another node`, "impactstalls"},
	{`pause .*: traffic through \S+: it may move to another node`, "selector"},
	{`pause .*: traffic through \S+: its tunnel key changes`, "impactrest"},
	{`pause .*: traffic through \S+: its tunnel address changes`, "impactwhole"},
	{`pause .*: traffic through \S+: \S+ replaces it at once`, "impactstalls"},
	{`pause .*: traffic through \S+: no gateway of \S+ remains`, "impactwhole"},
	{`pause .*: IPsec traffic: all IPsec links restart`, "impactmore"},
	{`continue: (pair|clusterset) .*: make-before-break: no packet is lost`, "impactmore"},
	{`continue: pair .*: they reach each other through .*`, "impactmore"},
	{`continue: pair .*: direct link instead of transit once it is up`, "impact"},
	{`continue: traffic through \S+ moves to \S+ first`, "impact"},
	{`gateway load: \S+ replaces \d+ gateways, .*`, "impact"},
	{`gateway load: \S+ forwards transit traffic of \d+ pairs? of other clusters, .*`, "impactmore"},

	{`~ pair .*: the MTU of the link changes: .*`, "impactrest"},
	{`~ clusterset \S+: the MTU of every tunnel changes: .*`, "impactrest"},
	{`~ clusterset \S+: every name changes; services.cidr changes: addresses outside the new pool move`, "impactmore"},
	{`~ clusterset \S+: services.cidr changes: addresses outside the new pool move`, "impactrest"},
	{`~ clusterset \S+: (globalnet|tunnel).cidr changes: addresses outside the new pool move`, "impactwhole"},
	{`~ clusterset \S+: all IPsec links restart`, "impactmore"},
	{`~ clusterset \S+: resolvers that ask the old address get no answer`, "impactmore"},
	{`~ clusterset \S+: .* lose the path to each other`, "impactmore"},
	{`~ clusterset \S+: exports that were made in the clusters end, and the DNS of clusters no longer asks Hawser; .*`, "impactmore"},
	{`~ clusterset \S+: exports that .* end.*`, "impactrest"},
	{`~ agents of all clusters: agent .*`, "impactmore"},
	{`- \d+ pairs: .*: they lose the path to each other, and connections between them end`, "impactmore"},
	{`~ cluster \S+: pods of \S+ no longer resolve names of the clusterset, unless another DNS server resolves them`, "impactmore"},
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
	{`± export \S+: (clusterset IP changes|type changes: .*)`, "impactmay"},
	{`~ export \S+: no longer open to clusters .*`, "impactends"},
	{`~ export \S+: a port is gone or changes`, "impactmay"},
	{`- export \S+: the name is gone for every cluster`, "impactmay"},
	{`[~±] export in cluster .*: its global addresses move`, "impactmay"},
	{`- export in cluster .*: connections to its backends in \S+ end`, "impactmore"},
}

// sections matches the sections of a plan about disruption.
var sections = regexp.MustCompile(`(?m)^(?:Disruptive changes|Impact on open connections):\n((?:  .*\n)+)`)

// TestClaims checks that each statement about disruption has a scenario that measures it.
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
