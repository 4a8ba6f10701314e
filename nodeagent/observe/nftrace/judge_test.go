package nftrace

import (
	"net/netip"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"hawser.dev/hawser/nodeagent/status"
)

// walk returns the steps of one packet: one step per place. The last step has the verdict.
func walk(id uint32, at time.Duration, f *Flow, end Verdict, places ...RuleRef) []Step {
	out := []Step{{At: at, ID: id, Rule: RuleRef{"inet", Table, chainPick, 7}, Flow: f}}
	for i, p := range places {
		s := Step{At: at, ID: id, Rule: p}
		if i == len(places)-1 {
			s.Verdict = end
		}
		out = append(out, s)
	}
	return out
}

func TestJudge(t *testing.T) {
	t.Parallel()
	flow := func(from, to, out string) *Flow {
		return &Flow{Protocol: "tcp", From: netip.MustParseAddrPort(from), To: netip.MustParseAddrPort(to), In: "hw-vx0", Out: out}
	}
	through := RuleRef{"inet", Table, chainOut, 0}
	forward := RuleRef{"ip", "filter", "FORWARD", 0}
	rule := RuleRef{"ip", "calico", "cali-fw-1", 12}
	hawser := RuleRef{"inet", "hawser", "forward", 3}
	a, b := flow("10.7.2.5:4001", "243.0.0.1:80", ""), flow("10.7.2.5:4002", "243.0.0.1:80", "")
	const second = time.Second
	tests := []struct {
		name  string
		steps []Step
		want  status.Diagnosis
	}{
		{"nothing", nil, status.Diagnosis{}},
		{"gets through", walk(1, 0, a, Continues, forward, through), status.Diagnosis{Packets: 1, Passed: 1}},
		{"an ID that is reused", append(walk(1, 0, a, Continues, forward, through), walk(1, second, b, Dropped, rule)...),
			status.Diagnosis{Packets: 2, Passed: 1, Findings: []status.Finding{{Kind: "foreign", Packets: 1,
				Location: "rule 12 in chain cali-fw-1 of table ip calico", Flows: []string{"tcp 10.7.2.5 -> 243.0.0.1:80, in hw-vx0"}}}}},
		{"two packets of two connections, one finding", append(walk(1, 0, a, Dropped, forward), walk(2, 0, b, Dropped, forward)...),
			status.Diagnosis{Packets: 2, Findings: []status.Finding{{Kind: "foreign", Packets: 2,
				Location: "the policy of chain FORWARD of table ip filter", Flows: []string{"tcp 10.7.2.5 -> 243.0.0.1:80, in hw-vx0"}}}}},
		{"with a verdict", func() []Step {
			steps := walk(1, 0, a, Dropped, forward, rule)
			steps[2].Flow = flow("10.7.2.5:4001", "10.7.1.9:8080", "cni0")
			return steps
		}(), status.Diagnosis{Packets: 1, Findings: []status.Finding{{Kind: "foreign", Packets: 1, Location: "rule 12 in chain cali-fw-1 of table ip calico",
			Flows: []string{"tcp 10.7.2.5 -> 243.0.0.1:80, then tcp 10.7.2.5 -> 10.7.1.9:8080, in hw-vx0, out cni0"}}}}},
		{"another ID after translation", func() []Step {
			f := flow("10.7.2.5:4001", "242.2.0.9:80", "hw-vx0")
			return append(walk(1, 0, a, Continues, hawser), Step{ID: 9, Rule: forward, Flow: f}, Step{ID: 9, Rule: rule, Verdict: Dropped})
		}(), status.Diagnosis{Packets: 1, Findings: []status.Finding{{Kind: "foreign", Packets: 1, Location: "rule 12 in chain cali-fw-1 of table ip calico",
			Flows: []string{"tcp 10.7.2.5 -> 243.0.0.1:80, then tcp 10.7.2.5 -> 242.2.0.9:80, in hw-vx0, out hw-vx0"}}}}},
		{"another ID and a translated source", append(walk(1, 0, a, Continues, forward),
			Step{ID: 9, Rule: through, Flow: flow("242.1.2.5:4001", "243.0.0.1:80", "hw-wg1")}), status.Diagnosis{Packets: 1, Passed: 1}},
		{"a reused ID of a packet that passed, without a first step", append(append(walk(1, 0, a, Continues, through), walk(2, 0, b, Continues, hawser)...),
			Step{ID: 1, Rule: through, Flow: flow("10.7.2.5:4002", "242.2.0.9:80", "hw-vx0")}), status.Diagnosis{Packets: 2, Passed: 2}},
		{"Hawser's own", walk(1, 0, a, Dropped, hawser),
			status.Diagnosis{Packets: 1, Findings: []status.Finding{{Kind: "own", Packets: 1, Location: "rule 3 in chain forward of table inet hawser",
				Flows: []string{"tcp 10.7.2.5 -> 243.0.0.1:80, in hw-vx0"}}}}},
		{"queued and not seen again", walk(1, 0, a, Queued, rule),
			status.Diagnosis{Packets: 1, Findings: []status.Finding{{Kind: "queued", Packets: 1, Location: "rule 12 in chain cali-fw-1 of table ip calico",
				Flows: []string{"tcp 10.7.2.5 -> 243.0.0.1:80, in hw-vx0"}}}}},
		{"queued and through", walk(1, 0, a, Continues, forward, through), status.Diagnosis{Packets: 1, Passed: 1}},
		{"not seen again", walk(1, 0, a, Continues, forward),
			status.Diagnosis{Packets: 1, Findings: []status.Finding{{Kind: "lost", Packets: 1, Location: "the policy of chain FORWARD of table ip filter",
				Flows: []string{"tcp 10.7.2.5 -> 243.0.0.1:80, in hw-vx0"}}}}},
		{"not seen again, but similar packets were", append(walk(1, 0, a, Continues, forward), walk(2, 0, b, Continues, through)...),
			status.Diagnosis{Packets: 2, Passed: 1}},
		{"in flight at the end", walk(1, 9500*time.Millisecond, a, Continues, forward), status.Diagnosis{}},
		{"without a flow", walk(1, 0, nil, Dropped, forward), status.Diagnosis{}},
		{"not of the clusterset", []Step{{ID: 1, Rule: forward, Verdict: Dropped, Flow: a}}, status.Diagnosis{}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			have := Diagnose(tt.steps, 10*second, nil)
			tt.want.Seconds, have.Flows = 10, nil
			for i := range have.Findings {
				if have.Findings[i].Text == "" || have.Findings[i].Next == "" {
					t.Errorf("empty finding: %+v", have.Findings[i])
				}
				have.Findings[i].Text, have.Findings[i].Next = "", ""
			}
			if text := cmp.Diff(tt.want, have); text != "" {
				t.Errorf("(-want +got)\n%s", text)
			}
		})
	}
}

