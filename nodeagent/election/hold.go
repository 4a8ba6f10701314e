// Package election decides which node of a cluster holds which of the gateways whose nodes
// labels pick, and keeps it so: two nodes are never the same gateway. A Lease of the
// cluster's API for each gateway says who holds it (as in Kubernetes' leader election), and
// a guard in the kernel closes the tunnels of a node whose Lease was not renewed in time,
// whatever its agent does. What is decided is pure (State); a Keeper does the rest.
package election

import (
	"hash/fnv"
	"maps"
	"slices"
	"time"

	"hawser.dev/hawser/internal/due"
	"hawser.dev/hawser/nodeagent/model"
	"hawser.dev/hawser/schema/fabric"
)

// Who holds a gateway renews its Lease every RenewEvery. StopAfter after it began the last
// renewal that was taken it is the gateway no more, and GuardAfter after that the kernel lets
// nothing of it pass. Another node takes a Lease that it saw unchanged for TakeAfter. All are
// measured with each node's own clock, which may run a third faster or slower than another's.
const (
	RenewEvery = 2 * time.Second
	StopAfter  = 5 * time.Second
	GuardAfter = 6 * time.Second
	TakeAfter  = 8 * time.Second
	// removeAfter is how long a node goes on with a gateway that left the topology, as long as
	// it can renew the Lease: others that use it hear of it later.
	removeAfter = 30 * time.Second
	// retryEvery is the pause after a write that failed.
	retryEvery = 500 * time.Millisecond
	// stagger is by how much each node waits behind the one before it for a free gateway, and
	// mostStagger the most of them that count.
	stagger     = 100 * time.Millisecond
	mostStagger = 20
)

// Lease is the record of who holds a gateway, as it is in the cluster's API.
type Lease struct {
	Gateway string
	Holder  string // node; empty = nobody
	// Turn counts up when another node takes the gateway (leaseTransitions).
	Turn    int
	Renewed time.Time // as its holder's clock had it: to tell renewals apart, and for people
	// Released says that the last holder gave it back, and holds it no more.
	Released bool
	Version  string // of the record: a write of an older one is refused
}

// Gateway is one whose node labels pick.
type Gateway struct {
	Name     string
	Selector map[string]string // labels that its node has, every one
}

// View is what a node sees.
type View struct {
	Node     string
	Gateways []Gateway
	// Nodes are those of the cluster, and Named those of them that are gateways by name.
	Nodes  []model.Node
	Named  []string
	Leases map[string]Lease // by gateway
	// Leaving says that this node's agent ends, and Drained that it takes no other gateway.
	Leaving, Drained bool
	// Over says that all of Hawser's is to go.
	Over bool
	// Ports are the UDP ports of tunnels to the gateways, first and last.
	Ports [][2]int
}

// ViewOf gives what a fabric says of a cluster's gateways; it has no Gateways where labels
// pick none.
func ViewOf(f *fabric.Fabric, cluster, node string, nodes []model.Node) View {
	v := View{Node: node, Nodes: nodes}
	own := f.Cluster(cluster)
	if own == nil || f.Decommission {
		v.Over = true
		return v
	}
	for i := range own.Gateways {
		if g := &own.Gateways[i]; g.Picked() {
			v.Gateways = append(v.Gateways, Gateway{Name: g.Name, Selector: g.NodeSelector})
			v.ports(g.Port)
		} else {
			v.Named = append(v.Named, g.Node)
		}
	}
	if len(v.Gateways) == 0 {
		return v
	}
	for _, l := range f.Links {
		if l.Port != 0 && slices.Contains(l.Between[:], cluster) {
			v.ports(l.Port)
		}
	}
	if slices.Contains(f.Drivers(cluster), fabric.DriverIPsec) {
		for _, port := range []int{f.Tunnel.IPsec.IKEPort, f.Tunnel.IPsec.NATPort} {
			v.Ports = append(v.Ports, [2]int{port, port})
		}
	}
	return v
}

// ports adds those that count from a base: WireGuard's, and VXLAN's two.
func (v *View) ports(base int) {
	if r := [2]int{base, min(fabric.VXLANPort(base, true), 65535)}; !slices.Contains(v.Ports, r) {
		v.Ports = append(v.Ports, r)
	}
}

// Write is a Lease to be stored in place of the one of its Version.
type Write struct{ Lease Lease }

// State is what one look leaves to the next. The zero State holds nothing.
type State struct {
	mine    Lease     // of the gateway that this node holds; no Gateway = none
	began   time.Time // when the last renewal that was taken began
	back    Lease     // to be given back; no Gateway = none
	leftAt  time.Time // since when
	seen    map[string]sight
	pauseTo time.Time // no write before
	goneAt  time.Time // since when mine is not in the topology; zero = it is
}

