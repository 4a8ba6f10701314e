package observe

import (
	"bytes"
	"io"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"hawser.dev/hawser/internal/cli"
	"hawser.dev/hawser/internal/cli/agentquery"
	"hawser.dev/hawser/kubeclient"
	"hawser.dev/hawser/nodeagent/status"
)

// TestFindGateway checks that a gateway is drained for the drill only if traffic can use another
// gateway of its cluster.
func TestFindGateway(t *testing.T) {
	t.Parallel()
	up := []status.Connection{{Status: status.Connected}}
	agent := func(cluster, gateway string, change func(*status.Status)) agentquery.Response[status.Status] {
		s := status.Status{Cluster: cluster, Node: cluster + gateway, Gateway: gateway, Ready: true, Connections: up}
		if change != nil {
			change(&s)
		}
		return agentquery.Response[status.Status]{Agent: cluster + gateway, Value: s}
	}
	none := func(*status.Status) {}
	down := func(s *status.Status) { s.Connections = []status.Connection{{Status: status.Connecting}} }
	drained := func(s *status.Status) { s.Drained = true }
	unready := func(s *status.Status) { s.Ready = false }
	uses := func(s *status.Status) { s.Paths = []status.Path{{Cluster: "g2", RemoteGateway: "a"}} }
	for name, tt := range map[string]struct {
		a, b func(*status.Status) // of g2/a and g2/b
		want string
	}{
		"both live":       {none, none, ""},
		"other down":      {none, down, "cluster g2 has no other live gateway"},
		"other drained":   {none, drained, "cluster g2 has no other live gateway"},
		"other not ready": {none, unready, "cluster g2 has no other live gateway"},
		"drained already": {drained, none, "it is drained already"},
		"down itself":     {down, none, "it has no link that is up"},
	} {
		got := []agentquery.Response[status.Status]{agent("g1", "a", uses), agent("g1", "", uses), agent("g2", "a", tt.a), agent("g2", "b", tt.b),
			agent("g2", "", func(s *status.Status) {
				s.Paths = []status.Path{{Cluster: "g1", LocalGateway: "a"}, {Cluster: "g3", LocalGateway: "b"}}
			})}
		g, paths, err := findGateway("g2/a", got)
		if tt.want == "" && (err != nil || g.agent != "g2a" || paths != 3) || tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)) {
			t.Errorf("%s: %s, %d paths, %v", name, g.agent, paths, err)
		}
	}
	_, _, err := findGateway("g2/z", []agentquery.Response[status.Status]{agent("g2", "a", nil), agent("g1", "b", nil), agent("g1", "", nil)})
	if err == nil || !strings.HasSuffix(err.Error(), "(gateways: g1/b, g2/a)") {
		t.Error(err)
	}
	if _, _, err := findGateway("g2/a", []agentquery.Response[status.Status]{agent("g2", "a", nil), agent("g1", "b", nil)}); err == nil {
		t.Error("the only gateway of a cluster is drilled")
	}
}

// TestDrillAddresses checks the targets of the drill: connections of other clusters go to the
// gateway's cluster, and connections of its own cluster leave it.
func TestDrillAddresses(t *testing.T) {
	t.Parallel()
	result := func(cluster string, reached ...string) status.Verified {
		return status.Verified{Check: status.Check{Cluster: cluster}, Reached: reached}
	}
	results := []status.Verified{result("", "243.0.0.1:80"), result("g2", "242.2.0.1:80", "242.2.0.1:53/UDP"), result("g3", "242.3.0.1:80"), result("g2", "242.2.0.1:80", "242.2.0.2:443")}
	for cluster, want := range map[string]string{"g1": "242.2.0.1:80 242.2.0.2:443", "g2": "242.3.0.1:80"} {
		if have := strings.Join(drillAddresses("g2", status.Verification{Cluster: cluster, Results: results}), " "); have != want {
			t.Errorf("from %s: %s, want %s", cluster, have, want)
		}
	}
	if have := drillAddresses("g2", status.Verification{Cluster: "g1", Results: results[:1]}); len(have) != 1 {
		t.Errorf("without names of clusters: %v", have)
	}
	many := result("g2")
	for i := range 3 * maxDrillTargets {
		many.Reached = append(many.Reached, strings.Repeat("1", i+1))
	}
	if have := drillAddresses("g2", status.Verification{Cluster: "g1", Results: []status.Verified{many}}); len(have) != maxDrillTargets {
		t.Errorf("%d addresses", len(have))
	}
}

// TestDrillReport checks exit code 1 in each output format, after lost requests, broken
// connections, remaining users or a failed undrain.
func TestDrillReport(t *testing.T) {
	t.Parallel()
	good := status.Probed{Target: "242.2.0.1:80", Attempts: 150, Late: pathMovesPerDrill, LongestGap: 112_345, KeptOpen: 2, ClosedByServer: 1}
	lost, late, broken := good, good, good
	late.Late++
	lost.Failed, broken.Broken, broken.LastError = 2, 1, "connection timed out"
	newVerification := func(change func(*drill)) verification {
		d := &drill{Gateway: "g2/a", Paths: 6, Drained: "1s", Requests: []probed{{"g1/w", good}}}
		change(d)
		return verification{Failover: d, Nodes: []status.Verification{{Cluster: "g1", Node: "w", Results: []status.Verified{verified("web", "")}}}}
	}
	const want = `
Connections of pods during the drill of g2/a
FROM  TO            REQUESTS  LOST  LATE  LONGEST GAP  KEPT OPEN            BROKEN
g1/w  242.2.0.1:80  150       0     2     112ms        2 (server closed 1)  0
6 paths of nodes used it before. Unused 1s after it was drained. No request was lost, no open connection broke.
`
	if diff := cmp.Diff("g1/w: 1 of 1 name answered\n"+want, newVerification(func(*drill) {}).text()); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	for want, change := range map[string]func(*drill){
		"":                         func(*drill) {},
		"2 requests lost":          func(d *drill) { d.Requests[0].Probed = lost },
		"3 requests late":          func(d *drill) { d.Requests[0].Probed = late },
		"1 open connection broken": func(d *drill) { d.Requests[0].Probed = broken },
		"still used by g1":         func(d *drill) { d.UsedBy, d.Drained = []string{"g1"}, "" },
		"could not be undrained":   func(d *drill) { d.Undrain = "no route to host" },
	} {
		v := newVerification(change)
		code := (&cli.Env{Out: io.Discard, Err: io.Discard}).Exit(v.exit())
		report, err := junit(v)
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(v.text(), want) || (code == 1) != (want != "") || bytes.Contains(report, []byte("<failure")) != (want != "") {
			t.Errorf("%s: exit code %d\n%s\n%s", want, code, v.text(), report)
		}
	}
}

func TestReadProbes(t *testing.T) {
	t.Parallel()
	have := readProbes(map[string]kubeclient.PodOutput{
		"g1/b": {Text: []byte("[{\"target\":\"x\",\"attempts\":1}]\n[{\"target\":\"x\",\"attempts\":9},{\"target\":\"a\"}]\n")},
		"g1/a": {Text: []byte("[{\"target\":\"y\"")},
		"g1/c": {},
	})
	want := []probed{{"g1/b", status.Probed{Target: "a"}}, {"g1/b", status.Probed{Target: "x", Attempts: 9}}}
	if diff := cmp.Diff(want, have); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}
