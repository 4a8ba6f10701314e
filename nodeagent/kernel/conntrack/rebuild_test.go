package conntrack

import (
	"fmt"
	"net"
	"net/netip"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// movePodToGateway moves the pod to gateway a, which then also translates service addresses.
func (r *testNetwork) movePodToGateway() {
	r.t.Helper()
	r.pod.IP("link del eth0")
	tunnel(r.pod, "eth0", r.a, "pod0")
	r.pod.IP("addr add "+podIP+"/24 dev eth0", "addr add "+podIP6+"/64 dev eth0 nodad",
		"route add default via 10.7.1.1", "route add default via fd00:7::1")
	r.a.IP("route del 10.7.1.0/24", "route del fd00:7::/64", "addr add 10.7.1.1/24 dev pod0", "addr add fd00:7::1/64 dev pod0 nodad")
	r.b.IP("route replace 10.7.1.0/24 via 192.0.2.2", "route replace fd00:7::/64 via 2001:db8::2")
	dnat := `ip daddr ` + vipIP + ` meta l4proto { tcp, udp } th dport 80 dnat ip to ` + exportIP + `:80
		ip6 daddr ` + vipIP6 + ` meta l4proto { tcp, udp } th dport 80 dnat ip6 to [` + exportIP6 + `]:80`
	r.a.NFT(`table inet services {
		chain pre { type nat hook prerouting priority -110; ` + dnat + `
		}
		chain out { type nat hook output priority -110; ` + dnat + `
		}
		chain post { type nat hook postrouting priority 90;
			oifname hw-vx0 ip daddr 242.2.0.0/16 snat ip to ip saddr
			oifname hw-vx0 ip6 daddr fd00:42:2::/48 snat ip6 to ip6 saddr
		}
	}`)
	r.a.IP("route add 243.0.0.0/16 dev hw-vx0", "route add fd00:43::/48 dev hw-vx0")
}

// moveGatewayA routes gateway a's own pods over its own link or over b.
func (r *testNetwork) moveGatewayA(ownLink bool) {
	r.t.Helper()
	via := []string{"route replace 242.2.0.0/16 via 192.0.2.3", "route replace fd00:42:2::/48 via 2001:db8::3"}
	if ownLink {
		via = []string{"route replace 242.2.0.0/16 via 241.0.2.2", "route replace fd00:42:2::/48 via fd00:41:2::2"}
	}
	r.a.IP(via...)
	r.move(map[bool]string{true: "a", false: "b"}[ownLink])
}

// TestRebuild moves the path of a pod on a gateway from its own link to another gateway, or
// back. The pod only listens.
func TestRebuild(t *testing.T) {
	t.Parallel()
	own := LocalPods{Pods: []netip.Prefix{netip.MustParsePrefix("10.7.1.0/24"), netip.MustParsePrefix("fd00:7::/64")}}
	for name, first := range map[string]bool{"from own link": true, "to own link": false} {
		for _, network := range []string{"tcp4", "udp4", "tcp6"} {
			t.Run(name+" "+network, func(t *testing.T) {
				t.Parallel()
				r := newTestNetwork(t)
				r.movePodToGateway()
				r.moveGatewayA(first)
				s := r.open(network)
				if !s.delivers("first") {
					t.Fatal("the test network does not forward")
				}
				r.moveGatewayA(!first)
				s.push("lost?")
				if s.receives("lost?", 300*time.Millisecond) {
					t.Fatal("the connection survives without the syncer")
				}
				k := r.syncer()
				k.SetLocalPods(own)
				if first {
					k.LinkReleased("g2", remotePrefixes)
				} else {
					k.LinkTakenOver("g2", remotePrefixes)
				}
				if stats := r.a.runDue(k, time.Now()); stats.Rebuilt != 1 {
					t.Fatalf("stats %+v, want one flow rebuilt", stats)
				}
				if !s.arrives("lost?") {
					t.Fatal("no data of the server arrives after the rebuild")
				}
				if stats := r.a.runDue(k, time.Now()); stats.Rebuilt != 1 {
					t.Errorf("renewed again: %+v", stats)
				}
				if rules := r.a.blockRules(); rules != "" {
					t.Errorf("rules are left:\n%s", rules)
				}
			})
		}
	}
}

// openBackend makes the gateway's pod the backend of an export that the other cluster uses. It
// returns a connection to the pod.
func (r *testNetwork) openBackend() *connection {
	r.t.Helper()
	rules := `table inet backend {
			chain pre { type nat hook prerouting priority -110;
				iifname hw-wg1 ip daddr 242.1.0.40 tcp dport 80 dnat ip to ` + podIP + `:8080
			}
			chain post { type nat hook postrouting priority 80;
				oifname hw-wg1 ip saddr ` + podIP + ` tcp flags & (syn | rst) == 0 tcp sport 8080 snat ip to 242.1.0.40:80
				ip saddr 242.2.0.0/16 snat ip to ip saddr
			}
		}`
	r.a.NFT(rules)
	r.b.NFT(rules)
	r.far.NFT(`table inet client { chain post { type nat hook postrouting priority 90;
		oifname "wg*" ip saddr ` + backendIP + ` snat ip to 242.2.0.9
	}
}`)
	var listener net.Listener
	var err error
	r.pod.Inside(func() { listener, err = net.Listen("tcp4", podIP+":8080") })
	r.must(err)
	defer listener.Close()
	k := &connection{}
	r.server.Inside(func() { k.client, err = net.DialTimeout("tcp4", "242.1.0.40:80", testTimeout) })
	r.must(err)
	r.t.Cleanup(func() { k.client.Close() })
	k.server, err = listener.Accept()
	r.must(err)
	r.t.Cleanup(func() { k.server.Close() })
	return k
}

// TestRebuildBackend changes the path of a connection to a backend on a gateway.
func TestRebuildBackend(t *testing.T) {
	t.Parallel()
	own := LocalPods{Pods: []netip.Prefix{netip.MustParsePrefix("10.7.1.0/24")}}
	for name, first := range map[string]bool{"from own link": true, "to own link": false} {
		for _, rebuilds := range []bool{true, false} {
			for _, speaker := range []string{"client", "server"} {
				if !rebuilds && speaker == "server" {
					continue // the server's packet matches the old entry
				}
				t.Run(fmt.Sprintf("%s %s rebuilt %v", name, speaker, rebuilds), func(t *testing.T) {
					t.Parallel()
					r := newTestNetwork(t)
					r.movePodToGateway()
					r.moveGatewayA(first)
					conn := r.openBackend()
					if !conn.exchange(testTimeout) {
						t.Fatal("the test network does not forward")
					}
					r.moveGatewayA(!first)
					if rebuilds {
						syncer := r.syncer()
						syncer.SetLocalPods(own)
						if first {
							syncer.LinkReleased("g2", remotePrefixes)
						} else {
							syncer.LinkTakenOver("g2", remotePrefixes)
						}
						if stats := r.a.runDue(syncer, time.Now()); stats.Rebuilt != 1 {
							t.Fatalf("stats %+v, want one flow rebuilt", stats)
						}
					}
					timeout := testTimeout
					if !rebuilds {
						timeout = time.Second
					}
					if speaker == "server" {
						conn.client, conn.server = conn.server, conn.client
					}
					if survives := conn.exchange(timeout); survives != rebuilds {
						t.Errorf("the connection survives: %v, want %v", survives, rebuilds)
					}
				})
			}
		}
	}
}

// blockRules returns the rules that block packets.
func (s *space) blockRules() (out string) {
	s.t.Helper()
	for _, family := range []string{"-4", "-6"} {
		raw, err := exec.Command("ip", "-n", s.Name, family, "rule", "show", "priority", "7298").CombinedOutput()
		if err != nil {
			s.t.Errorf("ip rule: %v\n%s", err, raw)
		}
		out += strings.TrimSpace(string(raw))
	}
	return out
}

// TestBlockIngress blocks only the given packets, and removes its rules after a crash.
func TestBlockIngress(t *testing.T) {
	t.Parallel()
	s := newSpace(t)
	pods := []netip.Prefix{netip.MustParsePrefix("10.7.1.0/24"), netip.MustParsePrefix("fd00:7::/64")}
	s.IP("rule add priority 7298 from 10.1.0.0/16 lookup main")
	s.Inside(func() {
		_, err := blockIngress([]*linkChange{{cluster: "g2", prefixes: remotePrefixes}}, pods)
		if err != nil {
			t.Error(err)
		}
	})
	for _, want := range []string{"from 242.2.0.0/16 to 10.7.1.0/24 blackhole", "from fd00:42:2::/48 to fd00:7::/64 blackhole"} {
		if got := s.blockRules(); !strings.Contains(got, want) {
			t.Errorf("rules %q, want %q", got, want)
		}
	}
	s.Inside(func() {
		removed, err := RemoveStaleRules()
		if want := "7298 from 242.2.0.0/16 to 10.7.1.0/24"; err != nil || !slices.Contains(removed, want) || len(removed) != 2 {
			t.Errorf("removed %q and %v, want %s and the same of IPv6", removed, err, want)
		}
	})
	if got := s.blockRules(); strings.Contains(got, "blackhole") || !strings.Contains(got, "10.1.0.0/16") {
		t.Errorf("rules after release: %q", got)
	}
}

func TestCheckStale(t *testing.T) {
	t.Parallel()
	pod, service, egress := netip.MustParseAddrPort("10.7.1.5:4000"), netip.MustParseAddrPort("242.2.0.32:80"), netip.MustParseAddrPort("242.1.0.1:4000")
	kept := &Flow{Protocol: unix.IPPROTO_TCP, Orig: Tuple{pod, service}, Reply: Tuple{service, pod}}
	otherPort := &Flow{Protocol: unix.IPPROTO_UDP, Orig: Tuple{pod, service}, Reply: Tuple{service, netip.AddrPortFrom(pod.Addr(), 4001)}}
	translated := &Flow{Protocol: unix.IPPROTO_TCP, Orig: Tuple{pod, service}, Reply: Tuple{service, egress}}
	tests := []struct {
		name              string
		own, local, keeps bool
		flow              *Flow
		want              bool
	}{
		{"own link, own source", true, true, false, kept, true},
		{"own link, own source with another port", true, true, false, otherPort, true},
		{"other gateway, own source with another port", false, true, false, otherPort, false},
		{"own link, own source of another node's pod", true, false, false, kept, true},
		{"own link, own source of a flat cluster", true, true, true, kept, false},
		{"own link, translated", true, true, false, translated, false},
		{"other gateway, translated", false, true, false, translated, true},
		{"other gateway, another node's pod", false, false, false, translated, false},
		{"other gateway, own source", false, true, false, kept, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			if _, got := (&linkChange{usesOwnLink: tt.own}).checkStale(tt.flow, tt.local, tt.keeps); got != tt.want {
				t.Errorf("wrong %v, want %v", got, tt.want)
			}
		})
	}
	others := &linkChange{usesOwnLink: true, fromNodesOnly: true}
	if _, wrong := others.checkStale(kept, true, false); wrong {
		t.Error("a change of handed-over traffic affects a pod of this node")
	}
	if _, wrong := others.checkStale(kept, false, false); !wrong {
		t.Error("a change of handed-over traffic does not affect another node's pod")
	}
}

