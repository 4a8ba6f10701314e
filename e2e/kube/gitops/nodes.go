//go:build kube

package gitops

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	core "k8s.io/api/core/v1"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
)

// Nodes imitates the scheduler and the kubelets of an API server without nodes, for pods of
// DaemonSets only. Each pod is bound to its node, runs and is ready, and ends when it is deleted.
type Nodes struct {
	client kubernetes.Interface
	mu     sync.Mutex
	down   map[string]bool
}

// StartNodes creates nodes and imitates them until the test ends. All are down at first.
func StartNodes(t testing.TB, kubeconfig string, names ...string) *Nodes {
	t.Helper()
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	n := &Nodes{client: client, down: map[string]bool{}}
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	for _, name := range names {
		n.down[name] = true
		node := &core.Node{ObjectMeta: meta.ObjectMeta{Name: name, Labels: map[string]string{core.LabelOSStable: "linux"}}}
		if _, err := client.CoreV1().Nodes().Create(ctx, node, meta.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	var wait sync.WaitGroup
	wait.Go(func() { n.run(ctx) })
	t.Cleanup(func() { cancel(); wait.Wait() })
	return n
}

// Set sets nodes up or down.
func (n *Nodes) Set(up bool, names ...string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, name := range names {
		n.down[name] = !up
	}
}

func (n *Nodes) run(ctx context.Context) {
	for ctx.Err() == nil {
		pods, err := n.client.CoreV1().Pods("").List(ctx, meta.ListOptions{})
		if err == nil {
			for i := range pods.Items {
				n.advancePod(ctx, &pods.Items[i])
			}
		}
		select {
		case <-ctx.Done():
		case <-time.After(200 * time.Millisecond):
		}
	}
}

// advancePod does the next step for a pod. A failed step is retried by the next call.
func (n *Nodes) advancePod(ctx context.Context, pod *core.Pod) {
	n.mu.Lock()
	down := n.down[target(pod)]
	n.mu.Unlock()
	pods := n.client.CoreV1().Pods(pod.Namespace)
	switch {
	case pod.DeletionTimestamp != nil && !down:
		now := int64(0)
		_ = pods.Delete(ctx, pod.Name, meta.DeleteOptions{GracePeriodSeconds: &now})
	case pod.Spec.NodeName == "" && pod.DeletionTimestamp == nil:
		_ = pods.Bind(ctx, &core.Binding{
			ObjectMeta: meta.ObjectMeta{Name: pod.Name, Namespace: pod.Namespace},
			Target:     core.ObjectReference{Kind: "Node", Name: target(pod)},
		}, meta.CreateOptions{})
	case pod.Spec.NodeName != "" && ready(pod) == down:
		pod.Status.Phase = core.PodRunning
		status := core.ConditionTrue
		if down {
			status = core.ConditionFalse
		}
		pod.Status.Conditions = []core.PodCondition{{Type: core.PodReady, Status: status, LastTransitionTime: meta.Now()}}
		_, _ = pods.UpdateStatus(ctx, pod, meta.UpdateOptions{})
	}
}

func ready(pod *core.Pod) bool {
	for _, c := range pod.Status.Conditions {
		if c.Type == core.PodReady {
			return c.Status == core.ConditionTrue
		}
	}
	return false
}

// target returns the node of a DaemonSet's pod.
func target(pod *core.Pod) string {
	if pod.Spec.NodeName != "" {
		return pod.Spec.NodeName
	}
	if a := pod.Spec.Affinity; a != nil && a.NodeAffinity != nil && a.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution != nil {
		for _, term := range a.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms {
			for _, f := range term.MatchFields {
				if f.Operator == core.NodeSelectorOpIn && len(f.Values) == 1 {
					return f.Values[0]
				}
			}
		}
	}
	return fmt.Sprintf("no node of pod %s", pod.Name)
}
