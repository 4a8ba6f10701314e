package packettrace

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"hawser.dev/hawser/nodeagent/status"
)

// reportWithAllOutcomes returns a report with a trace of each outcome.
func reportWithAllOutcomes() *Report {
	ends := func(from, to string) status.Ends { return status.Ends{Protocol: "tcp", From: from, To: to} }
	hop := func(node, in, out string, ingress, egress status.Ends, next ...*Hop) *Hop {
		return &Hop{Cluster: node[:2], Node: node, Next: next, Flow: status.FlowTrace{In: in, Out: out, Ingress: ingress, Egress: egress, Packets: 3}}
	}
	end := func(s *Hop, outcome string) *Hop { s.Outcome = outcome; return s }
	pod, tunnel, server := ends("10.7.2.5", "243.0.0.1:80"), ends("242.1.2.5", "242.2.0.9:80"), ends("242.1.2.5", "10.7.1.9:8080")
	answer := ends("10.7.1.9:8080", "242.1.2.5")
	dropped := end(hop("g2-a", "hw-wg1", "", tunnel, server), Dropped)
	dropped.Finding = &status.Finding{Location: "rule 12 in chain cali-tw of table ip filter", Text: "dropped by Calico", Next: "admit them"}
	dropped.Policies = []string{"NetworkPolicy shop/only selects pod shop/web-0 (Ingress)"}
	asymmetric := end(hop("g1-a", "hw-wg1", "ovn0", ends("242.2.0.9:80", "242.1.2.5"), ends("242.2.0.9:80", "10.7.2.5")), WrongReturnPath)
	asymmetric.Bypassed = "g1/g1-w"
	traces := []Trace{
		{Outcome: Dropped, First: hop("g1-w", "veth7", "hw-vx0", pod, pod, dropped)},
		{Outcome: Lost, First: hop("g1-w", "", "hw-vx0", pod, pod, end(hop("g1-a", "hw-vx0", "hw-wg1", pod, tunnel), Lost))},
		{Outcome: Lost, First: end(hop("g1-w", "", "hw-vx0", pod, pod), Lost)},
		{Outcome: Unanswered, First: end(hop("g2-w", "hw-vx0", "cni0", server, server), Arrived)},
		{Outcome: Unclear, Answered: true, First: end(hop("g2-w", "hw-vx0", "cni0", server, server), Arrived),
			Answer: end(hop("g2-w", "cni0", "hw-vx0", answer, answer), Unclear)},
		{Outcome: Loop, First: end(hop("g1-a", "hw-wg1", "hw-wg1", tunnel, tunnel), Loop)},
		{Outcome: WrongReturnPath, Answered: true, Resets: 2, First: end(hop("g1-w", "veth7", "hw-vx0", pod, tunnel), Arrived), Answer: asymmetric},
		{Outcome: Arrived, Answered: true, First: hop("g1-w", "veth7", "hw-vx0", pod, pod, end(hop("g2-w", "hw-vx0", "cni0", server, server), Arrived))},
	}
	return &Report{Traces: traces, Nodes: []status.Diagnosis{
		{Cluster: "g1", Node: "g1-w", Seconds: 10, Packets: 20, Sampled: true},
		{Cluster: "g2", Node: "g2-a", Seconds: 9.9, Packets: 1, ReversePathDrops: 6},
	}}
}

