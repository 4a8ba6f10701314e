package feed

import (
	"cmp"
	"context"
	"maps"
	"reflect"
	"slices"
	"sync"
	"time"

	"hawser.dev/hawser/internal/trigger"
	"hawser.dev/hawser/nodeagent/model"
)

// Client subscribes to the feeds of its peers. Its methods may be called from any goroutine,
// before, during and after Run.
type Client struct {
	config    Config
	wake      trigger.Trigger
	changed   trigger.Trigger // calls OnChange
	firstSeen *firstSeen

	mu            sync.Mutex
	identity      Identity
	subscriptions map[subscriptionKey]*subscription
}

type subscriptionKey struct{ cluster, gateway, device string }

// PeerState is the state of one subscription.
type PeerState struct {
	Cluster   string
	Gateway   string
	Connected bool
	Since     time.Time
	Err       string // why it is not connected; empty before the end of the first attempt
}

// NewClient returns a client without peers.
func NewClient(config Config) *Client {
	config.Timing = config.Timing.withDefaults()
	return &Client{
		config: config, wake: trigger.New(), changed: trigger.New(), firstSeen: newFirstSeen(time.Now, config.OnFirstSeen),
		subscriptions: map[subscriptionKey]*subscription{},
	}
}

// FirstSeen returns the effective creation times of the exports of other clusters, by cluster and
// namespace/name. RestoreFirstSeen of the next agent loads them.
func (c *Client) FirstSeen() map[string]map[string]time.Time { return c.firstSeen.saved() }

// RestoreFirstSeen loads the result of FirstSeen in the previous agent. It must be called before
// Run.
func (c *Client) RestoreFirstSeen(saved map[string]map[string]time.Time) { c.firstSeen.restore(saved) }

// SetIdentity replaces the identity of this agent. Open connections remain.
func (c *Client) SetIdentity(id Identity) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.identity = id
	c.identity.Keys = maps.Clone(id.Keys)
}

// SetPeers replaces the set of peers. clusters has the names of all clusters. An unchanged peer keeps
// its connection; a changed one keeps its states and reconnects. The states of a removed peer become
// stale, because the feed of another gateway needs some round trips to connect. They are removed
// at once if clusters does not have the cluster of the peer.
func (c *Client) SetPeers(peers []Peer, clusters []string) {
	c.mu.Lock()
	changed := false
	now := time.Now()
	wanted := make(map[subscriptionKey]bool, len(peers))
	for _, peer := range peers {
		key := subscriptionKey{peer.Cluster, peer.Gateway, peer.Device}
		wanted[key] = true
		previous := c.subscriptions[key]
		if previous != nil && !previous.removed && reflect.DeepEqual(previous.peer, peer) {
			continue
		}
		sub := &subscription{peer: peer, retryNow: trigger.New(), since: now, warned: map[string]bool{}}
		if previous != nil {
			previous.end(now)
			sub.states, sub.staleSince = previous.states, previous.staleSince
		}
		c.subscriptions[key], changed = sub, true
	}
	for key, sub := range c.subscriptions {
		switch {
		case wanted[key]:
		case len(sub.states) == 0 || !slices.Contains(clusters, key.cluster):
			sub.end(now)
			delete(c.subscriptions, key)
			changed = true
		case !sub.removed:
			sub.end(now)
			sub.removed, changed = true, true
		}
	}
	c.mu.Unlock()
	if changed {
		c.wake.Fire()
		c.changed.Fire()
	}
}

// end ends the session of a subscription. Its states become stale.
func (s *subscription) end(now time.Time) {
	if s.cancel != nil {
		s.cancel()
	}
	s.disconnect(now)
}

// disconnect marks a subscription as not connected, and its states as stale.
func (s *subscription) disconnect(now time.Time) {
	if s.connected {
		s.connected, s.since, s.staleSince = false, now, now
	}
}

// Snapshot returns the states of other clusters by name. It omits clusters without a feed, and
// clusters whose feed has been lost for Timing.StaleAfter. The caller must not change the states.
func (c *Client) Snapshot() map[string]model.ClusterState {
	out := map[string]model.ClusterState{}
	for cluster, state := range c.preferredStates(func(*subscription) bool { return true }) {
		out[cluster] = state.State
	}
	return out
}

