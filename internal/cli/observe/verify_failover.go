package observe

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"hawser.dev/hawser/internal/cli"
	"hawser.dev/hawser/internal/cli/agentquery"
	"hawser.dev/hawser/internal/diag"
	"hawser.dev/hawser/internal/humanize"
	"hawser.dev/hawser/kubeclient"
	"hawser.dev/hawser/nodeagent/observe/verify"
	"hawser.dev/hawser/nodeagent/status"
)

const (
	drillLease        = time.Minute            // after which the agent ends the drill if the command stopped
	drillPollInterval = 250 * time.Millisecond // between two requests to the gateway
	connectTimeout    = podTimeout             // for the connections before the drill
	drainTimeout      = 30 * time.Second       // until no other gateway uses the drained one
	minDrillTime      = 7 * time.Second        // minimum; broken connections are detected after 6 s
	afterDrillTime    = 7 * time.Second        // the same after the drill
	maxDrillTargets   = 8                      // addresses per pod
	minAttempts       = 10                     // new connections to each address before the drill
	pathMovesPerDrill = 2                      // path moves of the gateway: drain and undrain
	probeTime         = connectTimeout + drainTimeout + 2*verify.MaxDuration + minDrillTime +
		afterDrillTime
)

// drill is the result of `hawser verify --failover`.
type drill struct {
	Gateway string `json:"gateway"` // CLUSTER/GATEWAY
	// Paths is the number of paths of nodes that used the gateway before the drill.
	Paths    int      `json:"paths"`
	Drained  string   `json:"drained,omitempty"`  // time until the gateway was unused; empty if it stayed in use
	UsedBy   []string `json:"usedBy,omitempty"`   // agents that used the gateway until the end
	Undrain  string   `json:"undrain,omitempty"`  // why undrain failed; empty if it succeeded
	Requests []probed `json:"requests,omitempty"` // requests of pods
}

// probed is the result of the connections from one pod to one address.
type probed struct {
	From string `json:"from"` // CLUSTER/NODE of the pod
	status.Probed
}

// isLate reports whether more requests were late than paths moved. If paths move during the
// handshake, a request continues with the next SYN (docs/gateways.md), so each move can delay one
// request.
func (p probed) isLate() bool { return p.Late > pathMovesPerDrill }

// gateway is an agent that runs a gateway.
type gateway struct {
	agent string // Response.Agent of agentquery
	status.Status
}

func (g gateway) id() string { return g.Cluster + "/" + g.Gateway }

// isLive reports whether traffic can use a gateway.
func (g gateway) isLive() bool {
	return g.Ready && !g.Drained && slices.ContainsFunc(g.Connections, func(c status.Connection) bool { return c.Status == status.Connected })
}

// findGateway returns the gateway to drill and the number of node paths that use it. It returns an
// error if the cluster has no other live gateway.
func findGateway(name string, got []agentquery.Response[status.Status]) (gateway, int, error) {
	var all []string
	var found *gateway
	other := false
	for _, r := range got {
		if g := (gateway{r.Agent, r.Value}); g.Gateway != "" {
			if all = append(all, g.id()); g.id() == name {
				found = &g
			}
		}
	}
	if found == nil {
		return gateway{}, 0, fmt.Errorf("--failover %s: no gateway of that name answers (gateways: %s)", name, cmp.Or(strings.Join(slices.Sorted(slices.Values(all)), ", "), "none"))
	}
	paths := 0
	for _, r := range got {
		g := gateway{r.Agent, r.Value}
		other = other || g.Cluster == found.Cluster && g.Gateway != "" && g.id() != found.id() && g.isLive()
		for _, p := range r.Value.Paths {
			if g.Cluster == found.Cluster && p.LocalGateway == found.Gateway || p.Cluster == found.Cluster && p.RemoteGateway == found.Gateway {
				paths++
			}
		}
	}
	switch {
	case found.Drained:
		return gateway{}, 0, fmt.Errorf("--failover %s: it is drained already (hawser-agent undrain on its node ends that)", name)
	case !found.isLive():
		return gateway{}, 0, fmt.Errorf("--failover %s: it has no link that is up: hawser status", name)
	case !other:
		return gateway{}, 0, fmt.Errorf("--failover %s: cluster %s has no other live gateway, so draining this one could end its connections: hawser show connections", name, found.Cluster)
	}
	return *found, paths, nil
}

// drillAddresses returns the addresses that a client connects to. For clients in the gateway's
// cluster these are TCP ports of other clusters, for other clients TCP ports of the gateway's
// cluster. If no name includes a cluster, names of services are used.
func drillAddresses(cluster string, v status.Verification) []string {
	parts := slices.ContainsFunc(v.Results, func(r status.Verified) bool { return r.Cluster != "" })
	var out []string
	for _, r := range v.Results {
		isRemote := r.Cluster == cluster
		if v.Cluster == cluster {
			isRemote = r.Cluster != "" && r.Cluster != cluster
		}
		if parts && !isRemote {
			continue
		}
		for _, at := range r.Reached {
			if !strings.HasSuffix(at, "/UDP") && !slices.Contains(out, at) && len(out) < maxDrillTargets {
				out = append(out, at)
			}
		}
	}
	return out
}

