package converge_test

import (
	"context"
	"fmt"
	"net/netip"
	"testing"

	"hawser.dev/hawser/nodeagent/converge"
	"hawser.dev/hawser/nodeagent/converge/convergetest"
	"hawser.dev/hawser/nodeagent/desired"
)

// big is a desired state of 10 000 nftables elements and 1 000 peers.
type big struct {
	Elements []desired.Element
	Peers    []desired.Peer
}

func bigState() big {
	var b big
	for i := range 10_000 {
		addr := netip.AddrFrom4([4]byte{242, 1, byte(i >> 8), byte(i)}).String()
		b.Elements = append(b.Elements, desired.Element{Set: desired.SetServices, Family: 4, ID: addr + " . tcp . 80", Value: "pick_one4"})
	}
	for i := range 1_000 {
		prefix := netip.PrefixFrom(netip.AddrFrom4([4]byte{242, byte(i >> 8), byte(i), 0}), 24)
		b.Peers = append(b.Peers, desired.Peer{
			Link: "hw-wg1", PublicKey: fmt.Sprintf("key%040d=", i), AllowedIPs: []netip.Prefix{prefix}, Keepalive: 25,
			Endpoint: netip.AddrPortFrom(prefix.Addr(), 51820),
		})
	}
	return b
}

func bigEngine(b *testing.B, stamped bool) *converge.Engine[big] {
	elements := convergetest.NewWorld[desired.Element]()
	var kind converge.Kind[desired.Element] = elements.Kind("element")
	if stamped {
		kind = elements.Stamped("element")
	}
	peers := convergetest.NewWorld[desired.Peer]().Kind("peer")
	e := &converge.Engine[big]{Stages: []converge.Stage[big]{
		converge.NewStage(kind, func(s big) []desired.Element { return s.Elements }, nil),
		converge.NewStage(peers, func(s big) []desired.Peer { return s.Peers }, nil),
	}}
	if r := e.Once(context.Background(), bigState(), "first"); !r.Clean() {
		b.Fatal(r.Failed)
	}
	e.Once(context.Background(), bigState(), "first")
	return e
}

// BenchmarkNothingToDo is a pass over 10 000 elements and 1 000 peers that are
// as they should be.
func BenchmarkNothingToDo(b *testing.B) {
	for _, stamped := range []bool{false, true} {
		b.Run(fmt.Sprintf("stamped=%t", stamped), func(b *testing.B) {
			e, want := bigEngine(b, stamped), bigState()
			for b.Loop() {
				if r := e.Once(context.Background(), want, "first"); len(r.Changed) > 0 {
					b.Fatal(r.Changed)
				}
			}
		})
	}
}

// BenchmarkOneChange changes one element of 10 000. The pass that proves the
// change afterwards is not counted: it is the one of BenchmarkNothingToDo.
func BenchmarkOneChange(b *testing.B) {
	for _, stamped := range []bool{false, true} {
		b.Run(fmt.Sprintf("stamped=%t", stamped), func(b *testing.B) {
			e, want := bigEngine(b, stamped), bigState()
			i := 0
			for b.Loop() {
				i++
				want.Elements[i%len(want.Elements)].Value = fmt.Sprint(i)
				if r := e.Once(context.Background(), want, fmt.Sprint(i)); len(r.Changed) != 1 {
					b.Fatal(len(r.Changed))
				}
				b.StopTimer()
				e.Once(context.Background(), want, fmt.Sprint(i))
				b.StartTimer()
			}
		})
	}
}