// sight is a Lease as this node saw it, and since when it is the same.
type sight struct {
	lease Lease
	since time.Time
}

// Holds gives the gateway that this node is at a time, and until when; empty = none.
func (s State) Holds(now time.Time) (gateway string, until time.Time) {
	until = s.began.Add(StopAfter)
	if s.mine.Gateway == "" || !now.Before(until) {
		return "", time.Time{}
	}
	return s.mine.Gateway, until
}

// Guarded gives until when the kernel may let this node's tunnels work.
func (s State) Guarded() time.Time { return s.began.Add(GuardAfter) }

// Holders gives the nodes that hold gateways, as this node knows them, by gateway. This node
// is one only while it holds the gateway.
func (s State) Holders(node string, now time.Time) map[string]string {
	out := map[string]string{}
	for name, seen := range s.seen {
		if seen.lease.Holder != "" && seen.lease.Holder != node {
			out[name] = seen.lease.Holder
		}
	}
	if own, _ := s.Holds(now); own != "" {
		out[own] = node
	}
	return out
}

// Look decides what to write now, nil = nothing, and when to look again at the latest.
func (s State) Look(v View, now time.Time) (next State, write *Write, again time.Time) {
	next = s
	next.seen = map[string]sight{}
	for _, g := range v.Gateways {
		if l, there := v.Leases[g.Name]; there {
			seen, known := s.seen[g.Name]
			if !known || seen.lease != l {
				seen = sight{l, now}
			}
			next.seen[g.Name] = seen
		}
	}
	next = next.keep(v, now)
	switch again = now.Add(RenewEvery); {
	case next.mine.Gateway != "":
		again = due.Later(next.began.Add(RenewEvery), next.pauseTo)
		if !now.Before(again) {
			write, again = &Write{next.mine}, now.Add(retryEvery)
			write.Lease.Renewed = now
		}
		if stop := next.began.Add(StopAfter); stop.Before(again) {
			again = stop
		}
	case next.back.Gateway != "":
		if again = next.pauseTo; !now.Before(again) {
			write, again = &Write{next.back}, now.Add(retryEvery)
			write.Lease.Holder, write.Lease.Renewed, write.Lease.Released = "", now, true
		}
	default:
		var at time.Time
		if write, at = next.take(v, now); !at.IsZero() && at.Before(again) {
			again = at
		}
	}
	return next, write, again
}

// keep drops what this node can hold no longer, and gives back what another can have.
func (s State) keep(v View, now time.Time) State {
	if s.back.Gateway != "" && now.Sub(s.leftAt) > TakeAfter {
		s.back = Lease{} // it is free by now without that
	}
	if s.mine.Gateway == "" {
		return s
	}
	if own, _ := s.Holds(now); own == "" {
		s.mine = Lease{}
		return s
	}
	if l := s.seen[s.mine.Gateway].lease; l.Holder != v.Node && l.Turn > s.mine.Turn {
		s.mine = Lease{}
		return s
	}
	i := slices.IndexFunc(v.Gateways, func(g Gateway) bool { return g.Name == s.mine.Gateway })
	if i < 0 && !v.Over && !v.Leaving {
		if s.goneAt.IsZero() {
			s.goneAt = now
		}
		if now.Sub(s.goneAt) < removeAfter {
			return s
		}
	} else {
		s.goneAt = time.Time{}
	}
	if i < 0 || (v.Leaving || !v.fit(v.Node, v.Gateways[i])) && s.heir(v, v.Gateways[i]) {
		s.back, s.mine, s.leftAt = s.mine, Lease{}, now
	}
	return s
}

// take looks for a gateway that this node can hold, or says when there may be one. One that
// this node held when its agent ended is its own still.
func (s State) take(v View, now time.Time) (write *Write, at time.Time) {
	if v.Leaving || slices.Contains(v.Named, v.Node) {
		return nil, at
	}
	var free []Gateway
	for _, g := range v.Gateways {
		seen, there := s.seen[g.Name]
		if !there {
			continue
		}
		if seen.lease.Holder == v.Node && (v.fit(v.Node, g) || !s.heir(v, g)) {
			free = []Gateway{g}
			break
		}
		if v.fit(v.Node, g) && seen.lease.Holder != v.Node && !v.Drained {
			free = append(free, g)
		}
	}
	var best Gateway
	for _, g := range free {
		if when := s.from(v, g); at.IsZero() || when.Before(at) {
			best, at = g, when
		}
	}
	if at = due.Later(at, s.pauseTo); best.Name == "" || now.Before(at) {
		return nil, at
	}
	l := s.seen[best.Name].lease
	if l.Holder != v.Node {
		l.Turn++
	}
	l.Holder, l.Renewed, l.Released = v.Node, now, false
	return &Write{l}, now.Add(retryEvery)
}

