package observe

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"hawser.dev/hawser/internal/cli"
	"hawser.dev/hawser/internal/cli/agentquery"
	"hawser.dev/hawser/kubeclient"
	"hawser.dev/hawser/nodeagent/observe/verify"
	"hawser.dev/hawser/nodeagent/status"
)

const (
	podTimeout   = time.Minute // for the start of pods; their nodes already have the image
	podInterval  = 300 * time.Millisecond
	maxPodArgs   = 1 << 20 // bytes of the arguments of one pod; etcd limits its object to 1.5 MiB
	podProgram   = "podcheck"
	skipPodsHint = "add --from nodes to leave pods out"
)

// podRun is a run of hawser-agent in the pod network of nodes.
type podRun interface {
	// outputs returns the output of the programs, by cluster/node.
	outputs(ctx context.Context) (map[string]kubeclient.PodOutput, error)
	// stop removes all pods. It also works if ctx is done.
	stop(ctx context.Context)
}

// startPods runs hawser-agent in the pod network of every node whose agent responded. args returns
// its arguments; without arguments nothing runs on the node. The caller must call stop, even after
// an error.
func startPods(ctx context.Context, env *cli.Env, f verifyFlags, agents agentquery.Agents, nodes []agentquery.Response[status.Verification],
	args func(status.Verification) []string) (podRun, error) {
	if len(agents.Clusters) == 0 {
		return startLabPods(ctx, f, nodes, args)
	}
	r := &kubePods{env: env, clusters: agents.Clusters, pods: make([]*kubeclient.TestPods, len(agents.Clusters)),
		nodes: make([]map[string]string, len(agents.Clusters)), failed: make([]error, len(agents.Clusters))}
	kubeclient.ForEach(agents.Clusters, func(i int, c *kubeclient.Client) { r.start(ctx, i, c, nodes, args) })
	return r, ctx.Err()
}

// kubePods are short-lived pods. They need the rights of the kubeconfig's user and no rights of the
// agent: to enter the network of another pod, the agent would need CAP_SYS_ADMIN and the host's PID
// namespace.
type kubePods struct {
	env      *cli.Env
	clusters []*kubeclient.Client
	pods     []*kubeclient.TestPods
	nodes    []map[string]string // CLUSTER/NODE by name of the pod
	failed   []error
}

func (r *kubePods) start(ctx context.Context, i int, c *kubeclient.Client, nodes []agentquery.Response[status.Verification], args func(status.Verification) []string) {
	r.nodes[i] = map[string]string{}
	agents, err := c.AgentPods(ctx)
	if err != nil {
		r.failed[i] = err
		return
	}
	var list []kubeclient.TestPod
	for k := range agents {
		at := slices.IndexFunc(nodes, func(n agentquery.Response[status.Verification]) bool {
			return n.Agent == c.Name+"/"+agents[k].GetName()
		})
		if at < 0 {
			continue
		}
		list = r.add(list, i, &agents[k], nodes[at].Value, args)
	}
	if len(list) > 0 {
		r.pods[i], r.failed[i] = c.StartPods(ctx, kubeclient.RandomName("hawser-verify-"), list)
	}
}

// add adds the pod of one node, with the image of its agent.
func (r *kubePods) add(list []kubeclient.TestPod, i int, agent *unstructured.Unstructured, v status.Verification, args func(status.Verification) []string) []kubeclient.TestPod {
	of := args(v)
	if of == nil {
		return list
	}
	node, _, _ := unstructured.NestedString(agent.Object, "spec", "nodeName")
	containers, _, _ := unstructured.NestedSlice(agent.Object, "spec", "containers")
	image := ""
	for _, c := range containers {
		if c, _ := c.(map[string]any); c["name"] == kubeclient.AgentContainer {
			image, _ = c["image"].(string)
		}
	}
	name := "node-" + strconv.Itoa(len(list))
	r.nodes[i][name] = v.Cluster + "/" + v.Node
	return append(list, kubeclient.TestPod{Name: name, Node: node, PodNetwork: true, Image: image, Args: of})
}

func (r *kubePods) outputs(ctx context.Context) (map[string]kubeclient.PodOutput, error) {
	got := make([]map[string]kubeclient.PodOutput, len(r.clusters))
	errs := make([]error, len(r.clusters))
	kubeclient.ForEach(r.clusters, func(i int, _ *kubeclient.Client) {
		if r.failed[i] == nil && r.pods[i] != nil {
			got[i], errs[i] = r.pods[i].Outputs(ctx)
		}
	})
	out := map[string]kubeclient.PodOutput{}
	for i := range r.clusters {
		for pod, node := range r.nodes[i] {
			switch err := cmp.Or(r.failed[i], errs[i]); {
			case r.failed[i] != nil:
				out[node] = kubeclient.PodOutput{Ended: true, Reason: kubeclient.ErrorText(err)}
			case err != nil:
				out[node] = kubeclient.PodOutput{Reason: kubeclient.ErrorText(err)}
			default:
				out[node] = got[i][pod]
			}
		}
	}
	return out, ctx.Err()
}

