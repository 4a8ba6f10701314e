package observe

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"hawser.dev/hawser/health"
	"hawser.dev/hawser/internal/checkout"
	"hawser.dev/hawser/internal/cli"
	"hawser.dev/hawser/internal/cli/agentquery"
	"hawser.dev/hawser/internal/cli/topofile"
	"hawser.dev/hawser/internal/diag"
	"hawser.dev/hawser/internal/humanize"
	"hawser.dev/hawser/kubeclient"
	"hawser.dev/hawser/kubeclient/netpolicy"
	"hawser.dev/hawser/nodeagent/observe/verify"
	"hawser.dev/hawser/nodeagent/status"
)

// verifyTimeout is the default of --timeout.
const verifyTimeout = 3 * time.Second

// Values of --from.
const (
	fromNodes = "nodes"
	fromPods  = "pods"
)

// lookupError is the prefix of the error of a name that was not resolved.
const lookupError = "look up "

type verifyFlags struct {
	agentquery.Targets
	timeout  time.Duration
	exports  []string
	protocol string
	from     []string
	junit    string
	drill    string // gateway of --failover
}

// verification is the JSON form of `hawser verify`.
type verification struct {
	// Problems are possible causes of failed tests, causes before their effects.
	Problems    []health.Problem      `json:"problems,omitempty"`
	Nodes       []status.Verification `json:"nodes"`
	Pods        []status.Verification `json:"pods,omitempty"`
	Unreachable []status.Unreachable  `json:"unreachable,omitempty"`
	// Policies are the NetworkPolicies that select the pods of exports without a connection.
	Policies []string `json:"policies,omitempty"`
	Failover *drill   `json:"failover,omitempty"` // result of --failover
}

// errNoPods is the reason why there are no tests from pods.
var errNoPods = errors.New("pods are started in Kubernetes clusters, and used in labs: use --from nodes, --cluster, --context or --lab")

