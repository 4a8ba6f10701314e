package feed

import (
	"context"
	"crypto/tls"
	"maps"
	"net"
	"net/netip"
	"reflect"
	"slices"
	"sync"
	"time"

	"hawser.dev/hawser/internal/trigger"
	"hawser.dev/hawser/nodeagent/model"
)

// maxPerClient bounds the subscriptions of one client; the oldest gives way.
const maxPerClient = 4

// Server serves the feeds of one gateway. Its methods may be called from any
// goroutine, before, during and after Run.
type Server struct {
	config Config
	own    *topic // for gateways of other clusters
	relay  *topic // for nodes of this cluster
	places *pendingConns
	wake   trigger.Trigger

	mu       sync.Mutex
	identity Identity
	peers    map[string]Peer
	callers  map[netip.Addr]bool // from where peers call
	nodes    map[netip.Addr]bool // of this cluster
	listen   []Listen
	sessions map[*session]bool
	counter  uint64
	warned   map[string]bool // refusals that were logged
}

// NewServer makes a server that knows nobody and serves nothing yet.
func NewServer(config Config) *Server {
	config.Timing = config.Timing.withDefaults()
	s := &Server{
		config:   config,
		own:      newTopic(),
		relay:    newTopic(),
		wake:     trigger.New(),
		peers:    map[string]Peer{},
		sessions: map[*session]bool{},
		warned:   map[string]bool{},
	}
	s.places = &pendingConns{known: s.knows, taken: map[netip.Addr][]net.Conn{}, strangers: map[net.Conn]bool{}}
	return s
}

// SetIdentity replaces who this gateway is, such as at a rotation of its keys.
func (s *Server) SetIdentity(id Identity) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.identity = id
	s.identity.Keys = maps.Clone(id.Keys)
}

// SetPeers replaces the gateways that may subscribe. Those that are gone, or
// whose keys are, are cut off at once. Peers with a Device are passed over: the
// nodes of this cluster need no key.
func (s *Server) SetPeers(peers []Peer) {
	s.mu.Lock()
	defer s.mu.Unlock()
	wanted := make(map[string]Peer, len(peers))
	for _, peer := range peers {
		if peer.Device == "" {
			wanted[name(peer.Cluster, peer.Gateway)] = peer
		}
	}
	if reflect.DeepEqual(s.peers, wanted) {
		return
	}
	s.peers, s.warned, s.callers = wanted, map[string]bool{}, map[netip.Addr]bool{}
	for _, peer := range wanted {
		s.callers[peer.Addr.Addr()] = true
		for _, addr := range peer.Addrs {
			s.callers[addr] = true
		}
	}
	for open := range s.sessions {
		if !open.node && s.peers[open.client].Keys[open.epoch] != open.key {
			open.cancel()
		}
	}
}

// SetNodes says at which addresses this cluster's nodes are. A node has no key: by
// its address it has places that nobody else can take.
func (s *Server) SetNodes(addrs []netip.Addr) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.nodes = make(map[netip.Addr]bool, len(addrs))
	for _, addr := range addrs {
		s.nodes[addr] = true
	}
}

// knows reports whether an address is a peer's or a node's.
func (s *Server) knows(from netip.Addr) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.callers[from] || s.nodes[from]
}

// SetListen replaces where to serve.
func (s *Server) SetListen(listen []Listen) {
	s.mu.Lock()
	s.listen = slices.Clone(listen)
	s.mu.Unlock()
	s.wake.Fire()
}

// SetLive publishes this cluster's state to the gateways of other clusters. An error
// tells what was left out, such as an export that is too large to send.
func (s *Server) SetLive(live model.ClusterState) error {
	return s.own.publish(map[string]RemoteState{live.Cluster: {Live: live}})
}

// SetRelay publishes what this gateway heard of other clusters (Client.Relay) to
// the nodes of this cluster. An error says what was left out.
func (s *Server) SetRelay(view map[string]RemoteState) error { return s.relay.publish(view) }

