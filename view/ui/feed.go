package ui

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"hawser.dev/hawser/nodeagent/status"
	"hawser.dev/hawser/schema/fabric"
	"hawser.dev/hawser/view/clustermap"
	"hawser.dev/hawser/view/clustermap/mapstatus"
)

// picture is the map at one time, in pieces that are compared and sent by themselves.
type picture struct {
	head     head
	set      *Clusterset
	drawn    *clustermap.Map // of set, without states
	layout   clustermap.Layout
	agents   []status.Status
	order    []string                   // of clusters and links, by key
	pieces   map[string]json.RawMessage // by key: cluster/NAME, link/A/B
	counters map[string]counter         // by cluster/gateway/cluster/gateway
}

// head is what a picture says of the whole.
type head struct {
	Clusterset string   `json:"clusterset"`
	Shape      string   `json:"shape"`
	Implied    bool     `json:"implied"`
	File       string   `json:"file"`
	Digest     string   `json:"digest"` // of the layout: another one is another map
	Width      float64  `json:"width"`
	Height     float64  `json:"height"`
	Cards      bool     `json:"cards"`             // there is room for a card for each cluster
	Live       bool     `json:"live"`              // agents are asked
	Of         string   `json:"of,omitempty"`      // the cluster whose agents alone are
	Without    []string `json:"without,omitempty"` // views that there are not
	Silent     []Silent `json:"silent"`
	Error      string   `json:"error,omitempty"` // why the files or the agents could not be read
	// At is when the facts were asked for, RFC 3339.
	At time.Time `json:"at"`
}

// cluster is a cluster of the map with its place.
type cluster struct {
	clustermap.Cluster
	X      float64 `json:"x"`
	Y      float64 `json:"y"`
	Angle  float64 `json:"angle"`
	Source string  `json:"source,omitempty"` // file:line
	Nodes  []node  `json:"nodes,omitempty"`  // whose agents answered
}

// node is a node whose agent answered.
type node struct {
	Name    string `json:"name"`
	Gateway string `json:"gateway,omitempty"`
	Ready   bool   `json:"ready"`
}

// link is a link of the map with the pairs of gateways that it is made of.
type link struct {
	clustermap.Link
	Source string `json:"source,omitempty"`
	Rate   int64  `json:"bytesPerSecond,omitempty"` // both ways, of all pairs
	Pairs  []pair `json:"pairs,omitempty"`
}

// pair is a pair of gateways, in the order of Link.Between.
type pair struct {
	Gateways [2]string `json:"gateways"`
	State    string    `json:"state"`
	Chosen   bool      `json:"chosen,omitempty"`
	RTT      int64     `json:"rttMicroseconds,omitempty"`
	Loss     float64   `json:"loss,omitempty"`
	Rate     int64     `json:"bytesPerSecond,omitempty"`
	Why      string    `json:"why,omitempty"`
}

// counter is what a tunnel had counted at some time, and how much a second that was.
type counter struct {
	bytes int64
	at    time.Time
	rate  int64
}

// feed has the newest picture, and makes new ones while somebody watches.
type feed struct {
	config Config

	mu       sync.Mutex
	now      *picture
	changed  chan struct{} // closed when now is another one
	watchers int
	wanted   chan struct{} // somebody came
	looking  sync.Mutex    // one look at a time
}

func newFeed(config Config) *feed {
	config.Every = max(config.Every, 100*time.Millisecond)
	return &feed{config: config, changed: make(chan struct{}), wanted: make(chan struct{}, 1)}
}

// run looks at the source again and again while somebody watches, until ctx ends.
func (f *feed) run(ctx context.Context) {
	for ctx.Err() == nil {
		f.mu.Lock()
		watched := f.watchers > 0
		f.mu.Unlock()
		if !watched {
			select {
			case <-ctx.Done():
				return
			case <-f.wanted:
			}
			continue
		}
		f.look(ctx, true)
		select {
		case <-ctx.Done():
		case <-time.After(f.config.Every):
		}
	}
}

// watch counts who watches until the function that it gives is called.
func (f *feed) watch() func() {
	f.mu.Lock()
	f.watchers++
	f.mu.Unlock()
	select {
	case f.wanted <- struct{}{}:
	default:
	}
	return func() {
		f.mu.Lock()
		f.watchers--
		f.mu.Unlock()
	}
}

// current gives the newest picture, and what is closed when there is another one. Without
// any it makes one from the files alone: agents take their time.
func (f *feed) current(ctx context.Context) (*picture, <-chan struct{}) {
	f.mu.Lock()
	now, changed := f.now, f.changed
	f.mu.Unlock()
	if now == nil {
		f.look(ctx, false)
		f.mu.Lock()
		defer f.mu.Unlock()
		return f.now, f.changed
	}
	return now, changed
}

// look makes a new picture.
func (f *feed) look(ctx context.Context, ask bool) {
	f.looking.Lock()
	defer f.looking.Unlock()
	f.mu.Lock()
	before := f.now
	f.mu.Unlock()
	if before != nil && !ask {
		return // somebody else just made one
	}
	var trouble []string
	set, err := f.config.Source.Clusterset(ctx)
	if err != nil {
		trouble = append(trouble, err.Error())
	}
	if set == nil {
		if set = (&Clusterset{Fabric: &fabric.Fabric{}, Place: func(string) string { return "" }}); before != nil {
			set = before.set // the last one that could be read
		}
	}
	var reports Reports
	if ask {
		if reports, err = f.config.Source.Agents(ctx); err != nil {
			trouble = append(trouble, err.Error())
		}
	}
	text := strings.Join(trouble, "; ")
	if before != nil && before.set == set && before.head.Error == text && !reports.Asked {
		return // nothing can have changed
	}
	now := newPicture(set, reports, f.config.Of, before, time.Now())
	now.head.Error, now.head.Without = text, f.config.Without
	f.mu.Lock()
	defer f.mu.Unlock()
	f.now = now
	close(f.changed)
	f.changed = make(chan struct{})
}

