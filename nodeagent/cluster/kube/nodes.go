package kube

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"

	"hawser.dev/hawser/nodeagent/cluster/listwatch"
	"hawser.dev/hawser/schema/fabric/trust"
)

// Nodes follows all HawserNodes of a cluster with one watch: what its agents tell. While the
// server is away, what was known last stays. Its methods may be called from any goroutine.
type Nodes struct {
	client *Client

	mu   sync.Mutex
	told map[string]NodeStatus // by node
	all  bool                  // they came
	err  error                 // of the last request
}

// FollowNodes makes a Nodes, which asks nothing before Run.
func FollowNodes(client *Client) *Nodes { return &Nodes{client: client, told: map[string]NodeStatus{}} }

// Run follows until ctx ends.
func (n *Nodes) Run(ctx context.Context) { listwatch.Run(ctx, HawserNodes.Resource, nodesFollower{n}) }

// Current gives what agents tell, by node, and why that may be old; nil = it is not. The error
// is not nil before all were read once.
func (n *Nodes) Current() (map[string]NodeStatus, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	told := maps.Clone(n.told)
	switch {
	case n.err != nil && apierrors.IsNotFound(n.err):
		return told, errors.New("the cluster has no HawserNodes: apply the CRDs of the rendered base")
	case n.err != nil:
		return told, fmt.Errorf("read HawserNodes: %w", n.err)
	case !n.all:
		return told, errors.New("not all HawserNodes were read yet")
	}
	return told, nil
}

// pageSize is the number of HawserNodes in one answer: a HawserNode may have 100 KB.
const pageSize = 100

// Proofs lists the distinct proofs that HawserNodes of the cluster have for a kind of document.
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

// nodesFollower is the listwatch.Follower of a Nodes.
type nodesFollower struct{ n *Nodes }

func (f nodesFollower) List(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
	return f.n.client.Dynamic.Resource(HawserNodes).List(ctx, options)
}

func (f nodesFollower) Watch(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
	return f.n.client.Dynamic.Resource(HawserNodes).Watch(ctx, options)
}

func (f nodesFollower) RequestDone(err error) {
	f.n.mu.Lock()
	defer f.n.mu.Unlock()
	f.n.err = err
}

// Transform leaves an object as it is: what of it is kept is a NodeStatus.
func (f nodesFollower) Transform(object any) any { return object }

func (f nodesFollower) Put(object any) {
	f.n.mu.Lock()
	defer f.n.mu.Unlock()
	f.put(object)
}

func (f nodesFollower) put(object any) {
	o, ok := object.(*unstructured.Unstructured)
	if !ok {
		return
	}
	if told, known := statusOf(o); known {
		f.n.told[o.GetName()] = told
	} else {
		delete(f.n.told, o.GetName())
	}
}

// statusOf reads what an agent told in a HawserNode. A status that does not fit is that of
// another Hawser, or no agent's: of such a node nothing is known.
func statusOf(o *unstructured.Unstructured) (told NodeStatus, known bool) {
	status, found, err := unstructured.NestedMap(o.Object, "status")
	if err != nil || !found || runtime.DefaultUnstructuredConverter.FromUnstructured(status, &told) != nil {
		return NodeStatus{}, false
	}
	return told, true
}

func (f nodesFollower) Delete(object any) {
	f.n.mu.Lock()
	defer f.n.mu.Unlock()
	delete(f.n.told, keyOf(object))
}

func (f nodesFollower) Replace(objects []any) {
	f.n.mu.Lock()
	defer f.n.mu.Unlock()
	f.n.all = true
	clear(f.n.told)
	for _, object := range objects {
		f.put(object)
	}
}
