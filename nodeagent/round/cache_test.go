package round

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"reflect"
	"testing"

	"hawser.dev/hawser/nodeagent/model"
	"hawser.dev/hawser/schema/fabric"
)

// TestCacheChangesNoResult compares cached and computed results after each of 10000 random changes
// of one input.
func TestCacheChangesNoResult(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(1, 2))
	var fabrics []*fabric.Fabric
	for version := range 4 {
		f := &fabric.Fabric{}
		for i := range 3 + version {
			c := fabric.Cluster{Name: fmt.Sprintf("c%d", i)}
			for g := range 1 + (i+version)%3 {
				c.Gateways = append(c.Gateways, fabric.Gateway{
					Name: fmt.Sprintf("g%d", g), Node: fmt.Sprintf("n%d", g), Addresses: []netip.Addr{netip.AddrFrom4([4]byte{241, byte(version), byte(i), byte(g)})},
				})
			}
			f.Clusters = append(f.Clusters, c)
		}
		fabrics = append(fabrics, f)
	}
	allKeys := []*fabric.Keys{nil, {}, {Epochs: []fabric.EpochKeys{{Epoch: 1, Gateways: map[string]fabric.Secret{"g0": {}}}}}}
	nodes := func() (out []model.Node) {
		for i := range 1 + r.IntN(3) {
			out = append(out, model.Node{Name: fmt.Sprintf("n%d", i), Addrs: []netip.Addr{netip.AddrFrom4([4]byte{10, 0, byte(r.IntN(2)), byte(i)})}})
		}
		return out
	}
	in := Observed{Cluster: "c0", Node: "n0", Fabric: fabrics[0]}
	var before *fabric.Shape
	paths := map[string]model.Path{}
	cached := &cache{}
	for i := range 10000 {
		switch r.IntN(7) {
		case 0:
			in.Fabric = fabrics[r.IntN(len(fabrics))]
		case 1:
			in.Keys = allKeys[r.IntN(len(allKeys))]
		case 2:
			in.Facts.Nodes = nodes()
		case 3:
			before = nil
			if r.IntN(2) == 0 {
				before = &fabrics[r.IntN(len(fabrics))].Shape
			}
		case 4:
			in.Peers.RemoteEndpoints = map[string]model.RemoteEndpoint{"c1/g0": {DialCount: r.IntN(2)}}
			if r.IntN(2) == 0 {
				in.Peers.RemoteEndpoints["c1/g0"] = model.RemoteEndpoint{Pending: netip.MustParseAddrPort("192.0.2.1:1")}
			}
		case 5:
			paths = map[string]model.Path{}
			for c := range 6 {
				paths[fmt.Sprintf("c%d", c)] = model.Path{Local: fmt.Sprintf("g%d", r.IntN(2)), Remote: fmt.Sprintf("g%d", r.IntN(2))}
			}
		case 6:
			in.Node = fmt.Sprintf("n%d", r.IntN(3))
		}
		probing, pairs := cached.linksOf(in, in.Fabric, before)
		wantProbing := probesOf(in.Fabric, before, in.Facts.Nodes, in.Cluster, in.Node)
		if want := pairConfigs(in, in.Fabric, wantProbing, in.Peers.RemoteEndpoints); !reflect.DeepEqual(probing, wantProbing) || !reflect.DeepEqual(pairs, want) {
			t.Fatalf("change %d: links are %+v %+v, want %+v %+v", i, probing, pairs, wantProbing, want)
		}
		feeds, err := cached.feedsOf(in, in.Fabric, paths)
		want, wantErr := feedsOf(in, in.Fabric, paths)
		if !reflect.DeepEqual(feeds, want) || (err == nil) != (wantErr == nil) {
			t.Fatalf("change %d: feeds are %+v %v, want %+v %v", i, feeds, err, want, wantErr)
		}
	}
}