// failover drains a gateway, runs the checks, and undrains the gateway. Pods have open connections,
// and open new ones, from before until after the drill.
func (f verifyFlags) failover(ctx context.Context, env *cli.Env) (v verification, err error) {
	agents, err := f.Agents()
	if err != nil {
		return v, err
	}
	states, silent := agentquery.QueryAgents[status.Status](ctx, agents, agentquery.StatusRequest())
	at, paths, err := findGateway(f.drill, states)
	if err != nil {
		agentquery.WarnUnreachable(env, silent)
		return v, err
	}
	d := &drill{Gateway: at.id(), Paths: paths}
	nodes, _ := f.fromNodes(ctx, env, agents)
	pods, err := f.startProbes(ctx, env, agents, nodes, at.Cluster)
	if pods != nil {
		defer pods.stop(ctx)
	}
	if err != nil {
		return v, err
	}
	printProgress(env, "draining %s; its agent undrains it within %s if this command is killed", at.id(), drillLease)
	if v, err = f.drained(ctx, env, agents, at, d); err != nil {
		return v, err
	}
	printProgress(env, "undrained %s, watching connections for %s more", at.id(), afterDrillTime)
	if err := sleep(ctx, afterDrillTime); err != nil {
		return v, err
	}
	outputs, err := pods.outputs(ctx)
	if err != nil {
		return v, err
	}
	d.Requests, v.Failover = readProbes(outputs), d
	return v, nil
}

// startProbes starts the pods and waits until all their connections are established.
func (f verifyFlags) startProbes(ctx context.Context, env *cli.Env, agents agentquery.Agents, nodes []agentquery.Response[status.Verification], cluster string) (podRun, error) {
	defer env.Progress("connecting from pods that are removed again")()
	targets := map[string]int{}
	pods, err := startPods(ctx, env, f, agents, nodes, func(v status.Verification) []string {
		addrs := drillAddresses(cluster, v)
		if targets[v.Cluster+"/"+v.Node] = len(addrs); len(addrs) == 0 {
			return nil
		}
		return []string{"connprobe", "--for", probeTime.String(), "--to", strings.Join(addrs, ",")}
	})
	if err != nil {
		return pods, err
	}
	for end := time.Now().Add(connectTimeout); ; {
		outputs, err := pods.outputs(ctx)
		if err != nil {
			return pods, err
		}
		if len(outputs) == 0 {
			return pods, fmt.Errorf("no pod has a TCP port of an export to connect to through %s: hawser verify --protocol tcp", f.drill)
		}
		reason := ""
		for node, o := range outputs {
			list := readProbes(map[string]kubeclient.PodOutput{node: o})
			switch {
			case o.Ended || o.Image:
				return pods, fmt.Errorf("the pod on %s does not run: %s", node, cmp.Or(o.Reason, string(o.Text)))
			case len(list) < targets[node]:
				reason = "the pod on " + node + " has printed nothing: " + cmp.Or(o.Reason, "it starts")
			case slices.ContainsFunc(list, func(p probed) bool { return p.Failed > 0 }):
				return pods, fmt.Errorf("connections of the pod on %s fail already before the drill: hawser verify", node)
			case slices.ContainsFunc(list, func(p probed) bool { return p.Attempts < minAttempts || p.KeptOpen == 0 }):
				reason = "the pod on " + node + " has not connected to every address"
			}
		}
		if reason == "" {
			return pods, nil
		}
		if time.Now().After(end) {
			return pods, errors.New(reason)
		}
		if err := sleep(ctx, podInterval); err != nil {
			return pods, err
		}
	}
}