// Relay returns the states received directly from gateways of other clusters, for
// Server.PublishRelay. It omits states from gateways of this cluster. If two gateways relayed each
// other's states, the states would never expire.
func (c *Client) Relay() map[string]RemoteState {
	return c.preferredStates(func(s *subscription) bool { return s.peer.Device == "" })
}

// States returns the states of the subscriptions to all peers, sorted by name.
func (c *Client) States() []PeerState {
	c.mu.Lock()
	defer c.mu.Unlock()
	out := make([]PeerState, 0, len(c.subscriptions))
	for _, s := range c.subscriptions {
		if !s.removed {
			out = append(out, PeerState{
				Cluster: s.peer.Cluster, Gateway: s.peer.Gateway, Connected: s.connected, Since: s.since, Err: s.err,
			})
		}
	}
	slices.SortFunc(out, func(a, b PeerState) int {
		return cmp.Or(cmp.Compare(a.Cluster, b.Cluster), cmp.Compare(a.Gateway, b.Gateway))
	})
	return out
}

// preferredStates returns the preferred state of each cluster from the accepted subscriptions.
func (c *Client) preferredStates(accept func(*subscription) bool) map[string]RemoteState {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now()
	out, from := map[string]RemoteState{}, map[string]*subscription{}
	for _, s := range c.subscriptions {
		if !accept(s) || s.expired(now, c.config.Timing.StaleAfter) {
			continue
		}
		for cluster, state := range s.states {
			state.Stale = state.Stale || !s.connected
			if otherSub := from[cluster]; otherSub == nil || s.preferred(state, otherSub, out[cluster]) {
				out[cluster], from[cluster] = state, s
			}
		}
	}
	return out
}

// expired reports whether the states have been stale for StaleAfter, so that they no longer count.
func (s *subscription) expired(now time.Time, staleAfter time.Duration) bool {
	return !s.connected && now.Sub(s.staleSince) >= staleAfter
}

// preferred reports whether state of s is preferred to otherState of otherSub. A fresh state is
// preferred to a stale state, then a direct state to a relayed state. Then the name of the gateway
// decides, so that the choice is stable.
func (s *subscription) preferred(
	state RemoteState, otherSub *subscription, otherState RemoteState,
) bool {
	if state.Stale != otherState.Stale {
		return !state.Stale
	}
	if direct := s.peer.Device == ""; direct != (otherSub.peer.Device == "") {
		return direct
	}
	return s.peer.Gateway < otherSub.peer.Gateway
}

// Run receives the feeds of the peers until ctx is done.
func (c *Client) Run(ctx context.Context) error {
	var group sync.WaitGroup
	defer group.Wait()
	group.Go(func() { c.callOnChange(ctx) })
	c.wake.Run(ctx, func() time.Duration {
		c.startSubscriptions(ctx, &group)
		if c.removeExpired() {
			c.changed.Fire()
		}
		return max(c.config.Timing.StaleAfter/30, time.Millisecond)
	})
	return nil
}

// startSubscriptions starts the subscriptions of new peers.
func (c *Client) startSubscriptions(ctx context.Context, group *sync.WaitGroup) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, s := range c.subscriptions {
		if s.cancel != nil || s.removed {
			continue
		}
		ctx, cancel := context.WithCancel(ctx)
		s.cancel = cancel
		group.Go(func() {
			defer cancel()
			c.subscribe(ctx, s)
		})
	}
}

// removeExpired removes the states of expired feeds. It reports whether it removed any.
func (c *Client) removeExpired() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	removed := false
	for key, s := range c.subscriptions {
		if len(s.states) == 0 || !s.expired(time.Now(), c.config.Timing.StaleAfter) {
			continue
		}
		s.states, removed = nil, true
		if s.removed {
			delete(c.subscriptions, key)
		}
	}
	return removed
}

// callOnChange calls OnChange after changes until ctx is done. All changes during a call cause one
// more call. A slow OnChange delays no feed.
func (c *Client) callOnChange(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-c.changed:
		}
		if c.config.OnChange != nil {
			c.config.OnChange()
		}
	}
}
