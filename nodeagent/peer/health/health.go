// Package health probes links between gateways and selects the active link of each pair of
// clusters. Gateways probe the gateways of other clusters through the tunnels. Every node probes
// the gateways of its own cluster over the VXLAN between nodes; replies report which remote
// gateways they reach. The selection is pure; the prober does the I/O.
package health

import (
	"encoding/json"
	"net/netip"
	"slices"
	"time"

	"hawser.dev/hawser/internal/socket"
	"hawser.dev/hawser/internal/trigger"
	"hawser.dev/hawser/nodeagent/status"
)

// GatewayID identifies a gateway.
type GatewayID struct {
	Cluster string
	Gateway string
}

// String returns cluster/gateway.
func (id GatewayID) String() string { return id.Cluster + "/" + id.Gateway }

// Target is one gateway to probe. A target keeps its state as long as all its fields stay equal.
type Target struct {
	Peer GatewayID
	// Source is the local address of the probes: the local tunnel address for a gateway of
	// another cluster, the node's address for a gateway of this cluster.
	Source netip.Addr
	// Addr is the tunnel address of the peer, or the address of its node.
	Addr netip.Addr
	// Device binds the probes to an interface: desired.NodeDevice for gateways of
	// this cluster, empty for tunnels.
	Device string
}

// Listen is an address at which the prober replies: the local tunnel address, or the node's address
// with the device of Target.
type Listen = socket.Bind

// Settings configure the detection of dead links. They can change at run time.
type Settings struct {
	Interval time.Duration // between two probes of a target
	Misses   int           // consecutive probes without a reply after which a link is dead
}

// Config is the fixed configuration of a Prober.
type Config struct {
	Cluster string
	// Gateway is the initial gateway on this node; empty if absent. SetGateway changes it.
	Gateway  string
	Port     uint16 // UDP, of both ends; desired.ProbePort
	Settings Settings
	// Wake fires if a tick is due earlier than the last one reported.
	Wake trigger.Trigger
	// OnChange runs after a link or the link states of a sibling changed. It must not block. It
	// may be nil.
	OnChange func()
}

// Link is the state of one target. Its counters cover the last window of probes.
type Link struct {
	Target   Target
	Liveness Liveness  `json:"-"` // recordedLink encodes it
	Since    time.Time // of State
	// Answered is the time of the last probe that got a reply; zero = none in the window.
	Answered time.Time
	RTT      *status.RTT // nil without a reply in the window
	Loss     float64     // 0..1 of the window
	// Reason is the reason for a Rank below Good; otherwise empty.
	Rank   Rank
	Reason string
	// Flaps is the number of failures within the last minute. After too many failures the link
	// is Unsteady until Held. Otherwise Held is zero.
	Flaps int
	Held  time.Time
	// Standby reports that neither end uses the link.
	Standby bool
	// LeastRTT is the shortest round trip of recent probes; 0 without a reply.
	LeastRTT time.Duration

	// linkStates has the links that a sibling reports, by hash of the remote gateway;
	// nil before the first report.
	linkStates map[uint64]linkAdvert
	peerUses   bool // the peer sends over this link
	transitOK  bool // both ends accept transit over it
}

// Alive reports whether the link may carry traffic.
func (l Link) Alive() bool { return l.Liveness.IsAlive() }

// State returns status.Connecting, Connected or Disconnected.
func (l Link) State() string { return l.Liveness.State() }

// Snapshot is the state of all links at one moment, sorted by peer, source and address.
type Snapshot struct {
	Links []Link
	// Stats counts packets since the start.
	Stats Stats

	self     GatewayID
	byPeer   map[GatewayID][]int // indexes in Links
	retiring []GatewayID
}

// Rank returns the rank of a link from a gateway of this cluster to a gateway of another cluster.
// It comes from probes of this node for this node's gateway, and from the report of the gateway
// otherwise.
func (s Snapshot) Rank(local string, remote GatewayID) Rank { return s.advert(local, remote).rank }

// PeerUses reports whether the remote cluster uses the link between two gateways.
func (s Snapshot) PeerUses(local string, remote GatewayID) bool { return s.advert(local, remote).inUse }

// AcceptsTransit reports whether both ends of a link accept transit traffic.
func (s Snapshot) AcceptsTransit(local string, remote GatewayID) bool {
	return s.advert(local, remote).acceptsTransit
}

// Complete reports whether each link has had a reply or is dead, and each live gateway of this
// cluster has reported its links.
func (s Snapshot) Complete() bool {
	for i := range s.Links {
		l := &s.Links[i]
		if l.Liveness == Assumed || l.Target.Device != "" && l.Alive() && l.linkStates == nil {
			return false
		}
	}
	return len(s.Links) > 0
}

