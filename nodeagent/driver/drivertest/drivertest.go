// Package drivertest is the conformance suite of tunnels: what every driver must do
// on a real kernel, over an IPv4 and an IPv6 underlay. Gateways of three clusters
// run the real agent in network namespaces of their own, with a bridge between
// them on which everything is seen.
package drivertest

import (
	"strings"
	"testing"
	"time"

	"hawser.dev/hawser/nodeagent/driver"
)

// patience bounds each wait. It costs nothing when things work.
const patience = 5 * time.Minute

// Suite is one driver under test.
type Suite struct {
	Agent  string // path of the hawser-agent program
	Driver driver.Driver
	// Missing names what the driver needs and this machine does not have.
	Missing string
}

// Run runs the suite over both families.
func (s Suite) Run(t *testing.T) {
	for _, family := range []string{"ipv4", "ipv6"} {
		t.Run(family, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, s, family == "ipv6")
			// Each step stands on those before it.
			steps := []struct {
				name string
				run  func(*testing.T, *rig)
			}{
				{"up", up}, {"counters", counters}, {"wire", wire}, {"spoofed", spoofed}, {"replayed", replayed},
				{"neighbours stay", neighboursStay}, {"repair", repair}, {"epochs", epochs}, {"overhead", overhead}, {"teardown", teardown},
			}
			for _, step := range steps {
				if !t.Run(step.name, func(t *testing.T) { r.t = t; step.run(t, r) }) {
					r.tell(t)
					return
				}
			}
		})
	}
}

// up: the link comes up and carries both families, in both directions.
func up(_ *testing.T, r *rig) {
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

// counters: each end counts what it sends and what it gets.
func counters(_ *testing.T, r *rig) {
	a, b := r.gateways["a"], r.gateways["b"]
	const packets, size = 20, 1000
	was := map[*gateway]traffic{a: a.traffic("b"), b: b.traffic("a")}
	r.eventually("pings", func() bool { return a.ping(b, false, "-c", "20", "-i", "0.02", "-s", "1000") == nil })
	for g, other := range map[*gateway]string{a: "b", b: "a"} {
		// A status without counters is one that did not come to read them in time.
		r.eventually(g.name+" counts what it sends and gets", func() bool {
			now := g.traffic(other)
			return now.rx >= was[g].rx+packets*size && now.tx >= was[g].tx+packets*size
		})
	}
}

// pattern fills the packets that are looked for on the wire.
const pattern = "hawser-in-clear!"

// wire: what is carried is seen on the way exactly if the driver says so.
func wire(t *testing.T, r *rig) {
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
		t.Errorf("what was carried could be read: %v, want %v", seen, want)
	}
}

// spoofed: a gateway gets nothing through with a source that is not its cluster's.
func spoofed(t *testing.T, r *rig) {
	a, b := r.gateways["a"], r.gateways["b"]
	b.freeze() // or it would repair, and put its own address on what it sends
	defer b.thaw()
	b.run("nft", "delete", "table", "inet", "hawser")
	b.run("ip", "addr", "add", strange+"/32", "dev", "lo")
	capture := r.capture(a.ns, "any")
	_ = b.ping(a, false, "-c", "5", "-i", "0.02", "-W", "1", "-I", strange) // nobody answers
	r.eventually("pings with a true source", func() bool { return b.ping(a, false, "-c", "1", "-W", "1") == nil })
	b.run("ip", "addr", "del", strange+"/32", "dev", "lo")
	honest := 0
	for _, p := range capture.stop() {
		if p.from == strange {
			t.Fatalf("a packet from %s came out of the tunnel", strange)
		}
		if p.from == b.pod(false) {
			honest++
		}
	}
	if honest == 0 {
		t.Error("no packet with a true source was seen")
	}
}

// replayed: a stranger sends again what it saw of the link; none of it comes out.
func replayed(t *testing.T, r *rig) {
	a, b := r.gateways["a"], r.gateways["b"]
	inside := r.capture(a.ns, "any")
	outside := r.capture(r.wan, "br0")
	sent := r.stranger.resend(r.packets, b.outer, a.outer)
	if sent == 0 {
		t.Fatal("nothing to send again")
	}
	r.eventually("pings", func() bool { return a.ping(b, false, "-c", "1", "-W", "1", "-s", "77") == nil })
	arrived := 0
	for _, p := range outside.stop() {
		if p.from == r.stranger.outer && p.to == a.outer {
			arrived++
		}
	}
	if arrived < sent {
		t.Errorf("%d of %d packets were sent again", arrived, sent)
	}
	for _, p := range inside.stop() {
		if strings.Contains(string(p.raw), pattern) && p.from == b.pod(false) {
			t.Fatal("a packet that a stranger sent again came out of the tunnel")
		}
	}
}

// neighboursStay: another gateway comes and goes, and the link that was there
// keeps what it is, its counters among that.
func neighboursStay(t *testing.T, r *rig) {
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

// repair: devices that somebody deletes come back, and carry.
func repair(_ *testing.T, r *rig) {
	a, b := r.gateways["a"], r.gateways["b"]
	for _, tunnel := range a.tunnels() {
		device, _, _ := strings.Cut(tunnel, " ")
		a.run("ip", "link", "del", device)
	}
	a.reaches(b, false)
	b.reaches(a, true)
}

// overhead: a packet of the link's MTU is on the underlay as much longer as the
// driver says, in one piece; a longer one does not go.
func overhead(t *testing.T, r *rig) {
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
		case p.length <= underlayMTU: // longer ones are several, which a card would part
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

// teardown: cleanup leaves the host as it was.
func teardown(t *testing.T, r *rig) {
	for _, name := range []string{"a", "b"} {
		g := r.gateways[name]
		g.stop()
		g.cleanup()
		if now := g.inventory(); now != g.before {
			t.Errorf("gateway %s was\n%s\nand is\n%s", name, g.before, now)
		}
	}
}
