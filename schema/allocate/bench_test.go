package allocate

import (
	"fmt"
	"net/netip"
	"testing"

	"hawser.dev/hawser/schema"
	"hawser.dev/hawser/schema/fabric"
	"hawser.dev/hawser/schema/lockfile"
)

func BenchmarkAllocate(b *testing.B) {
	clusters, exports := make([]int, 1000), make([]int, 10000)
	for i := range clusters {
		clusters[i] = i
	}
	for i := range exports {
		exports[i] = i
	}
	top := newTopology(clusters, nil)
	for i := range exports {
		top.Spec.Exports = append(top.Spec.Exports, schema.Export{Namespace: "ns", Name: fmt.Sprintf("e%d", i), Type: fabric.ClusterSetIP,
			Clusters: []string{fmt.Sprintf("c%d", i%1000), fmt.Sprintf("c%d", (i+1)%1000)}})
	}
	for i := range top.Spec.Clusters {
		top.Spec.Clusters[i].GlobalCIDR = netip.Prefix{}
	}
	top.Spec.Globalnet.ClusterPrefix = 20
	b.Run("new", func(b *testing.B) {
		for b.Loop() {
			if _, list := Allocate(top, nil); list.HasErrors() {
				b.Fatal(list.Err())
			}
		}
	})
	lock, _ := Allocate(top, nil)
	raw, err := lock.Marshal()
	if err != nil {
		b.Fatal(err)
	}
	b.Run("read", func(b *testing.B) {
		for b.Loop() {
			if _, list := lockfile.Read("lock", raw); list.HasErrors() {
				b.Fatal(list.Err())
			}
		}
	})
	b.Run("check", func(b *testing.B) {
		for b.Loop() {
			if list := Check(top, lock); list.HasErrors() {
				b.Fatal(list.Err())
			}
		}
	})
}
