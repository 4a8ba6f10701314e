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
	writtenAt  = "198.51.100.9"  // in the topology; leads to c2n1 until it is cut
	balancedAt = "198.51.100.80" // of the load balancer
	outsideAt  = "203.0.113.9"   // of c2n1
	otherAt    = "203.0.113.10"  // of c2n1, later
)

// TestFound: c1 cannot be dialled, and dials the gateway of c2 at an address that is written,
// until that leads nowhere. It goes on at the one that c2 announced meanwhile, which is that
// of a port of its nodes, of a load balancer, and of a Node's status: packets go there, and
// nobody commits anything, neither when the gateway moves to another node or has another
// address.
func TestFound(t *testing.T) {
	s := needSet(t, same)
	t.Cleanup(func() {
		s.internet(t, "flush ruleset")
		s.reset(t)
		s.ready(t)
	})
	for _, way := range []struct {
		source, gateway string
		port            int
		do              func(*testing.T, *front)
	}{
		{"service:NodePort", "ported", 30820, byPort},
		{"service:LoadBalancer", "balanced", 51820, byBalancer},
		{"node:ExternalIP", "outside", 51820, byStatus},
	} {
		t.Run(way.source, func(t *testing.T) {
			f := &front{set: s, source: way.source, gateway: way.gateway + "-1", port: way.port}
			f.pick(t, "c2n1", "c2n2")
			s.internet(t, fmt.Sprintf("flush ruleset; table ip written { chain in { type nat hook prerouting priority dstnat; ip daddr %s dnat to 172.31.2.11; }; }", writtenAt))
			s.write(t, strings.NewReplacer("      endpoints: [172.31.1.11]\n", "",
				"name: c2-a\n      node: c2n1\n      endpoints: [172.31.2.11]\n", fmt.Sprintf(
					"name: %s\n      nodeSelector: {node-restriction.kubernetes.io/hawser-gateway: \"true\"}\n      port: %d\n      endpoints: [%s, %q]\n",
					way.gateway, way.port, writtenAt, way.source)).Replace(s.topology))
			s.sync(t)
			s.holder(t, "c2", f.gateway, "c2n1")
			f.reached(t, writtenAt+`, the first of `)
			way.do(t, f)
		})
	}
}

// front is a gateway of c2 with a source of endpoints.
type front struct {
	*set
	source, gateway string
	port            int
}

// byPort: kube-proxy of any node leads to the gateway. When it moves from the node whose
// address c1 uses, that node's kube-proxy leads on to the other one.
func byPort(t *testing.T, f *front) {
	f.cutWritten(t, "172.31.2.11")
	f.goesOn(t, "172.31.2.11")
	f.carried(t, "172.31.2.11", "c2n1", "172.31.2.11")
	f.move(t, func() {})
	at := f.used(t)
	if at != "172.31.2.11" && at != "172.31.2.12" {
		t.Fatalf("the gateway is reached at %s", at)
	}
	f.carried(t, at, map[string]string{"172.31.2.11": "c2n1", "172.31.2.12": "c2n2"}[at], "172.31.2.12")
}

// byBalancer: what goes to the address of the load balancer, a node that has the gateway
// gets, and no other one.
func byBalancer(t *testing.T, f *front) {
	f.lead(t, "172.31.2.11")
	// The first packets come before the node's kube-proxy knows the address.
	proxy := func(signal string) { f.lab(t, "node", "c2n1", "pkill", "-"+signal, "kube-proxy") }
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
	before := counted.FindString(f.lab(t, chain...))
	f.cutWritten(t, balancedAt)
	f.eventually(t, func(out string) bool { return counted.FindString(out) != before },
		append([]string{"kubelab", "--dir", f.rig.dir}, chain...)...)
	proxy("CONT")
	f.goesOn(t, balancedAt)
	f.carried(t, balancedAt, "c2n1", "172.31.2.11")
	f.move(t, func() { f.lead(t, "172.31.2.12") })
	f.carried(t, balancedAt, "c2n2", "172.31.2.12")
}

// byStatus: an address of a cloud that leads to the node, and then another one.
func byStatus(t *testing.T, f *front) {
	t.Cleanup(func() { f.lab(t, "expose", "c2n1") })
	f.lab(t, "expose", "c2n1", outsideAt)
	// Whoever begins here is told of it.
	proposed := regexp.MustCompile(`gateway +c2n1 ` + regexp.QuoteMeta(outsideAt) + ` +likely +ExternalIP of the Node`)
	f.eventually(t, proposed.MatchString, "hawser", "discover", "--context", "c2")
	out := f.must(t, "", "sh", "-ec", `cd "$1" && git init -q && hawser init --context c1 --context c2 >/dev/null && cat clusterset.yaml`, "sh", t.TempDir())
	if want := "node: c2n1\n      endpoints: [" + outsideAt + ", node:ExternalIP]"; !strings.Contains(out, want) {
		t.Errorf("hawser init does not propose %q:\n%s", want, out)
	}
	f.cutWritten(t, outsideAt)
	f.goesOn(t, outsideAt)
	f.passed(t, outsideAt)
	f.lab(t, "expose", "c2n1", otherAt)
	f.eventually(t, has(otherAt), "kubelab", "--dir", f.rig.dir, "node", "c1n1", "cat", "/var/lib/hawser/found.json")
	f.internet(t, "add rule inet cut in ip daddr "+outsideAt+" drop")
	f.back(t, "the address outside is another one")
	f.reached(t, regexp.QuoteMeta(otherAt)+` \(found: `+f.source+`\)`)
	f.passed(t, otherAt)
}

