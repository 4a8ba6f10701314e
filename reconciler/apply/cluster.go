package apply

import (
	"context"
	"errors"
	"fmt"
	"time"

	kerrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/restmapper"
)

// FieldManager is the name under which everything is applied, for ever: fields
// that leave the tree are found by it.
const FieldManager = "hawser-apply"

const (
	requestTimeout = 30 * time.Second // for one request to an API server
	requestsAtOnce = 8
	// A whole cluster is some hundred requests; the API server has its own fairness.
	requestRate  = 100
	requestBurst = 200
)

// Client is the API of one cluster.
type Client struct {
	Name    string // in the topology
	Context string // in the kubeconfig
	client  dynamic.Interface
	mapper  *restmapper.DeferredDiscoveryRESTMapper
	config  *rest.Config
}

// Open makes a client. It does not connect yet.
func Open(name, contextName string, config *rest.Config) (*Client, error) {
	config = rest.CopyConfig(config)
	config.QPS, config.Burst = requestRate, requestBurst
	config.UserAgent = FieldManager
	config.WarningHandler = rest.NoWarnings{}
	if config.Timeout == 0 {
		config.Timeout = requestTimeout
	}
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("context %s: %w", contextName, err)
	}
	found, err := discovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("context %s: %w", contextName, err)
	}
	mapper := restmapper.NewDeferredDiscoveryRESTMapper(memory.NewMemCacheClient(found))
	return &Client{Name: name, Context: contextName, client: client, mapper: mapper, config: config}, nil
}

// errNoKind is returned for a kind that the cluster does not have.
var errNoKind = errors.New("the cluster has no such kind")

// at gives where objects of a kind are.
func (c *Client) at(kind schema.GroupVersionKind, namespace string) (dynamic.ResourceInterface, error) {
	mapping, err := c.mapper.RESTMapping(kind.GroupKind(), kind.Version)
	if meta.IsNoMatchError(err) {
		return nil, fmt.Errorf("%w: %s", errNoKind, kind.GroupKind())
	}
	if err != nil {
		return nil, err
	}
	resource := c.client.Resource(mapping.Resource)
	if mapping.Scope.Name() == meta.RESTScopeNameNamespace && namespace != "" {
		return resource.Namespace(namespace), nil
	}
	return resource, nil
}

// get reads one object; nil when there is none, or no such kind.
func (c *Client) get(ctx context.Context, id ID) (*unstructured.Unstructured, error) {
	at, err := c.at(id.kind(), id.Namespace)
	if errors.Is(err, errNoKind) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", id, err)
	}
	o, err := at.Get(ctx, id.Name, metav1.GetOptions{})
	if kerrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", id, err)
	}
	return o, nil
}

// list reads all objects of a kind, in all namespaces unless one is named; none
// when the cluster has no such kind.
func (c *Client) list(ctx context.Context, kind schema.GroupVersionKind, namespace, selector string) ([]unstructured.Unstructured, error) {
	at, err := c.at(kind, namespace)
	if errors.Is(err, errNoKind) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("list %s: %w", kind.Kind, err)
	}
	found, err := at.List(ctx, metav1.ListOptions{LabelSelector: selector})
	if kerrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("list %s: %w", kind.Kind, err)
	}
	return found.Items, nil
}

// applyObject applies an object; dry asks the API server what would come of it. What
// another manager holds is taken over: the tree is what was decided, and a plan
// names whose value goes.
func (c *Client) applyObject(ctx context.Context, o *unstructured.Unstructured, dry bool) (*unstructured.Unstructured, error) {
	id := IDOf(o)
	at, err := c.at(id.kind(), id.Namespace)
	if err != nil {
		return nil, fmt.Errorf("apply %s: %w", id, err)
	}
	options := metav1.ApplyOptions{FieldManager: FieldManager, Force: true}
	if dry {
		options.DryRun = []string{metav1.DryRunAll}
	}
	out, err := at.Apply(ctx, id.Name, o, options)
	if err != nil {
		return nil, fmt.Errorf("apply %s: %w", id, err)
	}
	return out, nil
}

// remove deletes an object, if it is still the one with this UID (empty: any).
// One that is gone is no error.
func (c *Client) remove(ctx context.Context, id ID, uid types.UID) error {
	at, err := c.at(id.kind(), id.Namespace)
	if errors.Is(err, errNoKind) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("delete %s: %w", id, err)
	}
	policy := metav1.DeletePropagationBackground
	options := metav1.DeleteOptions{PropagationPolicy: &policy}
	if uid != "" {
		options.Preconditions = &metav1.Preconditions{UID: &uid}
	}
	if err := at.Delete(ctx, id.Name, options); err != nil && !kerrors.IsNotFound(err) {
		return fmt.Errorf("delete %s: %w", id, err)
	}
	return nil
}

// Ping asks the API server for its version, to tell early when it cannot be
// reached.
func (c *Client) Ping(ctx context.Context) error {
	_, err := c.version(ctx)
	return err
}

// version gives what the API server says of itself, in JSON.
func (c *Client) version(ctx context.Context) ([]byte, error) {
	client, err := discovery.NewDiscoveryClientForConfig(c.config)
	if err != nil {
		return nil, err
	}
	return client.RESTClient().Get().AbsPath("/version").DoRaw(ctx)
}
