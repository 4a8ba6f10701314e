package kubeclient

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/netip"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	kerrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"

	"hawser.dev/hawser/discover"
	"hawser.dev/hawser/internal/diag"
	"hawser.dev/hawser/render"
)

// Discover reads the input of discover.Analyze and returns its result. It changes nothing in the
// cluster. It returns an error only if the API server cannot be reached; forbidden and failed
// requests are findings.
func (c *Client) Discover(ctx context.Context) (discover.Cluster, error) {
	o, err := c.objects(ctx, discover.Queries())
	if err != nil {
		return discover.Cluster{}, err
	}
	return discover.Analyze(c.Name, c.Context, o), nil
}

// Preflight reads the input of discover.Preflight, and checks whether the cluster has its identity.
// It changes nothing. Its errors are as with Discover.
func (c *Client) Preflight(ctx context.Context, w discover.Expected) (diag.List, error) {
	o, err := c.objects(ctx, discover.PreflightQueries())
	if err != nil {
		return nil, err
	}
	list := discover.Preflight(c.Context, o, w)
	if hasIdentity, err := c.HasIdentity(ctx); err == nil && !hasIdentity {
		list = append(list, diag.Diagnostic{Severity: diag.Warning, Code: "identity-missing",
			Path: "clusters[" + c.Name + "].recipient",
			Summary: fmt.Sprintf("the cluster has no Secret %s/%s: its gateways cannot open their keys", render.Namespace,
				IdentitySecret),
			Hint: "create it with the key " + IdentityKey + " from the cluster's identity file (hawser keys identity)"})
	}
	if skew, err := c.clockSkew(ctx); err == nil && skew.Abs() > maxSkew {
		list = append(list, diag.Diagnostic{Severity: diag.Warning, Code: "clock-skew", Path: "clusters[" + c.Name + "]",
			Summary: fmt.Sprintf("the clock of the API server is %s %s this machine's", skew.Abs().Round(time.Second), direction(skew)),
			Hint:    "synchronize clocks (NTP): certificates, logs and revisions of the fabric are dated by them"})
	}
	return list, nil
}

// maxSkew is the maximum difference between a clock and this machine's clock. It allows for the
// resolution of the Date header, one second, and for a slow response.
const maxSkew = 5 * time.Second

func direction(skew time.Duration) string {
	if skew > 0 {
		return "ahead of"
	}
	return "behind"
}

// clockSkew returns how far the clock of the API server is ahead of this machine's clock. It reads
// the Date header of a response (RFC 9110, section 6.6.1).
func (c *Client) clockSkew(ctx context.Context) (time.Duration, error) {
	client, err := rest.HTTPClientFor(c.config)
	if err != nil {
		return 0, err
	}
	base, _, err := rest.DefaultServerUrlFor(c.config)
	if err != nil {
		return 0, err
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, base.JoinPath("version").String(), nil)
	if err != nil {
		return 0, err
	}
	requestedAt := time.Now()
	response, err := client.Do(request)
	if err != nil {
		return 0, err
	}
	defer func() { _ = response.Body.Close() }()
	took := time.Since(requestedAt)
	if took > maxSkew {
		return 0, fmt.Errorf("no clock skew: the API server took %s to respond", took)
	}
	serverTime, err := http.ParseTime(response.Header.Get("Date"))
	if err != nil {
		return 0, err
	}
	return serverTime.Sub(requestedAt.Add(took / 2)), nil
}

