//go:build kube

package kube

import (
	"context"
	"fmt"
	"strings"
	"testing"
)

// TestPolicy tests a foreign rule in a node's forward hook that drops the clusterset's packets, like a
// NetworkPolicy: on the client's node and on the server's. The diagnosis names the rule and the
// remedy, and Hawser does not change the rule.
func TestPolicy(t *testing.T) {
	s := needClusterset(t, samePrefixes)
	s.awaitAnswer(t, "c1", "near", "c2."+serviceName, fromCluster("c2"))
	target := s.awaitAddresses(t, "c1", "near", "traffic.sample.svc.clusterset.local", 1)[0] + ":7000"
	pod := strings.TrimSpace(s.kubectl(t, "c2", "-n", "sample", "get", "pod", "traffic", "-o", "jsonpath={.status.podIP}"))
	near, client := s.podNetwork(t, "c1", "near"), s.podNetwork(t, "c1", "client")
	for _, tt := range []struct {
		node, cluster, rule, flow string
		client                    netCommand
	}{
		{"c1n2", "c1", "ip daddr 242.0.0.0/8 drop", "-> " + target, client},
		{"c2n2", "c2", "ip daddr " + pod + " drop", "-> " + pod + ":7000", near},
	} {
		t.Run(tt.node, func(t *testing.T) {
			tries := s.startStream(t, tt.client, "new", "--rate", "5", "--timeout", "1s", target)
			node := []string{"kubelab", "--dir", s.clusterPair.dir, "node", tt.node}
			table := "table inet policies {\n chain forward {\n  type filter hook forward priority 0; policy accept;\n  " + tt.rule + "\n }\n}\n"
			s.must(t, table, append(node, "nft", "-f", "-")...)
			drop := append(node, "nft", "delete", "table", "inet", "policies")
			t.Cleanup(func() { _, _ = s.try(context.Background(), "", "", drop...) })
			diagnose := strings.Join(inPod(tt.cluster, "hawser-system/"+s.agentOn(t, tt.cluster, tt.node), "/hawser-agent", "diagnose", "--for", "5s"), " ")
			out := s.eventually(t, contains("in chain forward of table inet policies"), "sh", "-c", diagnose+"; true")
			for _, want := range []string{"dropped by another program, not by Hawser", tt.flow, "nft -a list chain inet policies forward"} {
				if !strings.Contains(out, want) {
					t.Errorf("it does not say %q:\n%s", want, out)
				}
			}
			all := s.eventually(t, contains("ended at rule"), "sh", "-c", "hawser diagnose --cluster c1,c2 --for 5s --address "+pod+","+strings.TrimSuffix(target, ":7000")+"; true")
			for _, want := range []string{tt.flow, "packets: dropped", "\n  " + tt.cluster + "/" + tt.node + ": ", "in chain forward of table inet policies: dropped by another program"} {
				if !strings.Contains(all, want) {
					t.Errorf("hawser diagnose does not say %q:\n%s", want, all)
				}
			}
			if left := s.must(t, "", append(node, "nft", "list", "ruleset")...); !strings.Contains(left, tt.rule) || strings.Contains(left, "hawser-trace") {
				t.Errorf("the rules of the node:\n%s", left)
			}
			s.must(t, "", drop...)
			s.eventually(t, contains("got through"), "sh", "-c", diagnose)
			if r := tries(); r.Failed == 0 || r.Failed == r.Attempts {
				t.Errorf("%d of %d connections failed", r.Failed, r.Attempts)
			}
		})
	}
}

// TestNetworkPolicy tests NetworkPolicies with addresses, on a network that enforces them: which global
// addresses the servers of c2 accept, and which clusterset IPs and global addresses a pod of c1 may
// connect to.
func TestNetworkPolicy(t *testing.T) {
	if network := samePrefixes.fromEnv().network(); !network.Policies {
		t.Skip("needs a network that enforces NetworkPolicies")
	}
	s := needClusterset(t, samePrefixes)
	for _, client := range []string{"client", "near"} {
		s.awaitAnswer(t, "c1", client, serviceName, fromCluster("c2"))
	}
	policy := func(cluster, namespace, text string) {
		s.apply(t, cluster, fmt.Sprintf("apiVersion: networking.k8s.io/v1\nkind: NetworkPolicy\nmetadata: {name: only, namespace: %s}\nspec:\n%s", namespace, text))
		t.Cleanup(func() {
			s.kubectl(t, cluster, "-n", namespace, "delete", "networkpolicy", "only", "--ignore-not-found")
		})
	}
	refused := func(cluster, client, url string) {
		t.Helper()
		s.eventually(t, contains("refused"), inPod(cluster, client, "sh", "-c", "curl -s -m 3 "+url+" || echo refused")...)
	}
	const servers = "  podSelector: {matchLabels: {app: whereami}}\n  policyTypes: [Ingress]\n  ingress:\n  - from: [{ipBlock: {cidr: %s}}]\n"
	policy("c2", "sample", fmt.Sprintf(servers, "242.0.0.0/8"))
	refused("c2", "client", "whereami-cs.sample")
	for _, client := range []string{"client", "near"} {
		s.awaitAnswer(t, "c1", client, serviceName, fromCluster("c2"))
	}
	policy("c2", "sample", fmt.Sprintf(servers, "198.51.100.0/24"))
	for _, client := range []string{"client", "near"} {
		refused("c1", client, serviceName)
	}
	s.kubectl(t, "c2", "-n", "sample", "delete", "networkpolicy", "only")
	for _, client := range []string{"client", "near"} {
		s.awaitAnswer(t, "c1", client, serviceName, fromCluster("c2"))
	}

	// A pod connects to a clusterset IP. Its node translates the address after the policy.
	const clients = "  podSelector: {matchLabels: {role: db}}\n  policyTypes: [Egress]\n  egress:\n" +
		"  - to: [{namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: kube-system}}}]\n  - to: [{ipBlock: {cidr: %s}}]\n"
	s.awaitAnswer(t, "c1", "billing/db", serviceName, fromCluster("c2"))
	policy("c1", "billing", fmt.Sprintf(clients, "243.0.0.0/16"))
	refused("c1", "billing/db", "whereami-cs.sample")
	s.awaitAnswer(t, "c1", "billing/db", serviceName, fromCluster("c2"))
	policy("c1", "billing", fmt.Sprintf(clients, "242.0.0.0/8"))
	refused("c1", "billing/db", serviceName)
	s.awaitAnswer(t, "c1", "billing/db", headlessName, fromCluster("c2"))
}
