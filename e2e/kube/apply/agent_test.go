//go:build kube

package apply

import (
	"encoding/base64"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"hawser.dev/hawser/e2e/kube/api"
	"hawser.dev/hawser/schema/fabric"
)

// agent imitates a node's agent as the API shows it: a pod, and a HawserNode that reports the
// fabric's digest.
type agent struct {
	server     *api.Server
	cluster    string
	node, role string
	mu         sync.Mutex
	stuck      bool // the agent does not become ready with a fabric that removes its cluster
}

const podOf = `apiVersion: v1
kind: Pod
metadata: {name: agent-%[1]s, namespace: hawser-system, labels: {app.kubernetes.io/part-of: hawser}}
spec: {nodeName: %[1]s, containers: [{name: agent, image: none}]}
`

// startAgent runs an agent until the test ends or the DaemonSets are deleted.
func startAgent(t *testing.T, server *api.Server, cluster, node, role string) *agent {
	t.Helper()
	a := &agent{server: server, cluster: cluster, node: node, role: role}
	server.Apply(t, fmt.Sprintf(podOf, node))
	server.Apply(t, fmt.Sprintf("apiVersion: hawser.dev/v1alpha1\nkind: HawserNode\nmetadata: {name: %s}\n", node))
	ended, end := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		for a.update() {
			select {
			case <-end:
				return
			case <-time.After(300 * time.Millisecond):
			}
		}
	}()
	t.Cleanup(func() { close(end); <-ended })
	return a
}

func (a *agent) set(stuck bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.stuck = stuck
}

// update writes the HawserNode. It reports false after the agent's DaemonSet is deleted.
func (a *agent) update() bool {
	if sets, err := a.server.Try("-n", "hawser-system", "get", "daemonsets", "-o", "name"); err == nil && !strings.Contains(sets, "/") {
		_, _ = a.server.Try("-n", "hawser-system", "delete", "pod", "agent-"+a.node, "--force", "--grace-period=0")
		return false
	}
	text, err := a.server.Try("-n", "hawser-system", "get", "configmap", "hawser-fabric", "-o", `jsonpath={.binaryData.fabric\.json\.gz}`)
	if err != nil {
		return true
	}
	packed, err := base64.StdEncoding.DecodeString(text)
	if err != nil {
		return true
	}
	f, digest, err := fabric.Decode(packed)
	if err != nil {
		return true
	}
	a.mu.Lock()
	stuck := a.stuck
	a.mu.Unlock()
	ready := "True"
	if f.Decommission && stuck {
		ready = "False"
	}
	status := fmt.Sprintf(`{"status":{"cluster":%q,"role":%q,"version":"test","fabric":%q,"links":{"up":1,"total":1},
"conditions":[{"type":"Ready","status":%q,"reason":"Test","message":%q,"lastTransitionTime":"2026-01-02T03:04:05Z"}]}}`,
		a.cluster, a.role, digest, ready, map[string]string{"False": "a link does not go"}[ready])
	_, _ = a.server.Try("patch", "hawsernode", a.node, "--subresource=status", "--type=merge", "--field-manager=hawser", "-p", status)
	return true
}
