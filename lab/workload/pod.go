package workload

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// ReadyAnnotation makes a pod unready if its value is "false".
const ReadyAnnotation = "hawser.dev/lab-ready"

// CommandAnnotation is a program of this machine that the pod runs, with its arguments, separated
// by spaces. The program serves the pod's ports instead of the lab.
const CommandAnnotation = "hawser.dev/lab-command"

// Pod is a desired pod.
type Pod struct {
	Namespace   string
	Name        string
	Owner       string // Kind/name of its controller; empty for a bare Pod
	Labels      map[string]string
	Annotations map[string]string
	NodeName    string            // from the manifest; empty = any node
	NodeLabels  map[string]string // labels that the node must have, unless NodeName is set
	HostNetwork bool
	Hostname    string // with Subdomain: its DNS label below a headless Service
	Subdomain   string
	Ports       []ContainerPort
	Gates       int // number of readiness gates
}

// ContainerPort is a port that the pod serves.
type ContainerPort struct {
	Name     string
	Protocol string // TCP | UDP
	Number   int
}

// ID returns namespace/name.
func (p *Pod) ID() string { return p.Namespace + "/" + p.Name }

// Command returns the program of the pod; empty if the lab serves its ports.
func (p *Pod) Command() []string { return strings.Fields(p.Annotations[CommandAnnotation]) }

// WantsReady reports whether the pod becomes ready by itself. No controller of the lab sets the
// conditions of readiness gates.
func (p *Pod) WantsReady() bool { return p.Annotations[ReadyAnnotation] != "false" && p.Gates == 0 }

// Pods returns the pods of the set, sorted by ID. running maps the IDs of the current pods to their
// owners, so that a Deployment reuses the names of its pods.
func (s *Set) Pods(running map[string]string) []Pod {
	var pods []Pod
	taken := map[string]bool{}
	for _, o := range s.Objects() {
		switch {
		case o.Pod != nil:
			pods = append(pods, fromPod(o.Pod.Spec, o.Key, o.Pod.Labels, o.Pod.Annotations))
		case o.StatefulSet != nil:
			pods = append(pods, ordinals(o)...)
		}
	}
	for i := range pods {
		taken[pods[i].ID()] = true
	}
	for _, o := range s.Objects() {
		if o.Deployment == nil {
			continue
		}
		template := o.Deployment.Spec.Template
		for _, name := range names(o, running, taken) {
			pod := fromPod(template.Spec, Key{Namespace: o.Key.Namespace, Name: name}, template.Labels, template.Annotations)
			pod.Owner = "Deployment/" + o.Key.Name
			taken[pod.ID()] = true
			pods = append(pods, pod)
		}
	}
	slices.SortFunc(pods, func(a, b Pod) int { return cmp.Compare(a.ID(), b.ID()) })
	return slices.CompactFunc(pods, func(a, b Pod) bool { return a.ID() == b.ID() })
}

// ordinals returns the pods of a StatefulSet: name-0, name-1, ..., or starting at
// spec.ordinals.start.
func ordinals(o Object) []Pod {
	var pods []Pod
	spec := o.StatefulSet.Spec
	start := 0
	if spec.Ordinals != nil {
		start = int(spec.Ordinals.Start)
	}
	for i := range replicas(spec.Replicas) {
		number := strconv.Itoa(start + i)
		pod := fromPod(spec.Template.Spec, Key{Namespace: o.Key.Namespace, Name: o.Key.Name + "-" + number},
			spec.Template.Labels, spec.Template.Annotations)
		pod.Owner = "StatefulSet/" + o.Key.Name
		pod.Labels = maps.Clone(pod.Labels)
		pod.Labels["statefulset.kubernetes.io/pod-name"] = pod.Name
		pod.Labels["apps.kubernetes.io/pod-index"] = number
		pod.Hostname, pod.Subdomain = pod.Name, spec.ServiceName
		pods = append(pods, pod)
	}
	return pods
}

// names returns the names of a Deployment's pods: names of running pods, then the lowest free
// numbers from 1. Names of bare pods and of StatefulSets' pods are not free.
func names(o Object, running map[string]string, taken map[string]bool) []string {
	want := replicas(o.Deployment.Spec.Replicas)
	prefix := o.Key.Name + "-"
	var numbers []int
	for id, owner := range running {
		suffix, owned := strings.CutPrefix(id, o.Key.Namespace+"/"+prefix)
		number, err := strconv.Atoi(suffix)
		if owned && err == nil && owner == "Deployment/"+o.Key.Name && !taken[id] {
			numbers = append(numbers, number)
		}
	}
	slices.Sort(numbers)
	numbers = numbers[:min(want, len(numbers))]
	for next := 1; len(numbers) < want; next++ {
		id := o.Key.Namespace + "/" + prefix + strconv.Itoa(next)
		if !taken[id] && !slices.Contains(numbers, next) {
			numbers = append(numbers, next)
		}
	}
	out := make([]string, 0, want)
	for _, number := range numbers {
		out = append(out, fmt.Sprintf("%s%d", prefix, number))
	}
	return out
}

func replicas(n *int32) int {
	if n == nil {
		return 1 // the API server's default
	}
	return int(max(*n, 0))
}

func fromPod(spec corev1.PodSpec, key Key, labels, annotations map[string]string) Pod {
	pod := Pod{
		Namespace: key.Namespace, Name: key.Name, Labels: labels, Annotations: annotations,
		NodeName: spec.NodeName, NodeLabels: spec.NodeSelector, HostNetwork: spec.HostNetwork,
		Hostname: spec.Hostname, Subdomain: spec.Subdomain, Gates: len(spec.ReadinessGates),
	}
	containers := slices.Clone(spec.Containers)
	for _, c := range spec.InitContainers {
		if c.RestartPolicy != nil && *c.RestartPolicy == corev1.ContainerRestartPolicyAlways { // a sidecar container
			containers = append(containers, c)
		}
	}
	for _, container := range containers {
		for _, port := range container.Ports {
			pod.Ports = append(pod.Ports, ContainerPort{
				Name: port.Name, Protocol: cmp.Or(string(port.Protocol), "TCP"), Number: int(port.ContainerPort),
			})
		}
	}
	return pod
}

// ListenPorts returns the distinct ports on which the lab listens for the pod. The lab does not
// serve SCTP, and no ports of a pod that runs a program.
func (p *Pod) ListenPorts() []ContainerPort {
	var out []ContainerPort
	if len(p.Command()) > 0 {
		return nil
	}
	for _, port := range p.Ports {
		same := func(o ContainerPort) bool { return o.Protocol == port.Protocol && o.Number == port.Number }
		if (port.Protocol == "TCP" || port.Protocol == "UDP") && !slices.ContainsFunc(out, same) {
			out = append(out, port)
		}
	}
	return out
}
