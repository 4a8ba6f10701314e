// Package kubeclient is the client for the APIs of the clusters. It opens contexts of a kubeconfig,
// reads and applies objects, runs commands in the pods of agents, and starts short-lived test pods.
package kubeclient

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
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

// FieldManager is the field manager of all applied objects. It must never change, because it
// identifies fields that left the tree.
const FieldManager = "hawser-apply"

const (
	requestTimeout = 30 * time.Second // for one request to an API server
	RequestsAtOnce = 8
	// A read of a cluster needs several hundred requests. The API server has its own limits
	// (priority and fairness).
	requestRate  = 100
	requestBurst = 200
)

// Client is a client for the API of one cluster.
type Client struct {
	Name    string // of the cluster in the topology
	Context string // in the kubeconfig
	client  dynamic.Interface
	mapper  *restmapper.DeferredDiscoveryRESTMapper
	config  *rest.Config
}

// Open creates a client. It does not connect yet.
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

// ErrNoKind is returned for a kind that the cluster does not have.
var ErrNoKind = errors.New("the cluster has no such kind")

// Resource returns the client for a kind. The error is ErrNoKind if the cluster has no such kind.
func (c *Client) Resource(kind schema.GroupVersionKind, namespace string) (dynamic.ResourceInterface, error) {
	mapping, err := c.mapper.RESTMapping(kind.GroupKind(), kind.Version)
	if meta.IsNoMatchError(err) {
		return nil, fmt.Errorf("%w: %s", ErrNoKind, kind.GroupKind())
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

// Get returns one object; nil if the object or its kind does not exist.
func (c *Client) Get(ctx context.Context, id ID) (*unstructured.Unstructured, error) {
	resource, err := c.Resource(id.GroupVersionKind(), id.Namespace)
	if errors.Is(err, ErrNoKind) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", id, err)
	}
	o, err := resource.Get(ctx, id.Name, metav1.GetOptions{})
	if kerrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", id, err)
	}
	return o, nil
}

// List returns all objects of a kind. An empty namespace means all namespaces. If the cluster has
// no such kind, List returns none.
func (c *Client) List(ctx context.Context, kind schema.GroupVersionKind, namespace, selector string) ([]unstructured.Unstructured, error) {
	resource, err := c.Resource(kind, namespace)
	if errors.Is(err, ErrNoKind) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("list %s: %w", kind.Kind, err)
	}
	found, err := resource.List(ctx, metav1.ListOptions{LabelSelector: selector})
	if kerrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("list %s: %w", kind.Kind, err)
	}
	return found.Items, nil
}

// Apply applies an object, or makes a dry run. It forces conflicts with other field
// managers; the plan names them.
func (c *Client) Apply(ctx context.Context, o *unstructured.Unstructured, dryRun bool) (*unstructured.Unstructured, error) {
	id := IDOf(o)
	resource, err := c.Resource(id.GroupVersionKind(), id.Namespace)
	if err != nil {
		return nil, fmt.Errorf("apply %s: %w", id, err)
	}
	options := metav1.ApplyOptions{FieldManager: FieldManager, Force: true}
	if dryRun {
		options.DryRun = []string{metav1.DryRunAll}
	}
	out, err := resource.Apply(ctx, id.Name, o, options)
	if err != nil {
		return nil, fmt.Errorf("apply %s: %w", id, err)
	}
	return out, nil
}

// Delete deletes an object if it still has this UID (empty: any). A missing object is no error.
func (c *Client) Delete(ctx context.Context, id ID, uid types.UID) error {
	resource, err := c.Resource(id.GroupVersionKind(), id.Namespace)
	if errors.Is(err, ErrNoKind) {
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
	if err := resource.Delete(ctx, id.Name, options); err != nil && !kerrors.IsNotFound(err) {
		return fmt.Errorf("delete %s: %w", id, err)
	}
	return nil
}

// Ping fails if the API server cannot be reached.
func (c *Client) Ping(ctx context.Context) error {
	_, err := c.Version(ctx)
	return err
}

// Version returns the version document of the API server, in JSON.
func (c *Client) Version(ctx context.Context) ([]byte, error) {
	request, err := c.Request(requestTimeout)
	if err != nil {
		return nil, err
	}
	return request.AbsPath("/version").DoRaw(ctx)
}

// Request returns a GET request without a path, which the caller sets. The timeout bounds the
// request including the body.
func (c *Client) Request(timeout time.Duration) (*rest.Request, error) {
	config := rest.CopyConfig(c.config)
	config.Timeout = timeout
	client, err := discovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("context %s: %w", c.Context, err)
	}
	return client.RESTClient().Get(), nil
}

// Mapping returns the resource of a kind, in the version that the API server prefers. The
// error satisfies meta.IsNoMatchError if the API server does not serve the kind.
func (c *Client) Mapping(kind schema.GroupKind) (*meta.RESTMapping, error) {
	return c.mapper.RESTMapping(kind)
}

// create creates an object.
func (c *Client) create(ctx context.Context, o *unstructured.Unstructured) error {
	id := IDOf(o)
	resource, err := c.Resource(id.GroupVersionKind(), id.Namespace)
	if err == nil {
		_, err = resource.Create(ctx, o, metav1.CreateOptions{FieldManager: FieldManager})
	}
	if err != nil {
		return fmt.Errorf("create %s: %w", id, err)
	}
	return nil
}

// maxConcurrentClusters is the maximum number of clusters that ForEach handles concurrently.
const maxConcurrentClusters = 8

// ForEach calls do for all clusters, several concurrently.
func ForEach(clusters []*Client, do func(i int, c *Client)) {
	var group errgroup.Group
	group.SetLimit(maxConcurrentClusters)
	for i, c := range clusters {
		group.Go(func() error { do(i, c); return nil })
	}
	_ = group.Wait() // the functions return no error
}

// ErrorText returns the text of an error on one line. It starts with "cannot be reached" if the
// connection failed.
func ErrorText(err error) string {
	text := strings.ReplaceAll(err.Error(), "\n", "; ")
	if IsUnreachable(err) {
		return "cannot be reached: " + text
	}
	return text
}

// IsUnreachable reports whether the connection to the API server failed.
func IsUnreachable(err error) bool {
	return slices.ContainsFunc([]string{"connection refused", "no such host", "i/o timeout", "no route to host", "context deadline exceeded", "Client.Timeout"},
		func(text string) bool { return strings.Contains(err.Error(), text) })
}

// MergePatch applies a JSON merge patch. A missing object is no error.
func (c *Client) MergePatch(ctx context.Context, o *unstructured.Unstructured, patch map[string]any, subresources ...string) error {
	id := IDOf(o)
	raw, err := json.Marshal(patch)
	if err != nil {
		return err
	}
	resource, err := c.Resource(id.GroupVersionKind(), id.Namespace)
	if err == nil {
		_, err = resource.Patch(ctx, id.Name, types.MergePatchType, raw, metav1.PatchOptions{FieldManager: FieldManager}, subresources...)
	}
	if err != nil && !kerrors.IsNotFound(err) {
		return fmt.Errorf("clean %s: %w", id, err)
	}
	return nil
}
