package main

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"hawser.dev/hawser/nodeagent/status"
	"hawser.dev/hawser/view/packettrace"
)

// everyOutcome gives trips of each outcome, and what nodes saw.
func everyOutcome() ([]packettrace.Trip, []packettrace.Seen) {
	ends := func(from, to string) status.Ends { return status.Ends{Protocol: "tcp", From: from, To: to} }
	step := func(node, in, out string, came, left status.Ends, next ...*packettrace.Step) *packettrace.Step {
		return &packettrace.Step{Cluster: node[:2], Node: node, Next: next, Journey: status.Journey{In: in, Out: out, Came: came, Left: left, Packets: 3}}
	}
	ended := func(s *packettrace.Step, outcome string) *packettrace.Step { s.Outcome = outcome; return s }
	pod, tunnel, server := ends("10.7.2.5", "243.0.0.1:80"), ends("242.1.2.5", "242.2.0.9:80"), ends("242.1.2.5", "10.7.1.9:8080")
	answer := ends("10.7.1.9:8080", "242.1.2.5")
	dropped := ended(step("g2-a", "hw-wg1", "", tunnel, server), packettrace.Dropped)
	dropped.Finding = &status.Finding{Place: "rule 12 in chain cali-tw of table ip filter", Text: "dropped by Calico", Do: "admit them"}
	astray := ended(step("g1-a", "hw-wg1", "ovn0", ends("242.2.0.9:80", "242.1.2.5"), ends("242.2.0.9:80", "10.7.2.5")), packettrace.Astray)
	astray.Past = "g1/g1-w"
	trips := []packettrace.Trip{
		{Outcome: packettrace.Dropped, First: step("g1-w", "veth7", "hw-vx0", pod, pod, dropped)},
		{Outcome: packettrace.Vanished, First: step("g1-w", "", "hw-vx0", pod, pod, ended(step("g1-a", "hw-vx0", "hw-wg1", pod, tunnel), packettrace.Vanished))},
		{Outcome: packettrace.Vanished, First: ended(step("g1-w", "", "hw-vx0", pod, pod), packettrace.Vanished)},
		{Outcome: packettrace.Unanswered, First: ended(step("g2-w", "hw-vx0", "cni0", server, server), packettrace.Arrived)},
		{Outcome: packettrace.Unclear, Answered: true, First: ended(step("g2-w", "hw-vx0", "cni0", server, server), packettrace.Arrived),
			Answer: ended(step("g2-w", "cni0", "hw-vx0", answer, answer), packettrace.Unclear)},
		{Outcome: packettrace.Circling, First: ended(step("g1-a", "hw-wg1", "hw-wg1", tunnel, tunnel), packettrace.Circling)},
		{Outcome: packettrace.Astray, Answered: true, Resets: 2, First: ended(step("g1-w", "veth7", "hw-vx0", pod, tunnel), packettrace.Arrived), Answer: astray},
		{Outcome: packettrace.Arrived, Answered: true, First: step("g1-w", "veth7", "hw-vx0", pod, pod, ended(step("g2-w", "hw-vx0", "cni0", server, server), packettrace.Arrived))},
	}
	seen := []packettrace.Seen{{Diagnosis: status.Diagnosis{Cluster: "g1", Node: "g1-w", Seconds: 10, Packets: 20, Full: true}},
		{Diagnosis: status.Diagnosis{Cluster: "g2", Node: "g2-a", Seconds: 9.9, Packets: 1, Filtered: 6}}}
	return trips, seen
}

