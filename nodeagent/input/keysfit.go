package input

import (
	"crypto/ecdh"
	"crypto/ed25519"
	"encoding/base64"
	"os"

	"hawser.dev/hawser/schema/fabric"
	"hawser.dev/hawser/schema/fabric/trust"
)

// fitKeys refuses keys that do not belong to the fabric in force, once that has to be
// approved: the signing key alone vouches for keys, and must not end with them what was
// approved. Their public halves are in the fabric, so that none of them is another or
// goes while the fabric has it. Seeds of pre-shared keys are not in there: they stay for an
// epoch as long as the keys of its gateways do.
func (in *Inputs) fitKeys(keys *fabric.Keys) error {
	if in.signers.state.Threshold == 0 || !in.fabric.have {
		return nil
	}
	own := in.fabric.value.Cluster(in.config.Cluster)
	if own == nil {
		return nil
	}
	before := in.keys.value
	if !in.keys.have {
		if raw, err := os.ReadFile(in.keys.backup); err == nil {
			// One that cannot be read any more is no reason against new keys.
			before, _ = openKeys(raw, in.config.Identity)
		}
	}
	seeds := map[int]fabric.Secret{} // of epochs in which a gateway has the key that it had
	for _, g := range own.Gateways {
		for _, k := range g.Keys {
			now, had := epochOf(keys, k.Epoch), epochOf(before, k.Epoch)
			if !fits(now, g.Name, k) {
				return trust.Refuse(trust.Unapproved, "has other keys of gateway %s for epoch %d than the fabric in force", g.Name, k.Epoch)
			}
			_, has := now.Gateways[g.Name]
			if _, derived := had.Gateways[g.Name]; !derived || !fits(had, g.Name, k) {
				continue
			}
			if !has {
				return trust.Refuse(trust.Unapproved, "lacks the key of gateway %s for epoch %d, which the fabric in force has", g.Name, k.Epoch)
			}
			seeds[k.Epoch] = had.PSKSeed
		}
	}
	for epoch, seed := range seeds {
		if epochOf(keys, epoch).PSKSeed != seed {
			return trust.Refuse(trust.Unapproved, "has another pre-shared seed for epoch %d, though the keys of its gateways are the same", epoch)
		}
	}
	return nil
}

// epochOf gives the keys of an epoch; none when there are no such.
func epochOf(keys *fabric.Keys, epoch int) fabric.EpochKeys {
	if keys != nil {
		for _, e := range keys.Epochs {
			if e.Epoch == epoch {
				return e
			}
		}
	}
	return fabric.EpochKeys{}
}

// fits reports whether the private keys of a gateway are those of its public ones. What
// a gateway brought itself is not there.
func fits(e fabric.EpochKeys, gateway string, k fabric.Key) bool {
	if secret, ok := e.Gateways[gateway]; ok && !isPrivate(secret, k.Public) {
		return false
	}
	seed, ok := e.Ed25519[gateway]
	return !ok || isSeed(seed, k.Ed25519)
}

// isPrivate reports whether a secret is the private half of a key of X25519.
func isPrivate(secret fabric.Secret, public string) bool {
	private, err := ecdh.X25519().NewPrivateKey(secret[:])
	return err == nil && base64.StdEncoding.EncodeToString(private.PublicKey().Bytes()) == public
}

// isSeed reports whether a secret is the seed of a key of Ed25519.
func isSeed(seed fabric.Secret, public string) bool {
	return base64.StdEncoding.EncodeToString(ed25519.NewKeyFromSeed(seed[:])[ed25519.SeedSize:]) == public
}
