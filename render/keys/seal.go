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

// Keys returns one cluster's private keys: the seed of the pre-shared keys, and the tunnel key and
// IKE key of each gateway. It omits keys for which the topology has a public key.
func (r *Root) Keys(top *schema.ClusterSet, c *schema.Cluster) (*fabric.Keys, error) {
	set := top.Metadata.Name
	out := &fabric.Keys{APIVersion: fabric.KeysAPIVersion, Clusterset: set, Cluster: c.Name}
	for _, epoch := range top.Spec.Keys.Epochs {
		// The info of a gateway's key never has an empty cluster, so the seed differs from
		// all these keys.
		seed, err := r.derive(epoch, set+"///psk-seed/"+strconv.Itoa(epoch))
		if err != nil {
			return nil, err
		}
		keys := fabric.EpochKeys{Epoch: epoch, PSKSeed: seed, Gateways: map[string]fabric.Secret{}, Ed25519: map[string]fabric.Secret{}}
		for _, g := range c.AllGateways() {
			// Derive no keys for a gateway with a tunnel key in the topology. Its IKE
			// key is in the topology too, or the gateway has none.
			if g.PublicKey != "" {
				continue
			}
			if keys.Gateways[g.Name], err = r.tunnelKey(set, c.Name, g.Name, epoch); err != nil {
				return nil, err
			}
			if g.IKEPublicKey != "" {
				continue
			}
			if keys.Ed25519[g.Name], err = r.ikeSeed(set, c.Name, g.Name, epoch); err != nil {
				return nil, err
			}
		}
		out.Epochs = append(out.Epochs, keys)
	}
	return out, nil
}

// SealedKeys contains one cluster's keys in published form.
type SealedKeys struct {
	Digest     string // keyed digest of plain text and recipient; if equal, the ciphertext stays
	Ciphertext string // armored age file
	Proof      string // signature of Ciphertext, see schema/fabric/trust
}

// Seal encrypts every cluster's keys to its recipient, on all processors. previous returns earlier
// results for a cluster. Seal reuses the first one with an equal digest, because age encryption is
// not deterministic. The results are in the order of the topology's clusters.
func (r *Root) Seal(top *schema.ClusterSet, previous func(cluster string) []SealedKeys) ([]SealedKeys, error) {
	if len(top.Spec.Keys.Epochs) == 0 {
		return nil, errors.New("no epoch of keys is current")
	}
	// The digest key comes from the root key of the newest epoch. It changes with that root
	// key, and not if an old root key is dropped.
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
			sealed, err := sealKeys(keys, c.Recipient, digestKey, previous(c.Name))
			if err != nil {
				return fmt.Errorf("seal keys of cluster %s: %w", c.Name, err)
			}
			out[i] = sealed
			return nil
		})
	}
	return out, group.Wait()
}

func sealKeys(keys *fabric.Keys, recipient string, digestKey fabric.Secret, previous []SealedKeys) (SealedKeys, error) {
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

func encrypt(plain []byte, recipientText string) (string, error) {
	recipient, err := syntax.ParseRecipient(recipientText)
	if err != nil {
		// Do not quote the recipient or its parse error: it may be the secret identity.
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
