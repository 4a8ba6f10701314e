package kubeclient

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	kerrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// TestPods are short-lived pods in their own namespace. It is not safe for concurrent use.
type TestPods struct {
	cluster   *Client
	namespace string
	names     []string
}

// TestPod is the specification of a test pod.
type TestPod struct {
	Name string // name of the pod, and its label app
	// Node is the node of the pod. Alternatively NodeSelector selects a different node for each
	// pod. The pod uses the node's network unless PodNetwork is set. Without Node and
	// NodeSelector it runs on any node and has its own address.
	Node         string
	NodeSelector map[string]string
	PodNetwork   bool // an address and the name servers of pods, without any privileges
	Image        string
	Args         []string // arguments of hawser-agent
}

// PodState is the state of a test pod.
type PodState struct {
	Running bool
	// Reason is why the pod does not run. Image reports whether the image is the reason.
	Reason string
	Image  bool
	Last   []byte // last line of its output
}

// testPodLifetime is the lifetime of pods that are not deleted.
const testPodLifetime = 10 * time.Minute

// RandomName returns the prefix with a random suffix.
func RandomName(prefix string) string { return prefix + strings.ToLower(rand.Text()[:8]) }

// StartPods starts pods in a namespace that it creates. The caller must call Cleanup, even after an
// error.
func (c *Client) StartPods(ctx context.Context, namespace string, list []TestPod) (*TestPods, error) {
	e := &TestPods{cluster: c, namespace: namespace}
	object := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1", "kind": KindNamespace,
		"metadata": map[string]any{"name": e.namespace, "labels": map[string]any{"pod-security.kubernetes.io/enforce": "privileged"}},
	}}
	if err := c.create(ctx, object); err != nil {
		return e, err
	}
	return e, e.Add(ctx, list)
}

