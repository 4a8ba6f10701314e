//go:build kube

package mcs

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/remotecommand"
)

// Times of the upstream suite, so that what passes here passes there.
const (
	tick         = 100 * time.Millisecond
	importTime   = 20 * time.Second
	sliceTime    = 60 * time.Second
	answerTime   = 20 * time.Second
	steadyTime   = 5 * time.Second
	podTime      = 120 * time.Second
	createdApart = 1100 * time.Millisecond // creation is known to the second
)

// cluster is one member of the clusterset under test.
type cluster struct {
	name   string
	config *rest.Config
	kube   kubernetes.Interface
	dyn    dynamic.Interface
}

func connect(t *testing.T) []*cluster {
	t.Helper()
	var out []*cluster
	for _, name := range strings.Split(*contexts, ",") {
		loader := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(clientcmd.NewDefaultClientConfigLoadingRules(),
			&clientcmd.ConfigOverrides{CurrentContext: name})
		config, err := loader.ClientConfig()
		if err != nil {
			t.Fatalf("context %s: %v", name, err)
		}
		config.QPS, config.Burst = 50, 100
		c := &cluster{name: name, config: config}
		if c.kube, err = kubernetes.NewForConfig(config); err != nil {
			t.Fatal(err)
		}
		if c.dyn, err = dynamic.NewForConfig(config); err != nil {
			t.Fatal(err)
		}
		for _, kind := range []string{"serviceexports", "serviceimports"} {
			if _, err := c.dyn.Resource(mcsKind(kind)).List(t.Context(), metav1.ListOptions{}); err != nil {
				t.Fatalf("is the MCS API installed? list %s of %s: %v", kind, name, err)
			}
		}
		out = append(out, c)
	}
	return out
}

// bed is the world of one test: a namespace on every cluster.
type bed struct {
	*testing.T
	ctx      context.Context
	clusters []*cluster
	ns       string
}

func newBed(t *testing.T, clusters []*cluster) *bed {
	b := &bed{T: t, ctx: t.Context(), clusters: clusters, ns: fmt.Sprintf("mcs-conformance-%d", rand.Uint32())}
	for _, c := range clusters {
		namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: b.ns}}
		_, err := c.kube.CoreV1().Namespaces().Create(b.ctx, namespace, metav1.CreateOptions{})
		b.must(err)
		t.Cleanup(func() {
			if err := c.kube.CoreV1().Namespaces().Delete(context.Background(), b.ns, metav1.DeleteOptions{}); err != nil {
				t.Errorf("delete namespace %s of %s: %v", b.ns, c.name, err)
			}
		})
	}
	return b
}

func (b *bed) must(err error) {
	b.Helper()
	if err != nil {
		b.Fatal(err)
	}
}

// two gives the two exporters, or skips.
func (b *bed) two() (first, second *cluster) {
	if len(b.clusters) < 2 {
		b.Skip("needs two clusters")
	}
	return b.clusters[0], b.clusters[1]
}

// requesters starts a pod on every cluster that asks, and waits for it.
func (b *bed) requesters() {
	b.Helper()
	for _, c := range b.clusters {
		pod := &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Name: "request", Labels: map[string]string{"app": "request"}},
			Spec: corev1.PodSpec{Containers: []corev1.Container{{
				Name: "request", Image: "nicolaka/netshoot:v0.15", Command: []string{"/bin/sh", "-c", "while true; do sleep 3600; done"},
			}}},
		}
		_, err := c.kube.CoreV1().Pods(b.ns).Create(b.ctx, pod, metav1.CreateOptions{})
		b.must(err)
	}
	for _, c := range b.clusters {
		b.eventually(podTime, "the requesting pod of "+c.name+" runs", func() error {
			pod, err := c.kube.CoreV1().Pods(b.ns).Get(b.ctx, "request", metav1.GetOptions{})
			if err == nil && pod.Status.Phase != corev1.PodRunning {
				err = fmt.Errorf("it is %s", pod.Status.Phase)
			}
			return err
		})
	}
}

// exec runs a shell command in the requesting pod; what it prints counts, however
// it ends.
func (b *bed) exec(c *cluster, command string) string {
	b.Helper()
	request := c.kube.CoreV1().RESTClient().Post().Resource("pods").Namespace(b.ns).Name("request").SubResource("exec").
		VersionedParams(&corev1.PodExecOptions{Command: []string{"sh", "-c", command}, Stdout: true, Stderr: true}, scheme.ParameterCodec)
	executor, err := remotecommand.NewSPDYExecutor(c.config, "POST", request.URL())
	b.must(err)
	var out, trouble bytes.Buffer
	if err := executor.StreamWithContext(b.ctx, remotecommand.StreamOptions{Stdout: &out, Stderr: &trouble}); err != nil && out.Len() == 0 {
		return err.Error() + ": " + trouble.String()
	}
	return out.String()
}