func NewVerifyCommand(env *cli.Env) *cobra.Command {
	var f verifyFlags
	cmd := &cobra.Command{
		Use:   "verify",
		Short: "Test every export from every node and its pods",
		Long: `Test the names of all exports that a cluster may reach: the name of each service, and of
each cluster's part of it. Each name is looked up; each of its addresses gets a TCP
connection, or a datagram where the port is UDP.

Two kinds of clients test:
- nodes: each agent asks its own name server and connects from its node.
- pods: a pod on each node asks the cluster's DNS with the search domains of pods, and
  connects from the pod network. A lookup that fails there alone means that the cluster's
  DNS does not forward the clusterset's domain.

The pods need the right to create namespaces and pods and to read logs. They run the
agent's image without any privilege, in a namespace hawser-verify-... of their own, and
are removed at the end. NetworkPolicies of other namespaces do not apply to them. In a
lab, the requests come from its pods. --from nodes creates nothing.

Servers see connections that close at once; nothing is sent or read over them. A UDP port
gets up to three datagrams with a line end (DNS servers: the query "NS ."). A reply counts
as answered, an ICMP error as failed. No reply means unknown, as many UDP servers send
none: --protocol tcp leaves UDP out. Names whose addresses are outside the clusterset
fail, and are not connected to. An export without a ready endpoint fails.

--failover CLUSTER/GATEWAY is a drill of one gateway. Pods of all clusters keep connections
through it open and open a new one every 100 ms. Then the agent drains the gateway, as
hawser-agent drain does, the tests above run, and the gateway is undrained, also on Ctrl-C
and after errors. If the command is killed, the agent undrains it within a minute. The
report has the lost and late requests, the longest gap and the broken connections. A request
in its handshake while paths move is late by a second. A gateway is refused if its cluster
has no other live one.

If a test does not succeed, the problems of hawser status that concern its clusters come
first.

Without flags it queries the agents of the running lab, or the agent of this host. With
--context or --cluster it queries the agents in pods of Kubernetes clusters (this needs the
right to exec there).

Exit codes: 0 everything answered, 1 something did not, 2 unknown: there is nothing
to verify, agents or pods did not report, UDP servers sent no reply, or the command failed. A drill
ends with 1 if a request was lost, more than two of a pod to an address were late, or a
connection broke.`,
		Example: `  hawser verify
  hawser verify --cluster fra,sin --junit verify.xml
  hawser verify --cluster fra --export shop/web --from nodes --timeout 1s
  hawser verify --failover fra/a`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return runVerify(cmd.Context(), env, f) },
	}
	flags := cmd.Flags()
	cli.OutputFlag(cmd, false, &f.Output, "text", "json", "yaml")
	flags.DurationVar(&f.timeout, "timeout", verifyTimeout, "how long a lookup or a connection may take, from 100ms to 30s")
	flags.StringSliceVar(&f.exports, "export", nil, "only this export, NAMESPACE/NAME; may be repeated")
	cli.CompleteFlag(cmd, "export", cli.CompleteList(topofile.ExportNames))
	flags.StringVar(&f.protocol, "protocol", "", "only ports of this protocol: tcp or udp")
	_ = cmd.RegisterFlagCompletionFunc("protocol", cobra.FixedCompletions([]string{"tcp", "udp"}, cobra.ShellCompDirectiveNoFileComp)) // the flag exists
	flags.StringSliceVar(&f.from, "from", nil, "clients: nodes, pods or both (default: both in clusters and labs, else nodes)")
	_ = cmd.RegisterFlagCompletionFunc("from", cobra.FixedCompletions([]string{fromNodes, fromPods}, cobra.ShellCompDirectiveNoFileComp)) // the flag exists
	flags.StringVar(&f.junit, "junit", "", "also write the results to this file, as JUnit XML for CI")
	flags.StringVar(&f.drill, "failover", "", "drain this gateway, CLUSTER/GATEWAY, while connections and tests run, and undrain it")
	cli.CompleteFlag(cmd, "failover", cli.Complete(topofile.GatewayNames))
	f.AddFlags(cmd, false)
	return cmd
}

func runVerify(ctx context.Context, env *cli.Env, f verifyFlags) error {
	if f.protocol = strings.ToLower(f.protocol); !slices.Contains([]string{"", "tcp", "udp"}, f.protocol) {
		return fmt.Errorf("--protocol %s: use tcp or udp", f.protocol)
	}
	for _, from := range f.from {
		if from != fromNodes && from != fromPods {
			return fmt.Errorf("--from %s: use nodes or pods", from)
		}
	}
	run := f.verify
	if f.drill != "" {
		run = f.failover
	}
	v, err := run(ctx, env)
	if err != nil {
		return err
	}
	agentquery.WarnUnreachable(env, v.Unreachable)
	if f.Output == "text" {
		_, err = env.Out.Write([]byte(v.text()))
	} else {
		err = env.Encode(f.Output, v)
	}
	if f.junit != "" && err == nil {
		err = writeJUnit(f.junit, v)
	}
	return cmp.Or(err, v.exit())
}

// verify runs the checks from nodes and then from pods.
func (f verifyFlags) verify(ctx context.Context, env *cli.Env) (verification, error) {
	agents, err := f.Agents()
	if err != nil {
		return verification{}, err
	}
	got, silent := f.fromNodes(ctx, env, agents)
	v := verification{Nodes: []status.Verification{}, Unreachable: silent}
	if len(f.from) == 0 || slices.Contains(f.from, fromPods) {
		v.Pods, err = verifyFromPods(ctx, env, f, agents, got)
		if errors.Is(err, errNoPods) && len(f.from) == 0 {
			err = nil
		}
		if err != nil {
			return verification{}, err
		}
	}
	if len(f.from) == 0 || slices.Contains(f.from, fromNodes) {
		for _, r := range got {
			v.Nodes = append(v.Nodes, r.Value)
		}
	}
	for _, list := range [][]status.Verification{v.Nodes, v.Pods} {
		slices.SortFunc(list, func(a, b status.Verification) int {
			return cmp.Or(cmp.Compare(a.Cluster, b.Cluster), cmp.Compare(a.Node, b.Node))
		})
	}
	v.addPolicies(ctx, agents.Clusters)
	if v.exit() != nil {
		v.Problems = v.concern(assess(ctx, agents))
	}
	return v, nil
}

