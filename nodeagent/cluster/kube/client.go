// Package kube connects an agent to the Kubernetes API of its own cluster. It watches the objects
// from which facts are computed, and writes the status of the node. The data path never waits for
// the API server: while the server is unreachable, the last known facts stay in use.
package kube

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	mcsv1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"
)

// Config selects the API server and the account.
type Config struct {
	// InCluster uses the address and the service account of the agent's pod.
	InCluster bool
	// Kubeconfig is the path of a kubeconfig file. Context is a context of that file; empty
	// means the current context.
	Kubeconfig string
	Context    string
	UserAgent  string
}

// IsSet reports whether an API server is configured.
func (c Config) IsSet() bool { return c.InCluster || c.Kubeconfig != "" }

// Validate returns an error for settings that do not fit together.
func (c Config) Validate() error {
	switch {
	case c.InCluster && c.Kubeconfig != "":
		return errors.New("--kubernetes and --kubeconfig: use only one; --kubernetes is for pods")
	case c.Context != "" && c.Kubeconfig == "":
		return errors.New("--context needs --kubeconfig")
	}
	return nil
}

// Limits of the requests of one client, as a safeguard. The server ensures fairness between clients
// (API Priority and Fairness, enabled by default since Kubernetes 1.20). Established watches do not
// count as requests.
const (
	requestsPerSecond = 200
	requestBurst      = 400
)

// Client is a connection to the API server.
type Client struct {
	// Dynamic reads and writes objects of any kind.
	Dynamic dynamic.Interface
	// Host is the server's URL.
	Host string

	core, discovery rest.Interface
	conns           *connTracker
}

// Open returns a client. It sends no request.
func Open(c Config) (*Client, error) {
	config, err := c.rest()
	if err != nil {
		return nil, err
	}
	config.UserAgent = c.UserAgent
	config.QPS, config.Burst = requestsPerSecond, requestBurst
	config.WarningHandler = rest.NoWarnings{}
	out := &Client{Host: config.Host, conns: &connTracker{open: map[*trackedConn]struct{}{}}}
	config.Dial = out.conns.dial
	shared, err := rest.HTTPClientFor(config)
	if err != nil {
		return nil, fmt.Errorf("client for %s: %w", config.Host, err)
	}
	if out.Dynamic, err = dynamic.NewForConfigAndClient(config, shared); err != nil {
		return nil, fmt.Errorf("client for %s: %w", config.Host, err)
	}
	if out.core, err = typed(config, shared, corev1.SchemeGroupVersion, "/api"); err != nil {
		return nil, err
	}
	if out.discovery, err = typed(config, shared, discoveryv1.SchemeGroupVersion, "/apis"); err != nil {
		return nil, err
	}
	return out, nil
}

func (c Config) rest() (*rest.Config, error) {
	if c.InCluster {
		config, err := rest.InClusterConfig()
		if err != nil {
			return nil, fmt.Errorf("--kubernetes: %w", err)
		}
		return config, nil
	}
	rules := &clientcmd.ClientConfigLoadingRules{ExplicitPath: c.Kubeconfig}
	overrides := &clientcmd.ConfigOverrides{CurrentContext: c.Context}
	config, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, overrides).ClientConfig()
	if err != nil {
		return nil, fmt.Errorf("--kubeconfig %s: %w", c.Kubeconfig, err)
	}
	return config, nil
}

// typed returns a client of one API group. The client uses protobuf, which costs a fraction of
// JSON. Its scheme has only the two groups that the agent reads as typed objects, to keep the
// binary small.
func typed(config *rest.Config, shared *http.Client, gv schema.GroupVersion, path string) (rest.Interface, error) {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{corev1.AddToScheme, discoveryv1.AddToScheme} {
		if err := add(scheme); err != nil {
			return nil, fmt.Errorf("register %s: %w", gv, err)
		}
	}
	metav1.AddToGroupVersion(scheme, schema.GroupVersion{Version: "v1"})
	own := rest.CopyConfig(config)
	own.GroupVersion, own.APIPath = &gv, path
	own.NegotiatedSerializer = serializer.NewCodecFactory(scheme).WithoutConversion()
	own.ContentType = runtime.ContentTypeProtobuf
	own.AcceptContentTypes = runtime.ContentTypeProtobuf + "," + runtime.ContentTypeJSON
	client, err := rest.RESTClientForConfigAndClient(own, shared)
	if err != nil {
		return nil, fmt.Errorf("client for %s of %s: %w", gv, config.Host, err)
	}
	return client, nil
}

// ServiceExports and ServiceImports are resources of the Multi-Cluster Services API.
var (
	ServiceExports = schema.GroupVersion(mcsv1.GroupVersion).WithResource(mcsv1.ServiceExportPluralName)
	ServiceImports = schema.GroupVersion(mcsv1.GroupVersion).WithResource(mcsv1.ServiceImportPluralName)
)

// resource is the plural name of a resource in the API.
type resource string

const (
	nodes          resource = "nodes"
	pods           resource = "pods"
	services       resource = "services"
	namespaces     resource = "namespaces"
	endpointSlices resource = "endpointslices"
	serviceExports resource = mcsv1.ServiceExportPluralName
	serviceImports resource = mcsv1.ServiceImportPluralName
	hawserNodes    resource = "hawsernodes"
)

// untyped returns the resource with group and version, and true, if the agent reads it as
// unstructured objects.
func (r resource) untyped() (schema.GroupVersionResource, bool) {
	switch r {
	case serviceExports:
		return ServiceExports, true
	case serviceImports:
		return ServiceImports, true
	case hawserNodes:
		return HawserNodes, true
	}
	return schema.GroupVersionResource{}, false
}

// list returns an empty list object for a typed resource.
func (r resource) list() runtime.Object {
	switch r {
	case nodes:
		return &corev1.NodeList{}
	case pods:
		return &corev1.PodList{}
	case services:
		return &corev1.ServiceList{}
	case endpointSlices:
		return &discoveryv1.EndpointSliceList{}
	}
	return &corev1.NamespaceList{}
}

// list lists the objects of a scope.
func (c *Client) list(ctx context.Context, s scope, options metav1.ListOptions) (runtime.Object, error) {
	s.restrict(&options)
	if untyped, ok := s.resource.untyped(); ok {
		return c.Dynamic.Resource(untyped).Namespace(s.namespace).List(ctx, options)
	}
	into := s.resource.list()
	return into, c.request(s, options).Do(ctx).Into(into)
}

func (c *Client) watch(ctx context.Context, s scope, options metav1.ListOptions) (watch.Interface, error) {
	s.restrict(&options)
	if untyped, ok := s.resource.untyped(); ok {
		return c.Dynamic.Resource(untyped).Namespace(s.namespace).Watch(ctx, options)
	}
	options.Watch = true
	return c.request(s, options).Watch(ctx)
}

func (c *Client) request(s scope, options metav1.ListOptions) *rest.Request {
	client := c.core
	if s.resource == endpointSlices {
		client = c.discovery
	}
	// The caller retries, and reports a failed request at once.
	r := client.Get().MaxRetries(0).NamespaceIfScoped(s.namespace, s.namespace != "").Resource(string(s.resource))
	if options.TimeoutSeconds != nil {
		r = r.Timeout(time.Duration(*options.TimeoutSeconds) * time.Second)
	}
	return r.VersionedParams(&options, metav1.ParameterCodec)
}
