// Package feed carries what changes by the second between clusters: every
// gateway serves its own cluster's live export state to the gateways of other
// clusters through the tunnels, and what it heard from those to the nodes of its
// own cluster. A feed is a full snapshot, then deltas, then heartbeats, over TLS
// 1.3; who is at the other end is proven with the tunnel keys that the fabric
// pins (docs/adr/0003-feed-authentication.md).
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

// PublicKeys reads a gateway's keys by epoch.
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

// Identity is who this agent is.
type Identity struct {
	Cluster string
	Gateway string // empty on a node that is none
	Node    string
	Keys    map[int]fabric.Secret // the gateway's private keys by epoch
}

// Peer is a gateway: one of another cluster, or one of this cluster, whose
// Device is set.
type Peer struct {
	Cluster string
	Gateway string
	Keys    map[int]PublicKey // by epoch
	Addr    netip.AddrPort    // where it serves
	Source  netip.Addr        // local address to call from; invalid = the kernel's choice
	// Addrs are the addresses from which it may call, besides that of Addr. At those
	// it has places on a Server that nobody else can take.
	Addrs []netip.Addr
	// Device is the link between the nodes of this cluster: the gateway is one of
	// this cluster and relays what it heard. Empty for gateways of other clusters.
	Device string
	// AllowedPrefixes are the prefixes in which the peer's cluster may announce hosts; empty
	// = anywhere. It does not bind a gateway of this cluster, which checked already.
	AllowedPrefixes []netip.Prefix
}

// RemoteState is what was heard of one cluster.
type RemoteState struct {
	Live model.ClusterState
	// Stale is true when the feed that it came from is lost. It stays for
	// Timing.Stale, then the cluster counts as not heard.
	Stale bool
}

// Listen is a place to serve at.
type Listen struct {
	Addr netip.AddrPort // own tunnel address, or the node's own address
	// Device serves the nodes of this cluster on their link; empty serves the
	// gateways of other clusters.
	Device string
}

// StaleTime is how long a lost feed's data stays unless Timing says otherwise.
const StaleTime = 30 * time.Second

// Timing holds the times of the protocol; zero fields take the defaults.
type Timing struct {
	Heartbeat    time.Duration // between two frames at most [1s]
	FrameTimeout time.Duration // without a frame, after which a feed is dropped [3s]
	StaleAfter   time.Duration // how long a lost feed's data stays [30s]
	BackoffMin   time.Duration // before the first new attempt [200ms]
	BackoffMax   time.Duration // between attempts at most [5s]
	Handshake    time.Duration // for connecting and proving who one is [5s]
}

func (t Timing) withDefaults() Timing {
	return Timing{
		Heartbeat:    cmp.Or(t.Heartbeat, time.Second),
		FrameTimeout: cmp.Or(t.FrameTimeout, 3*time.Second),
		StaleAfter:   cmp.Or(t.StaleAfter, StaleTime),
		BackoffMin:   cmp.Or(t.BackoffMin, 200*time.Millisecond),
		BackoffMax:   cmp.Or(t.BackoffMax, 5*time.Second),
		Handshake:    cmp.Or(t.Handshake, 5*time.Second),
	}
}

// Config is what a Server or a Client needs for its whole life.
type Config struct {
	Timing Timing
	Log    *slog.Logger
	// OnChange is called by a Client when Snapshot or Relay may give something else.
	// It must not block. May be nil.
	OnChange func()
	// OnAges is called by a Client when Ages may give something else. It must not
	// block. May be nil.
	OnAges func()
}
