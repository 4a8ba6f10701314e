package packettrace

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"hawser.dev/hawser/nodeagent/status"
)

// flow returns a flow of five packets that arrived as "from>to" and left as "from>to".
func flow(in, out, ingress, egress string) status.FlowTrace {
	ends := func(text string) status.Ends {
		from, to, _ := strings.Cut(text, ">")
		return status.Ends{Protocol: "tcp", From: from, To: to}
	}
	if egress == "" {
		egress = ingress
	}
	return status.FlowTrace{Ingress: ends(ingress), Egress: ends(egress), In: in, Out: out, Packets: 5, Passed: 5, First: 2, Middle: 5, Last: 6}
}

// droppedFlow returns a flow that a rule dropped.
func droppedFlow(in, came string) status.FlowTrace {
	j := flow(in, "", came, "")
	j.Passed, j.Kind, j.Location = 0, status.FindingForeign, "rule 1"
	return j
}

func node(name string, flows ...status.FlowTrace) NodeTrace {
	cluster, gateway, _ := strings.Cut(name, "-")
	s := NodeTrace{Start: time.Unix(1000, 0), Diagnosis: status.Diagnosis{Cluster: cluster, Node: name, SiblingGateways: []string{"a"}, Nodes: 2, Seconds: 10, Flows: flows,
		Findings: []status.Finding{{Kind: status.FindingForeign, Location: "rule 1", Text: "dropped by Calico"}}}}
	if gateway == "a" {
		s.Gateway, s.Remotes = gateway, map[string][]string{"g1": {"g2/a"}, "g2": {"g1/a"}, "hub": {"g1/a", "g2/a"}}[cluster]
	}
	return s
}

// summaryOf returns traces in short form: the nodes of their packets, and the outcome.
func summaryOf(traces []Trace) string {
	var lines []string
	var walk func(s *Hop) string
	walk = func(s *Hop) string {
		text := s.Node
		if s.Finding != nil {
			text += "!"
		}
		if s.Outcome != "" {
			text += "(" + s.Outcome + ")"
		}
		var next []string
		for _, n := range s.Next {
			next = append(next, walk(n))
		}
		if len(next) > 0 {
			text += " " + strings.Join(next, " & ")
		}
		return text
	}
	for _, t := range traces {
		line := fmt.Sprintf("%s %s: %s", t.First.Flow.Ingress, t.Outcome, walk(t.First))
		if t.Answered {
			line += ", answered"
		}
		if t.Answer != nil {
			line += " " + walk(t.Answer)
		}
		if t.Resets > 0 {
			line += fmt.Sprintf(", %d resets", t.Resets)
		}
		lines = append(lines, line)
	}
	return strings.Join(lines, "\n")
}

const (
	pod           = "10.7.2.5>243.0.0.1:80"
	tunnel        = "242.1.2.5>242.2.0.9:80"
	server        = "242.1.2.5>10.7.1.9:8080"
	answer        = "10.7.1.9:8080>242.1.2.5"
	repliesTo     = "242.2.0.9:80>242.1.2.5"
	replyToClient = "243.0.0.1:80>10.7.2.5"
)

// request is the way of a request from a worker of g1 to one of g2.
func request() (client, a, b, last status.FlowTrace) {
	return flow("cni0", "hw-vx0", pod, ""), flow("hw-vx0", "hw-wg1", pod, tunnel), flow("hw-wg1", "hw-vx0", tunnel, server), flow("hw-vx0", "cni0", server, "")
}

