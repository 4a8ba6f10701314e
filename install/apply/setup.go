package apply

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"slices"
	"strings"

	"filippo.io/age"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"hawser.dev/hawser/internal/diff"
	"hawser.dev/hawser/kubeclient"
	"hawser.dev/hawser/render"
)

// Setup holds the objects that a cluster gets once, in addition to its tree.
type Setup struct {
	// Identity is the text of the cluster's age identity. It becomes a Secret if the cluster has none.
	// Empty = the cluster must have one.
	Identity string
	// Recipient is the recipient of the cluster in the topology. An existing identity must match it.
	Recipient string
	// Delivery holds the objects that make Flux or Argo CD apply the publish branch to the cluster.
	// Then only they, the namespace and the Secrets are applied; nil = the whole tree is applied.
	Delivery []*unstructured.Unstructured
}

// setUp reduces the objects to the namespace and the delivery objects, if the setup has any.
func (w *Desired) setUp(s Setup) {
	w.setup = s
	if s.Delivery == nil {
		return
	}
	w.Objects = slices.DeleteFunc(w.Objects, func(o *unstructured.Unstructured) bool {
		return kubeclient.IDOf(o).Key() != kubeclient.NamespaceID().Key()
	})
	w.Objects = append(w.Objects, s.Delivery...)
	slices.SortFunc(w.Objects, func(a, b *unstructured.Unstructured) int {
		return kubeclient.CompareIDs(kubeclient.IDOf(a), kubeclient.IDOf(b))
	})
}

// follows reports whether Flux or Argo CD apply the tree. Then there is no inventory: a later hawser
// apply would delete the objects that it lists.
func (w Desired) follows() bool { return w.setup.Delivery != nil }

// planIdentity plans the identity Secret if the cluster has none. It rejects an identity that cannot
// open the keys sealed for the cluster.
func planIdentity(ctx context.Context, c *kubeclient.Client, p *Plan) error {
	setup := p.want.setup
	if setup.Recipient == "" {
		return nil
	}
	id := kubeclient.ID{Version: "v1", Kind: kubeclient.KindSecret, Namespace: render.Namespace, Name: kubeclient.IdentitySecret}
	have, err := c.Get(ctx, id)
	if err != nil {
		return err
	}
	if have == nil {
		if setup.Identity == "" {
			return fmt.Errorf("it has no %s, and there is no file of its identity here: without it the gateways cannot open their keys", id)
		}
		p.add(Change{Op: diff.Create, ID: id, Object: kubeclient.IdentityObject(setup.Identity)})
		return nil
	}
	text, _, _ := unstructured.NestedString(have.Object, "data", kubeclient.IdentityKey)
	raw, err := base64.StdEncoding.DecodeString(text)
	if err != nil {
		return fmt.Errorf("%s: its %s is not base64", id, kubeclient.IdentityKey)
	}
	recipients, err := Recipients(string(raw))
	if err != nil {
		return fmt.Errorf("%s: %w", id, err)
	}
	if !slices.Contains(recipients, setup.Recipient) {
		return fmt.Errorf("%s is the identity of %s, and the topology has recipient %s: with this identity the gateways cannot open their keys. "+
			"Put the recipient of the cluster into the topology, or delete the Secret", id, strings.Join(shortened(recipients), ", "), shortened([]string{setup.Recipient})[0])
	}
	return nil
}

// shortened returns recipients in a short form: post-quantum recipients have 2000 characters.
func shortened(recipients []string) []string {
	out := slices.Clone(recipients)
	for i, r := range out {
		const most = 70
		if len(r) > most {
			out[i] = r[:most] + "..."
		}
	}
	return out
}

// Recipients returns the recipients of the identities in a file of age-keygen(1), in order.
// Errors name no part of an identity.
func Recipients(text string) ([]string, error) {
	identities, err := age.ParseIdentities(strings.NewReader(text))
	if err != nil {
		return nil, errors.New("it is no file of age identities")
	}
	var out []string
	for _, i := range identities {
		switch i := i.(type) {
		case *age.X25519Identity:
			out = append(out, i.Recipient().String())
		case *age.HybridIdentity:
			out = append(out, i.Recipient().String())
		}
	}
	return out, nil
}

// add puts a change where it belongs.
func (p *Plan) add(c Change) {
	p.Changes = append(p.Changes, c)
	slices.SortStableFunc(p.Changes, func(a, b Change) int { return kubeclient.CompareIDs(a.ID, b.ID) })
}
