package driver

import (
	"slices"
	"testing"

	"hawser.dev/hawser/schema/fabric"
)

// TestEpochs checks that a link has the epochs for which both keys of the driver's kind exist: this
// gateway's private key and the remote's public key.
func TestEpochs(t *testing.T) {
	t.Parallel()
	own := &fabric.Gateway{Name: "a"}
	keys := &fabric.Keys{}
	for _, epoch := range []int{1, 2, 3} {
		keys.Epochs = append(keys.Epochs, fabric.EpochKeys{
			Epoch: epoch, Gateways: map[string]fabric.Secret{"a": {1}}, Ed25519: map[string]fabric.Secret{"a": {1}},
		})
	}
	remote := func(epochs ...int) *fabric.Gateway {
		g := &fabric.Gateway{Name: "b"}
		for _, epoch := range epochs {
			g.Keys = append(g.Keys, fabric.Key{Epoch: epoch, Public: "key", Ed25519: "key"})
		}
		return g
	}
	brought := remote(1, 2) // the same keys in each epoch, without Ed25519
	brought.Keys[0].Ed25519, brought.Keys[1].Ed25519 = "", ""
	tests := []struct {
		name    string
		driver  string
		inForce []int
		keys    *fabric.Keys
		remote  *fabric.Gateway
		all     []int
		newest  int
	}{
		{"one", fabric.DriverWireguard, []int{1}, keys, remote(1), []int{1}, 1},
		{"both", fabric.DriverWireguard, []int{2, 1}, keys, remote(1, 2), []int{1, 2}, 2},
		{"keys that are not current", fabric.DriverIPsec, []int{2}, keys, remote(1, 2, 3), []int{2}, 2},
		{"the remote has only the previous epoch", fabric.DriverIPsec, []int{1, 2}, keys, remote(1), []int{1}, 1},
		{"private keys not delivered yet", fabric.DriverWireguard, []int{3, 4}, keys, remote(3, 4), []int{3}, 3},
		{"none in common", fabric.DriverWireguard, []int{4}, keys, remote(4), nil, 4},
		{"no keys yet", fabric.DriverWireguard, []int{1, 2}, nil, remote(1, 2), nil, 2},
		{"brought", fabric.DriverWireguard, []int{1, 2}, keys, brought, []int{1, 2}, 2},
		{"user-provided, without an IKE key", fabric.DriverIPsec, []int{1, 2}, keys, brought, nil, 2},
		{"a driver without keys", fabric.DriverVXLAN, []int{1, 2}, keys, remote(1, 2), nil, 0},
		{"no such driver", "carrier-pigeon", []int{1, 2}, keys, remote(1, 2), nil, 0},
		{"no current epoch", fabric.DriverWireguard, nil, keys, remote(1), nil, 0},
	}
	for _, tt := range tests {
		all, newest := Epochs(tt.driver, tt.inForce, tt.keys, own, tt.remote), Epoch(tt.driver, tt.inForce, tt.keys, own, tt.remote)
		if !slices.Equal(all, tt.all) || newest != tt.newest {
			t.Errorf("%s: %v, the newest %d, want %v and %d", tt.name, all, newest, tt.all, tt.newest)
		}
	}
}
