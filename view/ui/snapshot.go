package ui

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"hawser.dev/hawser/health"
	"hawser.dev/hawser/nodeagent/status"
	"hawser.dev/hawser/schema/fabric"
	"hawser.dev/hawser/view/clustermap"
	"hawser.dev/hawser/view/clustermap/mapstatus"
	"hawser.dev/hawser/view/packettrace"
)

// Snapshot is the content of the page at one time. Clusters and links are separate pieces of JSON,
// which the server compares with the previous snapshot. Snapshots of hawser report may also have a
// Verification or Traces.
type Snapshot struct {
	head     head
	set      *Clusterset
	drawn    *clustermap.Map // of set, without states
	layout   clustermap.Layout
	agents   []status.Status            // of agents that respond
	old      []status.Status            // last reports of the other agents
	problems []health.Problem           // reported by APIs and agents
	order    []string                   // keys of clusters and links
	pieces   map[string]json.RawMessage // by key: cluster/NAME, link/A/B
	counters map[string]counter         // by cluster/gateway/cluster/gateway
	verified *Verification              // nil if nothing was verified
	traces   *packettrace.Report        // nil if no packets were traced
}

// head describes a snapshot as a whole.
type head struct {
	Clusterset  string               `json:"clusterset"`
	Shape       string               `json:"shape"`
	MeshImplied bool                 `json:"meshImplied"`
	Version     string               `json:"version"` // of the hawser that created it
	Sources     []string             `json:"sources"` // sources of the page: files, branch, agents
	Digest      string               `json:"digest"`  // digest of the layout
	Width       float64              `json:"width"`
	Height      float64              `json:"height"`
	Cards       bool                 `json:"cards"`                 // clusters are cards; otherwise they are dots
	Live        bool                 `json:"live"`                  // agents are queried
	LiveCluster string               `json:"liveCluster,omitempty"` // the only cluster whose agents are queried
	HiddenViews []string             `json:"hiddenViews,omitempty"` // see Input
	Unreachable []status.Unreachable `json:"unreachable"`
	Error       string               `json:"error,omitempty"` // why the files or the agents could not be read
	Problems    []Problem            `json:"problems"`        // the headline, the worst first
	Summary     string               `json:"summary"`         // text about the agents that respond and the links that are up
	// At is the time at which the facts were read, in RFC 3339.
	At time.Time `json:"at"`
}

// cluster is a cluster of the map with its position.
type cluster struct {
	clustermap.Cluster
	X      float64 `json:"x"`
	Y      float64 `json:"y"`
	Angle  float64 `json:"angle"`
	Source string  `json:"source,omitempty"` // file:line
	Nodes  []node  `json:"nodes,omitempty"`  // nodes whose agents responded, sorted by name
	// Problems counts the errors that the cluster's API reports.
	Problems int `json:"problems,omitempty"`
}

// node is a node whose agent has responded once.
type node struct {
	Name    string `json:"name"`
	Gateway string `json:"gateway,omitempty"`
	Ready   bool   `json:"ready"`
	// LastAnswer is the time of its last response if it currently does not respond; otherwise
	// nil.
	LastAnswer *time.Time `json:"lastAnswer,omitempty"`
}

// link is a link of the map with its pairs of gateways.
type link struct {
	clustermap.Link
	Source string `json:"source,omitempty"`
	Rate   int64  `json:"bytesPerSecond,omitempty"` // in both directions, of all pairs
	Pairs  []pair `json:"pairs,omitempty"`
}

// pair is a pair of gateways, in the order of Link.Between.
type pair struct {
	Gateways [2]string `json:"gateways"`
	State    string    `json:"state"`
	Active   bool      `json:"active,omitempty"`
	RTT      int64     `json:"rttMicroseconds,omitempty"`
	Loss     float64   `json:"loss,omitempty"`
	Rate     int64     `json:"bytesPerSecond,omitempty"`
	Reason   string    `json:"reason,omitempty"`
}

// counter is the byte counter of a tunnel at some time, and the rate per second.
type counter struct {
	bytes int64
	at    time.Time
	rate  int64
}

// Input is the input of a snapshot.
type Input struct {
	Clusterset *Clusterset // nil for a page of traces alone
	Reports    Reports
	// LiveCluster is the only cluster whose agents can be queried; empty = all clusters.
	LiveCluster string
	// HiddenViews are the parts that the page does not show. map, matrix, findings, change,
	// trace and node are views; explain and follow are the two parts of trace.
	HiddenViews  []string
	Version      string
	At           time.Time
	Verification *Verification
	Traces       *packettrace.Report
}

// NewSnapshot returns the snapshot of an input.
func NewSnapshot(in Input) *Snapshot { return newSnapshot(in, nil) }