func TestJoin(t *testing.T) {
	t.Parallel()
	client, a, b, last := request()
	reply := []status.FlowTrace{
		flow("cni0", "hw-vx0", answer, ""), flow("hw-vx0", "hw-wg1", answer, repliesTo), flow("hw-wg1", "hw-vx0", repliesTo, replyToClient), flow("hw-vx0", "cni0", replyToClient, ""),
	}
	full := func(s NodeTrace) NodeTrace { s.Sampled = true; return s }
	only := func(s NodeTrace, prefix string) NodeTrace {
		s.Prefixes = []netip.Prefix{netip.MustParsePrefix(prefix)}
		return s
	}
	from := func(s NodeTrace, at int64) NodeTrace { s.Start = time.Unix(at, 0); return s }
	udp := func(j status.FlowTrace) status.FlowTrace {
		j.Ingress.Protocol, j.Egress.Protocol = "udp", "udp"
		return j
	}
	fromClient, forwarded := flow("cni0", "hw-vx0", pod, "10.7.2.5>242.2.0.9:80"), flow("hw-vx0", "hw-wg1", "10.7.2.5>242.2.0.9:80", tunnel)
	bypassed := flow("hw-wg1", "ovn0", repliesTo, "242.2.0.9:80>10.7.2.5")
	edges := func(j status.FlowTrace, middle float64) status.FlowTrace {
		j.First, j.Middle, j.Last = 0, middle, 9.5
		return j
	}
	rejected := droppedFlow("cni0", "10.7.2.5>242.2.0.9:80")
	rejected.Resets = rejected.Packets
	const route = "tcp 10.7.2.5 -> 243.0.0.1:80 "
	for _, tt := range []struct {
		name string
		seen []NodeTrace
		want string
	}{
		{"nothing", nil, ""},
		{"there and back", []NodeTrace{node("g1-w", client, reply[3]), node("g1-a", a, reply[2]), node("g2-a", b, reply[1]), node("g2-w", last, reply[0])},
			route + "arrived: g1-w g1-a g2-a g2-w(arrived), answered"},
		{"in any order of nodes", []NodeTrace{node("g2-w", reply[0], last), node("g2-a", reply[1], b), node("g1-w", reply[3], client), node("g1-a", reply[2], a)},
			route + "arrived: g1-w g1-a g2-a g2-w(arrived), answered"},
		{"nothing comes back", []NodeTrace{node("g1-w", client), node("g1-a", a), node("g2-a", b), node("g2-w", last)},
			route + "unanswered: g1-w g1-a g2-a g2-w(arrived)"},
		{"over UDP nothing need come back", []NodeTrace{node("g1-w", udp(client)), node("g1-a", udp(a)), node("g2-a", udp(b)), node("g2-w", udp(last))},
			"udp 10.7.2.5 -> 243.0.0.1:80 arrived: g1-w g1-a g2-a g2-w(arrived)"},
		{"in the own cluster the answer is not followed", []NodeTrace{node("g1-w", flow("cni0", "cni0", pod, "10.7.2.5>10.7.1.3:8080"))},
			route + "arrived: g1-w(arrived)"},
		{"dropped on the way", []NodeTrace{node("g1-w", client), node("g1-a", a), node("g2-a", droppedFlow("hw-wg1", tunnel))},
			route + "dropped: g1-w g1-a g2-a!(dropped)"},
		{"some dropped, some not", []NodeTrace{node("g1-w", client), node("g1-a", a), node("g2-a", b, droppedFlow("hw-wg1", tunnel)), node("g2-w", last)},
			route + "dropped: g1-w g1-a g2-a g2-w(arrived) & g2-a!(dropped)"},
		{"the answer is dropped", []NodeTrace{node("g1-w", client), node("g1-a", a, droppedFlow("hw-wg1", repliesTo)), node("g2-a", b, reply[1]), node("g2-w", last, reply[0])},
			route + "dropped: g1-w g1-a g2-a g2-w(arrived), answered g2-w g2-a g1-a!(dropped)"},
		{"the tunnel drops packets", []NodeTrace{node("g1-w", client), node("g1-a", a), node("g2-a"), node("g2-w")},
			route + "lost: g1-w g1-a(lost)"},
		{"it may have gone to a node that was not queried", []NodeTrace{node("g1-w", client), node("g1-a", a)}, route + "unclear: g1-w g1-a(unclear)"},
		{"it may have gone to a gateway that did not answer", []NodeTrace{node("g1-w", client), node("g2-a")}, route + "unclear: g1-w(unclear)"},
		{"all gateways of the cluster answered", []NodeTrace{node("g1-w", client), node("g1-a")}, route + "lost: g1-w(lost)"},
		{"it may have gone to a node that did not answer", []NodeTrace{node("g1-w", client), node("g1-a", a), node("g2-a", b)}, route + "unclear: g1-w g1-a g2-a(unclear)"},
		{"all nodes of the cluster answered", []NodeTrace{node("g1-w", client), node("g1-a", a), node("g2-a", b), node("g2-w")}, route + "lost: g1-w g1-a g2-a(lost)"},
		{"it may not be among those that are followed", []NodeTrace{node("g1-w", client), node("g1-a", a), full(node("g2-a"))}, route + "unclear: g1-w g1-a(unclear)"},
		{"the next node was not queried about such packets", []NodeTrace{node("g1-w", client), node("g1-a", a), only(node("g2-a"), "10.7.2.5/32")},
			route + "unclear: g1-w g1-a(unclear)"},
		{"the next node was asked about such packets", []NodeTrace{node("g1-w", client), node("g1-a", a), only(node("g2-a"), "242.1.2.0/24")},
			route + "lost: g1-w g1-a(lost)"},
		{"the next node looked later", []NodeTrace{node("g1-w", client), node("g1-a", a), from(node("g2-a"), 1007)}, route + "unclear: g1-w g1-a(unclear)"},
		{"the next node looked when the last of them came", []NodeTrace{node("g1-w", client), node("g1-a", a), from(node("g2-a"), 1005)},
			route + "lost: g1-w g1-a(lost)"},
		{"some packet between came when all looked", []NodeTrace{node("g1-w", client), node("g1-a", edges(a, 4)), from(node("g2-a"), 1001)},
			route + "lost: g1-w g1-a(lost)"},
		{"all came before or after all looked", []NodeTrace{node("g1-w", client), node("g1-a", edges(a, 9.4)), from(node("g2-a"), 1001)},
			route + "unclear: g1-w g1-a(unclear)"},
		{"the next node looked no longer", []NodeTrace{from(node("g1-w", client), 1008), from(node("g1-a", a), 1008), node("g2-a")},
			route + "unclear: g1-w g1-a(unclear)"},
		{"two clients behind one address", []NodeTrace{node("g1-w", client, flow("cni0", "hw-vx0", "10.7.2.6>243.0.0.1:80", "")),
			node("g1-a", a, flow("hw-vx0", "hw-wg1", "10.7.2.6>243.0.0.1:80", tunnel)), node("g2-a", b), node("g2-w", last, reply[0])},
			"tcp 10.7.2.5 -> 243.0.0.1:80 lost: g1-w g1-a g2-a g2-w(arrived), answered g2-w(lost)\n" +
				"tcp 10.7.2.6 -> 243.0.0.1:80 lost: g1-w g1-a g2-a g2-w(arrived), answered g2-w(lost)"},
		{"forwarded by a hub", []NodeTrace{node("g1-w", client, reply[3]), node("g1-a", a, reply[2]), node("hub-a", flow("hw-wg1", "hw-wg1", tunnel, ""), flow("hw-wg1", "hw-wg1", repliesTo, "")),
			node("g2-a", b, reply[1]), node("g2-w", last, reply[0])}, route + "arrived: g1-w g1-a hub-a g2-a g2-w(arrived), answered"},
		{"round in circles", []NodeTrace{node("g1-w", client), node("g1-a", flow("hw-vx0", "hw-wg1", pod, ""), flow("hw-wg1", "hw-wg1", pod, "")), node("g2-a", flow("hw-wg1", "hw-wg1", pod, ""))},
			route + "looped: g1-w g1-a g2-a g1-a(looped)"},
		{"circles that begin nowhere", []NodeTrace{node("g1-a", flow("hw-wg1", "hw-wg1", pod, "")), node("g2-a", flow("hw-wg1", "hw-wg1", pod, ""))},
			route + "looped: g1-a g2-a(looped)"},
		{"the answer goes past the worker", []NodeTrace{node("g1-w", fromClient), node("g1-a", forwarded, bypassed), node("g2-a", b, reply[1]), node("g2-w", last, reply[0])},
			route + "asymmetric: g1-w g1-a g2-a g2-w(arrived), answered g2-w g2-a g1-a(asymmetric)"},
		{"and is rejected, at any rule", []NodeTrace{node("g1-w", fromClient, rejected), node("g1-a", forwarded, bypassed), node("g2-a", b, reply[1]), node("g2-w", last, reply[0])},
			route + "asymmetric: g1-w g1-a g2-a g2-w(arrived), answered g2-w g2-a g1-a(asymmetric), 5 resets"},
		{"another question there is no refusal", []NodeTrace{node("g1-w", fromClient, droppedFlow("cni0", "10.7.2.5>242.2.0.9:80")), node("g1-a", forwarded, bypassed),
			node("g2-a", b, reply[1]), node("g2-w", last, reply[0])},
			"tcp 10.7.2.5 -> 242.2.0.9:80 dropped: g1-w!(dropped)\n" + route + "asymmetric: g1-w g1-a g2-a g2-w(arrived), answered g2-w g2-a g1-a(asymmetric)"},
		{"the worker may have had the answer unseen", []NodeTrace{full(node("g1-w", fromClient)), node("g1-a", forwarded, bypassed), node("g2-a", b, reply[1]), node("g2-w", last, reply[0])},
			route + "unclear: g1-w g1-a g2-a g2-w(arrived), answered g2-w g2-a g1-a(unclear)"},
		{"the worker has the answer over another network", []NodeTrace{node("g1-w", fromClient, flow("eth0", "cni0", "242.2.0.9:80>10.7.2.5", replyToClient)), node("g1-a", forwarded, bypassed),
			node("g2-a", b, reply[1]), node("g2-w", last, reply[0])}, route + "arrived: g1-w g1-a g2-a g2-w(arrived), answered"},
		{"the worker drops the answer from another network", []NodeTrace{node("g1-w", fromClient, droppedFlow("eth0", "242.2.0.9:80>10.7.2.5")), node("g1-a", forwarded, bypassed),
			node("g2-a", b, reply[1]), node("g2-w", last, reply[0])}, route + "dropped: g1-w g1-a g2-a g2-w(arrived), answered g2-w g2-a g1-a g1-w!(dropped)"},
		{"what the client asked for itself may come straight", []NodeTrace{node("g1-w", flow("cni0", "hw-vx0", "10.7.2.5>242.2.0.9:80", "")), node("g1-a", forwarded, bypassed),
			node("g2-a", b, reply[1]), node("g2-w", last, reply[0])}, "tcp 10.7.2.5 -> 242.2.0.9:80 arrived: g1-w g1-a g2-a g2-w(arrived), answered"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			if have := summaryOf(Correlate(tt.seen)); have != tt.want {
				t.Errorf("have\n%s\nwant\n%s", have, tt.want)
			}
		})
	}
}

// TestOrder: what went wrong comes first, then what had the most packets.
func TestOrder(t *testing.T) {
	t.Parallel()
	few, many := flow("cni0", "cni0", "10.7.2.1>243.0.0.1:80", ""), flow("cni0", "cni0", "10.7.2.2>243.0.0.1:80", "")
	few.Packets, many.Packets = 1, 9
	have := summaryOf(Correlate([]NodeTrace{node("g1-w", few, many, droppedFlow("cni0", pod))}))
	const want = "tcp 10.7.2.5 -> 243.0.0.1:80 dropped: g1-w!(dropped)\n" +
		"tcp 10.7.2.2 -> 243.0.0.1:80 arrived: g1-w(arrived)\ntcp 10.7.2.1 -> 243.0.0.1:80 arrived: g1-w(arrived)"
	if have != want {
		t.Errorf("have\n%s\nwant\n%s", have, want)
	}
}