// advert returns the best advert of the links between two gateways. They may have two links.
func (s Snapshot) advert(local string, remote GatewayID) linkAdvert {
	var out linkAdvert
	if local == s.self.Gateway {
		for _, i := range s.byPeer[remote] {
			link := &s.Links[i]
			out = linkAdvert{rank: max(out.rank, link.Rank), inUse: out.inUse || link.peerUses, acceptsTransit: out.acceptsTransit || link.transitOK}
		}
		return out
	}
	hash := remote.hash()
	for _, i := range s.byPeer[GatewayID{Cluster: s.self.Cluster, Gateway: local}] {
		a := s.Links[i].advertTo(hash)
		out = linkAdvert{rank: max(out.rank, a.rank), inUse: out.inUse || a.inUse, acceptsTransit: out.acceptsTransit || a.acceptsTransit}
	}
	return out
}

// advertTo returns the advert of this link's gateway about its own link to a remote gateway.
func (l *Link) advertTo(hash uint64) linkAdvert {
	switch {
	case !l.Alive():
		return linkAdvert{}
	case l.linkStates == nil && l.Liveness.assumesReports():
		return linkAdvert{rank: Good}
	}
	return l.linkStates[hash]
}

// Stats counts packets since the start of the prober.
type Stats struct {
	Sent     uint64
	Answered uint64 // replies that matched a probe
	Replied  uint64 // replies to probes
	Foreign  uint64 // probes and replies with an unknown sender or another receiver
	Limited  uint64 // probes that got no reply because of the rate limit
	Failed   uint64 // packets that the kernel refused to send
	Updates  uint64 // triggered updates
	Pushes   uint64 // updates to nodes of this cluster
}

// recorded is the JSON form of a Snapshot.
type recorded struct {
	Self  GatewayID      `json:"self"`
	Links []recordedLink `json:"links"`
}

type recordedLink struct {
	Link
	State          string
	Reach          map[uint64]recordedAdvert `json:"reach,omitempty"`    // by hash of the remote gateway
	HasReach       bool                      `json:"hasReach,omitempty"` // Reach is present, even if empty
	Granted        bool                      `json:"granted,omitempty"`
	Uses           bool                      `json:"uses,omitempty"`
	AcceptsTransit bool                      `json:"acceptsTransit,omitempty"`
}

type recordedAdvert struct {
	Rank           Rank `json:"rank"`
	Uses           bool `json:"uses,omitempty"`
	AcceptsTransit bool `json:"acceptsTransit,omitempty"`
}

// MarshalJSON encodes all fields that affect paths. It omits Stats and the gateways of
// WithRetiring.
func (s Snapshot) MarshalJSON() ([]byte, error) {
	out := recorded{Self: s.self, Links: make([]recordedLink, len(s.Links))}
	for i := range s.Links {
		l := &s.Links[i]
		r := recordedLink{
			Link: *l, State: l.State(), HasReach: l.linkStates != nil, Granted: l.Liveness.assumesReports(), Uses: l.peerUses, AcceptsTransit: l.transitOK,
		}
		for hash, advert := range l.linkStates {
			if r.Reach == nil {
				r.Reach = make(map[uint64]recordedAdvert, len(l.linkStates))
			}
			r.Reach[hash] = recordedAdvert{Rank: advert.rank, Uses: advert.inUse, AcceptsTransit: advert.acceptsTransit}
		}
		out.Links[i] = r
	}
	return json.Marshal(out)
}

// UnmarshalJSON decodes the output of MarshalJSON.
func (s *Snapshot) UnmarshalJSON(raw []byte) error {
	var in recorded
	if err := json.Unmarshal(raw, &in); err != nil {
		return err
	}
	links := make([]Link, len(in.Links))
	for i, r := range in.Links {
		l := r.Link
		l.Liveness, l.peerUses, l.transitOK = recordedLiveness(r.State, r.Granted), r.Uses, r.AcceptsTransit
		if r.HasReach {
			l.linkStates = make(map[uint64]linkAdvert, len(r.Reach))
		}
		for hash, advert := range r.Reach {
			l.linkStates[hash] = linkAdvert{rank: advert.Rank, inUse: advert.Uses, acceptsTransit: advert.AcceptsTransit}
		}
		links[i] = l
	}
	*s = NewSnapshot(in.Self, links)
	return nil
}

// Merge returns this snapshot, with the links of known for targets that both have.
func (s Snapshot) Merge(known Snapshot) Snapshot {
	links := slices.Clone(s.Links)
	for i := range links {
		if k := slices.IndexFunc(known.Links, func(l Link) bool { return l.Target == links[i].Target }); k >= 0 {
			links[i] = known.Links[k]
		}
	}
	return NewSnapshot(s.self, links)
}