// newSnapshot returns the snapshot after before, which is nil for the first one.
func newSnapshot(in Input, before *Snapshot) *Snapshot {
	set, r, at := in.Clusterset, in.Reports, in.At
	if set == nil {
		set = emptyClusterset()
	}
	r.Unreachable = withCluster(set.Fabric, r.Unreachable)
	var drawn *clustermap.Map
	var layout clustermap.Layout
	if before != nil && before.set == set {
		drawn, layout = before.drawn, before.layout // a thousand clusters have half a million pairs
	} else {
		drawn = clustermap.New(set.Fabric)
		layout = drawn.Layout()
	}
	filled := *drawn // copy of the map to fill in
	filled.Clusters, filled.Links = slices.Clone(drawn.Clusters), slices.Clone(drawn.Links)
	for i := range filled.Clusters {
		filled.Clusters[i].Gateways = slices.Clone(filled.Clusters[i].Gateways)
	}
	m := &filled
	if r.HasAgents {
		mapstatus.Fill(m, mapstatus.Reports{Agents: r.Agents, Silent: silentGateways(set.Fabric, r), Complete: in.LiveCluster == ""})
	}
	p := &Snapshot{
		set: set, drawn: drawn, layout: layout, agents: r.Agents, old: r.Old, pieces: map[string]json.RawMessage{}, counters: map[string]counter{},
		head: head{Clusterset: m.Clusterset, Shape: m.Shape, MeshImplied: m.MeshImplied, Width: layout.Width, Height: layout.Height, Cards: layout.Cards,
			Version: in.Version, Sources: append([]string{}, set.Sources...), HiddenViews: in.HiddenViews,
			Live: r.HasAgents, LiveCluster: in.LiveCluster, Unreachable: r.Unreachable, At: at.UTC()},
		verified: in.Verification, traces: in.Traces,
	}
	if r.From != "" {
		p.head.Sources = append(p.head.Sources, r.From)
	}
	nodes := map[string][]node{}
	for i := range r.Agents {
		s := &r.Agents[i]
		nodes[s.Cluster] = append(nodes[s.Cluster], node{Name: s.Node, Gateway: s.Gateway, Ready: s.Ready})
	}
	for i := range r.Old {
		s := &r.Old[i]
		nodes[s.Cluster] = append(nodes[s.Cluster], node{Name: s.Node, Gateway: s.Gateway, LastAnswer: p.lastAnswer(s)})
	}
	for _, list := range nodes {
		slices.SortFunc(list, func(a, b node) int { return strings.Compare(a.Name, b.Name) })
	}
	errorCount := map[string]int{} // by cluster
	for i := range r.Problems {
		if r.Problems[i].Severity == health.Error {
			errorCount[r.Problems[i].Cluster]++
		}
	}
	var names strings.Builder
	for i := range m.Clusters {
		c := &m.Clusters[i]
		at := layout.Places[i]
		fmt.Fprintf(&names, "%s %.0f %.0f ", c.Name, at.X, at.Y)
		p.addPiece("cluster/"+c.Name, cluster{*c, at.X, at.Y, at.Angle, set.PositionOf("clusters[" + c.Name + "]"), nodes[c.Name], errorCount[c.Name]})
	}
	p.head.Digest = names.String() + m.Shape
	pairs := p.pairs(m.Links, r.Agents, before, at)
	for i := range m.Links {
		l := &m.Links[i]
		out := link{Link: *l, Pairs: pairs[l.Between]}
		for _, one := range out.Pairs {
			out.Rate += one.Rate
		}
		p.addPiece("link/"+l.Between[0]+"/"+l.Between[1], out)
	}
	p.problems = health.Merge(r.Problems, health.Assess(health.StatesOf(r.Agents)))
	p.head.Problems, p.head.Summary = headline(m, r, p.problems), summary(m, r)
	return p
}

// lastAnswer returns the time of the last response of a silent agent; nil if unknown.
func (p *Snapshot) lastAnswer(s *status.Status) *time.Time {
	for i := range p.head.Unreachable {
		if u := &p.head.Unreachable[i]; u.Cluster == s.Cluster && u.Node == s.Node {
			return u.LastAnswer
		}
	}
	return nil
}

func emptyClusterset() *Clusterset {
	return &Clusterset{Fabric: &fabric.Fabric{}, PositionOf: func(string) string { return "" }}
}

func (p *Snapshot) addPiece(key string, value any) {
	raw, err := json.Marshal(value)
	if err != nil {
		raw = []byte("null") // cannot happen: all values have a JSON form
	}
	p.order = append(p.order, key)
	p.pieces[key] = raw
}

