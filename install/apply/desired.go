package apply

import (
	"errors"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"hawser.dev/hawser/kubeclient"
	"hawser.dev/hawser/kubeclient/clusterstatus"
	"hawser.dev/hawser/render"
	"hawser.dev/hawser/render/keys"
	"hawser.dev/hawser/schema/fabric"
)

// AppliedAnnotation is set on every object that hawser apply creates. Its value is the clusterset.
// It ensures that hawser apply owns a field in every object: a ServiceExport has no other field,
// and objects without an owned field are not deleted.
const AppliedAnnotation = "hawser.dev/applied-for"

// Desired is the desired state of one cluster.
type Desired struct {
	Cluster      string
	Clusterset   string
	Digest       string   // of the fabric
	Clusters     []string // members of the fabric
	Decommission bool     // the fabric is a decommission fabric
	Objects      []*unstructured.Unstructured
	member       fabric.Cluster // this cluster in the fabric; zero if it has left
	Pins         string         // signers to pin if the cluster has none; empty = pin none
	partial      bool           // the fabric lacks keys or its signature
	encoded      []byte         // encoded fabric as delivered
	proof        []byte
	sealed       keys.SealedKeys // keys of this cluster; zero if it has left
	setup        Setup
	verify       func(cluster string, pins []byte) error // Options.Verify
}

// DesiredState returns the desired state of a cluster according to a rendered tree.
func DesiredState(tree render.Tree, cluster string) (Desired, error) {
	w := Desired{Cluster: cluster}
	f, err := render.FabricOf(tree)
	if err != nil {
		return w, fmt.Errorf("read the tree's fabric: %w", err)
	}
	if w.Digest, err = render.FabricDigest(tree); err != nil {
		return w, fmt.Errorf("read the tree's fabric: %w", err)
	}
	if w.encoded, w.proof, err = render.FabricAndProof(tree); err != nil {
		return w, fmt.Errorf("read the tree's fabric: %w", err)
	}
	w.sealed = render.SealedOf(tree, cluster)
	w.Clusterset, w.Decommission = f.Name, f.Decommission
	w.partial = lacksKeys(f) || string(w.proof) == render.KnownAfterPublish
	for _, c := range f.Clusters {
		w.Clusters = append(w.Clusters, c.Name)
		if c.Name == cluster {
			w.member = c
		}
	}
	w.Objects, err = Objects(tree, cluster)
	for _, o := range w.Objects {
		annotations := o.GetAnnotations()
		if annotations == nil {
			annotations = map[string]string{}
		}
		annotations[AppliedAnnotation] = w.Clusterset
		o.SetAnnotations(annotations)
	}
	return w, err
}

// removeSharedCRDs removes the CRDs that other programs may own.
func (w *Desired) removeSharedCRDs() {
	w.Objects = slices.DeleteFunc(w.Objects, func(o *unstructured.Unstructured) bool {
		return o.GetKind() == kubeclient.KindCRD && slices.Contains(render.SharedCRDs(), o.GetName())
	})
}

// contains reports whether an object is desired.
func (w Desired) contains(id kubeclient.ID) bool {
	return slices.ContainsFunc(w.Objects, func(o *unstructured.Unstructured) bool { return kubeclient.IDOf(o).Key() == id.Key() })
}

// inventory returns the inventory after the apply: the desired objects and extra.
func (w Desired) inventory(extra []kubeclient.ID) clusterstatus.Inventory {
	out := clusterstatus.Inventory{Clusterset: w.Clusterset, Cluster: w.Cluster, Digest: w.Digest, Objects: slices.Clone(extra)}
	for _, o := range w.Objects {
		out.Objects = append(out.Objects, kubeclient.IDOf(o))
	}
	return out
}

// check returns an error if the tree is for another cluster or clusterset, or is empty.
func (w Desired) check(have clusterstatus.Inventory) error {
	if have.Cluster != "" && have.Cluster != w.Cluster {
		return fmt.Errorf("this is cluster %s of clusterset %s by its inventory, not %s: is the context right? (hawser uninstall takes the old one out)",
			have.Cluster, have.Clusterset, w.Cluster)
	}
	if have.Clusterset != "" && have.Clusterset != w.Clusterset {
		return fmt.Errorf("this cluster belongs to clusterset %s by its inventory, not to %s (hawser uninstall takes it out of there)",
			have.Clusterset, w.Clusterset)
	}
	if len(w.Objects) == 0 {
		return errors.New("the tree holds nothing for this cluster")
	}
	return nil
}

// errNeedsRootKey is returned if the tree was built without the root key and needs it.
var errNeedsRootKey = errors.New("this needs the root key, for new keys or to sign the fabric: --root-key")

// lacksKeys reports whether the public key of a gateway is a placeholder.
func lacksKeys(f *fabric.Fabric) bool {
	return slices.ContainsFunc(f.Clusters, func(c fabric.Cluster) bool {
		return slices.ContainsFunc(c.Gateways, func(g fabric.Gateway) bool {
			return slices.ContainsFunc(g.Keys, func(k fabric.Key) bool {
				return k.Public == render.KnownAfterPublish || k.Ed25519 == render.KnownAfterPublish
			})
		})
	})
}