// objects runs the queries against a cluster.
func (c *Client) objects(ctx context.Context, queries []discover.Query) (discover.Objects, error) {
	var o discover.Objects
	raw, err := c.Version(ctx)
	if err != nil {
		return o, fmt.Errorf("cluster %s (context %s): %s", c.Name, c.Context, ErrorText(err))
	}
	var version struct{ GitVersion string }
	if err := json.Unmarshal(raw, &version); err != nil || version.GitVersion == "" {
		return o, fmt.Errorf("cluster %s (context %s): what answers at %s is not a Kubernetes API", c.Name, c.Context,
			c.config.Host)
	}
	o.Version = version.GitVersion
	if groups := c.groups(ctx); len(groups) > 0 {
		queries = slices.DeleteFunc(queries, func(q discover.Query) bool {
			return q.Resource.Group != "" && !slices.Contains(groups, q.Resource.Group)
		})
	}
	found := make([][]unstructured.Unstructured, len(queries))
	var group errgroup.Group
	group.SetLimit(RequestsAtOnce)
	var mu sync.Mutex
	for i, q := range queries {
		group.Go(func() error {
			items, err := c.query(ctx, q)
			mu.Lock()
			defer mu.Unlock()
			found[i] = items
			if err != nil {
				o.Unreadable = append(o.Unreadable, discover.Unreadable{What: q.String(), Reason: ErrorText(err)})
			}
			return nil
		})
	}
	_ = group.Wait() // no function returns an error
	if ctx.Err() != nil {
		return o, context.Cause(ctx)
	}
	o.Items = slices.Concat(found...)
	if o.NeedsServiceDryRun() {
		if o.ServiceRanges, err = c.serviceRanges(ctx); err != nil {
			o.Unreadable = append(o.Unreadable, discover.Unreadable{What: "the range of Services by a dry run", Reason: ErrorText(err)})
		}
	}
	slices.SortFunc(o.Unreadable, func(a, b discover.Unreadable) int { return cmp.Compare(a.What, b.What) })
	return o, nil
}

// groups returns the API groups that the cluster serves; none if unknown. An account with few
// permissions gets Forbidden for missing groups too, so requests for them would only add findings.
func (c *Client) groups(ctx context.Context) []string {
	request, err := c.Request(requestTimeout)
	if err != nil {
		return nil
	}
	raw, err := request.AbsPath("/apis").DoRaw(ctx)
	var list metav1.APIGroupList
	if err != nil || json.Unmarshal(raw, &list) != nil {
		return nil
	}
	var out []string
	for _, g := range list.Groups {
		out = append(out, g.Name)
	}
	return out
}

// query returns the objects of a query; none if the cluster has no such kind.
func (c *Client) query(ctx context.Context, q discover.Query) ([]unstructured.Unstructured, error) {
	resource := c.client.Resource(q.Resource).Namespace(q.Namespace)
	if q.Name == "" {
		list, err := resource.List(ctx, metav1.ListOptions{LabelSelector: q.Selector})
		if kerrors.IsNotFound(err) {
			return nil, nil
		}
		if err != nil {
			return nil, err
		}
		return list.Items, nil
	}
	o, err := resource.Get(ctx, q.Name, metav1.GetOptions{})
	if kerrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return []unstructured.Unstructured{*o}, nil
}

// serviceRanges returns the Service CIDRs of the API server. It creates a Service with an address
// of a documentation range (RFC 5737, RFC 3849) as a dry run. The API server rejects it, and the
// error contains the valid range. Even if it allows that address, a dry run creates nothing.
func (c *Client) serviceRanges(ctx context.Context) ([]netip.Prefix, error) {
	var out []netip.Prefix
	var last error
	for _, probe := range []struct{ family, address string }{{"IPv4", "192.0.2.1"}, {"IPv6", "2001:db8::1"}} {
		_, err := c.client.Resource(schema.GroupVersionResource{Version: "v1", Resource: "services"}).Namespace("default").
			Create(ctx, &unstructured.Unstructured{Object: map[string]any{
				"apiVersion": "v1", "kind": "Service", "metadata": map[string]any{"name": "hawser-discover"},
				"spec": map[string]any{
					"clusterIP": probe.address, "ipFamilies": []any{probe.family}, "ports": []any{map[string]any{"port": int64(80)}},
				},
			}}, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		switch {
		case kerrors.IsInvalid(err):
			out = append(out, discover.ServiceRange(err.Error())...)
		case err != nil:
			last = err
		}
	}
	if len(out) > 0 {
		return out, nil
	}
	return nil, last
}