// TestJourneys checks that Diagnose groups similar packets. Each group has the common ends of its
// packets on arrival and departure.
func TestJourneys(t *testing.T) {
	t.Parallel()
	flow := func(from, to, in, out string) *Flow {
		return &Flow{Protocol: "tcp", From: netip.MustParseAddrPort(from), To: netip.MustParseAddrPort(to), In: in, Out: out}
	}
	through, forward := RuleRef{"inet", Table, chainOut, 0}, RuleRef{"ip", "filter", "FORWARD", 0}
	passes := func(id uint32, at time.Duration, first, last *Flow) []Step {
		return append(walk(id, at, first, Continues, forward), Step{At: at, ID: id, Rule: through, Flow: last})
	}
	var steps []Step
	for i, port := range []string{"40001", "40002", "40003"} { // requests of one client
		steps = append(steps, passes(uint32(i), time.Duration(3*i+1)*time.Second, flow("10.7.2.5:"+port, "243.0.0.1:80", "cni0", ""), flow("242.1.2.5:"+port, "242.2.0.9:80", "cni0", "hw-wg1"))...)
	}
	steps = append(steps, passes(7, 0, flow("10.7.1.9:8080", "242.3.0.1:40001", "cni0", ""), flow("242.1.0.9:80", "242.3.0.1:40001", "cni0", "hw-wg1"))...) // a reply
	steps = append(steps, walk(8, 0, flow("10.7.2.5:40004", "243.0.0.1:80", "cni0", ""), Dropped, forward)...)
	have := Diagnose(steps, 10*time.Second, nil)
	ends := func(from, to string) status.Ends { return status.Ends{Protocol: "tcp", From: from, To: to} }
	want := []status.FlowTrace{
		{Ingress: ends("10.7.2.5", "243.0.0.1:80"), Egress: ends("242.1.2.5", "242.2.0.9:80"), In: "cni0", Out: "hw-wg1", Packets: 3, Passed: 3, First: 1, Middle: 4, Last: 7},
		{Ingress: ends("10.7.1.9:8080", "242.3.0.1"), Egress: ends("242.1.0.9:80", "242.3.0.1"), In: "cni0", Out: "hw-wg1", Packets: 1, Passed: 1},
		{Ingress: ends("10.7.2.5", "243.0.0.1:80"), Egress: ends("10.7.2.5", "243.0.0.1:80"), In: "cni0", Packets: 1, Kind: "foreign", Location: forward.String()},
	}
	if text := cmp.Diff(want, have.Flows); text != "" {
		t.Errorf("(-want +got)\n%s", text)
	}
	if have.Sampled {
		t.Error("limit reached by five packets")
	}
	for i := range uint32(rate) {
		steps = append(steps, passes(100+i, time.Second, flow("10.7.2.5:41000", "243.0.0.1:80", "cni0", ""), flow("242.1.2.5:41000", "242.2.0.9:80", "cni0", "hw-wg1"))...)
	}
	if !Diagnose(steps, 10*time.Second, nil).Sampled {
		t.Errorf("%d packets in a second, and the result is not marked as sampled", rate)
	}
}