// maxPolicyExports bounds the number of exports whose NetworkPolicies are read.
const maxPolicyExports = 20

// addPolicies adds the NetworkPolicies that may have dropped the packets of failed connections, or
// the reason why they are unknown.
func (v *verification) addPolicies(ctx context.Context, clusters []*kubeclient.Client) {
	done := map[[2]string]bool{} // exporting cluster and export
	for _, n := range slices.Concat(v.Nodes, v.Pods) {
		for _, r := range n.Results {
			i := slices.IndexFunc(clusters, func(c *kubeclient.Client) bool { return c.Name == r.Cluster })
			id := [2]string{r.Cluster, r.Export}
			if i < 0 || r.Error == "" || r.NotReady != "" || strings.HasPrefix(r.Error, lookupError) || done[id] || len(done) == maxPolicyExports {
				continue
			}
			done[id] = true
			namespace, name, _ := strings.Cut(r.Export, "/")
			for _, text := range agentquery.PolicyTexts(netpolicy.OfService(ctx, clusters[i], namespace, name)) {
				v.Policies = append(v.Policies, r.Cluster+": "+text)
			}
		}
	}
}

// fromNodes runs the checks on the agents.
func (f verifyFlags) fromNodes(ctx context.Context, env *cli.Env, agents agentquery.Agents) ([]agentquery.Response[status.Verification], []status.Unreachable) {
	defer env.Progress("connecting to every export from every node")()
	query := url.Values{"timeout": {f.timeout.String()}, "export": f.exports}
	if f.protocol != "" {
		query.Set("protocol", f.protocol)
	}
	return agentquery.QueryAgents[status.Verification](ctx, agents, agentquery.NewRequest("verify", query, verify.MaxDuration))
}

// exit returns the error with the exit code of the results.
func (v verification) exit() error {
	count := map[status.Verdict]int{}
	var unknown []string
	pods := 0
	for _, n := range slices.Concat(v.Nodes, v.Pods) {
		for _, r := range n.Results {
			count[r.Verdict()]++
		}
		if n.Problem != "" {
			pods++
		}
	}
	if n := len(v.Unreachable); n > 0 {
		unknown = append(unknown, humanize.Plural(n, "agent")+" did not answer")
	}
	if pods > 0 {
		unknown = append(unknown, humanize.Plural(pods, "pod")+" did not report")
	}
	if n := count[status.VerdictUnknown]; n > 0 {
		unknown = append(unknown, humanize.Plural(n, "result")+" unknown")
	}
	switch {
	case count[status.VerdictFailed] > 0, v.Failover != nil && len(v.Failover.failures()) > 0:
		return cli.ExitError{}
	case len(unknown) > 0:
		return fmt.Errorf("could not tell whether every export is reached: %s", strings.Join(unknown, ", "))
	case count[status.VerdictAnswered] == 0:
		return errors.New("nothing to verify: no export yet that these clusters may reach")
	}
	return nil
}

// client returns the name of a verification's client.
func client(n status.Verification) string {
	if n.FromPod {
		return "pod on " + n.Cluster + "/" + n.Node
	}
	return n.Cluster + "/" + n.Node
}