// internet gives nft(8) of the network between the clusters commands.
func (s *set) internet(t *testing.T, commands string) {
	t.Helper()
	s.lab(t, "net", "internet", "nft", commands)
}

// lead has the load balancer's address lead to a node, as the load balancer does.
func (f *front) lead(t *testing.T, node string) {
	t.Helper()
	f.lab(t, "net", "internet", "ip", "route", "replace", balancedAt+"/32", "via", node)
}

// connections are what the gateway of c1 says of its link.
func (f *front) connections() []string {
	return []string{"sh", "-c", `cd "$1" && hawser show connections --context c1 -o json`, "sh", f.path("repo")}
}

// place gives where the gateway is reached and why there, of the only link, once it goes over
// the tunnel that is meant: one that changes has another port.
func place(out string) (at, why string) {
	var shown struct {
		Agents []struct {
			Connections []struct {
				Endpoint, EndpointWhy, Status string
				Change                        json.RawMessage
			}
		}
	}
	if json.Unmarshal([]byte(out), &shown) != nil {
		return "", ""
	}
	for _, a := range shown.Agents {
		for _, c := range a.Connections {
			if c.Status == "connected" && c.Change == nil {
				return c.Endpoint, c.EndpointWhy
			}
		}
	}
	return "", ""
}

// reached waits until the link stands at a place.
func (f *front) reached(t *testing.T, pattern string) {
	t.Helper()
	want := regexp.MustCompile(pattern)
	f.eventually(t, func(out string) bool { _, why := place(out); return want.MatchString(why) }, f.connections()...)
}

// used gives the address at which the link stands, which is to be found.
func (f *front) used(t *testing.T) string {
	t.Helper()
	f.reached(t, `\(found: `+f.source+`\)`)
	at, _ := place(f.must(t, "", f.connections()...))
	address, _, _ := strings.Cut(at, ":")
	return address
}

// cutWritten has the written address lead nowhere once c1 knows another one.
func (f *front) cutWritten(t *testing.T, found string) {
	t.Helper()
	f.eventually(t, has(found), "kubelab", "--dir", f.rig.dir, "node", "c1n1", "cat", "/var/lib/hawser/found.json")
	f.internet(t, fmt.Sprintf("table inet cut { chain in { type filter hook prerouting priority raw; ip daddr %s drop; }; }", writtenAt))
}

// goesOn waits until the link stands at the other address.
func (f *front) goesOn(t *testing.T, found string) {
	t.Helper()
	f.back(t, "the written address leads nowhere")
	f.reached(t, `^`+regexp.QuoteMeta(found)+` \(found: `+f.source+`\), number 2 of \d: no answer at `+writtenAt)
	f.eventually(t, has("reached at: "+found+" (found: "+f.source+"), number 2 of "),
		"sh", "-c", `cd "$1" && hawser explain c1/default/client sample/whereami-cs:80 --live --context c1,c2`, "sh", f.path("repo"))
}

// back says after how long a pod of c1 reaches c2.
func (f *front) back(t *testing.T, after string) {
	t.Helper()
	since := time.Now()
	f.ask(t, "c1", "client", "c2."+service, from("c2"))
	t.Logf("figure: %s: %s: traffic went on after %.1f s", f.source, after, time.Since(since).Seconds())
}

// move takes the label from c2n1 and gives it to c2n2.
func (f *front) move(t *testing.T, led func()) {
	t.Helper()
	commit := f.must(t, "", "git", "-C", f.path("repo"), "rev-parse", "HEAD")
	f.pick(t, "c2n2", "c2n1")
	f.holder(t, "c2", f.gateway, "c2n2")
	led()
	f.back(t, "another node is the gateway")
	if now := f.must(t, "", "git", "-C", f.path("repo"), "rev-parse", "HEAD"); now != commit {
		t.Error("something was committed")
	}
}

// pick labels one node of c2, and another one no longer.
func (f *front) pick(t *testing.T, node, other string) {
	t.Helper()
	f.label(t, "c2", node)
	f.kubectl(t, "c2", "label", "node", other, "node-restriction.kubernetes.io/hawser-gateway-")
}

// passed lets a pod of c1 ask a pod of c2, and counts what goes to an address and the
// gateway's port meanwhile.
func (f *front) passed(t *testing.T, address string) {
	t.Helper()
	f.internet(t, fmt.Sprintf("table ip count; delete table ip count; table ip count { chain in { type filter hook prerouting priority raw; ip daddr %s udp dport %d counter; }; }", address, f.port))
	for range 10 {
		f.ask(t, "c1", "client", "c2."+service, from("c2"))
	}
	counted := regexp.MustCompile(`counter packets (\d+)`).FindStringSubmatch(f.lab(t, "net", "internet", "nft", "list", "table", "ip", "count"))
	if n, _ := strconv.Atoi(counted[1]); n < 50 {
		t.Errorf("%d packets went to %s:%d while ten questions were answered", n, address, f.port)
	}
}

// carried is passed, where kube-proxy of a node leads what comes on to the gateway.
func (f *front) carried(t *testing.T, address, node, gateway string) {
	t.Helper()
	f.passed(t, address)
	flows := f.lab(t, "node", node, "conntrack", "-L", "-p", "udp", "--orig-dst", address, "--orig-port-dst", strconv.Itoa(f.port))
	if !strings.Contains(flows, "src="+gateway+" ") {
		t.Errorf("kube-proxy of %s does not lead %s:%d to %s:\n%s", node, address, f.port, gateway, flows)
	}
}