func (r *kubePods) stop(ctx context.Context) {
	kubeclient.ForEach(r.clusters, func(i int, c *kubeclient.Client) {
		if r.pods[i] == nil {
			return
		}
		if err := r.pods[i].Cleanup(ctx); err != nil {
			r.env.LogCluster(c.Name, "pods of the verification may be left, in a namespace hawser-verify-...: "+kubeclient.ErrorText(err))
		}
	})
}

// verifyFromPods runs the checks of every node again from a pod on the node.
func verifyFromPods(ctx context.Context, env *cli.Env, f verifyFlags, agents agentquery.Agents, nodes []agentquery.Response[status.Verification]) ([]status.Verification, error) {
	defer env.Progress("connecting to every export from pods that are removed again")()
	remaining := map[string][]status.Check{} // checks beyond maxPodArgs, by cluster/node
	run, err := startPods(ctx, env, f, agents, nodes, func(v status.Verification) []string {
		args, rest := podArgs(v, f.timeout)
		remaining[v.Cluster+"/"+v.Node] = rest
		return args
	})
	if run != nil {
		defer run.stop(ctx)
	}
	if err != nil {
		return nil, err
	}
	end := time.Now().Add(podTimeout + verify.MaxDuration)
	for {
		outputs, err := run.outputs(ctx)
		if err != nil {
			return nil, err
		}
		timedOut := time.Now().After(end)
		var out []status.Verification
		for _, n := range nodes {
			key := n.Value.Cluster + "/" + n.Value.Node
			o, known := outputs[key]
			if !known {
				continue // no checks
			}
			if !o.Ended && !o.Image && !timedOut {
				break
			}
			out = append(out, podVerification(n.Value, o, remaining[key]))
		}
		if len(out) == len(outputs) {
			return out, nil
		}
		select {
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		case <-time.After(podInterval):
		}
	}
}

// podArgs returns the arguments of a pod that runs the checks of a node, and the checks that do not
// fit. It returns no arguments if there is nothing to test.
func podArgs(v status.Verification, timeout time.Duration) (args []string, rest []status.Check) {
	args = []string{podProgram, "--timeout", timeout.String()}
	for _, p := range v.Prefixes {
		args = append(args, "--prefix", p.String())
	}
	size, tested := 0, 0
	for _, r := range v.Results {
		if r.Skipped != "" {
			continue
		}
		raw, err := json.Marshal(r.Check)
		if size += len(raw); err != nil || size > maxPodArgs {
			rest = append(rest, r.Check)
			continue
		}
		tested++
		args = append(args, "--check", string(raw))
	}
	if tested == 0 && len(rest) == 0 {
		return nil, nil
	}
	return args, rest
}

// podVerification parses the output of a pod: one line per check.
func podVerification(node status.Verification, o kubeclient.PodOutput, remaining []status.Check) status.Verification {
	out := status.Verification{Cluster: node.Cluster, Node: node.Node, FromPod: true, Results: []status.Verified{}}
	want := map[string]bool{}
	for _, r := range node.Results {
		want[r.Name] = r.Skipped == ""
	}
	for _, c := range remaining {
		want[c.Name] = false
		out.Results = append(out.Results, status.Verified{Check: c, Unknown: "not tested: too many names for one pod (use --export)"})
	}
	var err error
	for _, line := range bytes.Split(o.Text, []byte("\n")) {
		var r status.Verified
		if e := json.Unmarshal(line, &r); e != nil || !want[r.Name] {
			err = cmp.Or(err, e, fmt.Errorf("unexpected line %.80q", line))
			continue
		}
		want[r.Name] = false
		out.Results = append(out.Results, r)
	}
	missing := 0
	for _, complete := range want {
		if complete {
			missing++
		}
	}
	switch {
	case missing == 0:
	case !o.Ended || len(o.Text) == 0 || o.Image:
		out.Problem = "the pod has printed nothing: " + cmp.Or(o.Reason, "it still runs") + " (" + skipPodsHint + ")"
	default:
		out.Problem = fmt.Sprintf("the pod printed no result of %d names: %s", missing, cmp.Or(o.Reason, errors.Join(err, errors.New("it ended early")).Error()))
	}
	return out
}
