package install

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"hawser.dev/hawser/internal/cli"
	"hawser.dev/hawser/internal/cli/clusterselect"
	"hawser.dev/hawser/internal/cli/topofile"
	"hawser.dev/hawser/kubeclient"
	"hawser.dev/hawser/nodeagent/benchmark"
	"hawser.dev/hawser/render"
	"hawser.dev/hawser/schema/fabric"
)

type benchmarkFlags struct {
	clusterselect.Flags
	image    string
	output   string
	duration time.Duration
	streams  int
	port     int
}

// benchmarked is the JSON form of `hawser benchmark`.
type benchmarked struct {
	From string `json:"from"`
	To   string `json:"to"`
	// Pods is the result between two pods through Hawser. Underlay is the result between the
	// nodes of two gateways, without Hawser. Skipped is the reason if Underlay is missing.
	Pods     benchmark.Result  `json:"pods"`
	Underlay *benchmark.Result `json:"underlay,omitempty"`
	Skipped  string            `json:"underlay_skipped,omitempty"`
}

func NewBenchmarkCommand(env *cli.Env) *cobra.Command {
	var f benchmarkFlags
	cmd := &cobra.Command{
		Use:   "benchmark FROM TO",
		Short: "Measure throughput and latency between two clusters",
		Long: `Measure TCP between pods of two clusters: throughput, connections per second, and
round-trip time. A pod in cluster TO serves, a pod in cluster FROM connects.

The server is exported during the run, from a new namespace that spec.dynamicExports must
admit. Then the command measures the underlay between the nodes of both clusters' first
gateways, at TCP port --port of TO's gateway. If a firewall blocks that port, the result
has no underlay. At the end all pods and their namespace are removed.

Exit codes: 0 measured; 1 the pods did not reach each other; 2 error.`,
		Example: `  hawser benchmark fra ams
  hawser benchmark fra ams --for 10s --streams 8 -o json`,
		ValidArgsFunction: completeTwoClusters,
		Args:              cobra.ExactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			return runBenchmark(cmd.Context(), env, args[0], args[1], f)
		},
	}
	f.AddKubeconfig(cmd, false)
	cmd.Flags().StringVar(&f.image, "image", "", "agent image if spec.agent.image is empty (default: the published image)")
	cmd.Flags().DurationVar(&f.duration, "for", 5*time.Second, "duration of each of the three measurements, from 1s to 1m")
	cmd.Flags().IntVar(&f.streams, "streams", 4, "concurrent streams and connections, from 1 to 64")
	cmd.Flags().IntVar(&f.port, "port", 5201, "TCP port on the gateway's node for the underlay; 0 skips the underlay")
	topofile.AddFileFlag(cmd, false, &env.File, "the topology")
	cli.OutputFlag(cmd, false, &f.output, "text", "json", "yaml")
	return cmd
}

func runBenchmark(ctx context.Context, env *cli.Env, from, to string, f benchmarkFlags) error {
	switch {
	case from == to:
		return fmt.Errorf("cluster %s twice: name two clusters", from)
	case f.duration < time.Second || f.duration > time.Minute:
		return fmt.Errorf("--for %s: from 1s to 1m", f.duration)
	case f.streams < 1 || f.streams > 64:
		return fmt.Errorf("--streams %d: from 1 to 64", f.streams)
	case f.port < 0 || f.port > 65535:
		return fmt.Errorf("--port %d: from 0 to 65535", f.port)
	}
	f.Clusters = []string{from, to}
	t, set, src, clusters, err := clusterselect.LoadWithClusters(env, nil, &f.Flags)
	if err != nil {
		return err
	}
	c, err := topofile.CompileLoaded(env, t, set, src)
	if err != nil {
		return err
	}
	namespace, err := exportableNamespace(c.Fabric, to)
	if err != nil {
		return err
	}
	key := make([]byte, benchmark.KeyBytes)
	if _, err := rand.Read(key); err != nil {
		return fmt.Errorf("make a key: %w", err)
	}
	m := &bench{env: env, flags: f, key: hex.EncodeToString(key), image: cmp.Or(set.Spec.Agent.Image, f.image, render.DefaultImage(env.Version))}
	out, err := m.measure(ctx, clusters, c.Fabric, namespace)
	if err != nil {
		return err
	}
	if f.output == "text" {
		_, err = env.Out.Write([]byte(out.text()))
	} else {
		err = env.Encode(f.output, out)
	}
	if err == nil && out.Pods.Error != "" {
		return cli.ExitError{}
	}
	return err
}

