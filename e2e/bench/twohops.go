package main

import (
	"context"
	"fmt"
	"net/netip"
	"strings"
	"time"

	"hawser.dev/hawser/lab"
)

// The datapath of Submariner 0.19 with Globalnet and its VXLAN driver: the iptables rules, routes
// and links that its agents write, in a lab without Hawser's agents. It is VXLAN from a worker to
// the gateway and to the other gateway, then the route of the pods' network. It has one of
// kube-proxy's rules for each port.
const (
	hopNear     = "vx-submariner"
	hopFar      = "vxlan-tunnel"
	hopNearPort = 4800
	hopFarPort  = 4500
	hopTable    = "100"
)

// hopEnd is one cluster's end of the path.
type hopEnd struct {
	cluster         string
	lan, wan        string // addresses of the gateway
	worker, pod     string // addresses of the worker and of the pod on it
	global, egress  string // global address of the pod, and source addresses of egress
	block, blockFar string // global prefixes of this cluster and of the remote cluster
}

// hopPods is the prefix of the pods in both clusters.
const hopPods = "10.7.0.0/16"

func newHopEnd(s lab.Status, cluster string, near, far int) (*hopEnd, error) {
	block := func(n int) string { return fmt.Sprintf("198.18.%d.", n) }
	e := &hopEnd{cluster: cluster, global: block(near) + "20", egress: block(near) + "1-" + block(near) + "8",
		block: block(near) + "0/24", blockFar: block(far) + "0/24"}
	for _, n := range s.Nodes {
		switch {
		case n.Cluster != cluster:
		case len(n.WAN) > 0:
			e.lan, e.wan = n.LAN[0], n.WAN[0]
		default:
			e.worker = n.LAN[0]
		}
	}
	for _, p := range s.Pods {
		if p.Cluster == cluster && p.Namespace == "bench" && p.Name == "worker" {
			e.pod = p.IP
		}
	}
	if e.lan == "" || e.worker == "" || e.pod == "" {
		return nil, fmt.Errorf("cluster %s of the lab lacks a gateway, a worker or its pod", cluster)
	}
	return e, nil
}

// twoHops configures both ends and returns the global address of the pod on b2's worker. It needs
// ipset and iptables-nft-restore.
func (t *testbed) twoHops(ctx context.Context) (address string, err error) {
	s, err := t.status(ctx)
	if err != nil {
		return "", err
	}
	a, err := newHopEnd(s, "b1", 1, 2)
	if err != nil {
		return "", err
	}
	b, err := newHopEnd(s, "b2", 2, 1)
	if err != nil {
		return "", err
	}
	for _, pair := range [][2]*hopEnd{{a, b}, {b, a}} {
		for node, script := range map[string]string{"-gw": pair[0].gatewayScript(pair[1]), "-w1": pair[0].workerScript()} {
			id := pair[0].cluster + "/" + pair[0].cluster + node
			if err := t.node(ctx, id, script, "sh", "-e"); err != nil {
				return "", fmt.Errorf("set up %s: %w", id, err)
			}
		}
	}
	return b.global, within(ctx, 10*time.Second, func() error {
		_, err := t.pod(ctx, "b1/bench/worker", "ping", "-c1", "-W1", b.global)
		return err
	})
}

// vtep returns the inner address for an outer VXLAN address: they differ in the first byte.
func vtep(first byte, outside string) string {
	raw := netip.MustParseAddr(outside).As4()
	raw[0] = first
	return netip.AddrFrom4(raw).String()
}

// hopLink returns the commands for a VXLAN device that sends every packet to one other node.
func hopLink(name string, id, port int, inside, remote string) string {
	return fmt.Sprintf(`ip link add %[1]s type vxlan id %[2]d dstport %[3]d nolearning remote %[5]s udpcsum
ip link set %[1]s mtu 1450 up
ip addr add %[4]s/8 dev %[1]s
echo 2 > /proc/sys/net/ipv4/conf/%[1]s/rp_filter
`, name, id, port, inside, remote)
}

// workerScript routes packets for the other cluster to the gateway.
func (e *hopEnd) workerScript() string {
	return hopLink(hopNear, 100, hopNearPort, vtep(240, e.worker), e.lan) +
		"ip route add " + e.blockFar + " via " + vtep(240, e.lan) + " dev " + hopNear + "\n" +
		e.common() + e.restore("")
}

