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

// Setup is what a cluster gets once, besides what a tree has for it.
type Setup struct {
	// Identity is the text of the cluster's age identity. It is made a Secret where the
	// cluster has none; empty = the cluster has to have one.
	Identity string
	// Recipient is the one that the topology has for the cluster, which an identity that is
	// there has to open.
	Recipient string
	// Delivery holds the objects that make Flux or Argo CD apply the publish branch to the cluster.
	// They, the namespace and the Secrets are applied then, and nothing else of the tree;
	// nil = the tree is applied.
	Delivery []*unstructured.Unstructured
}

// setUp leaves of the tree what the setup leaves of it.
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

// follows reports whether others bring the tree to the cluster. Then no inventory is kept:
// what it lists would be deleted by an apply of the tree.
func (w Desired) follows() bool { return w.setup.Delivery != nil }

// planIdentity makes the cluster's identity where there is none, and refuses one that does
// not open what is sealed for the cluster.
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
		return fmt.Errorf("%s is the identity of %s, and the topology has recipient %s: with it the gateways cannot open their keys. "+
			"Put the one that the cluster has into the topology, or delete the Secret", id, strings.Join(shortened(recipients), ", "), shortened([]string{setup.Recipient})[0])
	}
	return nil
}

// shortened gives recipients as people compare them: post-quantum ones have 2000 characters.
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
