package projection_test

import (
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"hawser.dev/hawser/nodeagent/model"
	"hawser.dev/hawser/nodeagent/projection"
	"hawser.dev/hawser/nodeagent/status"
)

// TestConnectedNetworks checks that a node does not route a connected network inside another
// cluster's prefix to that cluster. Nothing else changes.
func TestConnectedNetworks(t *testing.T) {
	t.Parallel()
	networks := func(texts ...string) []model.Network {
		var out []model.Network
		for _, text := range texts {
			prefix, link, _ := strings.Cut(text, " ")
			out = append(out, model.Network{Prefix: netip.MustParsePrefix(prefix), Link: link})
		}
		return out
	}
	services := []string{"services4", "slots4", "icmp_echo4", "multi_pod4", "service", "zone"}
	names := []string{
		"service sample/whereami-cs headless=false vips=243.0.0.1 ports=http/TCP/80 clusters=g2[]",
		"service sample/whereami-ss headless=true ports=http/TCP/80 clusters=g2[]",
	}
	for _, tt := range []struct {
		name, file, node string
		networks         []model.Network
		gained, lost     []string
		problems         []string // path and the networks in parentheses
	}{
		{
			"inside a prefix, on a worker", "globalnet", "g1/g1-w1", networks("242.2.0.128/25 eth1"),
			[]string{"route 7300/242.2.0.128/25 type=throw", "networks4 242.2.0.128/25", "connected4 242.2.0.128/25 . eth1"}, nil,
			[]string{"clusters[g2] (242.2.0.128/25 on eth1 overlaps 242.2.0.0/24)"},
		},
		{
			"inside a prefix, on a gateway", "globalnet", "g1/g1-a", networks("242.2.0.128/25 eth1"),
			[]string{"route 7300/242.2.0.128/25 type=throw", "networks4 242.2.0.128/25", "connected4 242.2.0.128/25 . eth1"}, nil,
			[]string{"clusters[g2] (242.2.0.128/25 on eth1 overlaps 242.2.0.0/24)"},
		},
		{
			"with the address of an export", "globalnet", "g1/g1-w1", networks("242.2.0.32/27 eth1"),
			append([]string{"route 7300/242.2.0.32/27 type=throw", "networks4 242.2.0.32/27", "connected4 242.2.0.32/27 . eth1"}, names...), services,
			[]string{"clusters[g2] (242.2.0.32/27 on eth1 overlaps 242.2.0.0/24)", "exports[sample/whereami-cs].clusters[g2]"},
		},
		{
			"equal to a prefix", "globalnet", "g1/g1-w1", networks("242.2.0.0/24 wg0"),
			append([]string{"route 7300/242.2.0.0/24 type=throw", "networks4 242.2.0.0/24", "connected4 242.2.0.0/24 . wg0"}, names...),
			append([]string{"route 7300/242.2.0.0/24"}, services...),
			[]string{"clusters[g2] (242.2.0.0/24 on wg0 overlaps 242.2.0.0/24)", "exports[sample/whereami-cs].clusters[g2]"},
		},
		{
			"around a prefix", "globalnet", "g1/g1-w1", networks("242.2.0.0/16 docker0"),
			append([]string{"route 7300/242.2.0.0/24 type=throw", "networks4 242.2.0.0/24", "connected4 242.2.0.0/24 . docker0"}, names...),
			append([]string{"route 7300/242.2.0.0/24"}, services...),
			[]string{"clusters[g2] (242.2.0.0/16 on docker0 overlaps 242.2.0.0/24)", "exports[sample/whereami-cs].clusters[g2]"},
		},
		{
			"several, one in another, on two links", "globalnet", "g1/g1-w1",
			networks("242.2.0.128/25 eth1", "242.2.0.192/26 eth1", "242.2.0.192/26 eth2", "242.2.0.200/32 eth3"),
			[]string{
				"route 7300/242.2.0.128/25 type=throw", "route 7300/242.2.0.192/26 type=throw", "route 7300/242.2.0.200/32 type=throw",
				"networks4 242.2.0.128/25", "connected4 242.2.0.128/25 . eth1", "connected4 242.2.0.192/26 . eth2", "connected4 242.2.0.200 . eth3",
			}, nil,
			[]string{"clusters[g2] (242.2.0.128/25 on eth1 overlaps 242.2.0.0/24, 242.2.0.192/26 on eth1 overlaps 242.2.0.0/24, " +
				"242.2.0.192/26 on eth2 overlaps 242.2.0.0/24, and 1 more)"},
		},
		{
			"IPv6", "ipv6", "d1/d1-w1", networks("fd42:0:5:100::/64 eth1"),
			[]string{
				"route 7300/fd42:0:5:100::/64 type=throw", "networks6 fd42:0:5:100::/64", "connected6 fd42:0:5:100::/64 . eth1",
			}, nil,
			[]string{"clusters[d2] (fd42:0:5:100::/64 on eth1 overlaps fd42:0:5::/48)"},
		},
		{"this cluster's own pods", "globalnet", "g1/g1-w1", networks("10.7.1.0/24 cni0", "10.7.1.9/32 cali1"), nil, nil, nil},
		{
			"of the clusterset itself", "globalnet", "g1/g1-w1", networks("243.0.5.0/24 eth1", "241.0.0.0/8 eth2", "242.1.0.16/28 eth3"), nil, nil,
			[]string{"clusters[g1] (241.0.0.0/8 on eth2 overlaps 241.0.0.0/16, 242.1.0.16/28 on eth3 overlaps 242.1.0.0/24, " +
				"243.0.5.0/24 on eth1 overlaps 243.0.0.0/16)"},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			w, _ := readWorld(t, "testdata/"+tt.file+".txtar")
			in := w.inputs[tt.node]
			before := linesOf(text(w.states[tt.node]))
			in.Local.Networks = tt.networks
			state, problems := projection.Desired(in)
			checkLines(t, before, linesOf(text(state)), tt.gained, tt.lost)
			var have []string
			for _, p := range problems {
				switch p.Code {
				case status.ConnectedNetwork:
					start, end := strings.Index(p.Text, " ("), strings.Index(p.Text, ")")
					have = append(have, p.Path+p.Text[start:end+1])
				case status.ConnectedExport:
					have = append(have, p.Path)
				}
			}
			if diff := cmp.Diff(tt.problems, have); diff != "" {
				t.Errorf("problems (-want +got):\n%s", diff)
			}
			if moved := projection.Routes(in); !slices.Equal(moved, state.Routes) {
				t.Error("Routes differs from the routes of Desired")
			}
		})
	}
}