func TestOwner(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		place RuleRef
		want  string
	}{
		{RuleRef{"ip", "filter", "cali-tw-cali1", 1}, "Calico"},
		{RuleRef{"inet", "kube-network-policies", "forward", 1}, "kube-network-policies"},
		{RuleRef{"ip", "filter", "KUBE-NWPLCY-DEFAULT", 1}, "kube-router's NetworkPolicy"},
		{RuleRef{"ip", "filter", "KUBE-FORWARD", 1}, "kube-proxy or the kubelet"},
		{RuleRef{"ip", "kube-proxy", "filter-forward", 1}, "kube-proxy"},
		{RuleRef{"inet", "firewalld", "filter_FORWARD", 1}, "firewalld"},
		{RuleRef{"ip", "filter", "FORWARD", 0}, "a firewall of iptables"},
		{RuleRef{"inet", "mine", "forward", 1}, "another program"},
	} {
		if who, do := owner(tt.place); who != tt.want || do == "" {
			t.Errorf("%s: %s", tt.place, who)
		}
	}
}

// FuzzDecode checks that decode returns for any message, without a flow of invalid addresses.
func FuzzDecode(f *testing.F) {
	f.Add([]byte{2, 0, 0, 0})
	f.Add([]byte{2, 0, 0, 0, 8, 0, 4, 0, 0, 0, 0, 3, 12, 0, 5, 128, 8, 0, 1, 0, 0, 0, 0, 0})
	f.Add([]byte{1, 0, 0, 0, 24, 0, 8, 0, 0x45, 0, 0, 0, 0, 0, 0, 0, 0, 6, 0, 0, 10, 7, 0, 1, 10, 7, 0, 2})
	f.Fuzz(func(t *testing.T, message []byte) {
		step, err := decode(message, func(uint32) string { return "" })
		if err == nil && step.Flow != nil && !step.Flow.From.Addr().IsValid() {
			t.Errorf("%+v", step)
		}
	})
}