// from says when this node may take a gateway: each node has its place in the row of those
// that can, so that they do not all write at once.
func (s State) from(v View, g Gateway) time.Time {
	seen := s.seen[g.Name]
	if seen.lease.Holder == v.Node {
		return seen.since
	}
	from := seen.since
	if !seen.lease.Released {
		from = from.Add(TakeAfter)
	}
	place, own := 0, score(v.Node, g.Name)
	for i := range v.Nodes {
		n := v.Nodes[i].Name
		if n != v.Node && n != seen.lease.Holder && s.free(v, n, g) && score(n, g.Name) > own {
			place++
		}
	}
	return from.Add(time.Duration(min(place, mostStagger)) * stagger)
}

// heir reports whether another node could hold a gateway that this one gives back.
func (s State) heir(v View, g Gateway) bool {
	return slices.ContainsFunc(v.Nodes, func(n model.Node) bool { return n.Name != v.Node && s.free(v, n.Name, g) })
}

// free reports whether a node could take a gateway: it is fit, and is none yet.
func (s State) free(v View, node string, g Gateway) bool {
	if !v.fit(node, g) || slices.Contains(v.Named, node) {
		return false
	}
	for name, seen := range s.seen {
		if name != g.Name && seen.lease.Holder == node {
			return false
		}
	}
	return true
}

// fit reports whether a node is as a gateway wants it.
func (v View) fit(node string, g Gateway) bool {
	i := slices.IndexFunc(v.Nodes, func(n model.Node) bool { return n.Name == node })
	if i < 0 || v.Nodes[i].Away != "" {
		return false
	}
	for key, value := range g.Selector {
		if have, there := v.Nodes[i].Labels[key]; !there || have != value {
			return false
		}
	}
	return true
}

// Wrote follows a write that was taken, which began at a time; stored is what the API has.
func (s State) Wrote(stored Lease, began time.Time) State {
	s.seen = maps.Clone(s.seen)
	s.seen[stored.Gateway] = sight{stored, began}
	s.pauseTo = time.Time{}
	if stored.Holder == "" {
		s.back = Lease{}
		return s
	}
	s.mine, s.began = stored, began
	return s
}

// Refused follows a write of which it is not known that it was taken. found is the Lease as it
// is now, nil = not known. What another one holds this node does not.
func (s State) Refused(node string, found *Lease, now time.Time) State {
	s.pauseTo = now.Add(retryEvery)
	if found == nil {
		return s
	}
	switch {
	case s.mine.Gateway == found.Gateway && found.Holder != node:
		s.mine = Lease{}
	case s.mine.Gateway == found.Gateway:
		s.mine.Version, s.pauseTo = found.Version, time.Time{}
	case s.back.Gateway == found.Gateway && found.Holder != node:
		s.back = Lease{}
	case s.back.Gateway == found.Gateway:
		s.back.Version, s.pauseTo = found.Version, time.Time{}
	}
	return s
}

// Drop gives up the gateway that this node holds: its guard cannot be set.
func (s State) Drop(now time.Time) State {
	if s.mine.Gateway != "" {
		s.back, s.mine, s.leftAt = s.mine, Lease{}, now
	}
	return s
}

// Place gives a fabric with the nodes that hold the gateways of a cluster whose nodes labels
// pick; the fabric itself where there are none. It changes nothing of it.
func Place(f *fabric.Fabric, cluster string, holders map[string]string) *fabric.Fabric {
	own := f.Cluster(cluster)
	if own == nil || !slices.ContainsFunc(own.Gateways, func(g fabric.Gateway) bool { return g.Picked() }) {
		return f
	}
	out := *f
	out.Clusters = slices.Clone(f.Clusters)
	c := out.Cluster(cluster)
	c.Gateways = slices.Clone(c.Gateways)
	for i := range c.Gateways {
		if g := &c.Gateways[i]; g.Picked() {
			g.Node = holders[g.Name]
		}
	}
	return &out
}

func score(node, gateway string) uint64 {
	h := fnv.New64a()
	_, _ = h.Write([]byte(node + "\x00" + gateway))
	// The last bytes of FNV hardly reach its upper bits.
	x := h.Sum64()
	x = (x ^ x>>33) * 0xff51afd7ed558ccd
	return x ^ x>>33
}
