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
			Device: "hw-wg1", PublicKey: fmt.Sprintf("key%040d=", i), AllowedIPs: []netip.Prefix{prefix}, Keepalive: 25,
			Endpoint: netip.AddrPortFrom(prefix.Addr(), 51820),
		})
	}
	return b
}

// sorts are the variants of kinds that the benchmarks measure.
var sorts = []string{"plain", "versioned"}

func bigEngine(b *testing.B, sort string) *converge.Engine[big] {
	elements := convergetest.NewWorld[desired.Element]()
	var kind converge.Kind[desired.Element] = elements.Kind("element")
	if sort == "versioned" {
		kind = elements.VersionedKind("element")
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

// BenchmarkNothingToDo runs a pass over 10 000 elements and 1 000 peers without a change.
func BenchmarkNothingToDo(b *testing.B) {
	for _, sort := range sorts {
		b.Run(sort, func(b *testing.B) {
			e, want := bigEngine(b, sort), bigState()
			for b.Loop() {
				if r := e.Once(context.Background(), want, "first"); len(r.Changed) > 0 {
					b.Fatal(r.Changed)
				}
			}
		})
	}
}

// BenchmarkChanges changes one element, or a third of them, as when one of three backends
// disappears. The verifying pass after the change is not counted: BenchmarkNothingToDo measures
// it.
func BenchmarkChanges(b *testing.B) {
	for _, every := range []int{10_000, 3} {
		for _, sort := range sorts {
			b.Run(fmt.Sprintf("of=%d/%s", every, sort), func(b *testing.B) {
				e, want := bigEngine(b, sort), bigState()
				i := 0
				for b.Loop() {
					i++
					for at := i % every; at < len(want.Elements); at += every {
						want.Elements[at].Value = fmt.Sprint(i)
					}
					if r := e.Once(context.Background(), want, fmt.Sprint(i)); len(r.Changed) < len(want.Elements)/every {
						b.Fatal(len(r.Changed))
					}
					b.StopTimer()
					e.Once(context.Background(), want, fmt.Sprint(i))
					b.StartTimer()
				}
			})
		}
	}
}