// eventually waits until check gives no error.
func (b *bed) eventually(limit time.Duration, what string, check func() error) {
	b.Helper()
	b.repeatedly(limit, 1, what, check)
}

// repeatedly waits until check gives no error so often in a row, a second apart.
func (b *bed) repeatedly(limit time.Duration, times int, what string, check func() error) {
	b.Helper()
	deadline := time.Now().Add(limit)
	for good := 0; good < times; {
		err := check()
		if err == nil {
			if good++; good < times {
				b.pause(time.Second)
			}
			continue
		}
		good = 0
		if time.Now().After(deadline) {
			b.Fatalf("%s: not within %v: %v", what, limit, err)
		}
		b.pause(tick)
	}
}

// steadily fails when check gives an error at any time of steadyTime.
func (b *bed) steadily(what string, check func() error) {
	b.Helper()
	for end := time.Now().Add(steadyTime); time.Now().Before(end); b.pause(tick) {
		if err := check(); err != nil {
			b.Fatalf("%s: %v", what, err)
		}
	}
}

func (b *bed) pause(d time.Duration) {
	select {
	case <-b.ctx.Done():
		b.Fatal(b.ctx.Err())
	case <-time.After(d):
	}
}

// hello is the service that is exported, with all that an import takes from it.
func hello() *corev1.Service {
	seconds := int32(10)
	dual := corev1.IPFamilyPolicyPreferDualStack
	return &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{
			Name: "hello", Labels: map[string]string{"dummy-svc": "dummy"}, Annotations: map[string]string{"dummy-svc": "dummy"},
		},
		Spec: corev1.ServiceSpec{
			Selector: map[string]string{"app": "hello"},
			Ports: []corev1.ServicePort{
				{Name: "tcp", Port: 42, Protocol: corev1.ProtocolTCP},
				{Name: "udp", Port: 42, Protocol: corev1.ProtocolUDP},
			},
			SessionAffinity:       corev1.ServiceAffinityClientIP,
			SessionAffinityConfig: &corev1.SessionAffinityConfig{ClientIP: &corev1.ClientIPConfig{TimeoutSeconds: &seconds}},
			IPFamilyPolicy:        &dual,
		},
	}
}

// headless makes a service headless; it cannot have session affinity then, as an
// import compares it.
func headless(s *corev1.Service) *corev1.Service {
	s.Spec.ClusterIP = corev1.ClusterIPNone
	return s
}

// pods answer with their address and their cluster, as two clusters may have the same
// addresses.
func pods(c *cluster) corev1.PodTemplateSpec {
	container := func(name, listen string) corev1.Container {
		return corev1.Container{
			Name: name, Image: "alpine/socat:1.7.4.4", Args: []string{listen, "SYSTEM:echo pod ip $(POD_IP) of " + c.name},
			Command: []string{"socat"},
			Env: []corev1.EnvVar{{Name: "POD_IP", ValueFrom: &corev1.EnvVarSource{
				FieldRef: &corev1.ObjectFieldSelector{FieldPath: "status.podIP"},
			}}},
		}
	}
	return corev1.PodTemplateSpec{
		ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": "hello"}},
		Spec: corev1.PodSpec{Containers: []corev1.Container{
			container("tcp", "TCP-LISTEN:42,crlf,reuseaddr,fork"), container("udp", "UDP-LISTEN:42,crlf,reuseaddr,fork"),
		}},
	}
}

// deploy makes service and pods in a cluster.
func (b *bed) deploy(c *cluster, service *corev1.Service, replicas int32) {
	b.Helper()
	b.serve(c, service)
	_, err := c.kube.AppsV1().Deployments(b.ns).Create(b.ctx, &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: "hello"},
		Spec: appsv1.DeploymentSpec{
			Replicas: &replicas, Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "hello"}}, Template: pods(c),
		},
	}, metav1.CreateOptions{})
	b.must(err)
}

func (b *bed) serve(c *cluster, service *corev1.Service) {
	b.Helper()
	_, err := c.kube.CoreV1().Services(b.ns).Create(b.ctx, service, metav1.CreateOptions{})
	b.must(err)
}
