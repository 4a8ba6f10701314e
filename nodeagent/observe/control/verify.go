package control

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"time"

	"hawser.dev/hawser/nodeagent/observe/report"
	"hawser.dev/hawser/nodeagent/observe/verify"
	"hawser.dev/hawser/nodeagent/projection"
	"hawser.dev/hawser/nodeagent/status"
	"hawser.dev/hawser/schema/fabric"
)

// How long an attempt may take.
const (
	leastAttempt = 100 * time.Millisecond
	mostAttempt  = 30 * time.Second
)

// serveVerification answers GET /verify?timeout=3s&export=shop/web.
func (c *Control) serveVerification(w http.ResponseWriter, r *http.Request) {
	timeout, err := time.ParseDuration(r.URL.Query().Get("timeout"))
	if err != nil || timeout < leastAttempt || timeout > mostAttempt {
		http.Error(w, fmt.Sprintf("timeout: a time from %s to %s", leastAttempt, mostAttempt), http.StatusBadRequest)
		return
	}
	v, err := c.verify(r.Context(), timeout, r.URL.Query())
	if err != nil {
		http.Error(w, err.Error(), http.StatusConflict)
		return
	}
	c.send(w, v)
}

func (c *Control) verify(ctx context.Context, timeout time.Duration, query url.Values) (status.Verification, error) {
	v := c.config.Outcome()
	if v.Node == nil {
		return status.Verification{}, errors.New("there is no fabric yet that says what is exported")
	}
	servers := c.config.Names()
	if len(servers) == 0 {
		return status.Verification{}, errors.New("this node has no address at which the agent answers names")
	}
	checks := checksOf(v.Input)
	if only := query["export"]; len(only) > 0 {
		for _, id := range only {
			if !slices.ContainsFunc(checks, func(c verify.Check) bool { return c.Export == id }) {
				return status.Verification{}, fmt.Errorf("there is no export %s here: namespace/name, as hawser show exports has them", id)
			}
		}
		checks = slices.DeleteFunc(checks, func(c verify.Check) bool { return !slices.Contains(only, c.Export) })
	}
	ctx, cancel := context.WithTimeout(ctx, verify.MaxDuration)
	defer cancel()
	results := verify.Verifier{Server: servers[0], Timeout: timeout}.All(ctx, checks)
	return status.Verification{Cluster: c.config.Cluster, Node: c.config.Node, Results: results}, nil
}

// checksOf gives the names of all exports that a cluster's nodes may reach: that of each
// service, and that of each cluster's part of it.
func checksOf(in projection.Input) []verify.Check {
	var out []verify.Check
	shown := report.Exports(in)
	for i := range in.Fabric.Exports {
		e := &in.Fabric.Exports[i]
		base := verify.Check{
			Export: e.ID(), Ports: tcpPorts(e.Ports), Headless: e.Type == fabric.Headless,
			Name: e.Name + "." + e.Namespace + ".svc." + in.Fabric.Domain + ".",
		}
		may := e.Allow == nil || slices.Contains(e.Allow, in.Cluster)
		var parts []verify.Check
		ready := false
		for k, c := range e.Clusters {
			part := base
			part.Cluster, part.Name = c.Name, c.Name+"."+base.Name
			if c.Ports != nil {
				part.Ports = tcpPorts(c.Ports)
			}
			is := shown[i].Clusters[k].Ready != "no"
			ready = ready || is
			part.Skip = skipped(may || c.Name == in.Cluster, is, part.Ports)
			parts = append(parts, part)
		}
		base.Skip = skipped(may, ready, base.Ports)
		out = append(out, base)
		if in.Fabric.DNS.ClusterNames {
			out = append(out, parts...)
		}
	}
	return out
}

// skipped says why a name cannot be proved.
func skipped(may, ready bool, ports []verify.Port) string {
	switch {
	case !may:
		return "the export does not allow this cluster"
	case len(ports) == 0:
		return "it has no TCP port"
	case !ready:
		return "no endpoint is ready"
	}
	return ""
}

func tcpPorts(all []fabric.Port) []verify.Port {
	var out []verify.Port
	for _, p := range all {
		if p.Protocol == "TCP" {
			out = append(out, verify.Port{Name: p.Name, Number: uint16(p.Port)})
		}
	}
	return out
}