// pairs returns the pairs of gateways of links, as both ends report them, with the traffic since
// the previous snapshot.
func (p *Snapshot) pairs(links []clustermap.Link, agents []status.Status, before *Snapshot, at time.Time) map[[2]string][]pair {
	drawn := make(map[[2]string]bool, len(links))
	for i := range links {
		drawn[links[i].Between] = true
	}
	found := map[[2]string]map[[2]string]*pair{}
	for i := range agents {
		s := &agents[i]
		for j := range s.Connections {
			c := &s.Connections[j]
			between := fabric.SortedPair(s.Cluster, c.RemoteCluster)
			if !drawn[between] {
				continue
			}
			ends := [2]string{c.Gateway, c.RemoteGateway}
			if between[0] != s.Cluster {
				ends = [2]string{c.RemoteGateway, c.Gateway}
			}
			if found[between] == nil {
				found[between] = map[[2]string]*pair{}
			}
			one := found[between][ends]
			if one == nil {
				one = &pair{Gateways: ends, State: clustermap.Up}
				found[between][ends] = one
			}
			if c.Status != status.Connected {
				one.State = clustermap.Down
			}
			if one.Active = one.Active || c.Active; c.RTT != nil {
				one.RTT = max(one.RTT, c.RTT.Avg)
			}
			one.Loss = max(one.Loss, c.Loss)
			if one.Reason == "" {
				one.Reason = c.Reason
			}
			// Both ends count the same bytes, so one report is enough.
			key := strings.Join([]string{s.Cluster, c.Gateway, c.RemoteCluster, c.RemoteGateway}, "/")
			one.Rate = max(one.Rate, withoutProbes(p.updateRate(key, before, c.RxBytes+c.TxBytes, at), p.set.Fabric))
		}
	}
	out := map[[2]string][]pair{}
	for between, of := range found {
		for _, ends := range slices.SortedFunc(maps.Keys(of), fabric.ComparePairs) {
			out[between] = append(out[between], *of[ends])
		}
	}
	return out
}

// probeBytes is the size of a probe in a tunnel with its headers: 120 to 180 bytes were measured
// with each driver.
const probeBytes = 180

// withoutProbes returns the rate of a tunnel, in both directions, without the probes of the agents.
// Each end sends a probe and a reply per interval. Agents send more when states change, so a rate
// of up to twice the probes counts as none.
func withoutProbes(rate int64, f *fabric.Fabric) int64 {
	interval := max(time.Duration(f.Health.Interval), 10*time.Millisecond)
	probes := int64(4 * probeBytes / interval.Seconds())
	if rate <= 2*probes {
		return 0
	}
	return rate - probes
}

// rateOver is the minimum time over which a rate is computed: a shorter time would show single
// packets.
const rateOver = time.Second

func (p *Snapshot) updateRate(key string, before *Snapshot, bytes int64, readAt time.Time) int64 {
	c := counter{bytes: bytes, at: readAt}
	if before != nil {
		if previous, ok := before.counters[key]; ok && bytes >= previous.bytes {
			if elapsed := readAt.Sub(previous.at); elapsed < rateOver {
				c = previous
			} else {
				c.rate = int64(float64(bytes-previous.bytes) / elapsed.Seconds())
			}
		}
	}
	p.counters[key] = c
	return c.rate
}

// fullUpdate is the first update of the page.
type fullUpdate struct {
	head
	Clusters []json.RawMessage `json:"clusters"`
	Links    []json.RawMessage `json:"links"`
}

func (p *Snapshot) full() fullUpdate {
	w := fullUpdate{head: p.head, Clusters: []json.RawMessage{}, Links: []json.RawMessage{}}
	for _, key := range p.order {
		if strings.HasPrefix(key, "cluster/") {
			w.Clusters = append(w.Clusters, p.pieces[key])
		} else {
			w.Links = append(w.Links, p.pieces[key])
		}
	}
	return w
}

// deltaUpdate changes one snapshot into the next.
type deltaUpdate struct {
	head
	Clusters []json.RawMessage `json:"clusters,omitempty"`
	Links    []json.RawMessage `json:"links,omitempty"`
	Gone     [][2]string       `json:"gone,omitempty"` // links
}

// since returns the changes since a snapshot with the same layout.
func (p *Snapshot) since(before *Snapshot) deltaUpdate {
	c := deltaUpdate{head: p.head}
	for _, key := range p.order {
		if bytes.Equal(p.pieces[key], before.pieces[key]) {
			continue
		}
		if strings.HasPrefix(key, "cluster/") {
			c.Clusters = append(c.Clusters, p.pieces[key])
		} else {
			c.Links = append(c.Links, p.pieces[key])
		}
	}
	for _, key := range before.order {
		if parts := strings.Split(key, "/"); p.pieces[key] == nil && len(parts) == 3 {
			c.Gone = append(c.Gone, [2]string{parts[1], parts[2]})
		}
	}
	return c
}
