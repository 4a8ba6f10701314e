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

// Setup is the additional input for the first apply to a cluster.
type Setup struct {
	// Identity is the text of the cluster's age identity. It is stored as a Secret if the
	// cluster has none. If it is empty, the cluster must already have an identity.
	Identity string
	// Recipient is the cluster's recipient in the topology. An existing identity must match it.
	Recipient string
	// Delivery are the objects that make Flux or Argo CD apply the publish branch to the
	// cluster. If set, only these, the namespace and the Secrets are applied; nil = apply the
	// whole tree.
	Delivery []*unstructured.Unstructured
}

// addSetup reduces the objects to the namespace and the delivery objects, if the setup has any.
func (w *Desired) addSetup(s Setup) {
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

// hasDelivery reports whether Flux or Argo CD apply the tree. Then there is no inventory, because a
// later hawser apply would delete the objects in it.
func (w Desired) hasDelivery() bool { return w.setup.Delivery != nil }

// planIdentity plans the Secret of the identity if the cluster has none. It returns an error if the
// identity cannot decrypt the keys that are sealed for the cluster.
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

// shortened returns abbreviated recipients, because post-quantum recipients have 2000 characters.
func shortened(recipients []string) []string {
	out := slices.Clone(recipients)
	for i, r := range out {
		const maxLength = 70
		if len(r) > maxLength {
			out[i] = r[:maxLength] + "..."
		}
	}
	return out
}

// Recipients returns the recipients of the identities in a file of age-keygen(1), in order. Errors
// do not contain any part of an identity.
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

// add inserts a change in the order of applying.
func (p *Plan) add(c Change) {
	p.Changes = append(p.Changes, c)
	slices.SortStableFunc(p.Changes, func(a, b Change) int { return kubeclient.CompareIDs(a.ID, b.ID) })
}
