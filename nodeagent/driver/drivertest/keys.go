package drivertest

import (
	"crypto/ed25519"
	"encoding/base64"
	"encoding/json"
	"strings"

	"filippo.io/age"
	"golang.zx2c4.com/wireguard/wgctrl/wgtypes"

	"hawser.dev/hawser/schema/fabric"
)

// pair holds the private keys of a gateway in one epoch.
type pair struct {
	tunnel  wgtypes.Key
	signing fabric.Secret // seed of an Ed25519 key
}

// pair returns the keys of an epoch and generates them on the first call.
func (g *gateway) pair(epoch int) pair {
	g.env.t.Helper()
	if p, there := g.keys[epoch]; there {
		return p
	}
	tunnel, err := wgtypes.GeneratePrivateKey()
	if err != nil {
		g.env.t.Fatal(err)
	}
	p := pair{tunnel: tunnel}
	random(p.signing[:])
	if g.keys == nil {
		g.keys = map[int]pair{}
	}
	g.keys[epoch] = p
	return p
}

// public returns the public keys of the current epochs.
func (g *gateway) public() []fabric.Key {
	g.env.t.Helper()
	var out []fabric.Key
	for _, epoch := range g.env.epochs {
		p := g.pair(epoch)
		sign := ed25519.NewKeyFromSeed(p.signing[:]).Public().(ed25519.PublicKey)
		out = append(out, fabric.Key{
			Epoch: epoch, Public: p.tunnel.PublicKey().String(), Ed25519: base64.StdEncoding.EncodeToString(sign),
		})
	}
	return out
}

// private returns the private keys in the agent's format.
func (g *gateway) private() *fabric.Keys {
	g.env.t.Helper()
	out := &fabric.Keys{APIVersion: fabric.KeysAPIVersion, Clusterset: "drivertest", Cluster: g.name}
	for _, epoch := range g.env.epochs {
		seed, there := g.env.seeds[epoch]
		if !there {
			random(seed[:])
			g.env.seeds[epoch] = seed
		}
		p := g.pair(epoch)
		out.Epochs = append(out.Epochs, fabric.EpochKeys{
			Epoch: epoch, PSKSeed: seed,
			Gateways: map[string]fabric.Secret{g.name: fabric.Secret(p.tunnel)},
			Ed25519:  map[string]fabric.Secret{g.name: p.signing},
		})
	}
	return out
}

// seal encrypts the current keys for the agent.
func (g *gateway) seal() {
	t := g.env.t
	t.Helper()
	if g.identity == nil {
		var err error
		if g.identity, err = age.GenerateX25519Identity(); err != nil {
			t.Fatal(err)
		}
		g.write("identity.txt", []byte(g.identity.String()+"\n"))
	}
	document, err := json.Marshal(g.private())
	if err != nil {
		t.Fatal(err)
	}
	var sealed strings.Builder
	w, err := age.Encrypt(&sealed, g.identity.Recipient())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.Write(document); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	g.write("keys/keys.age", []byte(sealed.String()))
}