// TestLinkAvailable: a flow of another node's pod survives that this gateway handed to its
// sibling while it had no link of its own.
func TestLinkAvailable(t *testing.T) {
	t.Parallel()
	r := newTestNetwork(t)
	r.moveGatewayA(false)
	r.move("a") // the node still uses a
	r.a.NFT(`table inet keep { chain post { type nat hook postrouting priority 90;
		oifname hw-vx0 ip daddr 242.2.0.0/16 snat ip to ip saddr
	}
}`)
	r.far.IP("route replace 242.1.0.0/16 via 241.0.3.1") // replies over b, which translated the flow
	k := r.openFrom("10.7.1.5:41000")
	if !k.exchange(testTimeout) {
		t.Fatal("the test network does not forward")
	}
	r.moveGatewayA(true)
	if k.exchange(time.Second) {
		t.Fatal("the connection survives without the syncer")
	}
	syncer := r.syncer()
	syncer.SetLocalPods(LocalPods{})
	syncer.LinkAvailable("g2", remotePrefixes)
	if stats := r.a.runDue(syncer, time.Now()); stats.Rebuilt != 1 {
		t.Fatalf("stats %+v, want one flow rebuilt", stats)
	}
	if !k.deliversRequest() {
		t.Error("the connection does not survive")
	}
}

