package feed

import (
	"cmp"
	"context"
	"maps"
	"reflect"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"hawser.dev/hawser/internal/trigger"
	"hawser.dev/hawser/nodeagent/model"
)

// Client subscribes to the feeds of its peers. Its methods may be called from
// any goroutine, before, during and after Run.
type Client struct {
	config Config
	wake   trigger.Trigger
	ages   *firstSeen

	mu       sync.Mutex
	identity Identity
	feeds    map[feedKey]*subscription
}

type feedKey struct{ cluster, gateway, device string }

// subscription is one subscription. The Client's mutex guards it.
type subscription struct {
	peer      Peer
	reconnect trigger.Trigger    // the peer is reached again
	heardAt   atomic.Int64       // Unix nanoseconds of the last frame or the begin of the session; 0 = connecting
	cancel    context.CancelFunc // nil = not followed yet
	connected bool
	since     time.Time // of connected, or of its loss
	err       string    // why it is not connected
	warned    map[string]bool
	heard     map[string]RemoteState // never changed in place
}

// PeerState is the state of one subscription.
type PeerState struct {
	Cluster   string
	Gateway   string
	Connected bool
	Since     time.Time
	Err       string // why it is not connected; empty before the first attempt ended
}

// NewClient makes a client without peers.
func NewClient(config Config) *Client {
	config.Timing = config.Timing.withDefaults()
	c := &Client{config: config, wake: trigger.New(), ages: newAges(time.Now), feeds: map[feedKey]*subscription{}}
	c.ages.changed = config.OnAges
	return c
}

// FirstSeen gives since when the exports of other clusters count, by cluster and
// namespace/name, for RestoreAges of the next start.
func (c *Client) FirstSeen() map[string]map[string]time.Time { return c.ages.kept() }

// RestoreFirstSeen begins with what Ages gave before. Call it before Run.
func (c *Client) RestoreFirstSeen(since map[string]map[string]time.Time) { c.ages.restore(since) }

// SetIdentity replaces who this agent is; connections that stand are kept.
func (c *Client) SetIdentity(id Identity) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.identity = id
	c.identity.Keys = maps.Clone(id.Keys)
}

// SetPeers replaces the set of peers. A peer that stays as it is keeps its
// connection; one that changed keeps what was heard and connects anew; what was
// heard from one that is gone is forgotten.
func (c *Client) SetPeers(peers []Peer) {
	c.mu.Lock()
	changed := false
	wanted := make(map[feedKey]bool, len(peers))
	for _, peer := range peers {
		key := feedKey{peer.Cluster, peer.Gateway, peer.Device}
		wanted[key] = true
		have := c.feeds[key]
		if have != nil && reflect.DeepEqual(have.peer, peer) {
			continue
		}
		fresh := &subscription{peer: peer, reconnect: trigger.New(), since: time.Now(), warned: map[string]bool{}}
		if have != nil {
			have.stop()
			fresh.heard = have.heard
		}
		c.feeds[key], changed = fresh, true
	}
	for key, have := range c.feeds {
		if !wanted[key] {
			have.stop()
			delete(c.feeds, key)
			changed = true
		}
	}
	c.mu.Unlock()
	if changed {
		c.wake.Fire()
		c.notify()
	}
}

func (f *subscription) stop() {
	if f.cancel != nil {
		f.cancel()
	}
}

// Snapshot gives what is known of the other clusters, by name; a cluster that
// is missing was not heard, or not for Timing.Stale. The content is shared: do
// not change it.
func (c *Client) Snapshot() map[string]model.ClusterState {
	out := map[string]model.ClusterState{}
	for cluster, heard := range c.best(func(*subscription) bool { return true }) {
		out[cluster] = heard.Live
	}
	return out
}

// Relay gives what was heard from the gateways of other clusters themselves,
// for Server.SetRelay. What came from a gateway of this cluster is not in it:
// two gateways that relay each other's words would keep them alive for ever.
func (c *Client) Relay() map[string]RemoteState {
	return c.best(func(f *subscription) bool { return f.peer.Device == "" })
}

// States gives the state of all subscriptions, sorted by name.
func (c *Client) States() []PeerState {
	c.mu.Lock()
	defer c.mu.Unlock()
	out := make([]PeerState, 0, len(c.feeds))
	for _, f := range c.feeds {
		out = append(out, PeerState{
			Cluster: f.peer.Cluster, Gateway: f.peer.Gateway, Connected: f.connected, Since: f.since, Err: f.err,
		})
	}
	slices.SortFunc(out, func(a, b PeerState) int {
		return cmp.Or(cmp.Compare(a.Cluster, b.Cluster), cmp.Compare(a.Gateway, b.Gateway))
	})
	return out
}

// best picks for each cluster the feed to believe: one that stands before one
// that is lost, first hand before relayed, then by name, so that the choice
// does not move without need.
func (c *Client) best(of func(*subscription) bool) map[string]RemoteState {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now()
	out, from := map[string]RemoteState{}, map[string]*subscription{}
	for _, f := range c.feeds {
		if !of(f) || !f.connected && now.Sub(f.since) >= c.config.Timing.StaleAfter {
			continue
		}
		for cluster, heard := range f.heard {
			heard.Stale = heard.Stale || !f.connected
			if other := from[cluster]; other == nil || f.before(heard, other, out[cluster]) {
				out[cluster], from[cluster] = heard, f
			}
		}
	}
	return out
}

func (f *subscription) before(heard RemoteState, other *subscription, than RemoteState) bool {
	if heard.Stale != than.Stale {
		return !heard.Stale
	}
	if direct := f.peer.Device == ""; direct != (other.peer.Device == "") {
		return direct
	}
	return f.peer.Gateway < other.peer.Gateway
}

// Run follows the peers until ctx ends, and returns when all its goroutines have.
func (c *Client) Run(ctx context.Context) error {
	var group sync.WaitGroup
	defer group.Wait()
	c.wake.Run(ctx, func() time.Duration {
		c.begin(ctx, &group)
		// What lost feeds said too long ago is forgotten.
		c.mu.Lock()
		changed := false
		for _, f := range c.feeds {
			if !f.connected && len(f.heard) > 0 && time.Since(f.since) >= c.config.Timing.StaleAfter {
				f.heard = nil
				changed = true
			}
		}
		c.mu.Unlock()
		if changed {
			c.notify()
		}
		return max(c.config.Timing.StaleAfter/30, time.Millisecond)
	})
	return nil
}

// begin follows the peers that are new.
func (c *Client) begin(ctx context.Context, group *sync.WaitGroup) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, f := range c.feeds {
		if f.cancel == nil {
			following, cancel := context.WithCancel(ctx)
			f.cancel = cancel
			group.Go(func() {
				defer cancel()
				c.subscribe(following, f)
			})
		}
	}
}

func (c *Client) notify() {
	if c.config.OnChange != nil {
		c.config.OnChange()
	}
}
