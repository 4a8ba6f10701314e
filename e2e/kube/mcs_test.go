//go:build kube

package kube

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"
)

// The specs of the Multi-Cluster Services conformance suite (sigs.k8s.io/mcs-api, conformance/), with
// its steps and its limits of time. docs/conformance.md has the numbers.
const (
	importTime  = 20 * time.Second // for ServiceImports, conditions, deletes, names and connections
	sliceTime   = 60 * time.Second // for EndpointSlices
	steadyTime  = 5 * time.Second  // for states that must not change
	olderByTime = 1100 * time.Millisecond
)

// slowEnv multiplies the times above, for a machine that is busy.
const slowEnv = "HAWSER_MCS_SLOW"

// spec is one of the 27 conformance specs.
type spec struct {
	number   int
	name     string
	optional bool
	// podAddresses reports whether the spec requires the pods' own addresses. Clusters with the same
	// prefixes cannot use them for each other.
	podAddresses bool
	run          func(c *conformance)
}

// TestMCS runs all specs on two flat clusters.
func TestMCS(t *testing.T) { runSpecs(t, flat) }

// TestMCSSamePrefixes runs the specs on two clusters with the same pod and Service CIDRs.
func TestMCSSamePrefixes(t *testing.T) { runSpecs(t, samePrefixes) }

// TestMCSDualStack runs the specs on two flat clusters of both families.
func TestMCSDualStack(t *testing.T) {
	opts := labOptions{flat: true, proxy: "nftables", families: "dual"}
	defer needClusterset(t, opts).down()
	runSpecs(t, opts)
}

func runSpecs(t *testing.T, opts labOptions) {
	s := needClusterset(t, opts)
	for _, c := range s.clusters {
		s.eventually(t, contains("No resources found"), "kubectl", "--context", c, "get", "serviceimports", "-n", "default")
	}
	for _, spec := range specs() {
		t.Run(fmt.Sprintf("%02d %s", spec.number, spec.name), func(t *testing.T) {
			if spec.podAddresses && !opts.flat {
				t.Skip("requires the pods' own addresses, which belong to other pods in the other cluster")
			}
			spec.run(newConformance(t, s))
		})
	}
}

func specs() []spec {
	return []spec{
		{number: 1, name: "a service that is not exported is not reachable", run: notExported},
		{number: 2, name: "an import exists as long as one cluster exports", run: importLives},
		{number: 3, name: "a ClusterIP service makes an import of type ClusterSetIP in each cluster", run: clusterSetIP},
		{number: 4, name: "an import has the session affinity of its service", run: affinity},
		{number: 5, name: "an import has the internal traffic policy of its service", run: internalPolicy},
		{number: 6, name: "an import has the traffic distribution of its service", run: distribution},
		{number: 7, name: "an import has an IP of each family", run: importIPs},
		{number: 8, name: "an import has the ports of its service", run: ports},
		{number: 9, name: "ports of all clusters are joined, which is a conflict", run: portUnion},
		{number: 10, name: "the oldest export wins a conflict of ports", run: portConflict},
		{number: 11, name: "a headless service makes an import of type Headless in each cluster", run: headlessImport},
		{number: 12, name: "a headless import has no IP", run: headlessIPs},
		{number: 13, name: "an ExternalName service is not valid", run: externalName},
		{number: 14, name: "the oldest export wins a conflict of types", run: typeConflict},
		{number: 15, name: "an import has only exported labels and annotations", optional: true, run: labels},
		{number: 16, name: "the oldest export wins a conflict of labels", optional: true, run: labelConflict},
		{number: 17, name: "an export makes EndpointSlices in each cluster", optional: true, run: endpointSlices},
		{number: 18, name: "the name of a service leads to its clusterset IP", optional: true, run: nameOfService},
		{number: 19, name: "SRV of a service", optional: true, run: srvOfService},
		{number: 20, name: "names of the cluster's own domain are local", optional: true, run: localNames},
		{number: 21, name: "an exported service is reached by its name", optional: true, run: reached},
		{number: 22, name: "a service that exists in two clusters is reached where it is exported", optional: true, run: reachedInOne},
		{number: 23, name: "one port name with two numbers", optional: true, run: strictNumber},
		{number: 24, name: "two ports, one in each cluster", optional: true, run: strictName},
		{number: 25, name: "the name of a headless service leads to its pods", optional: true, podAddresses: true, run: nameOfHeadless},
		{number: 26, name: "each pod of a StatefulSet has a name", optional: true, run: nameOfPod},
		{number: 27, name: "SRV of a headless service", optional: true, run: srvOfHeadless},
	}
}

// conformance is the fixture of one spec: a namespace in both clusters, with a
// client in each, and the service hello in the first.
type conformance struct {
	*clusterset
	t         *testing.T
	namespace string
	first     string
	second    string
	slow      time.Duration
}

