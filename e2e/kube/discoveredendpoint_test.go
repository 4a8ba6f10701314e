//go:build kube

package kube

import (
	"encoding/json"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"
)

const (
	configuredAt = "198.51.100.9"  // in the topology; routed to c2n1 until it is cut
	balancedAt   = "198.51.100.80" // address of the load balancer
	outsideAt    = "203.0.113.9"   // external address of c2n1
	otherAt      = "203.0.113.10"  // later external address of c2n1
)

// TestDiscoveredEndpoints tests gateways with discovered endpoints. c1 cannot be dialled. It dials
// the gateway of c2 at a configured address until that fails. Then it uses the address that c2
// announced: a NodePort, a load balancer, or an address in a Node's status. It needs no commit, also
// when the gateway moves to another node or gets another address.
func TestDiscoveredEndpoints(t *testing.T) {
	s := needClusterset(t, samePrefixes)
	t.Cleanup(func() {
		s.internetNft(t, "flush ruleset")
		s.reset(t)
		s.awaitReady(t)
	})
	for _, tt := range []struct {
		source, gateway string
		port            int
		do              func(*testing.T, *discoveredGateway)
	}{
		{"service:NodePort", "ported", 30820, byPort},
		{"service:LoadBalancer", "balanced", 51820, byBalancer},
		{"node:ExternalIP", "outside", 51820, byStatus},
	} {
		t.Run(tt.source, func(t *testing.T) {
			f := &discoveredGateway{clusterset: s, source: tt.source, gateway: tt.gateway + "-1", port: tt.port}
			f.labelNode(t, "c2n1", "c2n2")
			s.internetNft(t, fmt.Sprintf("flush ruleset; table ip written { chain in { type nat hook prerouting priority dstnat; ip daddr %s dnat to 172.31.2.11; }; }", configuredAt))
			s.write(t, strings.NewReplacer("      endpoints: [172.31.1.11]\n", "",
				"name: c2-a\n      node: c2n1\n      endpoints: [172.31.2.11]\n", fmt.Sprintf(
					"name: %s\n      nodeSelector: {node-restriction.kubernetes.io/hawser-gateway: \"true\"}\n      port: %d\n      endpoints: [%s, %q]\n",
					tt.gateway, tt.port, configuredAt, tt.source)).Replace(s.topology))
			s.sync(t)
			s.awaitHolder(t, "c2", f.gateway, "c2n1")
			f.awaitEndpoint(t, configuredAt+`, the first of `)
			tt.do(t, f)
		})
	}
}

// discoveredGateway is a gateway of c2 with a source of discovered endpoints.
type discoveredGateway struct {
	*clusterset
	source, gateway string
	port            int
}

// byPort tests a NodePort: kube-proxy of any node forwards to the gateway. After the gateway moves
// from the node whose address c1 uses, that node's kube-proxy forwards to the other node.
func byPort(t *testing.T, f *discoveredGateway) {
	f.cutConfigured(t, "172.31.2.11")
	f.awaitDiscovered(t, "172.31.2.11")
	f.checkPacketsByProxy(t, "172.31.2.11", "c2n1", "172.31.2.11")
	f.moveGateway(t, func() {})
	at := f.usedAddress(t)
	if at != "172.31.2.11" && at != "172.31.2.12" {
		t.Fatalf("the link uses address %s", at)
	}
	f.checkPacketsByProxy(t, at, map[string]string{"172.31.2.11": "c2n1", "172.31.2.12": "c2n2"}[at], "172.31.2.12")
}

// byBalancer tests a load balancer: only the gateway's node gets packets to its address.
func byBalancer(t *testing.T, f *discoveredGateway) {
	f.routeBalancer(t, "172.31.2.11")
	// The first packets arrive before the node's kube-proxy has the address.
	proxy := func(signal string) { f.kubelab(t, "node", "c2n1", "pkill", "-"+signal, "kube-proxy") }
	proxy("STOP")
	t.Cleanup(func() { proxy("CONT") })
	balance := func(ingress string) {
		f.kubectl(t, "c2", "-n", "hawser-system", "patch", "service", "hawser-gateway-"+f.gateway, "--subresource=status", "-p",
			fmt.Sprintf(`{"status": {"loadBalancer": {"ingress": %s}}}`, ingress))
	}
	balance(fmt.Sprintf(`[{"ip": %q, "ipMode": "VIP"}]`, balancedAt))
	t.Cleanup(func() { balance("null") })
	counted := regexp.MustCompile(`counter packets \d+`)
	chain := []string{"node", "c2n1", "nft", "list", "chain", "inet", "hawser", "drop_vxlan"}
	before := counted.FindString(f.kubelab(t, chain...))
	f.cutConfigured(t, balancedAt)
	f.eventually(t, func(out string) bool { return counted.FindString(out) != before },
		append([]string{"kubelab", "--dir", f.clusterPair.dir}, chain...)...)
	proxy("CONT")
	f.awaitDiscovered(t, balancedAt)
	f.checkPacketsByProxy(t, balancedAt, "c2n1", "172.31.2.11")
	f.moveGateway(t, func() { f.routeBalancer(t, "172.31.2.12") })
	f.checkPacketsByProxy(t, balancedAt, "c2n2", "172.31.2.12")
}