// gatewayScript translates addresses and routes to the other gateway.
func (e *hopEnd) gatewayScript(far *hopEnd) string {
	links := hopLink(hopNear, 100, hopNearPort, vtep(240, e.lan), e.worker) +
		hopLink(hopFar, 1000, hopFarPort, vtep(241, e.wan), far.wan)
	routes := fmt.Sprintf(`ip rule add pref 100 lookup %[1]s
ip rule add pref 150 lookup 150
ip route add %[2]s via %[3]s dev %[4]s table %[1]s metric 100
`, hopTable, e.blockFar, vtep(241, far.wan), hopFar)
	return links + routes + e.common() + e.restore(strings.NewReplacer(
		"{pods}", hopPods, "{far}", e.blockFar, "{egress}", e.egress, "{global}", e.global, "{pod}", e.pod,
	).Replace(`:SM-GN-EGRESS-CLUSTER -
:SM-GN-EGRESS-HDLS-EPS -
:SM-GN-EGRESS-HDLS-PODS -
:SM-GN-EGRESS-NS -
:SM-GN-EGRESS-PODS -
:SUBMARINER-GN-EGRESS -
:SUBMARINER-GN-INGRESS -
:SUBMARINER-GN-MARK -
-A PREROUTING -j SUBMARINER-GN-INGRESS
-A SM-GN-EGRESS-CLUSTER -s {pods} -m mark --mark 0xc0000/0xc0000 -j SNAT --to-source {egress}
-A SUBMARINER-GN-EGRESS -j SUBMARINER-GN-MARK
-A SUBMARINER-GN-EGRESS -j SM-GN-EGRESS-PODS
-A SUBMARINER-GN-EGRESS -j SM-GN-EGRESS-HDLS-PODS
-A SUBMARINER-GN-EGRESS -j SM-GN-EGRESS-HDLS-EPS
-A SUBMARINER-GN-EGRESS -j SM-GN-EGRESS-NS
-A SUBMARINER-GN-EGRESS -j SM-GN-EGRESS-CLUSTER
-A SUBMARINER-GN-INGRESS -d {global}/32 -p icmp -j DNAT --to-destination {pod}
-A SUBMARINER-GN-INGRESS -d {global}/32 -p tcp -m tcp --dport 5201 -j DNAT --to-destination {pod}:5201
-A SUBMARINER-GN-INGRESS -d {global}/32 -p tcp -m tcp --dport 5202 -j DNAT --to-destination {pod}:5202
-A SUBMARINER-GN-INGRESS -d {global}/32 -p tcp -m tcp --dport 5203 -j DNAT --to-destination {pod}:5203
-A SUBMARINER-GN-MARK -d {far} -j MARK --set-xmark 0xc0000/0xc0000
-A SUBMARINER-POSTROUTING -j SUBMARINER-GN-EGRESS
`))
}

// common returns the configuration of every node. The lab masquerades like a CNI, and
// Submariner's exception is in the same table.
func (e *hopEnd) common() string {
	return `for link in all default eth0; do echo 2 > /proc/sys/net/ipv4/conf/$link/rp_filter; done
echo 1 > /proc/sys/net/ipv4/ip_forward
ipset create SUBMARINER-LOCALCIDRS hash:net
ipset create SUBMARINER-REMOTECIDRS hash:net
ipset add SUBMARINER-LOCALCIDRS ` + e.block + `
ipset add SUBMARINER-LOCALCIDRS ` + hopPods + `
ipset add SUBMARINER-REMOTECIDRS ` + e.blockFar + `
nft insert rule ip lab leaving ip daddr ` + e.blockFar + ` accept
`
}

// restore returns the command that loads the rules of every node, with more NAT rules.
func (e *hopEnd) restore(nat string) string {
	return strings.NewReplacer("{pods}", hopPods, "{far}", e.blockFar, "{more}", nat).Replace(`iptables-nft-restore <<'END'
*mangle
:SUBMARINER-POSTROUTING -
-A POSTROUTING -j SUBMARINER-POSTROUTING
-A SUBMARINER-POSTROUTING -p tcp -m set --match-set SUBMARINER-LOCALCIDRS src -m set --match-set SUBMARINER-REMOTECIDRS dst -m tcp --tcp-flags SYN,RST SYN -j TCPMSS --set-mss 1410
-A SUBMARINER-POSTROUTING -p tcp -m set --match-set SUBMARINER-REMOTECIDRS src -m set --match-set SUBMARINER-LOCALCIDRS dst -m tcp --tcp-flags SYN,RST SYN -j TCPMSS --set-mss 1410
COMMIT
*filter
:SUBMARINER-FORWARD -
:SUBMARINER-INPUT -
-A INPUT -p udp -m udp -j SUBMARINER-INPUT
-A FORWARD -j SUBMARINER-FORWARD
-A SUBMARINER-FORWARD -o vx-submariner -j ACCEPT
-A SUBMARINER-INPUT -p udp -m udp --dport 4800 -j ACCEPT
COMMIT
*nat
:SUBMARINER-POSTROUTING -
{more}-A POSTROUTING -j SUBMARINER-POSTROUTING
-A SUBMARINER-POSTROUTING -s {pods} -d {far} -j ACCEPT
-A SUBMARINER-POSTROUTING -s {far} -d {pods} -j ACCEPT
COMMIT
END
`)
}
