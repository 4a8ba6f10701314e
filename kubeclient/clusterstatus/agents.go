package clusterstatus

import (
	"cmp"
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"hawser.dev/hawser/health"
	"hawser.dev/hawser/kubeclient"
	"hawser.dev/hawser/nodeagent/status"
	"hawser.dev/hawser/render"
	"hawser.dev/hawser/schema/fabric"
)

// linkUp is the state of a link that is up, as in the CRD of HawserNode.
const linkUp = "Up"

func HawserNodeKind() schema.GroupVersionKind {
	return schema.GroupVersionKind{Group: "hawser.dev", Version: "v1alpha1", Kind: "HawserNode"}
}

// Nodes returns the HawserNodes of a cluster, sorted by name.
func Nodes(ctx context.Context, c *kubeclient.Client) ([]health.Node, error) {
	items, err := c.List(ctx, HawserNodeKind(), "", "")
	if err != nil {
		return nil, err
	}
	var out []health.Node
	for i := range items {
		o := &items[i]
		stringField := func(fields ...string) string {
			out, _, _ := unstructured.NestedString(o.Object, append([]string{"status"}, fields...)...)
			return out
		}
		count := func(fields ...string) int64 {
			out, _, _ := unstructured.NestedInt64(o.Object, append([]string{"status"}, fields...)...)
			return out
		}
		n := health.Node{
			Name: o.GetName(), Cluster: stringField("cluster"), Role: stringField("role"), Gateway: stringField("gateway"), Version: stringField("version"), Fabric: stringField("fabric"),
			LinksUp: count("links", "up"), Links: count("links", "total"), Problems: problems(o),
			Ready: cmp.Or(kubeclient.ConditionStatus(o, "Ready"), "Unknown"), Drained: kubeclient.ConditionStatus(o, "DrainRequested") == "True",
		}
		if _, found, _ := unstructured.NestedMap(o.Object, "status", "nodeNetwork"); found {
			n.NodeNetwork = &health.NodePaths{
				Direct: count("nodeNetwork", "direct"), VXLAN: count("nodeNetwork", "vxlan"), Reason: stringField("nodeNetwork", "reason"),
			}
		}
		list, _, _ := unstructured.NestedSlice(o.Object, "status", "conditions")
		for _, item := range list {
			ready, ok := item.(map[string]any)
			if !ok || ready["type"] != "Ready" {
				continue
			}
			n.Reason, _ = ready["message"].(string)
			text, _ := ready["lastTransitionTime"].(string)
			if value, err := time.Parse(time.RFC3339, text); err == nil {
				n.Changed = value
			}
		}
		links, _, _ := unstructured.NestedSlice(o.Object, "status", "linkStates")
		for _, item := range links {
			link, _ := item.(map[string]any)
			cluster, _ := link["remoteCluster"].(string)
			gateway, _ := link["remoteGateway"].(string)
			remote := cluster + "/" + gateway
			if link["state"] != linkUp {
				if !slices.Contains(n.LinksDown, remote) {
					n.LinksDown = append(n.LinksDown, remote)
				}
				continue
			}
			if since := linkSince(link); !since.IsZero() && (n.UpSince[remote].IsZero() || since.Before(n.UpSince[remote])) {
				if n.UpSince == nil {
					n.UpSince = map[string]time.Time{}
				}
				n.UpSince[remote] = since
			}
			text, _ := link["endpoint"].(string)
			if value, err := netip.ParseAddrPort(text); err == nil {
				if n.Endpoints == nil {
					n.Endpoints = map[string][]netip.Addr{}
				}
				n.Endpoints[remote] = append(n.Endpoints[remote], value.Addr().Unmap())
			}
		}
		out = append(out, n)
	}
	slices.SortFunc(out, func(a, b health.Node) int { return cmp.Compare(a.Name, b.Name) })
	return out, nil
}

// problems returns the problems of a HawserNode. A field that violates the CRD is ignored.
func problems(o *unstructured.Unstructured) []status.Problem {
	list, _, _ := unstructured.NestedSlice(o.Object, "status", "problems")
	var out []status.Problem
	for _, item := range list {
		m, _ := item.(map[string]any)
		stringField := func(name string) string { text, _ := m[name].(string); return text }
		out = append(out, status.Problem{Code: stringField("code"), Severity: status.Severity(stringField("severity")), Text: stringField("text"), Next: stringField("next")})
	}
	return out
}

