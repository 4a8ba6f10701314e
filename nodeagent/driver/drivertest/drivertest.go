// Package drivertest is the conformance suite of drivers: the requirements of every tunnel on a
// real kernel, over an IPv4 and an IPv6 underlay. Gateways of three clusters run the real agent
// in separate network namespaces. The test captures all packets on the bridge between them.
package drivertest

import (
	"strings"
	"testing"
	"time"

	"hawser.dev/hawser/nodeagent/driver"
)

// maxWait limits each wait. Passing tests never wait that long.
const maxWait = 5 * time.Minute

// Suite is one driver under test.
type Suite struct {
	Agent  string // path of the hawser-agent program
	Driver driver.Driver
	// Missing names a dependency of the driver that this machine lacks.
	Missing string
}

// Run runs the suite over both families.
func (s Suite) Run(t *testing.T) {
	for _, family := range []string{"ipv4", "ipv6"} {
		t.Run(family, func(t *testing.T) {
			t.Parallel()
			r := newEnv(t, s, family == "ipv6")
			// Each step depends on the steps before it.
			steps := []struct {
				name string
				run  func(*testing.T, *env)
			}{
				{"up", up}, {"counters", counters}, {"wire", wire}, {"spoofed", spoofed}, {"replayed", replayed},
				{"neighbours stay", neighborsStay}, {"repair", repair}, {"epochs", epochs}, {"overhead", overhead}, {"teardown", teardown},
			}
			for _, step := range steps {
				if !t.Run(step.name, func(t *testing.T) { r.t = t; step.run(t, r) }) {
					r.logState(t)
					return
				}
			}
		})
	}
}

// up checks that the link comes up and transports both families in both directions.
func up(_ *testing.T, r *env) {
	a, b := r.gateways["a"], r.gateways["b"]
	r.publish("a", "b")
	a.start()
	b.start()
	a.connected("b")
	b.connected("a")
	for _, six := range []bool{false, true} {
		a.reaches(b, six)
		b.reaches(a, six)
	}
}

// counters checks that each gateway counts the bytes that it sends and receives.
func counters(_ *testing.T, r *env) {
	a, b := r.gateways["a"], r.gateways["b"]
	const packets, size = 20, 1000
	was := map[*gateway]traffic{a: a.traffic("b"), b: b.traffic("a")}
	r.eventually("pings", func() bool { return a.ping(b, false, "-c", "20", "-i", "0.02", "-s", "1000") == nil })
	for g, other := range map[*gateway]string{a: "b", b: "a"} {
		// A status lacks counters if the agent could not read them in time.
		r.eventually(g.name+" counts sent and received bytes", func() bool {
			now := g.traffic(other)
			return now.rx >= was[g].rx+packets*size && now.tx >= was[g].tx+packets*size
		})
	}
}

// pattern fills the packets that wire searches for on the underlay.
const pattern = "hawser-in-clear!"

// wire checks that packets are readable on the underlay if and only if the driver is
// unencrypted.
func wire(t *testing.T, r *env) {
	a, b := r.gateways["a"], r.gateways["b"]
	capture := r.capture(r.wan, "br0")
	r.eventually("pings", func() bool {
		return a.ping(b, false, "-c", "5", "-i", "0.02", "-s", "200", "-p", hexOf(pattern)) == nil
	})
	r.packets = capture.stop()
	seen, crossed := false, 0
	for _, p := range r.packets {
		if p.from == b.outer && p.to == a.outer && len(p.raw) > 200 {
			crossed++
		}
		seen = seen || strings.Contains(string(p.raw), pattern)
	}
	if crossed < 5 {
		t.Fatalf("%d packets seen on the underlay, want 5 or more", crossed)
	}
	if want := r.suite.Driver.Traits().Unencrypted; seen != want {
		t.Errorf("packets readable on the underlay: %v, want %v", seen, want)
	}
}

// spoofed checks that packets with a source outside the sender's cluster are dropped.
func spoofed(t *testing.T, r *env) {
	a, b := r.gateways["a"], r.gateways["b"]
	b.freeze() // a running agent would repair, and add its own source address
	defer b.thaw()
	b.run("nft", "delete", "table", "inet", "hawser")
	b.run("ip", "addr", "add", foreignAddr+"/32", "dev", "lo")
	capture := r.capture(a.ns, "any")
	_ = b.ping(a, false, "-c", "5", "-i", "0.02", "-W", "1", "-I", foreignAddr) // no reply is expected
	r.eventually("pings with a true source", func() bool { return b.ping(a, false, "-c", "1", "-W", "1") == nil })
	b.run("ip", "addr", "del", foreignAddr+"/32", "dev", "lo")
	honest := 0
	for _, p := range capture.stop() {
		if p.from == foreignAddr {
			t.Fatalf("a packet from %s came out of the tunnel", foreignAddr)
		}
		if p.from == b.pod(false) {
			honest++
		}
	}
	if honest == 0 {
		t.Error("no packet with a true source was seen")
	}
}