// exportableNamespace returns the name of a new namespace from which a cluster may export.
func exportableNamespace(f *fabric.Fabric, cluster string) (string, error) {
	const longest = 63 // maximum length of a namespace name (RFC 1123)
	if f.DynamicExports != nil {
		for _, pattern := range f.DynamicExports.Namespaces {
			name := strings.Replace(pattern, "*", kubeclient.RandomName("hawser-benchmark-"), 1)
			name = strings.ReplaceAll(name, "*", "")
			if name != pattern && len(name) <= longest && f.DynamicExports.Allows(name, cluster) {
				return name, nil
			}
		}
	}
	return "", fmt.Errorf("no pattern of spec.dynamicExports lets cluster %s export from a new namespace: add {namespaces: [hawser-benchmark-*], clusters: [%s]} to it and commit", cluster, cluster)
}

// bench is one run of the command.
type bench struct {
	env   *cli.Env
	flags benchmarkFlags
	key   string
	image string
}

// serverPort is the port of the server pod.
const serverPort = 5201

// measure runs the pods. It deletes them before it returns.
func (m *bench) measure(ctx context.Context, clusters []*kubeclient.Client, f *fabric.Fabric, namespace string) (benchmarked, error) {
	from, to := clusters[0], clusters[1]
	out := benchmarked{From: from.Name, To: to.Name}
	testPods := make([]*kubeclient.TestPods, 2)
	defer kubeclient.ForEach(clusters, func(i int, c *kubeclient.Client) {
		if testPods[i] == nil {
			return
		}
		if err := testPods[i].Cleanup(ctx); err != nil {
			m.env.LogCluster(c.Name, "pods of the benchmark may be left, in namespace "+namespace+": "+kubeclient.ErrorText(err))
		}
	})
	done := m.env.Progress("measuring from pod to pod")
	defer func() { done() }()
	var err error
	if testPods[1], err = to.StartPods(ctx, namespace, []kubeclient.TestPod{m.server("server", nil, serverPort)}); err == nil {
		err = testPods[1].Export(ctx, "server", serverPort)
	}
	if err != nil {
		return out, inCluster(to, err)
	}
	name := "server." + namespace + ".svc." + f.Domain
	if testPods[0], err = from.StartPods(ctx, namespace, []kubeclient.TestPod{m.client("client", nil, name, serverPort, replyTimeout)}); err != nil {
		return out, inCluster(from, err)
	}
	if out.Pods, err = m.result(ctx, testPods[0], "client"); err != nil {
		return out, inCluster(from, err)
	}
	done()
	near, far := &f.Cluster(from.Name).Gateways[0], &f.Cluster(to.Name).Gateways[0]
	at := ""
	if len(far.Endpoints) > 0 {
		if endpoint, err := fabric.ParseEndpoint(far.Endpoints[0]); err == nil {
			at = endpoint.Name
			if endpoint.Addr.IsValid() {
				at = endpoint.Addr.String()
			}
		}
	}
	switch {
	case m.flags.port == 0:
		out.Skipped = "--port is 0"
		return out, nil
	case at == "":
		out.Skipped = "gateway " + to.Name + "/" + far.Name + " has no endpoint"
		return out, nil
	}
	done = m.env.Progress("measuring between the gateway nodes, without Hawser")
	if err = testPods[1].Add(ctx, []kubeclient.TestPod{m.server("server-node", far, m.flags.port)}); err != nil {
		return out, inCluster(to, err)
	}
	if err = testPods[0].Add(ctx, []kubeclient.TestPod{m.client("client-node", near, at, m.flags.port, underlayTimeout)}); err != nil {
		return out, inCluster(from, err)
	}
	underlay, err := m.result(ctx, testPods[0], "client-node")
	switch {
	case ctx.Err() != nil:
		return out, context.Cause(ctx)
	case err != nil:
		out.Skipped = err.Error()
	case underlay.Error != "":
		out.Skipped = underlay.Error
	default:
		out.Underlay = &underlay
	}
	return out, nil
}

func inCluster(c *kubeclient.Client, err error) error {
	return fmt.Errorf("cluster %s: %s", c.Name, kubeclient.ErrorText(err))
}