// newPicture draws a map of what is known. Of is the cluster whose agents alone are asked, or
// empty; before is the picture before it, or nil.
func newPicture(set *Clusterset, r Reports, of string, before *picture, at time.Time) *picture {
	var drawn *clustermap.Map
	var layout clustermap.Layout
	if before != nil && before.set == set {
		drawn, layout = before.drawn, before.layout // of 1,000 clusters are half a million pairs
	} else {
		drawn = clustermap.New(set.Fabric)
		layout = drawn.Layout()
	}
	filled := *drawn // a copy of what is filled in
	filled.Clusters, filled.Links = slices.Clone(drawn.Clusters), slices.Clone(drawn.Links)
	for i := range filled.Clusters {
		filled.Clusters[i].Gateways = slices.Clone(filled.Clusters[i].Gateways)
	}
	m := &filled
	if r.Asked {
		mapstatus.Fill(m, r.Agents)
		if of == "" { // one cluster alone cannot tell whose fault it is
			mapstatus.Lost(m, r.Agents)
		}
	}
	p := &picture{
		set: set, drawn: drawn, layout: layout, agents: r.Agents, pieces: map[string]json.RawMessage{}, counters: map[string]counter{},
		head: head{Clusterset: m.Clusterset, Shape: m.Shape, Implied: m.Implied, File: set.File, Width: layout.Width, Height: layout.Height, Cards: layout.Cards,
			Live: r.Asked, Of: of, Silent: append([]Silent{}, r.Silent...), At: at},
	}
	nodes := map[string][]node{}
	for i := range r.Agents {
		s := &r.Agents[i]
		nodes[s.Cluster] = append(nodes[s.Cluster], node{s.Node, s.Gateway, s.Ready})
	}
	var names strings.Builder
	for i := range m.Clusters {
		c := &m.Clusters[i]
		at := layout.Places[i]
		fmt.Fprintf(&names, "%s %.0f %.0f ", c.Name, at.X, at.Y)
		p.piece("cluster/"+c.Name, cluster{*c, at.X, at.Y, at.Angle, set.Place("clusters[" + c.Name + "]"), nodes[c.Name]})
	}
	p.head.Digest = names.String() + m.Shape
	pairs := p.pairs(m.Links, r.Agents, before, at)
	for i := range m.Links {
		l := &m.Links[i]
		out := link{Link: *l, Pairs: pairs[l.Between]}
		for _, one := range out.Pairs {
			out.Rate += one.Rate
		}
		p.piece("link/"+l.Between[0]+"/"+l.Between[1], out)
	}
	return p
}

func (p *picture) piece(key string, value any) {
	raw, err := json.Marshal(value)
	if err != nil {
		raw = []byte("null") // there is nothing in it that JSON does not have
	}
	p.order = append(p.order, key)
	p.pieces[key] = raw
}

// pairs gives the pairs of gateways of links, as both ends tell of them, and counts what
// passed since the picture before.
func (p *picture) pairs(links []clustermap.Link, agents []status.Status, before *picture, at time.Time) map[[2]string][]pair {
	drawn := make(map[[2]string]bool, len(links))
	for i := range links {
		drawn[links[i].Between] = true
	}
	found := map[[2]string]map[[2]string]*pair{}
	for i := range agents {
		s := &agents[i]
		for j := range s.Connections {
			c := &s.Connections[j]
			between := fabric.Pair(s.Cluster, c.RemoteCluster)
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
			if one.Chosen = one.Chosen || c.Chosen; c.RTT != nil {
				one.RTT = max(one.RTT, c.RTT.Avg)
			}
			one.Loss = max(one.Loss, c.Loss)
			if one.Why == "" {
				one.Why = c.Why
			}
			// Both ends count the same bytes: the one that answers tells.
			key := strings.Join([]string{s.Cluster, c.Gateway, c.RemoteCluster, c.RemoteGateway}, "/")
			one.Rate = max(one.Rate, p.count(key, before, c.RxBytes+c.TxBytes, at))
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

// rateOver is over how long at least traffic is counted: less tells of single packets.
const rateOver = time.Second

func (p *picture) count(key string, before *picture, bytes int64, at time.Time) int64 {
	c := counter{bytes: bytes, at: at}
	if before != nil {
		if was, ok := before.counters[key]; ok && bytes >= was.bytes {
			if passed := at.Sub(was.at); passed < rateOver {
				c = was
			} else {
				c.rate = int64(float64(bytes-was.bytes) / passed.Seconds())
			}
		}
	}
	p.counters[key] = c
	return c.rate
}

// whole is a picture as the page gets it first.
type whole struct {
	head
	Clusters []json.RawMessage `json:"clusters"`
	Links    []json.RawMessage `json:"links"`
}

func (p *picture) whole() whole {
	w := whole{head: p.head, Clusters: []json.RawMessage{}, Links: []json.RawMessage{}}
	for _, key := range p.order {
		if strings.HasPrefix(key, "cluster/") {
			w.Clusters = append(w.Clusters, p.pieces[key])
		} else {
			w.Links = append(w.Links, p.pieces[key])
		}
	}
	return w
}

// change is what turns one picture into the next.
type change struct {
	head
	Clusters []json.RawMessage `json:"clusters,omitempty"`
	Links    []json.RawMessage `json:"links,omitempty"`
	Gone     [][2]string       `json:"gone,omitempty"` // links
}

// since gives what changed since a picture with the same layout.
func (p *picture) since(before *picture) change {
	c := change{head: p.head}
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