// linkSince returns when a link that is up came up; zero if unknown.
func linkSince(link map[string]any) time.Time {
	text, _ := link["since"].(string)
	at, err := time.Parse(time.RFC3339, text)
	if err != nil {
		return time.Time{}
	}
	return at
}

// nodeObject has the fields of a Node object that Read needs.
type nodeObject struct {
	notReady string
	addrs    []netip.Addr
}

// nodeObjects returns the Node objects by name.
func nodeObjects(ctx context.Context, c *kubeclient.Client) (map[string]nodeObject, error) {
	items, err := c.List(ctx, schema.GroupVersionKind{Version: "v1", Kind: "Node"}, "", "")
	if err != nil {
		return nil, unlessForbidden(err)
	}
	out := map[string]nodeObject{}
	for i := range items {
		var node nodeObject
		addrs, _, _ := unstructured.NestedSlice(items[i].Object, "status", "addresses")
		for _, item := range addrs {
			entry, _ := item.(map[string]any)
			text, _ := entry["address"].(string)
			if addr, err := netip.ParseAddr(text); err == nil {
				node.addrs = append(node.addrs, addr)
			}
		}
		list, _, _ := unstructured.NestedSlice(items[i].Object, "status", "conditions")
		for _, item := range list {
			ready, _ := item.(map[string]any)
			if ready["type"] != "Ready" || ready["status"] == "True" {
				continue
			}
			node.notReady = "NotReady"
			if since, _ := ready["lastTransitionTime"].(string); since != "" {
				node.notReady += " since " + since
			}
		}
		out[items[i].GetName()] = node
	}
	return out, nil
}

// gateways returns the gateways of a cluster that have a fixed node.
func gateways(f *fabric.Fabric, cluster string, nodes map[string]nodeObject) []health.Gateway {
	member := f.Cluster(cluster)
	if member == nil {
		return nil
	}
	var out []health.Gateway
	for i := range member.Gateways {
		g := health.Gateway{Name: member.Gateways[i].Name, Node: member.Gateways[i].Node, NodeAddrs: nodes[member.Gateways[i].Node].addrs}
		if g.Node == "" {
			continue
		}
		for _, text := range member.Gateways[i].Endpoints {
			e, err := fabric.ParseEndpoint(text)
			if err != nil || !e.Addr.IsValid() {
				g.Endpoints = nil
				break
			}
			g.Endpoints = append(g.Endpoints, e.Addr)
		}
		out = append(out, g)
	}
	return out
}

// agentPods returns the agents' pods that do not run, with the reasons of their containers. It also
// returns the running pods that are not ready, with the time since when.
func agentPods(ctx context.Context, c *kubeclient.Client) (stopped, notReady []health.Pod, err error) {
	items, err := c.List(ctx, schema.GroupVersionKind{Version: "v1", Kind: "Pod"}, render.Namespace, "")
	if err != nil {
		return nil, nil, unlessForbidden(err)
	}
	for i := range items {
		switch pod, ok := PodOf(&items[i]); {
		case !ok:
		case pod.Stopped:
			stopped = append(stopped, pod.Pod)
		case !pod.Ready:
			notReady = append(notReady, pod.Pod)
		}
	}
	byNode := func(a, b health.Pod) int { return cmp.Or(cmp.Compare(a.Node, b.Node), cmp.Compare(a.Name, b.Name)) }
	slices.SortFunc(stopped, byNode)
	slices.SortFunc(notReady, byNode)
	return stopped, notReady, nil
}

// AgentPod is the state of an agent's pod. Reason is empty if the pod is ready.
type AgentPod struct {
	health.Pod
	Stopped bool // a container does not run
	Ready   bool
}

// PodOf returns the state of an agent's pod. It reports false for pods that are terminating or not
// of a DaemonSet.
func PodOf(o *unstructured.Unstructured) (AgentPod, bool) {
	var pod corev1.Pod
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, &pod); err != nil {
		return AgentPod{}, false
	}
	owner := metav1.GetControllerOf(&pod)
	if owner == nil || owner.Kind != kubeclient.KindDaemonSet || pod.DeletionTimestamp != nil {
		return AgentPod{}, false
	}
	out := AgentPod{Pod: health.Pod{Name: pod.Name, Node: pod.Spec.NodeName, Reason: stoppedReason(&pod)}, Ready: true}
	if out.Reason != "" {
		out.Stopped, out.Ready = true, false
		return out, true
	}
	for _, condition := range pod.Status.Conditions {
		if condition.Type == corev1.PodReady && condition.Status != corev1.ConditionTrue {
			out.Ready, out.Reason = false, "since "+condition.LastTransitionTime.UTC().Format(time.RFC3339)
		}
	}
	return out, true
}

