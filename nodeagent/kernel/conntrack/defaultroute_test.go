package conntrack

import (
	"net"
	"net/netip"
	"slices"
	"testing"
	"time"
)

var clusterSetIPs = []netip.Prefix{netip.MustParsePrefix("243.0.0.0/16"), netip.MustParsePrefix("fd00:43::/48")}

// boot disables the rules and routes of a node. Packets to the prefixes then leave by a default
// route, with an address of the host if masquerade is true. start enables them again.
func (s *space) boot(masquerade bool, prefixes ...netip.Prefix) (start func()) {
	s.t.Helper()
	s.NFT("add table inet t { flags dormant; }")
	s.IP("link add up0 type veth peer name up1", "link set up1 up", "link set up0 arp off up", "addr add 172.18.0.4/16 dev up0", "addr add fd00:172::4/64 dev up0 nodad",
		"route add default dev up0 table 99", "-6 route add default dev up0 table 99")
	rules := func(action string) {
		for _, p := range prefixes {
			family := map[bool]string{true: "-4", false: "-6"}[p.Addr().Is4()]
			s.IP(family + " rule " + action + " pref 10 to " + p.String() + " lookup 99")
		}
	}
	rules("add")
	if masquerade {
		s.NFT("table inet cni { chain post { type nat hook postrouting priority 100; oifname up0 masquerade; }\n}")
	}
	return func() {
		s.t.Helper()
		s.NFT("add table inet t")
		rules("del")
	}
}

// TestDeleteDefaultRouted begins flows of a pod to a clusterset IP before the rules of its node
// exist. A flow works after they exist only if its entry was deleted.
func TestDeleteDefaultRouted(t *testing.T) {
	t.Parallel()
	for _, network := range []string{"udp4", "udp6"} {
		t.Run(network, func(t *testing.T) {
			t.Parallel()
			r := newTestNetwork(t)
			start := r.node.boot(false, slices.Concat(remotePrefixes, clusterSetIPs)...)
			var listener net.PacketConn
			s := r.dial(network, func() (err error) {
				listener, err = net.ListenPacket(network, service(network, backendIP, backendIP6, backendPort))
				return err
			})
			t.Cleanup(func() { listener.Close() })
			r.node.awaitFlow(s, func(f Flow) netip.AddrPort { return f.Orig.From })
			start()
			_, err := s.client.Write([]byte("hello"))
			r.must(err)
			if from := receivesFrom(t, listener, "hello"); from.IsValid() {
				t.Fatalf("a packet from %v arrived although its flow has an old entry", from)
			}
			k := r.syncer()
			k.RoutesAdded(remotePrefixes, clusterSetIPs)
			if n := r.node.runDue(k, time.Now()).Purged; n != 1 {
				t.Errorf("deleted %d entries, want 1", n)
			}
			s.awaitClient(listener)
			k.RoutesAdded(remotePrefixes, clusterSetIPs)
			if n := r.node.runDue(k, time.Now()).Purged; n != 1 {
				t.Errorf("deleted %d entries of a flow that works", n-1)
			}
		})
	}
}

// TestDeleteMasqueradedReply sends the packet of a server through its gateway before the rules of
// the gateway exist. Another program masquerades it. The client's packets arrive after the rules
// exist only if the entry was deleted.
func TestDeleteMasqueradedReply(t *testing.T) {
	t.Parallel()
	prefixes := []netip.Prefix{netip.MustParsePrefix("242.1.0.0/16"), netip.MustParsePrefix("fd00:42:1::/48")}
	for _, network := range []string{"udp4", "udp6"} {
		t.Run(network, func(t *testing.T) {
			t.Parallel()
			r := newTestNetwork(t)
			var listener net.PacketConn
			s := r.dial(network, func() (err error) {
				listener, err = net.ListenPacket(network, service(network, backendIP, backendIP6, backendPort))
				return err
			})
			t.Cleanup(func() { listener.Close() })
			client := s.awaitClient(listener)
			start := r.far.boot(true, prefixes...)
			r.far.Inside(func() {
				for _, f := range r.far.flows() {
					r.must(deleteEntry(&f))
				}
			})
			_, err := listener.WriteTo([]byte("reply"), client)
			r.must(err)
			r.far.awaitFlow(s, func(f Flow) netip.AddrPort { return f.Orig.To })
			start()
			port := s.client.LocalAddr().(*net.UDPAddr).AddrPort().Port()
			send := func() netip.AddrPort {
				_, err := s.client.Write([]byte("again"))
				r.must(err)
				return receivesFrom(t, listener, "again")
			}
			if from := send(); from.Port() == port {
				t.Fatal("a packet arrived unchanged although its flow has an old entry")
			}
			for _, f := range r.far.flows() {
				if f.Orig.From.Port() == port {
					r.far.Inside(func() { r.must(deleteEntry(&f)) }) // of the packet above
				}
			}
			k := r.syncer()
			k.RoutesAdded(prefixes, clusterSetIPs)
			if n := r.far.runDue(k, time.Now()).Purged; n != 1 {
				t.Errorf("deleted %d entries, want 1", n)
			}
			for end := time.Now().Add(testTimeout); send().Port() != port; {
				if time.Now().After(end) {
					t.Fatal("no packet arrives unchanged")
				}
			}
			k.RoutesAdded(prefixes, clusterSetIPs)
			if n := r.far.runDue(k, time.Now()).Purged; n != 1 {
				t.Errorf("deleted %d entries of a flow that works", n-1)
			}
		})
	}
}

// awaitFlow waits until the host has an entry with the port of a session's client.
func (s *space) awaitFlow(of *session, client func(Flow) netip.AddrPort) {
	s.t.Helper()
	port := of.client.LocalAddr().(*net.UDPAddr).AddrPort().Port()
	known := func(f Flow) bool { return client(f).Port() == port }
	for end := time.Now().Add(testTimeout); !slices.ContainsFunc(s.flows(), known); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			s.t.Fatal("no packet left by the default route")
		}
	}
}

// receivesFrom returns the sender of the next datagram with a text; the zero value after
// resendInterval.
func receivesFrom(t *testing.T, listener net.PacketConn, text string) netip.AddrPort {
	t.Helper()
	if err := listener.SetReadDeadline(time.Now().Add(resendInterval)); err != nil {
		t.Fatal(err)
	}
	buffer := make([]byte, 64)
	for {
		n, from, err := listener.ReadFrom(buffer)
		if err != nil {
			return netip.AddrPort{}
		}
		if string(buffer[:n]) == text {
			return from.(*net.UDPAddr).AddrPort()
		}
	}
}
