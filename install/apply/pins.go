package apply

import (
	"bytes"
	"context"
	"encoding/base64"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"hawser.dev/hawser/internal/diff"
	"hawser.dev/hawser/kubeclient"
	"hawser.dev/hawser/render"
	"hawser.dev/hawser/schema/fabric/trust"
)

// PinSecret returns the Secret with the pinned signers. It is created once per cluster and never
// rendered, because write access to the publish branch must not change whom agents trust. It is a
// Secret only because more users can write ConfigMaps.
func PinSecret(pins string) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1", "kind": kubeclient.KindSecret,
		"metadata": map[string]any{"name": render.TrustSecret, "namespace": render.Namespace},
		"type":     "Opaque",
		"data":     map[string]any{render.TrustKey: kubeclient.Base64(pins)},
	}}
}

// planPins creates the Secret with the pinned signers if the cluster has none. It raises the floors
// to the revisions of the tree. It reports pins with which the agents would refuse the tree.
func planPins(ctx context.Context, c *kubeclient.Client, p *Plan) error {
	want := PinSecret(p.want.Pins)
	id := kubeclient.IDOf(want)
	have, err := c.Get(ctx, id)
	if err != nil {
		return err
	}
	if have == nil {
		if p.want.Pins != "" {
			// Without the floors, the next plan would change the Secret again.
			if raised, err := p.want.raiseFloors([]byte(p.want.Pins)); err == nil {
				want = PinSecret(string(raised))
			}
			p.add(Change{Op: diff.Create, ID: id, Object: want})
		}
		return nil
	}
	pins, err := pinsOf(have)
	if p.want.verify != nil {
		if err != nil {
			return fmt.Errorf("%s: %w", id, err)
		}
		if err := p.want.verify(c.Name, pins); err != nil {
			return err
		}
	}
	if err == nil {
		var raised []byte
		if raised, err = p.want.raiseFloors(pins); err == nil && !bytes.Equal(raised, pins) {
			p.add(Change{Op: diff.Update, ID: id, Object: PinSecret(string(raised)), UID: have.GetUID()})
		}
	}
	if err != nil {
		p.Skipped = append(p.Skipped, SkippedObject{ID: id, Reason: fmt.Sprintf("with it the agents refuse this fabric: %v (hawser keys signers prints what it should hold)", err)})
	}
	return nil
}

// pinsOf returns the pins file in a Secret.
func pinsOf(secret *unstructured.Unstructured) ([]byte, error) {
	text, _, _ := unstructured.NestedString(secret.Object, "data", render.TrustKey)
	raw, err := base64.StdEncoding.DecodeString(text)
	if err != nil {
		return nil, fmt.Errorf("its %s is not base64", render.TrustKey)
	}
	return raw, nil
}

// Pins are the pinned signers of a cluster, in the format of trust.ParsePins.
type Pins struct {
	Cluster string
	Raw     []byte
}

// PinsIn returns the pins of the reachable clusters that have some. The plan of each cluster reads
// them again, so a cluster without a result here is not trusted.
func PinsIn(ctx context.Context, clusters []*kubeclient.Client) []Pins {
	found := make([]Pins, len(clusters))
	kubeclient.ForEach(clusters, func(i int, c *kubeclient.Client) {
		secret, err := c.Get(ctx, kubeclient.IDOf(PinSecret("")))
		if err != nil || secret == nil {
			return
		}
		if raw, err := pinsOf(secret); err == nil {
			found[i] = Pins{Cluster: c.Name, Raw: raw}
		}
	})
	return slices.DeleteFunc(found, func(p Pins) bool { return p.Raw == nil })
}

// raiseFloors evaluates the documents of the tree like a new agent, and returns the pins with the
// revisions of the documents as floors. Only a signed document raises a floor. It returns an error
// if a new agent would refuse the fabric.
func (w Desired) raiseFloors(raw []byte) ([]byte, error) {
	pins, err := trust.ParsePins(raw)
	if err != nil {
		return nil, err
	}
	state, err := trust.Pinned(pins, w.Cluster, trust.Remembered{})
	if err != nil {
		return nil, err
	}
	if state, err = state.Admit(trust.Fabric, w.Cluster, w.encoded, w.proof); err != nil {
		return nil, err
	}
	if next, err := state.Admit(trust.Keys, w.Cluster, []byte(w.sealed.Ciphertext), []byte(w.sealed.Proof)); err == nil {
		state = next
	}
	return trust.RaiseFloors(raw, state.Revisions)
}
