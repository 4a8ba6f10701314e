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
	clusters      []string // sorted; lastStates has no others
	subscriptions map[subscriptionKey]*subscription
	lastStates    map[lastStateKey]lastState
}

type subscriptionKey struct{ cluster, gateway, device string }

// lastState is the last state of a cluster whose feed ended. It counts for Timing.StaleAfter if no
// connected feed has a state of the cluster. The feed of another gateway needs some round trips to
// connect, and a gateway that has restarted relays nothing before its own feeds connect.
type lastState struct {
	state RemoteState
	since time.Time // when the feed ended
}

// lastStateKey separates direct from relayed states, because only direct states are relayed.
type lastStateKey struct {
	cluster string
	direct  bool
}

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
		subscriptions: map[subscriptionKey]*subscription{}, lastStates: map[lastStateKey]lastState{},
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

// SetPeers replaces the set of peers. An unchanged peer keeps its connection. The feed of a changed
// or removed peer ends. clusters has the names of all clusters in the fabric; the last states of
// other clusters are removed.
func (c *Client) SetPeers(peers []Peer, clusters []string) {
	c.mu.Lock()
	c.clusters = slices.Sorted(slices.Values(clusters))
	now, changed := time.Now(), false
	wanted := make(map[subscriptionKey]bool, len(peers))
	for _, peer := range peers {
		key := subscriptionKey{peer.Cluster, peer.Gateway, peer.Device}
		wanted[key] = true
		if previous := c.subscriptions[key]; previous != nil {
			if reflect.DeepEqual(previous.peer, peer) {
				continue
			}
			c.endSubscription(previous, now)
		}
		c.subscriptions[key] = &subscription{peer: peer, retryNow: trigger.New(), since: now, warned: map[string]bool{}}
		changed = true
	}
	for key, sub := range c.subscriptions {
		if !wanted[key] {
			c.endSubscription(sub, now)
			delete(c.subscriptions, key)
			changed = true
		}
	}
	before := len(c.lastStates)
	maps.DeleteFunc(c.lastStates, func(key lastStateKey, _ lastState) bool { return !c.hasCluster(key.cluster) })
	changed = changed || len(c.lastStates) < before
	c.mu.Unlock()
	if changed {
		c.wake.Fire()
		c.changed.Fire()
	}
}

func (c *Client) hasCluster(name string) bool {
	_, found := slices.BinarySearch(c.clusters, name)
	return found
}

func (c *Client) endSubscription(sub *subscription, now time.Time) {
	if sub.cancel != nil {
		sub.cancel()
	}
	c.disconnect(sub, now)
}

// disconnect marks a subscription as not connected. Its states become last states.
func (c *Client) disconnect(sub *subscription, now time.Time) {
	if !sub.connected {
		return
	}
	for cluster, state := range sub.states {
		if c.hasCluster(cluster) {
			state.Stale = true
			c.lastStates[lastStateKey{cluster, sub.isDirect()}] = lastState{state, now}
		}
	}
	sub.connected, sub.since, sub.states = false, now, nil
}

// Snapshot returns the states of other clusters by name. It omits clusters without a feed, and
// clusters whose feed has been lost for Timing.StaleAfter. The caller must not change the states.
func (c *Client) Snapshot() map[string]model.ClusterState {
	out := map[string]model.ClusterState{}
	for cluster, state := range c.preferredStates(true) {
		out[cluster] = state.State
	}
	return out
}

// Relay returns the states received directly from gateways of other clusters, for
// Server.PublishRelay. It omits states from gateways of this cluster. If two gateways relayed each
// other's states, the states would never expire.
func (c *Client) Relay() map[string]RemoteState {
	return c.preferredStates(false)
}

// States returns the states of all subscriptions, sorted by name.
func (c *Client) States() []PeerState {
	c.mu.Lock()
	defer c.mu.Unlock()
	out := make([]PeerState, 0, len(c.subscriptions))
	for _, s := range c.subscriptions {
		out = append(out, PeerState{
			Cluster: s.peer.Cluster, Gateway: s.peer.Gateway, Connected: s.connected, Since: s.since, Err: s.err,
		})
	}
	slices.SortFunc(out, func(a, b PeerState) int {
		return cmp.Or(cmp.Compare(a.Cluster, b.Cluster), cmp.Compare(a.Gateway, b.Gateway))
	})
	return out
}

// preferredStates returns the preferred state of each cluster. Without relayed, it omits states from
// gateways of this cluster.
func (c *Client) preferredStates(relayed bool) map[string]RemoteState {
	c.mu.Lock()
	defer c.mu.Unlock()
	out, from := map[string]RemoteState{}, map[string]*subscription{}
	for _, s := range c.subscriptions {
		if !relayed && !s.isDirect() {
			continue
		}
		for cluster, state := range s.states {
			if otherSub := from[cluster]; otherSub == nil || s.preferred(state, otherSub, out[cluster]) {
				out[cluster], from[cluster] = state, s
			}
		}
	}
	now := time.Now()
	for key, last := range c.lastStates {
		other := c.lastStates[lastStateKey{key.cluster, !key.direct}]
		order := other.since.Compare(last.since)
		switch {
		case !relayed && !key.direct || from[key.cluster] != nil || c.expired(last, now):
		case relayed && (order > 0 || order == 0 && !key.direct): // prefer the later one, then the direct one
		default:
			out[key.cluster] = last.state
		}
	}
	return out
}

func (c *Client) expired(last lastState, now time.Time) bool {
	return now.Sub(last.since) >= c.config.Timing.StaleAfter
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
	if direct := s.isDirect(); direct != otherSub.isDirect() {
		return direct
	}
	return s.peer.Gateway < otherSub.peer.Gateway
}

// isDirect reports whether the subscription is to a gateway of another cluster.
func (s *subscription) isDirect() bool { return s.peer.Device == "" }

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
		if s.cancel != nil {
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

// removeExpired removes expired last states. It reports whether it removed any.
func (c *Client) removeExpired() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	before, now := len(c.lastStates), time.Now()
	maps.DeleteFunc(c.lastStates, func(_ lastStateKey, last lastState) bool { return c.expired(last, now) })
	return len(c.lastStates) < before
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