func newConformance(t *testing.T, s *clusterset) *conformance {
	t.Helper()
	c := &conformance{
		clusterset: s, t: t, namespace: fmt.Sprintf("mcs-conformance-%d", rand.Uint32()), first: s.clusters[0], second: s.clusters[1], slow: 1,
	}
	if n, err := strconv.Atoi(os.Getenv(slowEnv)); err == nil && n > 0 {
		c.slow = time.Duration(n)
	}
	for _, cluster := range s.clusters {
		c.apply(t, cluster, "apiVersion: v1\nkind: Namespace\nmetadata: {name: "+c.namespace+"}\n")
		t.Cleanup(func() {
			ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), conditionTimeout)
			defer cancel()
			if t.Failed() {
				c.logObjects(ctx, cluster)
			}
			if _, err := c.try(ctx, "", "", "kubectl", "--context", cluster, "delete", "namespace", c.namespace, "--wait=false"); err != nil {
				t.Log(err)
			}
		})
	}
	for _, cluster := range s.clusters {
		c.eventually(t, contains("default"), "kubectl", "--context", cluster, "-n", c.namespace, "get", "serviceaccount", "default")
		c.applyIn(cluster, clientPod)
	}
	return c
}

// logObjects logs the objects of the namespace after a failed spec.
func (c *conformance) logObjects(ctx context.Context, cluster string) {
	out, _ := c.try(ctx, "", "", "kubectl", "--context", cluster, "-n", c.namespace, "get",
		"serviceexports,serviceimports,endpointslices,services,pods", "-o", "yaml", "--show-managed-fields=false")
	c.t.Logf("%s:\n%s", cluster, out)
}

const clientPod = `apiVersion: v1
kind: Pod
metadata: {name: request, labels: {app: request}}
spec:
  terminationGracePeriodSeconds: 0
  containers:
  - {name: request, image: "nicolaka/netshoot:v0.15", command: [sleep, infinity]}
`

// backends answer with their address on port 42, over TCP and UDP.
const backends = `
      terminationGracePeriodSeconds: 0
      containers:
      - name: hello-tcp
        image: alpine/socat:1.7.4.4
        command: [sh, -c, "exec socat -T 5 TCP-LISTEN:42,crlf,reuseaddr,fork 'SYSTEM:echo pod ip $POD_IP'"]
        env: &env [{name: POD_IP, valueFrom: {fieldRef: {fieldPath: status.podIP}}}]
        readinessProbe: {tcpSocket: {port: 42}, periodSeconds: 1}
      - name: hello-udp
        image: alpine/socat:1.7.4.4
        command: [sh, -c, "exec socat -T 5 UDP-LISTEN:42,crlf,reuseaddr,fork 'SYSTEM:echo pod ip $POD_IP'"]
        env: *env
`

func deployment(replicas int) string {
	return fmt.Sprintf(`apiVersion: apps/v1
kind: Deployment
metadata: {name: hello}
spec:
  replicas: %d
  selector: {matchLabels: {app: hello}}
  template:
    metadata: {labels: {app: hello}}
    spec:`, replicas) + backends
}

const statefulSet = `apiVersion: apps/v1
kind: StatefulSet
metadata: {name: hello-ss}
spec:
  replicas: 2
  serviceName: hello-ss
  selector: {matchLabels: {app: hello-ss}}
  template:
    metadata: {labels: {app: hello-ss}}
    spec:` + backends

// helloService returns the Service hello, with more lines in its spec.
func helloService(more ...string) string {
	spec := `
  selector: {app: hello}
  ipFamilyPolicy: PreferDualStack
`
	if !strings.Contains(strings.Join(more, ""), "ports:") {
		spec += `  ports:
  - {name: tcp, port: 42, protocol: TCP}
  - {name: udp, port: 42, protocol: UDP}
`
	}
	if !strings.Contains(strings.Join(more, ""), "sessionAffinity:") && !strings.Contains(strings.Join(more, ""), "clusterIP: None") {
		spec += "  sessionAffinity: ClientIP\n  sessionAffinityConfig: {clientIP: {timeoutSeconds: 10}}\n"
	}
	return `apiVersion: v1
kind: Service
metadata: {name: hello, labels: {dummy-svc: dummy}, annotations: {dummy-svc: dummy}}
spec:` + spec + indent(more)
}

func indent(lines []string) string {
	out := ""
	for _, line := range lines {
		out += "  " + line + "\n"
	}
	return out
}

func export(name string, spec ...string) string {
	out := `apiVersion: multicluster.x-k8s.io/v1beta1
kind: ServiceExport
metadata: {name: ` + name + `, labels: {dummy-svcexport: dummy}, annotations: {dummy-svcexport: dummy}}
`
	if len(spec) > 0 {
		out += "spec:\n" + indent(spec)
	}
	return out
}