// TestTripText: each outcome says where packets were, what became of them, and what to do.
func TestTripText(t *testing.T) {
	t.Parallel()
	trips, seen := everyOutcome()
	const want = `21 packets of the clusterset followed on 2 nodes in 10 s
more came than are followed on g1/g1-w: --export or --address leaves out what else there is
g2/g2-a: rp_filter dropped 6 meanwhile, of whatever traffic: their source is reached by another link than they came by (sysctl net.ipv4.conf.*.rp_filter; 2 is loose)

tcp 10.7.2.5 -> 243.0.0.1:80, 3 packets: dropped
  g1/g1-w: 3 packets, in veth7, out hw-vx0
  g2/g2-a: 3 packets, in hw-wg1, as tcp 242.1.2.5 -> 10.7.1.9:8080
    ended at rule 12 in chain cali-tw of table ip filter: dropped by Calico
    to do: admit them

tcp 10.7.2.5 -> 243.0.0.1:80, 3 packets: vanished
  g1/g1-w: 3 packets, out hw-vx0
  g1/g1-a: 3 packets, in hw-vx0, out hw-wg1, as tcp 242.1.2.5 -> 242.2.0.9:80
    sent over hw-wg1, and seen on no other node
    to do: hawser show connections lists the links between the gateways, with loss and path MTU; a firewall between them may drop the tunnel

tcp 10.7.2.5 -> 243.0.0.1:80, 3 packets: vanished
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
    sent over hw-vx0; it is not known what the next node saw of it, which was not asked, did not answer, or does not follow all packets

tcp 242.1.2.5 -> 242.2.0.9:80, 3 packets: circling
  g1/g1-a: 3 packets, in hw-wg1, out hw-wg1
    sent over hw-wg1 to a node that had it before: it goes round in circles
    to do: hawser show paths lists the path to each cluster, and hawser-agent status on these nodes shows which fabric they follow

tcp 10.7.2.5 -> 243.0.0.1:80, 3 packets: astray
  g1/g1-w: 3 packets, in veth7, out hw-vx0, as tcp 242.1.2.5 -> 242.2.0.9:80
  the answer, 3 packets:
  g1/g1-a: 3 packets, in hw-wg1, out ovn0, as tcp 242.2.0.9:80 -> 10.7.2.5
    the answer did not come back through g1/g1-w, which translated the question: g1/g1-a sent it out of ovn0, and the client did not ask 242.2.0.9:80
    to do: look on g1/g1-a for who gives packets from hw-wg1 a mark: rule 7289 leads back what has Hawser's (nft list ruleset, ip rule); hawser-agent plan there lists what is missing of Hawser's own
    the client refused it with 2 packets (TCP resets)

tcp 10.7.2.5 -> 243.0.0.1:80, 3 packets: arrived at 10.7.1.9:8080 over g1/g1-w, g2/g2-w, answered
`
	if text := cmp.Diff(want, tripText(trips, seen)); text != "" {
		t.Errorf("(-want +got)\n%s", text)
	}
	const nothing = "no packet of the clusterset on 1 node in 10 s: make a request meanwhile\n"
	if have := tripText(nil, []packettrace.Seen{{Diagnosis: status.Diagnosis{Seconds: 10}}}); have != nothing {
		t.Errorf("have %q, want %q", have, nothing)
	}
}

// TestManyArrived: what got there is told in a line each, and not without end.
func TestManyArrived(t *testing.T) {
	t.Parallel()
	var trips []packettrace.Trip
	for range mostArrived + 7 {
		trips = append(trips, packettrace.Trip{Outcome: packettrace.Arrived, First: &packettrace.Step{Cluster: "g1", Node: "a"}})
	}
	have := tripText(trips, []packettrace.Seen{{Diagnosis: status.Diagnosis{Packets: 27}}})
	if n, want := strings.Count(have, ": arrived at "), mostArrived; n != want || strings.Count(have, "\nand 7 more that arrived\n") != 1 {
		t.Errorf("%d of %d are told:\n%s", n, want, have)
	}
}

// TestProblemsOfNodes: what an agent reports of its node is printed, also if no packet was
// followed.
func TestProblemsOfNodes(t *testing.T) {
	t.Parallel()
	for _, packets := range []int{0, 3} {
		d := status.Diagnosis{Cluster: "g2", Node: "g2-w1", Packets: packets, Problems: []string{"pods are outside of podCIDRs"}}
		if have := tripText(nil, []packettrace.Seen{{Diagnosis: d}}); !strings.Contains(have, "g2/g2-w1: pods are outside of podCIDRs\n") {
			t.Errorf("%d packets: %s", packets, have)
		}
	}
}