// stoppedReason returns why a pod does not run; empty if all its containers run.
func stoppedReason(pod *corev1.Pod) string {
	images := map[string]string{}
	for _, c := range slices.Concat(pod.Spec.InitContainers, pod.Spec.Containers) {
		images[c.Name] = c.Image
	}
	for _, s := range slices.Concat(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses) {
		switch {
		case s.State.Waiting != nil && strings.Contains(s.State.Waiting.Reason, "Image"):
			return s.State.Waiting.Reason + " " + images[s.Name]
		case s.State.Waiting != nil && s.State.Waiting.Reason != "" && s.State.Waiting.Reason != "PodInitializing":
			reason := s.State.Waiting.Reason
			if last := s.LastTerminationState.Terminated; last != nil {
				reason += fmt.Sprintf(", the last run ended with code %d", last.ExitCode)
			}
			return reason
		}
	}
	if pod.Status.Phase != corev1.PodRunning {
		for _, c := range pod.Status.Conditions {
			if c.Type == corev1.PodScheduled && c.Status != corev1.ConditionTrue {
				return strings.TrimSuffix(c.Reason+": "+c.Message, ": ")
			}
		}
		return "pod is " + cmp.Or(string(pod.Status.Phase), "Pending")
	}
	return ""
}

// rollout is the rollout progress of a DaemonSet.
type rollout struct {
	name                        string
	desired, updated, available int64
	observed                    bool // whether the controller observed the newest version
}

func DaemonSetKind() schema.GroupVersionKind {
	return schema.GroupVersionKind{Group: "apps", Version: "v1", Kind: kubeclient.KindDaemonSet}
}

// rollouts returns the rollouts of Hawser's DaemonSets.
func rollouts(ctx context.Context, c *kubeclient.Client) ([]rollout, error) {
	items, err := c.List(ctx, DaemonSetKind(), render.Namespace, "")
	if err != nil {
		return nil, err
	}
	var out []rollout
	for i := range items {
		count := func(name string) int64 {
			n, _, _ := unstructured.NestedInt64(items[i].Object, "status", name)
			return n
		}
		out = append(out, rollout{
			name: items[i].GetName(), desired: count("desiredNumberScheduled"), updated: count("updatedNumberScheduled"),
			available: count("numberAvailable"), observed: count("observedGeneration") >= items[i].GetGeneration(),
		})
	}
	return out, nil
}

// WaitReady waits until the agents run and are ready with the fabric of a digest. It returns the
// last progress, even on an error.
func WaitReady(ctx context.Context, c *kubeclient.Client, digest string, timeout time.Duration, report func(string)) (string, error) {
	last := ""
	err := kubeclient.Poll(ctx, timeout, func(ctx context.Context) (bool, error) {
		now, done, err := progress(ctx, c, digest)
		if err != nil {
			return false, nil // ignore errors: the API server may restart meanwhile
		}
		if now != last && !done {
			report(now)
		}
		last = now
		return done, nil
	})
	if err != nil {
		return last, fmt.Errorf("waited %s: %s", timeout, cmp.Or(last, "the API gave no answer"))
	}
	return last, nil
}

// progress returns the progress of a cluster towards a fabric, and whether it is complete.
func progress(ctx context.Context, c *kubeclient.Client, digest string) (string, bool, error) {
	daemonSets, err := rollouts(ctx, c)
	if err != nil {
		return "", false, err
	}
	nodes, err := Nodes(ctx, c)
	if err != nil {
		return "", false, err
	}
	var pods, running int64
	done := len(daemonSets) > 0
	for _, s := range daemonSets {
		pods, running = pods+s.desired, running+min(s.updated, s.available)
		done = done && s.observed && s.updated >= s.desired && s.available >= s.desired
	}
	onDigest, ready := int64(0), int64(0)
	for _, n := range nodes {
		if n.Fabric == digest {
			onDigest++
		}
		if n.Fabric == digest && n.Ready == "True" {
			ready++
		}
	}
	text := fmt.Sprintf("%d of %d agents run, %d follow fabric %s, %d are ready", running, pods, onDigest, digest, ready)
	return text, done && ready >= pods, nil
}
