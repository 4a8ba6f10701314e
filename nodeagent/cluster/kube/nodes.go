package kube

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"hawser.dev/hawser/nodeagent/cluster/listwatch"
	"hawser.dev/hawser/schema/fabric/trust"
)

// Nodes watches all HawserNodes of a cluster. While the API server is unreachable, the last known
// HawserNodes stay. A Nodes is safe for concurrent use.
type Nodes struct {
	cache listwatch.Cache[namedStatus]
}

type namedStatus struct {
	node   string
	status NodeStatus
}

// NewNodes returns a Nodes. It sends no request before Run.
func NewNodes(client *Client) *Nodes {
	return &Nodes{listwatch.Cache[namedStatus]{
		Client: client.Dynamic, Resource: HawserNodes,
		Convert: func(o *unstructured.Unstructured) (namedStatus, bool) {
			status, ok := statusOf(o)
			return namedStatus{o.GetName(), status}, ok
		},
	}}
}

// Run watches until ctx is done.
func (n *Nodes) Run(ctx context.Context) { n.cache.Run(ctx) }

// Current returns the status of each node by its name. If the result may be old or incomplete,
// Current also returns an error with the reason.
func (n *Nodes) Current() (map[string]NodeStatus, error) {
	list, synced := n.cache.Objects()
	out := make(map[string]NodeStatus, len(list))
	for _, o := range list {
		out[o.node] = o.status
	}
	switch err := n.cache.Err(); {
	case apierrors.IsNotFound(err):
		return out, errors.New("the cluster has no resource hawsernodes: apply base/crds.yaml of the publish branch")
	case err != nil:
		return out, fmt.Errorf("read HawserNodes: %w", err)
	case !synced:
		return out, errors.New("not all HawserNodes were read yet")
	}
	return out, nil
}

// pageSize is the number of HawserNodes in a response. A HawserNode may have 100 KB.
const pageSize = 100

// Proofs returns the distinct proofs of one kind of document in the HawserNodes of the cluster.
func (c *Client) Proofs(ctx context.Context, kind trust.Kind) ([]string, error) {
	proofs := map[string]bool{}
	options := metav1.ListOptions{Limit: pageSize}
	for {
		list, err := c.Dynamic.Resource(HawserNodes).List(ctx, options)
		if err != nil {
			return nil, fmt.Errorf("list HawserNodes: %w", err)
		}
		for i := range list.Items {
			status, _ := statusOf(&list.Items[i])
			proof := status.FabricProof
			if kind == trust.Keys {
				proof = status.KeysProof
			}
			if proof != "" {
				proofs[proof] = true
			}
		}
		if options.Continue = list.GetContinue(); options.Continue == "" {
			return slices.Collect(maps.Keys(proofs)), nil
		}
	}
}

// statusOf returns the status of a HawserNode. It returns false if the status is absent or does not
// decode, as from an agent of another version.
func statusOf(o *unstructured.Unstructured) (out NodeStatus, ok bool) {
	status, found, err := unstructured.NestedMap(o.Object, "status")
	if err != nil || !found || runtime.DefaultUnstructuredConverter.FromUnstructured(status, &out) != nil {
		return NodeStatus{}, false
	}
	return out, true
}
