package feed

import (
	"context"
	"maps"
	"net/netip"
	"reflect"
	"slices"
	"sync"

	"hawser.dev/hawser/internal/trigger"
	"hawser.dev/hawser/nodeagent/model"
)

// Server serves the feeds of one gateway. Its methods may be called from any goroutine, before,
// during and after Run.
type Server struct {
	config Config
	local  *publication // for gateways of other clusters
	relay  *publication // for nodes of this cluster
	wake   trigger.Trigger

	mu       sync.Mutex
	identity Identity
	peers    map[string]Peer
	addrs    map[netip.Addr]bool // of the peers
	nodes    map[netip.Addr]bool // of this cluster
	listen   []Listen
	sessions []*session      // oldest first
	warned   map[string]bool // reasons of logged refusals
}

// NewServer returns a server without peers and listeners.
func NewServer(config Config) *Server {
	config.Timing = config.Timing.withDefaults()
	return &Server{
		config: config,
		local:  newPublication(),
		relay:  newPublication(),
		wake:   trigger.New(),
		peers:  map[string]Peer{},
		warned: map[string]bool{},
	}
}

// SetIdentity replaces the identity of this gateway, for example at a key rotation.
func (s *Server) SetIdentity(id Identity) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.identity = id
	s.identity.Keys = maps.Clone(id.Keys)
}

// SetPeers replaces the gateways that may subscribe. It ends the sessions of removed peers and
// removed keys at once. It ignores peers with a Device, because the nodes of this cluster need no
// key.
func (s *Server) SetPeers(peers []Peer) {
	s.mu.Lock()
	defer s.mu.Unlock()
	wanted := make(map[string]Peer, len(peers))
	for _, peer := range peers {
		if peer.Device == "" {
			wanted[peerName(peer.Cluster, peer.Gateway)] = peer
		}
	}
	if reflect.DeepEqual(s.peers, wanted) {
		return
	}
	s.peers, s.warned, s.addrs = wanted, map[string]bool{}, map[netip.Addr]bool{}
	for _, peer := range wanted {
		s.addrs[peer.Addr.Addr()] = true
		for _, addr := range peer.Addrs {
			s.addrs[addr] = true
		}
	}
	for _, session := range slices.Clone(s.sessions) {
		if session.authenticated && !s.isAllowed(session) {
			s.endSession(session)
		}
	}
}

// SetNodes replaces the addresses of this cluster's nodes. A node has no key, so its address
// reserves connections.
func (s *Server) SetNodes(addrs []netip.Addr) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.nodes = make(map[netip.Addr]bool, len(addrs))
	for _, addr := range addrs {
		s.nodes[addr] = true
	}
}

// knows reports whether an address belongs to a peer or a node. s.mu must be held.
func (s *Server) isKnown(from netip.Addr) bool {
	return s.addrs[from] || s.nodes[from]
}

// SetListen replaces the addresses at which the server listens.
func (s *Server) SetListen(listen []Listen) {
	s.mu.Lock()
	s.listen = slices.Clone(listen)
	s.mu.Unlock()
	s.wake.Fire()
}

// Publish publishes this cluster's state to the gateways of other clusters. It omits parts that
// cannot be sent, such as a large export; the error names them.
func (s *Server) Publish(state model.ClusterState) error {
	return s.local.publish(map[string]RemoteState{state.Cluster: {State: state}})
}

// PublishRelay publishes the states of other clusters (Client.Relay) to the nodes of this cluster.
// It omits parts that cannot be sent; the error names them.
func (s *Server) PublishRelay(states map[string]RemoteState) error { return s.relay.publish(states) }

// Run serves until ctx is done. It returns after all its goroutines have ended.
func (s *Server) Run(ctx context.Context) error {
	tlsConfig, err := serverTLS()
	if err != nil {
		return err
	}
	var group sync.WaitGroup
	defer group.Wait()
	running := map[Listen]context.CancelFunc{}
	for {
		s.mu.Lock()
		wanted := slices.Clone(s.listen)
		s.mu.Unlock()
		for address, cancel := range running {
			if !slices.Contains(wanted, address) {
				cancel()
				delete(running, address)
			}
		}
		for _, address := range wanted {
			if running[address] == nil {
				listenCtx, cancel := context.WithCancel(ctx)
				running[address] = cancel
				l := listener{server: s, address: address, tlsConfig: tlsConfig}
				group.Go(func() { l.run(listenCtx) })
			}
		}
		select {
		case <-ctx.Done():
			for _, cancel := range running {
				cancel()
			}
			return nil
		case <-s.wake:
		}
	}
}
