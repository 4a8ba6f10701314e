package ui

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"hawser.dev/hawser/health"
	"hawser.dev/hawser/nodeagent/status"
	"hawser.dev/hawser/schema/fabric"
)

// TestHeadline: the headline names the cause, the worst first, and no neighbour of it.
func TestHeadline(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	const up, down = status.Connected, status.Disconnected
	mesh := func(broken string, names ...string) []status.Status { // each is connected to each but the broken one
		var out []status.Status
		for _, from := range names {
			s := status.Status{Cluster: from, Node: from + "-gw", Gateway: "a", Ready: true}
			for _, to := range []string{"g1", "g2", "g3"} {
				if to != from {
					state := up
					if to == broken || from == broken {
						state = down
					}
					s.Connections = append(s.Connections, status.Connection{Gateway: "a", RemoteCluster: to, RemoteGateway: "a", Status: state})
				}
			}
			out = append(out, s)
		}
		return out
	}
	silent := func(cluster, node string) status.Unreachable {
		return status.Unreachable{Agent: cluster + "/pod-" + node, Cluster: cluster, Node: node, Error: "no answer", LastAnswer: &at}
	}
	linkDown := mesh("", "g1", "g2", "g3")
	linkDown[0].Connections[0].Status, linkDown[1].Connections[0].Status, linkDown[0].Connections[0].Reason = down, down, "no answer"
	unready := mesh("", "g1", "g2", "g3")
	unready[1].Ready, unready[1].Problems = false, []status.Problem{{Code: status.ChangesFailed, Severity: status.Error, Text: "nft: no such file"}}
	reporting := mesh("", "g1", "g2", "g3")
	for i := range reporting {
		reporting[i].Problems = []status.Problem{{Code: "service", Severity: status.Warning, Text: "no Service"}, {Code: "node", Severity: status.Error, Text: "API text"}}
	}
	var many []status.Unreachable
	for i := range manySilent + 1 {
		many = append(many, silent("g3", fmt.Sprintf("n%d", i)))
	}
	for _, tt := range []struct {
		name    string
		reports Reports
		want    []string
	}{
		{"no agent is asked", Reports{}, nil},
		{"all is well", Reports{HasAgents: true, Agents: mesh("", "g1", "g2", "g3")}, nil},
		{"a gateway is dead", Reports{HasAgents: true, Agents: mesh("g3", "g1", "g2"), Unreachable: []status.Unreachable{silent("g3", "g3-gw")}},
			[]string{"error g3/g3-gw|does not answer|gateway a is down|no answer since 03:04"}},
		{"a gateway is dead, whose agent never answered at its socket", Reports{HasAgents: true, Agents: mesh("g3", "g1", "g2"),
			Unreachable: []status.Unreachable{{Agent: "/run/agent.sock", Node: "g3-gw", Error: "refused"}}}, []string{"error g3/g3-gw|does not answer|gateway a is down|refused"}},
		{"an agent is silent, its tunnels work", Reports{HasAgents: true, Agents: mesh("", "g1", "g2"), Unreachable: []status.Unreachable{silent("g3", "g3-gw")}},
			[]string{"error g3/g3-gw|does not answer|gateway a may still forward traffic|no answer since 03:04"}},
		{"an agent of a worker is silent", Reports{HasAgents: true, Agents: mesh("", "g1", "g2", "g3"), Unreachable: []status.Unreachable{silent("g3", "g3-w1")}},
			[]string{"error g3/g3-w1|does not answer||no answer since 03:04"}},
		{"many agents of a cluster are silent", Reports{HasAgents: true, Agents: mesh("", "g1", "g2"), Unreachable: many}, []string{"error cluster g3|4 of its agents do not answer||no answer since 03:04"}},
		{"a cluster cannot be asked", Reports{HasAgents: true, Agents: mesh("", "g1", "g2"), Unreachable: []status.Unreachable{{Agent: "g3", Cluster: "g3", Error: "refused"}, silent("g3", "g3-gw")}},
			[]string{"error cluster g3|does not answer|its API server cannot be reached|refused"}},
		{"no agent answers", Reports{HasAgents: true, Unreachable: []status.Unreachable{silent("g1", "g1-gw"), silent("g2", "g2-gw")}},
			[]string{"error No agent answers||the states of clusters and links are unknown|no answer since 03:04"}},
		{"a gateway without a link whose agent answers", Reports{HasAgents: true, Agents: mesh("g3", "g1", "g2", "g3")}, []string{"error g3/a|no link of this gateway is up||"}},
		{"a link is down between gateways with other links", Reports{HasAgents: true, Agents: linkDown}, []string{"error link g1 - g2|is down||g1/a - g2/a: no answer"}},
		{"the API knows why an agent is silent", Reports{HasAgents: true, Agents: mesh("g3", "g1", "g2"), Unreachable: []status.Unreachable{silent("g3", "g3-gw")},
			Problems: []health.Problem{{Severity: health.Error, Code: "node-not-ready", Text: "the node is NotReady", Next: "kubectl", Cluster: "g3", Node: "g3-gw"}}},
			[]string{"error g3/g3-gw|does not answer|the node is NotReady; gateway a is down|no answer; next: kubectl since 03:04"}},
		{"the API reports a problem that no agent sees", Reports{HasAgents: true, Agents: mesh("", "g1", "g2", "g3"),
			Problems: []health.Problem{{Severity: health.Error, Code: health.CodeDNS, Text: "no DNS block", Cluster: "g2"}}}, []string{"error g2||no DNS block|"}},
		{"agents report the same problem, which the API reports for one", Reports{HasAgents: true, Agents: reporting, Problems: []health.Problem{{Severity: health.Error, Code: "node", Text: "API text", Cluster: "g1", Node: "g1-gw"}}},
			[]string{"error g1/g1-gw||API text|", "warning g1/g1-gw||no Service|"}},
		{"an agent is not ready", Reports{HasAgents: true, Agents: unready}, []string{"error g2/g2-gw||nft: no such file|"}},
	} {
		p := newSnapshot(Input{Clusterset: newFake("g1", "g2", "g3").set, Reports: tt.reports, At: at}, nil)
		var got []string
		for _, p := range p.head.Problems {
			text := p.Severity + " " + p.Subject + "|" + p.Text + "|" + p.Consequence + "|" + p.Detail
			if p.Since != nil {
				text += p.Since.Format(" since 15:04")
			}
			got = append(got, text)
		}
		if d := cmp.Diff(tt.want, got); d != "" {
			t.Errorf("%s (-want +got):\n%s", tt.name, d)
		}
	}
}

// TestManyProblems: the headline of a large clusterset that is cut in two stays short.
func TestManyProblems(t *testing.T) {
	t.Parallel()
	const clusters = 60
	names := make([]string, clusters)
	for i := range names {
		names[i] = fmt.Sprintf("c%02d", i)
	}
	r := Reports{HasAgents: true}
	for i, from := range names {
		s := status.Status{Cluster: from, Node: from + "-gw", Gateway: "a", Ready: true}
		for j, to := range names {
			state := status.Connected
			if (i < clusters/2) != (j < clusters/2) {
				state = status.Disconnected
			}
			if i != j {
				s.Connections = append(s.Connections, status.Connection{Gateway: "a", RemoteCluster: to, RemoteGateway: "a", Driver: fabric.DriverWireguard, Status: state})
			}
		}
		r.Agents = append(r.Agents, s)
	}
	startedAt := time.Now()
	p := NewSnapshot(Input{Clusterset: newFake(names...).set, Reports: r})
	if got := len(p.head.Problems); got != maxProblems {
		t.Errorf("%d problems, want %d", got, maxProblems)
	}
	t.Logf("took %s", time.Since(startedAt))
}
