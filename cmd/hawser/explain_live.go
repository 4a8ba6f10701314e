package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"hawser.dev/hawser/access"
	"hawser.dev/hawser/kubeclient"
	"hawser.dev/hawser/kubeclient/clusterstatus"
	"hawser.dev/hawser/nodeagent/status"
	"hawser.dev/hawser/schema/fabric"
)

// ofClusters reports whether flags name agents in pods of clusters.
func (f showFlags) ofClusters() bool {
	return len(f.access.Contexts)+len(f.access.Kubeconfigs)+len(f.clusters) > 0
}

// queryAgents returns the reports of the agents of the clusters on the paths of an answer.
func (a *app) queryAgents(ctx context.Context, f showFlags, of *fabric.Fabric, answer *access.Answer) (access.AgentReports, error) {
	r := access.AgentReports{Unreachable: map[string]string{}, Unresolved: map[string]string{}}
	// The topology is read already; whoever -f names may be stdin.
	f.file = ""
	pods := f.ofClusters()
	if !pods {
		sockets, err := agentSockets(f.sockets, f.lab)
		if pods = err != nil && len(f.sockets) == 0 && f.lab == ""; err != nil && !pods {
			return r, err
		}
		f.sockets = sockets
	}
	if pods {
		if len(f.sockets) > 0 || f.lab != "" {
			return r, errors.New("--socket and --lab name agents on this machine, --context, --kubeconfig and --cluster those of clusters: not both")
		}
		return r, a.queryPods(ctx, f, of, answer, &r)
	}
	agents, silent, err := a.askAll(ctx, f)
	a.warnUnreachable(silent)
	r.Agents = agents
	return r, err
}

// queryPods adds the reports of agents in the pods of clusters. Clusters without a context or
// without a connection are unreachable.
func (a *app) queryPods(ctx context.Context, f showFlags, of *fabric.Fabric, answer *access.Answer, r *access.AgentReports) error {
	var all []string
	for _, c := range of.Clusters {
		all = append(all, c.Name)
	}
	selected, err := f.names(all)
	if err != nil {
		return err
	}
	var clusters []*kubeclient.Client
	names := []string{answer.From.Cluster}
	for _, t := range answer.Destinations {
		names = append(names, t.Cluster)
		for _, l := range t.Links {
			for _, end := range []string{l.From, l.To} {
				name, _, _ := strings.Cut(end, "/")
				names = append(names, name)
			}
		}
	}
	slices.Sort(names)
	for _, name := range slices.Compact(names) {
		if !slices.Contains(selected, name) {
			r.Unreachable[name] = "--cluster leaves it out"
			continue
		}
		opened, err := f.access.Clusters([]string{name}, all)
		if err != nil {
			r.Unreachable[name] = err.Error()
			continue
		}
		clusters = append(clusters, opened...)
	}
	defer a.progress("asking the agents")()
	var got replies[status.Status]
	got.fromPods(ctx, clusters, howAre())
	slices.SortFunc(got.silent, func(a, b status.Unreachable) int { return cmp.Compare(a.Agent, b.Agent) })
	a.warnUnreachable(got.silent)
	r.Agents = values(got.all)
	for _, s := range got.silent {
		if name, _, _ := strings.Cut(s.Agent, "/"); r.Unreachable[name] == "" {
			r.Unreachable[name] = s.Error
		}
	}
	for _, c := range clusters {
		if c.Name == answer.From.Cluster && r.Unreachable[c.Name] == "" {
			s := clusterstatus.Read(ctx, c)
			r.Unresolved[c.Name] = cmp.Or(s.DNSProblem, s.Error)
		}
	}
	return nil
}

// liveText formats what agents report about an answer.
func liveText(a *access.Answer) string {
	var out strings.Builder
	put := func(format string, args ...any) { _, _ = fmt.Fprintf(&out, format+"\n", args...) }
	for i := range a.Destinations {
		cluster, t := a.Destinations[i].Cluster, a.Destinations[i].Live
		if t == nil {
			continue
		}
		verdict := map[string]string{access.Delivered: "it arrives", access.NotDelivered: "nothing arrives",
			access.Unknown: "not known to arrive"}[t.Verdict]
		if len(t.Why) > 0 {
			verdict += ": " + strings.Join(t.Why, "; ")
		}
		put("\nnow in %s: %s", cluster, verdict)
		for _, h := range t.Hops {
			if len(h.Links) == 0 {
				put("  links                  none between %s and %s", h.From, h.To)
			}
			for _, k := range h.Links {
				text := fmt.Sprintf("%s - %s (%s): %s", k.From, k.To, k.Driver, k.State)
				if k.State == access.Unknown {
					text = fmt.Sprintf("%s - %s (%s): not known", k.From, k.To, k.Driver)
				}
				if k.RTT > 0 {
					text += ", " + (time.Duration(k.RTT) * time.Microsecond).String()
				}
				if k.InUse {
					text += ", in use"
				}
				if len(k.Nodes) > 0 {
					text += " by " + strings.Join(k.Nodes, ", ")
				}
				put("  link                   %s", text)
				for _, name := range slices.Sorted(maps.Keys(k.ActiveNodes)) {
					put("  %-22s is held by node %s", name, k.ActiveNodes[name])
				}
				if k.InUse {
					for _, name := range slices.Sorted(maps.Keys(k.EndpointResults)) {
						put("  %-22s reached at: %s", name, k.EndpointResults[name])
					}
				}
			}
		}
		if len(t.Backends) > 0 {
			put("  ready backends         %s", strings.Join(t.Backends, ", "))
		} else if t.Ready != "" {
			put("  ready backends         %s", map[string]string{"no": "none", "yes": "yes", access.Unknown: "not known"}[t.Ready])
		}
	}
	for _, list := range []struct {
		title string
		texts []string
	}{{"Missing", a.Live.Missing}, {"Not known", a.Live.Unknown}} {
		if len(list.texts) > 0 {
			put("\n%s\n  %s", list.title, strings.Join(list.texts, "\n  "))
		}
	}
	return out.String()
}
