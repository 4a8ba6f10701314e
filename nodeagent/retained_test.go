package nodeagent

import (
	"testing"

	"hawser.dev/hawser/schema/fabric"
)

func TestRetained(t *testing.T) {
	t.Parallel()
	build := func(public string, proposals []string, seeds map[string]fabric.Secret) (*fabric.Fabric, *fabric.Keys) {
		f := &fabric.Fabric{Tunnel: fabric.Tunnel{IPsec: fabric.IPsec{Proposals: proposals}}, Clusters: []fabric.Cluster{
			{Name: "g1", Gateways: []fabric.Gateway{{Name: "a", Keys: []fabric.Key{{Epoch: 1, Public: "x", Ed25519: public}}}}},
		}}
		return f, &fabric.Keys{Cluster: "g1", Epochs: []fabric.EpochKeys{{Epoch: 1, Ed25519: seeds}}}
	}
	var r retained
	with, withKeys := build("public", []string{"aes-gcm"}, map[string]fabric.Secret{"a": {1}})
	r.merge(with, withKeys, true)
	without, withoutKeys := build("", nil, nil)
	if f, k := r.merge(without, withoutKeys, false); f != without || k != withoutKeys {
		t.Error("changed what nobody needs")
	}
	f, k := r.merge(without, withoutKeys, true)
	if f.Clusters[0].Gateways[0].Keys[0].Ed25519 != "public" || len(f.Tunnel.IPsec.Proposals) != 1 ||
		k.Epochs[0].Ed25519["a"] != (fabric.Secret{1}) {
		t.Errorf("lacks what was there before: %+v", f)
	}
	if without.Clusters[0].Gateways[0].Keys[0].Ed25519 != "" || withoutKeys.Epochs[0].Ed25519 != nil {
		t.Error("changed what it was given")
	}
	if again, againKeys := r.merge(without, withoutKeys, true); again != f || againKeys != k {
		t.Error("differs from one time to the next")
	}
}