// drained drains the gateway, runs the checks, and undrains the gateway, even on an error or if ctx
// is done.
func (f verifyFlags) drained(ctx context.Context, env *cli.Env, agents agentquery.Agents, at gateway, d *drill) (v verification, err error) {
	post := func(ctx context.Context, duration time.Duration) (s status.Drain, err error) {
		q := agentquery.NewRequest("drain", url.Values{"drill": {duration.String()}}, 0)
		q.Path = "/drain/drill?" + url.Values{"for": {duration.String()}}.Encode()
		return s, agents.Post(ctx, at.agent, q, &s)
	}
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), drillLease)
		defer cancel()
		for range 3 {
			_, failed := post(ctx, 0)
			if d.Undrain = ""; failed == nil {
				return
			}
			d.Undrain = kubeclient.ErrorText(failed)
		}
		if err != nil { // no report follows
			printProgress(env, "warning: %s could not be undrained; its agent undrains it %s after the last request: %s", at.id(), drillLease, d.Undrain)
		}
	}()
	startedAt := time.Now()
	for {
		s, err := post(ctx, drillLease)
		if err != nil {
			return v, fmt.Errorf("drain %s: %w", at.id(), err)
		}
		if d.UsedBy = s.Users; len(s.NoAlternative) > 0 {
			return v, fmt.Errorf("%s is undrained again: %s has no other way than over it", at.id(), strings.Join(s.NoAlternative, ", "))
		}
		if len(s.Users) == 0 {
			d.Drained = time.Since(startedAt).Round(100 * time.Millisecond).String()
			break
		}
		if time.Since(startedAt) > drainTimeout {
			break
		}
		if err := sleep(ctx, drillPollInterval); err != nil {
			return v, err
		}
	}
	unusedAt := time.Now()
	renewed := make(chan error, 1)
	verifying, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() { // the checks may take longer than the lease
		for sleep(verifying, drillLease/4) == nil {
			_, err := post(verifying, drillLease)
			if err != nil && verifying.Err() == nil {
				renewed <- fmt.Errorf("drain %s: %w", at.id(), err)
				return
			}
		}
		renewed <- nil
	}()
	v, err = f.verify(ctx, env)
	if err == nil {
		err = sleep(ctx, time.Until(unusedAt.Add(minDrillTime)))
	}
	cancel()
	return v, cmp.Or(err, <-renewed)
}

// readProbes reads the last line of each pod.
func readProbes(outputs map[string]kubeclient.PodOutput) []probed {
	var out []probed
	for node, o := range outputs {
		var list []status.Probed
		lines := bytes.Split(bytes.TrimSpace(o.Text), []byte("\n"))
		if json.Unmarshal(lines[len(lines)-1], &list) != nil {
			continue // cannot happen: startProbes waits for complete lines
		}
		for _, p := range list {
			out = append(out, probed{node, p})
		}
	}
	slices.SortFunc(out, func(a, b probed) int { return cmp.Or(cmp.Compare(a.From, b.From), cmp.Compare(a.Target, b.Target)) })
	return out
}

// failures returns the reasons why the drill failed.
func (d *drill) failures() []string {
	var out []string
	lost, late, broken := 0, 0, 0
	for _, r := range d.Requests {
		lost += r.Failed
		broken += r.Broken
		if r.isLate() {
			late += r.Late
		}
	}
	if len(d.UsedBy) > 0 {
		out = append(out, fmt.Sprintf("%s was still used by %s after %s", d.Gateway, strings.Join(d.UsedBy, ", "), drainTimeout))
	}
	if lost > 0 {
		out = append(out, humanize.Plural(lost, "request")+" lost")
	}
	if late > 0 {
		out = append(out, humanize.Plural(late, "request")+" late")
	}
	if broken > 0 {
		out = append(out, humanize.Plural(broken, "open connection")+" broken")
	}
	if d.Undrain != "" {
		out = append(out, fmt.Sprintf("%s could not be undrained; its agent undrains it %s after the last request: %s", d.Gateway, drillLease, d.Undrain))
	}
	return out
}

func (d *drill) text() string {
	t := cli.Table{Title: "\nConnections of pods during the drill of " + diag.Line(d.Gateway), Head: []string{"FROM", "TO", "REQUESTS", "LOST", "LATE", "LONGEST GAP", "KEPT OPEN", "BROKEN"}}
	all := 0
	for _, r := range d.Requests {
		all += r.Attempts
		kept := strconv.Itoa(r.KeptOpen)
		if r.ClosedByServer > 0 {
			kept += fmt.Sprintf(" (server closed %d)", r.ClosedByServer)
		}
		gap := (time.Duration(r.LongestGap) * time.Microsecond).Round(time.Millisecond).String()
		t.Rows = append(t.Rows, []string{diag.Line(r.From), diag.Line(r.Target), strconv.Itoa(r.Attempts), strconv.Itoa(r.Failed), strconv.Itoa(r.Late), gap, kept, strconv.Itoa(r.Broken)})
	}
	var out strings.Builder
	_, _ = out.WriteString(t.String())
	used := humanize.Plural(d.Paths, "path") + " of nodes used it before."
	if d.Paths == 0 {
		used = "No path used it before: drill a gateway that hawser show paths lists."
	}
	end := "No request was lost, no open connection broke."
	if failures := d.failures(); len(failures) > 0 {
		end = "Not fine: " + strings.Join(failures, "; ") + "."
	}
	drainText := ""
	if d.Drained != "" {
		drainText = " Unused " + d.Drained + " after it was drained."
	}
	_, _ = fmt.Fprintln(&out, diag.Line(fmt.Sprintf("%s%s %s", used, drainText, end)))
	return out.String()
}

// printProgress prints a line of progress.
func printProgress(env *cli.Env, format string, args ...any) {
	_, _ = fmt.Fprintln(env.Err, diag.Line(fmt.Sprintf(format, args...)))
}

// sleep waits for d or until ctx is done.
func sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-time.After(d):
		return nil
	}
}