// byStatus tests an external address that a cloud assigned to the node, and then a second one.
func byStatus(t *testing.T, f *discoveredGateway) {
	t.Cleanup(func() { f.kubelab(t, "expose", "c2n1") })
	f.kubelab(t, "expose", "c2n1", outsideAt)
	// hawser discover and hawser init propose the address.
	proposed := regexp.MustCompile(`gateway +c2n1 ` + regexp.QuoteMeta(outsideAt) + ` +likely +ExternalIP of the Node`)
	f.eventually(t, proposed.MatchString, "hawser", "discover", "--context", "c2")
	out := f.must(t, "", "sh", "-ec", `cd "$1" && git init -q && hawser init --context c1 --context c2 >/dev/null && cat clusterset.yaml`, "sh", t.TempDir())
	if want := "node: c2n1\n      endpoints: [" + outsideAt + ", node:ExternalIP]"; !strings.Contains(out, want) {
		t.Errorf("hawser init does not propose %q:\n%s", want, out)
	}
	f.cutConfigured(t, outsideAt)
	f.awaitDiscovered(t, outsideAt)
	f.checkPackets(t, outsideAt)
	f.kubelab(t, "expose", "c2n1", otherAt)
	f.eventually(t, contains(otherAt), "kubelab", "--dir", f.clusterPair.dir, "node", "c1n1", "cat", "/var/lib/hawser/discovered-endpoints.json")
	f.internetNft(t, "add rule inet cut in ip daddr "+outsideAt+" drop")
	f.awaitTraffic(t, "the external address changed")
	f.awaitEndpoint(t, regexp.QuoteMeta(otherAt)+` \(found: `+f.source+`\)`)
	f.checkPackets(t, otherAt)
}

// internetNft runs nft(8) commands in the network between the clusters.
func (s *clusterset) internetNft(t *testing.T, commands string) {
	t.Helper()
	s.kubelab(t, "net", "internet", "nft", commands)
}

// routeBalancer routes the load balancer's address to a node, as a load balancer does.
func (f *discoveredGateway) routeBalancer(t *testing.T, node string) {
	t.Helper()
	f.kubelab(t, "net", "internet", "ip", "route", "replace", balancedAt+"/32", "via", node)
}

// connections returns the command for the connections of c1's gateway.
func (f *discoveredGateway) connections() []string {
	return []string{"sh", "-c", `cd "$1" && hawser show connections --context c1 -o json`, "sh", f.path("repo")}
}

// endpointOf returns the endpoint of the only link and its reason. It returns empty strings while
// the link is down or migrates, when its port differs.
func endpointOf(out string) (at, why string) {
	var shown struct {
		Agents []struct {
			Connections []struct {
				Endpoint, EndpointReason, Status string
				Migration                        json.RawMessage
			}
		}
	}
	if json.Unmarshal([]byte(out), &shown) != nil {
		return "", ""
	}
	for _, a := range shown.Agents {
		for _, c := range a.Connections {
			if c.Status == "connected" && c.Migration == nil {
				return c.Endpoint, c.EndpointReason
			}
		}
	}
	return "", ""
}

// awaitEndpoint waits until the reason of the link's endpoint matches.
func (f *discoveredGateway) awaitEndpoint(t *testing.T, pattern string) {
	t.Helper()
	want := regexp.MustCompile(pattern)
	f.eventually(t, func(out string) bool { _, why := endpointOf(out); return want.MatchString(why) }, f.connections()...)
}