// server returns the server pod. With a gateway, the pod is on the network of the gateway's node;
// the same applies to client.
func (m *bench) server(name string, gateway *fabric.Gateway, port int) kubeclient.TestPod {
	return m.testPod(name, gateway, "--listen", ":"+strconv.Itoa(port))
}

func (m *bench) client(name string, gateway *fabric.Gateway, host string, port int, wait time.Duration) kubeclient.TestPod {
	return m.testPod(name, gateway, "--to", net.JoinHostPort(host, strconv.Itoa(port)), "--for", m.flags.duration.String(),
		"--streams", strconv.Itoa(m.flags.streams), "--wait", wait.String())
}

func (m *bench) testPod(name string, gateway *fabric.Gateway, args ...string) kubeclient.TestPod {
	e := kubeclient.TestPod{Name: name, Image: m.image, Args: append([]string{"benchmark", "--key", m.key}, args...)}
	if gateway != nil {
		e.Node, e.NodeSelector = gateway.Node, gateway.NodeSelector
	}
	return e
}

const (
	replyTimeout        = time.Minute            // for the server's first reply, from the start of the client
	underlayTimeout     = 10 * time.Second       // replyTimeout on the underlay, where a firewall may drop packets
	resultsAfter        = 30 * time.Second       // for the results, in addition to the measurements
	resultsPollInterval = 500 * time.Millisecond // between two polls for the results
)

// result waits for the result that a client prints.
func (m *bench) result(ctx context.Context, e *kubeclient.TestPods, client string) (benchmark.Result, error) {
	ctx, cancel := context.WithTimeout(ctx, podTimeout+replyTimeout+3*m.flags.duration+resultsAfter)
	defer cancel()
	for {
		states, err := e.States(ctx)
		if err != nil {
			return benchmark.Result{}, err
		}
		state := states[client]
		var r benchmark.Result
		if len(state.Last) > 0 && json.Unmarshal(state.Last, &r) == nil && r.Target != "" {
			return r, nil
		}
		if state.Image {
			return r, errors.New("cannot pull the agent image: " + state.Reason)
		}
		select {
		case <-ctx.Done():
			return r, fmt.Errorf("pod %s has printed nothing: %s", client, cmp.Or(state.Reason, "it runs still"))
		case <-time.After(resultsPollInterval):
		}
	}
}

func (b benchmarked) text() string {
	if b.Pods.Error != "" {
		return fmt.Sprintf("from a pod of %s to a pod of %s: %s\n", b.From, b.To, b.Pods.Error)
	}
	t := &cli.Table{Title: "From " + b.From + " to " + b.To, Head: []string{"BETWEEN", "THROUGHPUT", "CONNECTIONS", "RTT (HALF)", "RTT (99 %)"}}
	row := func(name string, r benchmark.Result) {
		connections := fmt.Sprintf("%.0f/s", r.Connections)
		if r.Failed > 0 {
			connections += fmt.Sprintf(", %d failed", r.Failed)
		}
		micro := func(us float64) string { return time.Duration(us * 1000).Round(10 * time.Microsecond).String() }
		t.Rows = append(t.Rows, []string{name, fmt.Sprintf("%.0f Mbit/s", r.Throughput/1e6), connections, micro(r.RTT), micro(r.RTT99)})
	}
	row("pods, through Hawser", b.Pods)
	if b.Underlay == nil {
		return t.String() + "The underlay was not measured: " + b.Skipped + "\n"
	}
	row("gateway nodes, without Hawser", *b.Underlay)
	u := b.Underlay
	t.Rows = append(t.Rows, []string{"ratio", fmt.Sprintf("%.2f", b.Pods.Throughput/u.Throughput),
		fmt.Sprintf("%.2f", b.Pods.Connections/u.Connections), fmt.Sprintf("%.2f", b.Pods.RTT/u.RTT), fmt.Sprintf("%.2f", b.Pods.RTT99/u.RTT99)})
	return t.String()
}

// completeTwoClusters completes two different clusters.
func completeTwoClusters(cmd *cobra.Command, args []string, word string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 1 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	remaining := slices.DeleteFunc(clusterselect.CompletionNames(cmd, nil, word), func(name string) bool { return slices.Contains(args, name) })
	return remaining, cobra.ShellCompDirectiveNoFileComp
}