// text returns the text form: first the problems, then all results. It prints results that are
// equal on several nodes once.
func (v verification) text() string {
	var out strings.Builder
	line := func(format string, args ...any) {
		_, _ = fmt.Fprintln(&out, diag.Line(fmt.Sprintf(format, args...)))
	}
	failures := v.failures()
	for _, p := range v.Problems {
		line("%s", p)
	}
	for _, p := range failures {
		line("%s", p)
	}
	if len(v.Problems)+len(failures) > 0 {
		_, _ = fmt.Fprintln(&out)
	}
	var order []string
	where := map[string]map[bool][]string{} // nodes by text, and by FromPod
	for _, n := range slices.Concat(v.Nodes, v.Pods) {
		note := func(text string) {
			if where[text] == nil {
				where[text] = map[bool][]string{}
				order = append(order, text)
			}
			where[text][n.FromPod] = append(where[text][n.FromPod], n.Cluster+"/"+n.Node)
		}
		if n.Problem != "" {
			note("not tested: " + n.Problem)
		}
		answered, all := 0, 0
		for _, r := range n.Results {
			name := fmt.Sprintf("%s (%s): ", r.Name, r.Export)
			for _, text := range []struct{ prefix, text string }{{"", r.Error}, {"unknown: ", r.Unknown}, {"not tested: ", r.Skipped}} {
				if text.text != "" {
					note(name + text.prefix + text.text)
				}
			}
			if r.Verdict() == status.VerdictAnswered {
				answered++
			}
			if r.Skipped == "" {
				all++
			}
		}
		if n.Problem == "" || all > 0 {
			line("%s: %d of %s answered", client(n), answered, humanize.Plural(all, "name"))
		}
	}
	for _, text := range order {
		_, _ = fmt.Fprintln(&out)
		line("%s", text)
		for _, kind := range []bool{false, true} {
			if nodes := where[text][kind]; nodes != nil {
				line("  from %s%s", map[bool]string{true: "pods on "}[kind], strings.Join(nodes, ", "))
			}
		}
	}
	if v.Failover != nil {
		_, _ = out.WriteString(v.Failover.text())
	}
	return out.String()
}

// failures returns the failed tests grouped by cause, each with the next command.
func (v verification) failures() []string {
	resolved := map[string]bool{} // resolved names by cluster, from nodes
	for _, n := range v.Nodes {
		for _, r := range n.Results {
			resolved[n.Cluster+" "+r.Name] = resolved[n.Cluster+" "+r.Name] || !strings.HasPrefix(r.Error, lookupError)
		}
	}
	var noDNS, notReady, failed []string
	firstError := ""
	for _, n := range slices.Concat(v.Nodes, v.Pods) {
		for _, r := range n.Results {
			switch {
			case r.Error == "":
			case r.NotReady != "":
				notReady = append(notReady, r.Export)
			case n.FromPod && strings.HasPrefix(r.Error, lookupError) && resolved[n.Cluster+" "+r.Name]:
				noDNS = append(noDNS, n.Cluster)
			default:
				failed = append(failed, r.Export)
				firstError = cmp.Or(firstError, r.Error)
			}
		}
	}
	list := func(all []string, between string) string {
		return strings.Join(slices.Compact(slices.Sorted(slices.Values(all))), between)
	}
	var out []string
	if len(noDNS) > 0 {
		out = append(out, fmt.Sprintf("pods of %s use the cluster's DNS, which does not forward names to the agents, and nodes resolve the same names; next: hawser status", list(noDNS, ", ")))
	}
	if len(notReady) > 0 {
		out = append(out, fmt.Sprintf("no ready endpoint of %s; next: hawser show exports", list(notReady, ", ")))
	}
	if len(failed) > 0 {
		cause := firstError
		if len(v.Policies) > 0 {
			cause += " (" + strings.Join(v.Policies, "; ") + ")"
		}
		out = append(out, fmt.Sprintf("no connection to %s: %s; next: hawser diagnose --verify --export %s", list(failed, ", "), cause, list(failed, " --export ")))
	}
	return out
}

func writeJUnit(file string, v verification) error {
	raw, err := junit(v)
	if err == nil {
		err = checkout.Replace(file, raw, 0o644)
	}
	if err != nil {
		return fmt.Errorf("write --junit: %w", err)
	}
	return nil
}
