package nodeagent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"syscall"
	"time"

	"hawser.dev/hawser/nodeagent/health"
	"hawser.dev/hawser/nodeagent/project"
	"hawser.dev/hawser/schema/fabric"
)

// seen is what only a running agent knows: a plan without it would move links and
// forget what other clusters say.
type seen struct {
	Paths   map[string]project.Path `json:"paths"`
	Transit map[string]project.Path `json:"transit"`
	Live    map[string]project.Live `json:"live"`
	// Kept and Settled are as in project.Input.
	Kept    map[string]project.Live `json:"kept,omitempty"`
	Settled bool                    `json:"settled,omitempty"`
	// Cables is as in project.Input.
	Cables  map[string][]project.Cable `json:"cables,omitempty"`
	Leaving []lingering                `json:"leaving,omitempty"`
	Before  *fabric.Shape              `json:"before,omitempty"`
	// Resolved is as in project.Local.
	Resolved map[string][]netip.Addr `json:"resolved,omitempty"`
}

// lingering is a gateway that left the fabric and is still used.
type lingering struct {
	Cluster string         `json:"cluster"`
	Gateway fabric.Gateway `json:"gateway"`
}

// sight gives what the running agent sees, as of its last round.
func (a *Agent) sight() seen {
	in := a.shown.Load().input
	out := seen{Paths: in.Paths, Transit: in.Transit, Live: in.Live, Kept: in.Kept, Settled: in.Settled, Cables: in.Cables, Before: in.Before, Resolved: in.Local.Resolved}
	if in.Fabric == nil {
		return out
	}
	published, _ := a.inputs.now()
	for _, c := range in.Fabric.Clusters {
		now := published.fabric.Cluster(c.Name)
		for _, g := range c.Gateways {
			if now != nil && now.Gateway(g.Name) == nil {
				out.Leaving = append(out.Leaving, lingering{c.Name, g})
			}
		}
	}
	return out
}

// merge gives the fabric with the gateways that linger.
func (s seen) merge(f *fabric.Fabric) *fabric.Fabric {
	previous := &fabric.Fabric{}
	for _, l := range s.Leaving {
		previous.Clusters = append(previous.Clusters, fabric.Cluster{Name: l.Cluster, Gateways: []fabric.Gateway{l.Gateway}})
	}
	merged, _ := linger(previous, f, func(health.Peer) bool { return true })
	return merged
}

// seenTimeout is for the answer of the agent that runs on this node.
const seenTimeout = 5 * time.Second

// askSeen asks the agent that runs on this node. It is nil when none runs.
func askSeen(ctx context.Context, socket string) (*seen, error) {
	ctx, cancel := context.WithTimeout(ctx, seenTimeout)
	defer cancel()
	client := &http.Client{Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "unix", socket)
		},
	}}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://agent/sight", nil)
	if err != nil {
		return nil, err
	}
	resp, err := client.Do(req)
	if errors.Is(err, syscall.ENOENT) || errors.Is(err, syscall.ECONNREFUSED) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("ask the running agent at %s: %w", socket, err)
	}
	defer func() { _ = resp.Body.Close() }()
	raw, err := io.ReadAll(resp.Body)
	if err != nil {
		return nil, fmt.Errorf("read the running agent's answer: %w", err)
	}
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("ask the running agent at %s: it answered %s", socket, resp.Status)
	}
	var s seen
	if err := json.Unmarshal(raw, &s); err != nil {
		return nil, fmt.Errorf("read the running agent's answer: %w", err)
	}
	return &s, nil
}

// planned gives the state that a pass would converge to now, with what a running
// agent sees where there is one.
func (a *Agent) planned(ctx context.Context) (*node, error) {
	a.inputs.refresh(ctx)
	in, ok := a.inputs.now()
	if !ok {
		return nil, a.inputs.missing()
	}
	s, err := askSeen(ctx, a.config.Socket)
	if err != nil {
		return nil, err
	}
	if s == nil {
		s = a.foreseen(in)
		s.Cables = a.cabling.follow(in.fabric, in.keys, probesOf(in.fabric, in.before, in.facts.Facts.Nodes, a.config.Cluster, a.config.Node))
	}
	in.before = s.Before
	input := a.input(in, ways{paths: s.Paths, transit: s.Transit}, s.Live)
	input.Cables = s.Cables
	for name, addrs := range s.Resolved {
		input.Local.Resolved[name] = addrs
	}
	input.Fabric = s.merge(in.fabric)
	input.Kept, input.Settled = s.Kept, s.Settled
	input.Fabric, input.Decided = project.Effective(input)
	state, _ := project.State(input)
	return &node{State: state, decommission: in.fabric.Decommission}, nil
}

// foreseen is what an agent that starts now would begin with: the links of the run
// before, as long as the fabric has them.
func (a *Agent) foreseen(in current) *seen {
	quiet := newChoice(a.config.Cluster, slog.New(slog.DiscardHandler), time.Now())
	quiet.restore(a.saver.load(a.log))
	a.peers.probe(in)
	v := sight{fabric: in.fabric, cluster: a.config.Cluster, gateway: a.gatewayIn(in.fabric), snapshot: a.peers.snapshot()}
	w := quiet.look(in.fabric, v, nil, time.Now())
	a.heard.restore(time.Now(), a.log)
	kept, settled := a.heard.follow(len(in.fabric.Clusters)-1, nil, time.Now())
	return &seen{Paths: w.paths, Transit: w.transit, Kept: kept, Settled: settled}
}