// usedAddress returns the address of the link's endpoint, which must be discovered.
func (f *discoveredGateway) usedAddress(t *testing.T) string {
	t.Helper()
	f.awaitEndpoint(t, `\(found: `+f.source+`\)`)
	at, _ := endpointOf(f.must(t, "", f.connections()...))
	address, _, _ := strings.Cut(at, ":")
	return address
}

// cutConfigured drops packets to the configured address, once c1 has the discovered one.
func (f *discoveredGateway) cutConfigured(t *testing.T, found string) {
	t.Helper()
	f.eventually(t, contains(found), "kubelab", "--dir", f.clusterPair.dir, "node", "c1n1", "cat", "/var/lib/hawser/discovered-endpoints.json")
	f.internetNft(t, fmt.Sprintf("table inet cut { chain in { type filter hook prerouting priority raw; ip daddr %s drop; }; }", configuredAt))
}

// awaitDiscovered waits until the link uses the discovered address.
func (f *discoveredGateway) awaitDiscovered(t *testing.T, found string) {
	t.Helper()
	f.awaitTraffic(t, "the configured address is cut")
	f.awaitEndpoint(t, `^`+regexp.QuoteMeta(found)+` \(found: `+f.source+`\), number 2 of \d: no reply at `+configuredAt)
	f.eventually(t, contains("reached at: "+found+" (found: "+f.source+"), number 2 of "),
		"sh", "-c", `cd "$1" && hawser explain c1/default/client sample/whereami-cs:80 --live --context c1,c2`, "sh", f.path("repo"))
}

// awaitTraffic waits until a pod of c1 reaches c2, and logs the duration.
func (f *discoveredGateway) awaitTraffic(t *testing.T, after string) {
	t.Helper()
	since := time.Now()
	f.awaitAnswer(t, "c1", "client", "c2."+serviceName, fromCluster("c2"))
	t.Logf("figure: %s: %s: traffic recovered after %.1f s", f.source, after, time.Since(since).Seconds())
}

// moveGateway moves the label from c2n1 to c2n2.
func (f *discoveredGateway) moveGateway(t *testing.T, moved func()) {
	t.Helper()
	commit := f.must(t, "", "git", "-C", f.path("repo"), "rev-parse", "HEAD")
	f.labelNode(t, "c2n2", "c2n1")
	f.awaitHolder(t, "c2", f.gateway, "c2n2")
	moved()
	f.awaitTraffic(t, "the gateway moved to another node")
	if now := f.must(t, "", "git", "-C", f.path("repo"), "rev-parse", "HEAD"); now != commit {
		t.Error("the repository has a new commit")
	}
}

// labelNode labels one node of c2, and removes the label of the other.
func (f *discoveredGateway) labelNode(t *testing.T, node, other string) {
	t.Helper()
	f.label(t, "c2", node)
	f.kubectl(t, "c2", "label", "node", other, "node-restriction.kubernetes.io/hawser-gateway-")
}

// checkPackets sends requests from a pod of c1 to c2, and checks that the packets go to an address and
// the gateway's port.
func (f *discoveredGateway) checkPackets(t *testing.T, address string) {
	t.Helper()
	f.internetNft(t, fmt.Sprintf("table ip count; delete table ip count; table ip count { chain in { type filter hook prerouting priority raw; ip daddr %s udp dport %d counter; }; }", address, f.port))
	for range 10 {
		f.awaitAnswer(t, "c1", "client", "c2."+serviceName, fromCluster("c2"))
	}
	counted := regexp.MustCompile(`counter packets (\d+)`).FindStringSubmatch(f.kubelab(t, "net", "internet", "nft", "list", "table", "ip", "count"))
	if n, _ := strconv.Atoi(counted[1]); n < 50 {
		t.Errorf("%d packets went to %s:%d during ten requests, want 50 or more", n, address, f.port)
	}
}

// checkPacketsByProxy is checkPackets through kube-proxy of a node, which forwards to the gateway.
func (f *discoveredGateway) checkPacketsByProxy(t *testing.T, address, node, gateway string) {
	t.Helper()
	f.checkPackets(t, address)
	flows := f.kubelab(t, "node", node, "conntrack", "-L", "-p", "udp", "--orig-dst", address, "--orig-port-dst", strconv.Itoa(f.port))
	if !strings.Contains(flows, "src="+gateway+" ") {
		t.Errorf("kube-proxy of %s does not forward %s:%d to %s:\n%s", node, address, f.port, gateway, flows)
	}
}
