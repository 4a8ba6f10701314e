// Package feed sends the states of clusters between agents: which exports are ready, and where.
//
//	cluster b                            cluster a
//	gateway: Publish(own state) ------> gateway: Client
//	                                       | PublishRelay(states received directly)
//	                                       v
//	                                     nodes and other gateways of a: Client
//
// A client polls with the version that it has. The server replies with the changes to its current
// version as soon as there are any, and without changes after Timing.Heartbeat. The first update of
// a connection is the whole state. A change covers one export. All changes of an update apply
// together. A slow subscriber skips versions.
//
//   - Authentication: TLS 1.3, and proofs with the tunnel keys in the fabric, bound to the
//     connection (docs/adr/0003-feed-authentication.md). A node has no key: it authenticates the
//     gateway and may only receive.
//   - Authority: a gateway publishes the state of its cluster, with addresses inside the cluster's
//     prefixes. A gateway of this cluster relays all other clusters. It does not relay relayed states.
//   - Bounds: memory for each cluster and each feed, bytes of a frame, connections for each address,
//     time for each frame. A receiver refuses and logs state that exceeds a bound. It still accepts
//     the other clusters of a relay.
//   - Staleness: a feed without a frame for Timing.FrameTimeout is lost. If no other feed has a state
//     of the cluster, the last state counts for Timing.StaleAfter. A fresh state is preferred to a
//     stale state, and a direct state to a relayed state.
//   - Ages: a cluster cannot claim that an export is older than the time when it was first seen. This
//     holds across restarts (FirstSeen).
//   - Restart: a connection starts with the whole state, so no other state has to be stored.
package feed

import (
	"cmp"
	"encoding/base64"
	"fmt"
	"log/slog"
	"net/netip"
	"time"

	"hawser.dev/hawser/nodeagent/model"
	"hawser.dev/hawser/schema/fabric"
)

// PublicKey is the public half of a gateway's tunnel key (X25519).
type PublicKey [32]byte

// PublicKeys returns a gateway's keys by epoch.
func PublicKeys(keys []fabric.Key) (map[int]PublicKey, error) {
	out := make(map[int]PublicKey, len(keys))
	for _, key := range keys {
		raw, err := base64.StdEncoding.DecodeString(key.Public)
		if err != nil || len(raw) != len(PublicKey{}) {
			return nil, fmt.Errorf("read public key of epoch %d: not 32 bytes of base64", key.Epoch)
		}
		out[key.Epoch] = PublicKey(raw)
	}
	return out, nil
}

// Identity is the identity of this agent.
type Identity struct {
	Cluster string
	Gateway string // empty: the node is no gateway
	Node    string
	Keys    map[int]fabric.Secret // the gateway's private keys by epoch
}

// Peer is a gateway of another cluster, or of this cluster if Device is set.
type Peer struct {
	Cluster string
	Gateway string
	Keys    map[int]PublicKey // by epoch
	Addr    netip.AddrPort    // of its Server
	Source  netip.Addr        // local address of connections; invalid: the kernel chooses
	// Addrs are the addresses from which the peer may connect, in addition to Addr. A Server
	// reserves connections for known addresses.
	Addrs []netip.Addr
	// Device is the device between the nodes of this cluster: the gateway belongs to this
	// cluster and relays. Empty for gateways of other clusters.
	Device string
	// AllowedPrefixes are the prefixes in which the peer's cluster may publish addresses;
	// empty: all. They do not restrict a gateway of this cluster, which has checked the
	// addresses.
	AllowedPrefixes []netip.Prefix
}

// RemoteState is the state of another cluster.
type RemoteState struct {
	State model.ClusterState
	// Stale means that the feed of the cluster is lost. The state counts for Timing.StaleAfter.
	Stale bool
}

// Listen is an address at which a Server listens.
type Listen struct {
	Addr netip.AddrPort // local tunnel address, or the node's address
	// Device is the device between the nodes of this cluster, to serve these nodes; empty:
	// serve the gateways of other clusters.
	Device string
}

// DefaultStaleAfter is the default of Timing.StaleAfter.
const DefaultStaleAfter = 30 * time.Second

// Timing configures the times of the protocol. Zero fields get the defaults in brackets.
type Timing struct {
	Heartbeat    time.Duration // until a server replies to a poll without changes [20s]
	FrameTimeout time.Duration // limit to read or write a frame [3s]
	StaleAfter   time.Duration // how long the state of a lost feed counts [30s]
	BackoffMin   time.Duration // before the second attempt [200ms]
	BackoffMax   time.Duration // maximum between attempts [5s]
	Handshake    time.Duration // limit to connect and authenticate [5s]
}

func (t Timing) withDefaults() Timing {
	return Timing{
		Heartbeat:    cmp.Or(t.Heartbeat, 20*time.Second),
		FrameTimeout: cmp.Or(t.FrameTimeout, 3*time.Second),
		StaleAfter:   cmp.Or(t.StaleAfter, DefaultStaleAfter),
		BackoffMin:   cmp.Or(t.BackoffMin, 200*time.Millisecond),
		BackoffMax:   cmp.Or(t.BackoffMax, 5*time.Second),
		Handshake:    cmp.Or(t.Handshake, 5*time.Second),
	}
}

// Config configures a Server or a Client.
type Config struct {
	Timing Timing
	Log    *slog.Logger
	// A Client calls OnChange when the results of Snapshot or Relay may have changed. It calls
	// it only from one goroutine of Run. Changes during a call cause one more call. May be nil.
	OnChange func()
	// A Client calls OnFirstSeen when the result of FirstSeen may have changed. It must not
	// block. May be nil.
	OnFirstSeen func()
}