// TestLinkAvailableReplies: a flow survives whose replies the sibling gateway forwarded here,
// with the pod's own address. They created an entry without a translation.
func TestLinkAvailableReplies(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*Syncer){
		"available":  func(k *Syncer) { k.LinkAvailable("g2", remotePrefixes) },
		"taken over": func(k *Syncer) { k.LinkTakenOver("g2", remotePrefixes) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newTestNetwork(t)
			r.move("b")
			k := r.openFrom("10.7.1.5:41000")
			if !k.exchange(testTimeout) {
				t.Fatal("the test network does not forward")
			}
			r.b.IP("route replace 10.7.1.0/24 via 192.0.2.2")
			_ = k.client.SetReadDeadline(time.Now().Add(testTimeout))
			if _, err := k.server.Write([]byte("y")); err != nil {
				t.Fatal(err)
			}
			if _, err := k.client.Read(make([]byte, 8)); err != nil {
				t.Fatalf("reply over both gateways: %v", err)
			}
			r.b.IP("route replace 10.7.1.0/24 via 192.0.2.1")
			r.move("a")
			if k.exchange(time.Second) {
				t.Fatal("the connection survives without the syncer")
			}
			syncer := r.syncer()
			syncer.SetLocalPods(LocalPods{})
			change(syncer)
			if stats := r.a.runDue(syncer, time.Now()); stats.Rebuilt != 1 {
				t.Fatalf("stats %+v, want one flow rebuilt", stats)
			}
			if !k.deliversRequest() {
				t.Error("the connection does not survive")
			}
		})
	}
}

