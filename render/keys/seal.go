package keys

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strconv"

	"filippo.io/age"
	"filippo.io/age/armor"
	"golang.org/x/sync/errgroup"

	"hawser.dev/hawser/schema"
	"hawser.dev/hawser/schema/fabric"
	"hawser.dev/hawser/schema/syntax"
)

// Keys gives the private half of one cluster: the seed of the pre-shared keys,
// and the tunnel key and the key for IKE of each gateway that brought none.
func (r *Root) Keys(top *schema.ClusterSet, c *schema.Cluster) (*fabric.Keys, error) {
	set := top.Metadata.Name
	out := &fabric.Keys{APIVersion: fabric.KeysAPIVersion, Clusterset: set, Cluster: c.Name}
	for _, epoch := range top.Spec.Keys.Epochs {
		// No gateway's info has an empty cluster, so that the seed is nobody's key.
		seed, err := r.derive(epoch, set+"///psk-seed/"+strconv.Itoa(epoch))
		if err != nil {
			return nil, err
		}
		keys := fabric.EpochKeys{Epoch: epoch, PSKSeed: seed, Gateways: map[string]fabric.Secret{}, Ed25519: map[string]fabric.Secret{}}
		for _, g := range c.AllGateways() {
			// One that brought its tunnel key wants nothing from elsewhere, so it brings the
			// one for IKE too or has none.
			if g.PublicKey != "" {
				continue
			}
			if keys.Gateways[g.Name], err = r.private(set, c.Name, g.Name, epoch); err != nil {
				return nil, err
			}
			if g.IKEPublicKey != "" {
				continue
			}
			if keys.Ed25519[g.Name], err = r.ed25519(set, c.Name, g.Name, epoch); err != nil {
				return nil, err
			}
		}
		out.Epochs = append(out.Epochs, keys)
	}
	return out, nil
}

// SealedKeys is one cluster's keys as they are published.
type SealedKeys struct {
	Digest     string // keyed digest of plain text and recipient: equal means that the ciphertext needs no change
	Ciphertext string // armored age file
	Proof      string // of Ciphertext, as agents check it; see schema/fabric/trust
}

// Seal encrypts every cluster's keys to its recipient, on all processors.
// previous gives what is published for a cluster, and perhaps what waits to be: the
// first one with an equal digest stays, as age gives other bytes every time. The
// results have the order of the topology's clusters.
func (r *Root) Seal(top *schema.ClusterSet, previous func(cluster string) []SealedKeys) ([]SealedKeys, error) {
	if len(top.Spec.Keys.Epochs) == 0 {
		return nil, errors.New("no epoch of keys is in force")
	}
	// That of the newest epoch: it changes when the keys do, and stays when an old
	// root key is dropped.
	digestKey, err := r.derive(slices.Max(top.Spec.Keys.Epochs), top.Metadata.Name+"///keys-digest")
	if err != nil {
		return nil, err
	}
	out := make([]SealedKeys, len(top.Spec.Clusters))
	var group errgroup.Group
	group.SetLimit(runtime.GOMAXPROCS(0))
	for i := range top.Spec.Clusters {
		c := &top.Spec.Clusters[i]
		group.Go(func() error {
			keys, err := r.Keys(top, c)
			if err != nil {
				return fmt.Errorf("derive keys of cluster %s: %w", c.Name, err)
			}
			sealed, err := sealOne(keys, c.Recipient, digestKey, previous(c.Name))
			if err != nil {
				return fmt.Errorf("seal keys of cluster %s: %w", c.Name, err)
			}
			out[i] = sealed
			return nil
		})
	}
	return out, group.Wait()
}

func sealOne(keys *fabric.Keys, recipient string, digestKey fabric.Secret, previous []SealedKeys) (SealedKeys, error) {
	plain, err := json.Marshal(keys)
	if err != nil {
		return SealedKeys{}, fmt.Errorf("encode: %w", err)
	}
	mac := hmac.New(sha256.New, digestKey[:])
	_, _ = fmt.Fprintf(mac, "%d %s\n", len(plain), recipient)
	_, _ = mac.Write(plain)
	digest := hex.EncodeToString(mac.Sum(nil))
	for _, p := range previous {
		if p.Ciphertext != "" && p.Digest == digest {
			return p, nil
		}
	}
	ciphertext, err := encrypt(plain, recipient)
	return SealedKeys{Digest: digest, Ciphertext: ciphertext}, err
}

func encrypt(plain []byte, to string) (string, error) {
	recipient, err := syntax.ParseRecipient(to)
	if err != nil {
		// Not quoted, and without the cause, which would: somebody may have put the identity there.
		return "", errors.New("its recipient is not an age recipient (age1... or age1pq1...)")
	}
	var out bytes.Buffer
	text := armor.NewWriter(&out)
	w, err := age.Encrypt(text, recipient)
	if err == nil {
		_, err = w.Write(plain)
	}
	if err == nil {
		err = errors.Join(w.Close(), text.Close())
	}
	if err != nil {
		return "", fmt.Errorf("encrypt: %w", err)
	}
	return out.String(), nil
}