// replayed checks that packets captured and resent by a third host are dropped.
func replayed(t *testing.T, r *env) {
	a, b := r.gateways["a"], r.gateways["b"]
	inside := r.capture(a.ns, "any")
	outside := r.capture(r.wan, "br0")
	sent := r.attacker.resend(r.packets, b.outer, a.outer)
	if sent == 0 {
		t.Fatal("no packets to replay")
	}
	r.eventually("pings", func() bool { return a.ping(b, false, "-c", "1", "-W", "1", "-s", "77") == nil })
	arrived := 0
	for _, p := range outside.stop() {
		if p.from == r.attacker.outer && p.to == a.outer {
			arrived++
		}
	}
	if arrived < sent {
		t.Errorf("%d of %d packets were replayed", arrived, sent)
	}
	for _, p := range inside.stop() {
		if strings.Contains(string(p.raw), pattern) && p.from == b.pod(false) {
			t.Fatal("a replayed packet came out of the tunnel")
		}
	}
}

// neighborsStay checks that adding and removing another gateway does not change the existing
// link or its counters.
func neighborsStay(t *testing.T, r *env) {
	a, b, c := r.gateways["a"], r.gateways["b"], r.gateways["c"]
	was := a.traffic("b")
	r.publish("a", "b", "c")
	c.start()
	a.connected("c")
	c.connected("a")
	a.reaches(c, false)
	a.reaches(b, false)
	r.publish("a", "b")
	a.disconnected("c")
	a.reaches(b, false)
	if now := a.traffic("b"); now.rx < was.rx || now.tx < was.tx {
		t.Errorf("the counters of the other link fell from %+v to %+v", was, now)
	}
	c.stop()
	c.cleanup()
}

// repair checks that the agent recreates deleted devices, and that they work.
func repair(_ *testing.T, r *env) {
	a, b := r.gateways["a"], r.gateways["b"]
	for _, tunnel := range a.tunnels() {
		device, _, _ := strings.Cut(tunnel, " ")
		a.run("ip", "link", "del", device)
	}
	a.reaches(b, false)
	b.reaches(a, true)
}

// overhead checks that a packet of the link's MTU grows on the underlay by exactly the driver's
// overhead, without fragmentation. A longer packet must not be sent.
func overhead(t *testing.T, r *env) {
	a, b := r.gateways["a"], r.gateways["b"]
	mtu := a.connection("b").MTU
	const headers = 20 + 8 // IPv4, ICMP
	capture := r.capture(r.wan, "br0")
	for inner := mtu - 15; inner <= mtu; inner++ {
		r.eventually("a ping of full size", func() bool {
			return a.ping(b, false, "-c", "1", "-W", "1", "-M", "do", "-s", number(inner-headers)) == nil
		})
	}
	if a.ping(b, false, "-c", "1", "-W", "1", "-M", "do", "-s", number(mtu+1-headers)) == nil {
		t.Errorf("a packet of %d bytes went through a link of MTU %d", mtu+1, mtu)
	}
	longest := 0
	for _, p := range capture.stop() {
		switch {
		case p.from != a.outer || p.to != b.outer:
		case p.fragment():
			t.Errorf("a packet of %d bytes is a fragment", p.length)
		case p.length <= underlayMTU: // a longer one is several packets merged by the kernel; a network card would split it
			longest = max(longest, p.length+p.spare())
		}
	}
	traits := r.suite.Driver.Traits()
	over := traits.Overhead4
	if r.six {
		over = traits.Overhead6
	}
	if longest != mtu+over {
		t.Errorf("the longest packet on the underlay has %d bytes, want %d and %d of overhead", longest, mtu, over)
	}
}

const underlayMTU = 1500

// teardown checks that cleanup restores the host.
func teardown(t *testing.T, r *env) {
	for _, name := range []string{"a", "b"} {
		g := r.gateways[name]
		g.stop()
		g.cleanup()
		if now := g.inventory(); now != g.before {
			t.Errorf("gateway %s was\n%s\nand is\n%s", name, g.before, now)
		}
	}
}