// Run serves until ctx ends, and returns when all its goroutines have.
func (s *Server) Run(ctx context.Context) error {
	secure, err := serverTLS()
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
		for place, cancel := range running {
			if !slices.Contains(wanted, place) {
				cancel()
				delete(running, place)
			}
		}
		for _, place := range wanted {
			if running[place] == nil {
				listening, cancel := context.WithCancel(ctx)
				running[place] = cancel
				l := listener{server: s, place: place, tls: secure}
				group.Go(func() { l.run(listening) })
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

// serve speaks with one client until it leaves or ctx ends.
func (s *Server) serve(ctx context.Context, raw net.Conn, l *listener) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	conn := tls.Server(raw, l.tls)
	defer func() { _ = raw.Close() }()
	stop := context.AfterFunc(ctx, func() { _ = raw.Close() })
	defer stop()

	open, err := s.welcome(ctx, conn, l)
	s.places.leave(raw)
	if err != nil {
		return err
	}
	open.cancel = cancel
	if err := s.addSession(open); err != nil {
		return err
	}
	defer s.removeSession(open)
	var group sync.WaitGroup
	defer group.Wait()
	defer func() { _ = raw.Close() }()
	group.Go(func() {
		defer cancel()
		// A subscriber may say nothing but heartbeats.
		for {
			var f frame
			_ = conn.SetReadDeadline(time.Now().Add(s.config.Timing.FrameTimeout))
			if err := readFrame(conn, maxHello, &f); err != nil || f.Kind != kindHeartbeat {
				return
			}
		}
	})
	return s.publishTo(ctx, conn, open.node)
}

// welcome does the handshake, within the time for it.
func (s *Server) welcome(ctx context.Context, conn *tls.Conn, l *listener) (*session, error) {
	if err := conn.SetDeadline(time.Now().Add(s.config.Timing.Handshake)); err != nil {
		return nil, err
	}
	if err := conn.HandshakeContext(ctx); err != nil {
		return nil, err
	}
	var h hello
	if err := readFrame(conn, maxHello, &h); err != nil {
		return nil, err
	}
	s.mu.Lock()
	a := admission{id: s.identity, peers: s.peers, node: l.place.Device != ""}
	s.mu.Unlock()
	w := welcome{Protocol: protocol}
	proof, client, refused := a.admit(conn, h)
	if w.Proof = proof; refused != nil {
		// The log says why; a stranger learns nothing.
		w = welcome{Protocol: protocol, Refused: "unknown name, epoch or key"}
	}
	raw, err := pack(w)
	if err != nil {
		return nil, err
	}
	if _, err := conn.Write(raw); err != nil {
		return nil, err
	}
	if refused != nil {
		return nil, refused
	}
	return &session{client: client, from: source(conn.NetConn()), node: a.node, epoch: h.Epoch, key: a.peers[client].Keys[h.Epoch]}, conn.SetDeadline(time.Time{})
}

// publishTo sends what the subscriber lacks whenever there is something, and
// heartbeats between. One that does not take it in time is dropped.
func (s *Server) publishTo(ctx context.Context, conn *tls.Conn, node bool) error {
	from := s.own
	if node {
		from = s.relay
	}
	beat, err := pack(frame{Kind: kindHeartbeat})
	if err != nil {
		return err
	}
	ticker := time.NewTicker(s.config.Timing.Heartbeat)
	defer ticker.Stop()
	var sent *version
	for {
		current, changed := from.load()
		frames, err := current.framesSince(sent)
		if err != nil {
			return err
		}
		if len(frames) == 0 {
			frames = [][]byte{beat}
		}
		for _, raw := range frames {
			_ = conn.SetWriteDeadline(time.Now().Add(s.config.Timing.FrameTimeout))
			if _, err := conn.Write(raw); err != nil {
				return err
			}
		}
		sent = current
		select {
		case <-ctx.Done():
			return nil
		case <-changed:
		case <-ticker.C:
		}
	}
}
