package conntrack

import (
	"fmt"
	"net"
	"net/netip"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// sendCrossedReply sends a reply of the server to gateway a by the path that the pod's flow does
// not use: over b while a's own link is in use, and by that link while b is in use.
func (r *testNetwork) sendCrossedReply(port uint16, ownLink bool) {
	r.t.Helper()
	s, link, to := r.b, "hw-vx0", podIP
	r.b.IP("neigh replace 192.0.2.2 lladdr 02:00:00:00:00:02 dev hw-vx0")
	if !ownLink {
		s, link, to = r.far, "wg2", sharedIP
		r.far.IP("route replace 242.1.0.0/16 via 241.0.2.1")
	}
	reply := Tuple{
		From: netip.MustParseAddrPort(fmt.Sprintf("%s:%d", exportIP, servicePort)),
		To:   netip.AddrPortFrom(netip.MustParseAddr(to), port),
	}
	isReply := func(f Flow) bool { return f.Orig == reply }
	for end := time.Now().Add(testTimeout); !slices.ContainsFunc(r.a.flows(), isReply); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			r.t.Fatalf("no entry for %v at the gateway", reply)
		}
		s.Inside(func() {
			// The packet enters below conntrack of this namespace, which knows the flow in the
			// opposite direction.
			out, err := openSender(link)
			r.must(err)
			defer out.close()
			r.must(out.send(&Flow{Protocol: unix.IPPROTO_UDP, Reply: Tuple{From: reply.To, To: reply.From}}))
		})
	}
}

// TestRebuildCrossed changes the path of a flow after a reply of its server arrived by the
// other path. The reply created an entry that holds the flow's port.
func TestRebuildCrossed(t *testing.T) {
	t.Parallel()
	r := newTestNetwork(t)
	r.movePodToGateway()
	r.a.NFT(`table inet mapped { chain pre { type nat hook prerouting priority -110;
		iifname hw-wg1 ip daddr ` + sharedIP + ` dnat ip to ` + podIP + `
	}
}`)
	r.moveGatewayA(true)
	s := r.open("udp4")
	if !s.delivers("first") {
		t.Fatal("the test network does not forward")
	}
	k := r.syncer()
	k.SetLocalPods(LocalPods{Pods: []netip.Prefix{netip.MustParsePrefix("10.7.1.0/24")}})
	port := s.client.LocalAddr().(*net.UDPAddr).AddrPort().Port()
	for before, own := range []bool{false, true, false, true} {
		r.sendCrossedReply(port, !own)
		r.moveGatewayA(own)
		if own {
			k.LinkTakenOver("g2", remotePrefixes)
		} else {
			k.LinkReleased("g2", remotePrefixes)
		}
		if stats := r.a.runDue(k, time.Now()); stats.Rebuilt != uint64(before+1) {
			t.Fatalf("own link %v: stats %+v, want %d flows rebuilt", own, stats, before+1)
		}
		for _, f := range r.a.flows() {
			if f.Orig.From.Port() == port && f.portChanged() {
				t.Errorf("own link %v: the flow has another port: %+v", own, f)
			}
		}
		if !s.delivers("moved") {
			t.Fatalf("own link %v: nothing arrives from the server", own)
		}
	}
}

// TestRebuildLostPort rebuilds a flow that lost its port to a crossed entry between two passes.
func TestRebuildLostPort(t *testing.T) {
	t.Parallel()
	r := newTestNetwork(t)
	r.movePodToGateway()
	r.moveGatewayA(true)
	s := r.open("udp4")
	if !s.delivers("first") {
		t.Fatal("the test network does not forward")
	}
	port := s.client.LocalAddr().(*net.UDPAddr).AddrPort().Port()
	r.sendCrossedReply(port, true)
	r.moveGatewayA(false)
	r.a.Inside(func() {
		for _, f := range r.a.flows() {
			if f.Orig.From.Port() == port {
				r.must(deleteEntry(&f))
			}
		}
	})
	lost := func(f Flow) bool { return f.keepsSource() && f.Orig.From.Port() == port && f.portChanged() }
	_, err := s.client.Write([]byte("again"))
	r.must(err)
	if !slices.ContainsFunc(r.a.flows(), lost) {
		t.Fatalf("the flow kept its port: %+v", r.a.flows())
	}
	k := r.syncer()
	k.SetLocalPods(LocalPods{Pods: []netip.Prefix{netip.MustParsePrefix("10.7.1.0/24")}})
	k.LinkReleased("g2", remotePrefixes)
	if stats := r.a.runDue(k, time.Now()); stats.Rebuilt != 1 {
		t.Fatalf("stats %+v, want one flow rebuilt", stats)
	}
	if slices.ContainsFunc(r.a.flows(), lost) {
		t.Errorf("the flow still has another port: %+v", r.a.flows())
	}
	if !s.delivers("moved") {
		t.Error("nothing arrives from the server")
	}
}
