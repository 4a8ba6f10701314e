package driver

import (
	"slices"

	"hawser.dev/hawser/schema/fabric"
)

// Epochs returns the current epochs for which both keys of the driver's kind exist: the gateway's
// private key and the remote's public key. The epochs are ascending. Epochs returns nil if the
// driver has no keys.
func Epochs(driver string, epochs []int, keys *fabric.Keys, own, remote *fabric.Gateway) []int {
	d := ByName(driver)
	if d == nil || d.Traits().Keys == "" {
		return nil
	}
	var out []int
	for _, epoch := range slices.Sorted(slices.Values(epochs)) {
		_, private := privateKey(d.Traits().Keys, keys, own.Name, epoch)
		if private && publicKey(d.Traits().Keys, remote, epoch) != "" {
			out = append(out, epoch)
		}
	}
	return out
}

// Epoch returns the epoch that a tunnel should have: the newest of Epochs. If Epochs is empty,
// it returns the newest current epoch, and the driver reports the missing key.
func Epoch(driver string, epochs []int, keys *fabric.Keys, own, remote *fabric.Gateway) int {
	if d := ByName(driver); d == nil || d.Traits().Keys == "" || len(epochs) == 0 {
		return 0
	}
	if all := Epochs(driver, epochs, keys, own, remote); len(all) > 0 {
		return all[len(all)-1]
	}
	return slices.Max(epochs)
}

func privateKey(kind string, keys *fabric.Keys, gateway string, epoch int) (key fabric.Secret, found bool) {
	if keys == nil || keys.Epoch(epoch) == nil {
		return key, false
	}
	byGateway := keys.Epoch(epoch).Gateways
	if kind == Ed25519 {
		byGateway = keys.Epoch(epoch).Ed25519
	}
	key, found = byGateway[gateway]
	return key, found
}

// publicKey returns the gateway's public key, or "" if it has no key of that epoch.
func publicKey(kind string, g *fabric.Gateway, epoch int) string {
	i := slices.IndexFunc(g.Keys, func(k fabric.Key) bool { return k.Epoch == epoch })
	switch {
	case i < 0:
		return ""
	case kind == Ed25519:
		return g.Keys[i].Ed25519
	}
	return g.Keys[i].Public
}