// deliversRequest reports whether TCP still delivers an earlier request.
func (k *connection) deliversRequest() bool {
	_ = k.server.SetDeadline(time.Now().Add(testTimeout))
	n, err := k.server.Read(make([]byte, 8))
	return err == nil && n == 1
}

// TestHalfOpen opens a connection whose first SYN went by gateway a, without a reply, and the
// second by b. When the path returns to a, the connection survives.
func TestHalfOpen(t *testing.T) {
	t.Parallel()
	r := newTestNetwork(t)
	r.far.IP("route replace 242.1.0.0/16 via 241.0.3.1") // the reply goes to b, which does not know the flow
	var listener net.Listener
	var err error
	r.server.Inside(func() { listener, err = net.Listen("tcp4", service("tcp4", backendIP, backendIP6, backendPort)) })
	r.must(err)
	defer listener.Close()
	go func() {
		for !slices.ContainsFunc(r.a.flows(), func(f Flow) bool { return f.halfOpen() }) {
			time.Sleep(10 * time.Millisecond)
		}
		r.move("b")
	}()
	k := &connection{}
	r.pod.Inside(func() {
		k.client, err = net.DialTimeout("tcp4", service("tcp4", vipIP, vipIP6, servicePort), testTimeout)
	})
	r.must(err)
	defer k.client.Close()
	k.server, err = listener.Accept()
	r.must(err)
	defer k.server.Close()
	if !k.exchange(testTimeout) {
		t.Fatal("the test network does not forward")
	}
	r.move("a")
	if k.exchange(time.Second) {
		t.Fatal("the connection survives without the syncer")
	}
	syncer := r.syncer()
	syncer.LinkTakenOver("g2", remotePrefixes)
	r.a.runDue(syncer, time.Now())
	if !k.deliversRequest() {
		t.Error("the connection does not survive")
	}
}
