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

// pair is the private keys of a gateway in one epoch.
type pair struct {
	tunnel  wgtypes.Key
	signing fabric.Secret // seed of an Ed25519 key
}

// pair gives the keys of an epoch, which are made at the first call.
func (g *gateway) pair(epoch int) pair {
	g.rig.t.Helper()
	if p, there := g.keys[epoch]; there {
		return p
	}
	tunnel, err := wgtypes.GeneratePrivateKey()
	if err != nil {
		g.rig.t.Fatal(err)
	}
	p := pair{tunnel: tunnel}
	random(p.signing[:])
	if g.keys == nil {
		g.keys = map[int]pair{}
	}
	g.keys[epoch] = p
	return p
}

// public gives the public halves of the keys in force.
func (g *gateway) public() []fabric.Key {
	g.rig.t.Helper()
	var out []fabric.Key
	for _, epoch := range g.rig.epochs {
		p := g.pair(epoch)
		sign := ed25519.NewKeyFromSeed(p.signing[:]).Public().(ed25519.PublicKey)
		out = append(out, fabric.Key{
			Epoch: epoch, Public: p.tunnel.PublicKey().String(), Ed25519: base64.StdEncoding.EncodeToString(sign),
		})
	}
	return out
}

// private gives the private halves, as the agent's document has them.
func (g *gateway) private() *fabric.Keys {
	g.rig.t.Helper()
	out := &fabric.Keys{APIVersion: fabric.KeysAPIVersion, Clusterset: "drivertest", Cluster: g.name}
	for _, epoch := range g.rig.epochs {
		seed, there := g.rig.seeds[epoch]
		if !there {
			random(seed[:])
			g.rig.seeds[epoch] = seed
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

// seal writes the keys in force as an agent gets them.
func (g *gateway) seal() {
	t := g.rig.t
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