// TestText: the text of each outcome has the nodes of the packets, the outcome, and the next step.
func TestText(t *testing.T) {
	t.Parallel()
	const want = `21 packets of the clusterset followed on 2 nodes in 10 s
more came than are followed on g1/g1-w: --export or --address leaves out what else there is
g2/g2-a: rp_filter dropped 6 packets meanwhile, of any traffic: the route to their source uses another device than they arrived on (sysctl net.ipv4.conf.*.rp_filter; 2 is loose)

tcp 10.7.2.5 -> 243.0.0.1:80, 3 packets: dropped
  g1/g1-w: 3 packets, in veth7, out hw-vx0
  g2/g2-a: 3 packets, in hw-wg1, as tcp 242.1.2.5 -> 10.7.1.9:8080
    ended at rule 12 in chain cali-tw of table ip filter: dropped by Calico
    to do: admit them
    NetworkPolicy shop/only selects pod shop/web-0 (Ingress)

tcp 10.7.2.5 -> 243.0.0.1:80, 3 packets: lost
  g1/g1-w: 3 packets, out hw-vx0
  g1/g1-a: 3 packets, in hw-vx0, out hw-wg1, as tcp 242.1.2.5 -> 242.2.0.9:80
    sent over hw-wg1, and seen on no other node
    to do: hawser show connections lists the links between the gateways, with loss and path MTU; a firewall between them may drop the tunnel

tcp 10.7.2.5 -> 243.0.0.1:80, 3 packets: lost
  g1/g1-w: 3 packets, out hw-vx0
    sent over hw-vx0, and seen on no other node
    to do: let UDP 4803 through between the nodes of this cluster, or look for an address that two nodes have

tcp 242.1.2.5 -> 10.7.1.9:8080, 3 packets: unanswered
  g2/g2-w: 3 packets, in hw-vx0, out cni0
    nothing came back from there
    to do: see that something listens there, and that the pod's policies admit the client; what nftables does not show, such as eBPF programs of the CNI, may drop it too

tcp 242.1.2.5 -> 10.7.1.9:8080, 3 packets: unclear
  g2/g2-w: 3 packets, in hw-vx0, out cni0
  the answer, 3 packets:
  g2/g2-w: 3 packets, in cni0, out hw-vx0
    sent over hw-vx0; no trace of the next node: it was not queried, did not reply, or does not trace all packets

tcp 242.1.2.5 -> 242.2.0.9:80, 3 packets: looped
  g1/g1-a: 3 packets, in hw-wg1, out hw-wg1
    sent over hw-wg1 to a node that had it before: it goes round in circles
    to do: hawser show paths lists the path to each cluster, and hawser-agent status on these nodes shows which fabric they follow

tcp 10.7.2.5 -> 243.0.0.1:80, 3 packets: asymmetric
  g1/g1-w: 3 packets, in veth7, out hw-vx0, as tcp 242.1.2.5 -> 242.2.0.9:80
  the answer, 3 packets:
  g1/g1-a: 3 packets, in hw-wg1, out ovn0, as tcp 242.2.0.9:80 -> 10.7.2.5
    the answer did not come back through g1/g1-w, which translated the question: g1/g1-a sent it out of ovn0, and the client did not ask 242.2.0.9:80
    to do: find the program that marks packets from hw-wg1 on g1/g1-a: rule 7289 matches Hawser's mark (nft list ruleset, ip rule); hawser-agent plan there lists missing rules of Hawser
    the client refused it with 2 packets (TCP resets)

tcp 10.7.2.5 -> 243.0.0.1:80, 3 packets: arrived at 10.7.1.9:8080 over g1/g1-w, g2/g2-w, answered
`
	if text := cmp.Diff(want, reportWithAllOutcomes().Text()); text != "" {
		t.Errorf("(-want +got)\n%s", text)
	}
	const nothing = "no packet of the clusterset on 1 node in 10 s: make a request meanwhile\n"
	if have := (&Report{Nodes: []status.Diagnosis{{Seconds: 10}}}).Text(); have != nothing {
		t.Errorf("have %q, want %q", have, nothing)
	}
}

// TestManyArrived: traces that arrived have one line each, up to a limit.
func TestManyArrived(t *testing.T) {
	t.Parallel()
	var traces []Trace
	for range maxArrived + 7 {
		traces = append(traces, Trace{Outcome: Arrived, First: &Hop{Cluster: "g1", Node: "a"}})
	}
	have := (&Report{Traces: traces, Nodes: []status.Diagnosis{{Packets: 27}}}).Text()
	if n, want := strings.Count(have, ": arrived at "), maxArrived; n != want || strings.Count(have, "\nand 7 more that arrived\n") != 1 {
		t.Errorf("%d of %d are listed:\n%s", n, want, have)
	}
}

// TestProblemsOfNodes: what an agent reports of its node is printed, also if no packet was
// followed.
func TestProblemsOfNodes(t *testing.T) {
	t.Parallel()
	for _, packets := range []int{0, 3} {
		d := status.Diagnosis{Cluster: "g2", Node: "g2-w1", Packets: packets, Problems: []string{"pods are outside of podCIDRs"}}
		if have := (&Report{Nodes: []status.Diagnosis{d}}).Text(); !strings.Contains(have, "g2/g2-w1: pods are outside of podCIDRs\n") {
			t.Errorf("%d packets: %s", packets, have)
		}
	}
}

// TestPolicyHops checks at which hops NetworkPolicies are looked up, and of which pods.
func TestPolicyHops(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		outcome, kind string
		want          bool
	}{
		{Dropped, status.FindingForeign, true}, {Dropped, status.FindingLost, true}, {Dropped, status.FindingOwn, false},
		{Unanswered, "", true}, {Lost, "", false}, {Arrived, "", false},
	} {
		end := &Hop{Cluster: "g2", Outcome: tt.outcome, Flow: status.FlowTrace{Ingress: status.Ends{From: "242.1.2.5", To: "242.2.0.9:80"},
			Egress: status.Ends{From: "242.1.2.5", To: "10.7.1.9:8080"}}}
		if tt.kind != "" {
			end.Finding = &status.Finding{Kind: tt.kind}
		}
		r := &Report{Traces: []Trace{{Outcome: tt.outcome, First: &Hop{Cluster: "g1", Next: []*Hop{end}}}}}
		hops := r.PolicyHops()
		if (len(hops) == 1 && hops[0] == end) != tt.want || !tt.want && len(hops) > 0 {
			t.Errorf("%s %s: %d hops, want %v", tt.outcome, tt.kind, len(hops), tt.want)
		}
		if sources, destinations := end.Sources(), end.Destinations(); len(sources) != 1 || len(destinations) != 2 || destinations[1].String() != "10.7.1.9" {
			t.Errorf("from %v to %v", sources, destinations)
		}
	}
}