// Add starts additional pods.
func (e *TestPods) Add(ctx context.Context, list []TestPod) error {
	for _, testPod := range list {
		e.names = append(e.names, testPod.Name)
		pod := testPod.pod(e.namespace)
		err := Poll(ctx, serviceAccountTimeout, func(ctx context.Context) (bool, error) {
			err := e.cluster.create(ctx, pod)
			if kerrors.IsForbidden(err) && strings.Contains(err.Error(), "serviceaccount") {
				return false, nil // retry: a controller creates it soon
			}
			return err == nil, err
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// Export exports a TCP port of one of the pods to the other clusters, under the pod's name.
func (e *TestPods) Export(ctx context.Context, pod string, port int) error {
	meta := map[string]any{"name": pod, "namespace": e.namespace}
	for _, object := range []map[string]any{
		{"apiVersion": "v1", "kind": "Service", "metadata": meta, "spec": map[string]any{
			"selector": map[string]any{"app": pod},
			"ports":    []any{map[string]any{"port": int64(port), "protocol": "TCP"}},
		}},
		{"apiVersion": "multicluster.x-k8s.io/v1beta1", "kind": "ServiceExport", "metadata": meta},
	} {
		if err := e.cluster.create(ctx, &unstructured.Unstructured{Object: object}); err != nil {
			return err
		}
	}
	return nil
}

// serviceAccountTimeout bounds the wait for the service account of a new namespace, which a
// controller creates.
const serviceAccountTimeout = 20 * time.Second

// podUser is the user and group of pods in the pod network.
const podUser = int64(65534)

// pod returns the object of the pod. Its only privilege is NET_BIND_SERVICE; in the pod network it
// has none.
func (e TestPod) pod(namespace string) *unstructured.Unstructured {
	args := make([]any, len(e.Args))
	for i, arg := range e.Args {
		args[i] = arg
	}
	spec := map[string]any{
		"restartPolicy": "Never", "enableServiceLinks": false,
		"automountServiceAccountToken": false, "terminationGracePeriodSeconds": int64(0),
		"activeDeadlineSeconds": int64(testPodLifetime / time.Second),
		"containers": []any{map[string]any{
			"name": AgentContainer, "image": e.Image, "command": []any{agentProgram}, "args": args,
			"resources": map[string]any{"requests": map[string]any{"cpu": "10m", "memory": "16Mi"}},
			"securityContext": map[string]any{
				"allowPrivilegeEscalation": false, "readOnlyRootFilesystem": true,
				"capabilities": map[string]any{"drop": []any{"ALL"}, "add": []any{"NET_BIND_SERVICE"}},
			},
		}},
	}
	labels := map[string]any{"app": e.Name}
	switch {
	case e.PodNetwork:
		spec["nodeName"], spec["tolerations"] = e.Node, []any{map[string]any{"operator": "Exists"}}
		spec["securityContext"] = map[string]any{
			"runAsNonRoot": true, "runAsUser": podUser, "runAsGroup": podUser, "seccompProfile": map[string]any{"type": "RuntimeDefault"},
		}
		container, _ := spec["containers"].([]any)[0].(map[string]any)
		container["securityContext"] = map[string]any{
			"allowPrivilegeEscalation": false, "readOnlyRootFilesystem": true, "capabilities": map[string]any{"drop": []any{"ALL"}},
		}
	case e.Node != "":
		spec["nodeName"], spec["hostNetwork"], spec["tolerations"] = e.Node, true, []any{map[string]any{"operator": "Exists"}}
	case len(e.NodeSelector) > 0:
		selector := map[string]any{}
		for key, value := range e.NodeSelector {
			selector[key] = value
		}
		spec["nodeSelector"], spec["hostNetwork"] = selector, true
		labels["picked"] = "true"
		spec["affinity"] = map[string]any{"podAntiAffinity": map[string]any{"requiredDuringSchedulingIgnoredDuringExecution": []any{map[string]any{
			"labelSelector": map[string]any{"matchLabels": map[string]any{"picked": "true"}}, "topologyKey": "kubernetes.io/hostname",
		}}}}
	}
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1", "kind": "Pod",
		"metadata": map[string]any{"name": e.Name, "namespace": namespace, "labels": labels},
		"spec":     spec,
	}}
}

// States returns the states of the pods by name.
func (e *TestPods) States(ctx context.Context) (map[string]PodState, error) {
	list, err := e.cluster.List(ctx, PodKind(), e.namespace, "")
	if err != nil {
		return nil, err
	}
	out := map[string]PodState{}
	for _, name := range e.names {
		out[name] = PodState{Reason: "the pod was deleted"}
	}
	for i := range list {
		name := list[i].GetName()
		state := stateOf(&list[i])
		if state.Running {
			state.Last, err = e.log(ctx, name, "tailLines", "1")
			if err != nil && ctx.Err() == nil {
				state.Reason = err.Error()
			}
		}
		out[name] = state
	}
	return out, ctx.Err()
}

// PodOutput is the output of a test pod, or the reason why it is missing.
type PodOutput struct {
	Ended  bool
	Text   []byte // all output, at most maxOutput bytes; the last line while it runs
	Reason string
	Image  bool // the image is the reason
}

// maxOutput bounds the output of a test pod, in bytes.
const maxOutput = 16 << 20

// Outputs returns the outputs of the pods by name.
func (e *TestPods) Outputs(ctx context.Context) (map[string]PodOutput, error) {
	list, err := e.cluster.List(ctx, PodKind(), e.namespace, "")
	if err != nil {
		return nil, err
	}
	out := map[string]PodOutput{}
	for _, name := range e.names {
		out[name] = PodOutput{Ended: true, Reason: "the pod was deleted"}
	}
	for i := range list {
		name, state := list[i].GetName(), stateOf(&list[i])
		phase, _, _ := unstructured.NestedString(list[i].Object, "status", "phase")
		o := PodOutput{Reason: state.Reason, Image: state.Image, Ended: phase == "Succeeded" || phase == "Failed"}
		switch {
		case o.Ended:
			o.Text, err = e.log(ctx, name, "limitBytes", strconv.Itoa(maxOutput))
		case state.Running:
			o.Text, err = e.log(ctx, name, "tailLines", "1")
		}
		if err != nil && ctx.Err() == nil {
			o.Reason = ErrorText(err)
		}
		out[name] = o
	}
	return out, ctx.Err()
}

// stateOf returns the state of a pod, with the reason if it does not run.
func stateOf(pod *unstructured.Unstructured) PodState {
	phase, _, _ := unstructured.NestedString(pod.Object, "status", "phase")
	list, _, _ := unstructured.NestedSlice(pod.Object, "status", "containerStatuses")
	for _, item := range list {
		status, _ := item.(map[string]any)
		reason, _, _ := unstructured.NestedString(status, "state", "waiting", "reason")
		message, _, _ := unstructured.NestedString(status, "state", "waiting", "message")
		switch reason {
		case "ErrImagePull", "ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull", "RegistryUnavailable", "ImageInspectError":
			return PodState{Reason: strings.TrimSpace(reason + ": " + message), Image: true}
		case "":
		default:
			return PodState{Reason: strings.TrimSpace(reason + ": " + message)}
		}
	}
	podReason, _, _ := unstructured.NestedString(pod.Object, "status", "message")
	if reason, _, _ := unstructured.NestedString(pod.Object, "status", "reason"); podReason == "" {
		podReason = reason
	}
	if phase == "Running" || phase == "Succeeded" || phase == "Failed" {
		return PodState{Running: true, Reason: podReason}
	}
	if podReason == "" {
		podReason = "it is " + strings.ToLower(phase)
	}
	return PodState{Reason: podReason}
}

// log reads the log of a pod with one API parameter.
func (e *TestPods) log(ctx context.Context, pod, parameter, value string) ([]byte, error) {
	request, err := e.cluster.Request(requestTimeout)
	if err != nil {
		return nil, err
	}
	raw, err := request.AbsPath("/api/v1/namespaces", e.namespace, "pods", pod, "log").
		Param("container", AgentContainer).Param(parameter, value).DoRaw(ctx)
	if err != nil {
		return nil, fmt.Errorf("read the log of pod %s: %w", pod, err)
	}
	return bytes.TrimSpace(raw), nil
}

// Cleanup deletes the pods and their namespace, even if some were not created. ctx may be done. It
// waits until everything is deleted, for a minute at most.
func (e *TestPods) Cleanup(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Minute)
	defer cancel()
	var errs []error
	for _, name := range e.names { // the namespace controller takes half a minute longer
		errs = append(errs, e.cluster.Delete(ctx, ID{Version: "v1", Kind: "Pod", Namespace: e.namespace, Name: name}, ""))
	}
	id := ID{Version: "v1", Kind: KindNamespace, Name: e.namespace}
	if err := errors.Join(append(errs, e.cluster.Delete(ctx, id, ""))...); err != nil {
		return err
	}
	return Poll(ctx, time.Minute, func(ctx context.Context) (bool, error) {
		o, err := e.cluster.Get(ctx, id)
		return o == nil && err == nil, err
	})
}
