package nftrace

import (
	"cmp"
	"math"
	"net/netip"
	"slices"
	"strings"
	"time"

	"hawser.dev/hawser/nodeagent/status"
)

// inFlight is the maximum time of a packet in flight: Judge ignores traces that began later than
// that before the end.
const inFlight = time.Second

// maxFindingFlows is the maximum number of flows per finding.
const maxFindingFlows = 3

// flowTrace is the trace of one packet.
type flowTrace struct {
	startedAt time.Duration
	seen      time.Duration // of the last step
	flow      *Flow         // in the first step; nil = unknown
	last      *Flow         // in the last step that contained it
	at        RuleRef       // the last rule that the packet met
	end       Verdict
}

// Diagnose reports which rules dropped packets. steps are in order of time; lasted is the duration of
// the capture; blocks are the prefixes of other clusters, for the advice.
func Diagnose(steps []Step, lasted time.Duration, blocks []netip.Prefix) status.Diagnosis {
	var all []*flowTrace
	open := map[uint32]*flowTrace{}
	for _, s := range steps {
		if s.Rule.own(chainPick) { // the kernel reuses packet IDs
			j := &flowTrace{startedAt: s.At}
			open[s.ID], all = j, append(all, j)
		}
		j := open[s.ID]
		if next := matchTrace(all, j, s); next != nil {
			j, open[s.ID] = next, next
		}
		if j != nil {
			j.step(s)
		}
	}
	all = slices.DeleteFunc(all, func(j *flowTrace) bool {
		return j.flow == nil || j.end == Continues && j.startedAt > lasted-inFlight
	})
	return conclude(all, lasted, blocks)
}

// hop is the maximum time of a packet from one hook to the next.
const hop = time.Second

// matchTrace finds the packet that a step belongs to when its trace ID is unknown. The kernel
// derives the ID from the packet's hash, which NAT changes; NAT leaves one end of the packet
// unchanged. It returns nil if no packet matches.
func matchTrace(all []*flowTrace, numbered *flowTrace, s Step) *flowTrace {
	if s.Flow == nil || numbered != nil && numbered.end == Continues {
		return nil
	}
	var other *flowTrace
	for _, j := range slices.Backward(all) {
		if s.At-j.startedAt > inFlight+hop {
			break
		}
		if j.end != Continues || j.last == nil || j.last.Protocol != s.Flow.Protocol || s.At-j.seen > hop {
			continue
		}
		if j.last.From == s.Flow.From {
			return j
		}
		if other == nil && j.last.To == s.Flow.To {
			other = j
		}
	}
	return other
}

func (p RuleRef) own(chain string) bool {
	return p.Family == "inet" && p.Table == Table && p.Chain == chain
}

func (j *flowTrace) step(s Step) {
	j.seen = s.At
	if s.Flow != nil {
		j.last = s.Flow
		if j.flow == nil {
			j.flow = s.Flow
		}
	}
	switch {
	case j.end == Dropped:
	case s.Verdict == Dropped || s.Verdict == Queued:
		j.end, j.at = s.Verdict, s.Rule
	case s.Rule.own(chainOut) || s.Rule.own(chainInput):
		j.end = Accepted
	case s.Rule.Table != Table:
		j.at = s.Rule
	}
}

// conversation returns the part that packets of one direction of a connection share.
func (j *flowTrace) conversation() status.Ends { return ends(*j.flow) }

func conclude(all []*flowTrace, lasted time.Duration, blocks []netip.Prefix) status.Diagnosis {
	out := status.Diagnosis{Seconds: lasted.Seconds(), Packets: len(all), Sampled: full(all)}
	passed := map[status.Ends]bool{}
	for _, j := range all {
		if j.end == Accepted {
			out.Passed++
			passed[j.conversation()] = true
		}
	}
	// A packet whose trace stops is reported only if no similar packet passed: the kernel may
	// copy a packet, and the copy has another ID.
	all = slices.DeleteFunc(all, func(j *flowTrace) bool {
		return j.end != Accepted && j.end != Dropped && passed[j.conversation()]
	})
	found := map[string]*status.Finding{}
	for _, j := range all {
		if j.end == Accepted {
			continue
		}
		f := explainDrop(j, blocks)
		key := f.Kind + f.Location
		if found[key] == nil {
			found[key] = &f
		}
		found[key].Packets++
		if text := j.text(); len(found[key].Flows) < maxFindingFlows && !slices.Contains(found[key].Flows, text) {
			found[key].Flows = append(found[key].Flows, text)
		}
	}
	for _, f := range found {
		out.Findings = append(out.Findings, *f)
	}
	slices.SortFunc(out.Findings, func(a, b status.Finding) int {
		return cmp.Or(cmp.Compare(b.Packets, a.Packets), strings.Compare(a.Kind+a.Location, b.Kind+b.Location))
	})
	out.Flows = groupTraces(all, lasted/2)
	return out
}

// full reports whether so many packets arrived in one second that the filter may have skipped
// some. Traces are in the order of their start.
func full(all []*flowTrace) bool {
	for i := rate - 1; i < len(all); i++ {
		if all[i].startedAt-all[i-rate+1].startedAt <= time.Second {
			return true
		}
	}
	return false
}

// text describes the packet as it arrived and, if different, as it left.
func (j *flowTrace) text() string {
	first, last := ends(*j.flow), ends(*j.last)
	text := first.String()
	if last != first {
		text += ", then " + last.String()
	}
	if j.last.In != "" {
		text += ", in " + j.last.In
	}
	if j.last.Out != "" {
		text += ", out " + j.last.Out
	}
	return text
}

// maxFlows is the maximum number of flows per node.
const maxFlows = 500

// firstOwn is the first ephemeral port of Linux (net.ipv4.ip_local_port_range).
const firstOwn = 32768

// groupTraces groups the traces of similar packets. middle is half of the capture time.
func groupTraces(all []*flowTrace, middle time.Duration) []status.FlowTrace {
	count := map[status.FlowTrace]*status.FlowTrace{}
	for _, j := range all {
		// The common part of similar traces, without a packet count.
		like := status.FlowTrace{Ingress: ends(*j.flow), Egress: ends(*j.last), In: j.flow.In, Out: j.last.Out}
		if j.end != Accepted {
			f := explainDrop(j, nil)
			like.Kind, like.Location = f.Kind, f.Location
		}
		if count[like] == nil {
			trace := like
			trace.First, trace.Middle = j.startedAt.Seconds(), j.startedAt.Seconds()
			count[like] = &trace
		}
		trace := count[like]
		trace.Packets++
		trace.Last = j.startedAt.Seconds() // traces are in the order of their start
		if math.Abs(trace.Last-middle.Seconds()) < math.Abs(trace.Middle-middle.Seconds()) {
			trace.Middle = trace.Last
		}
		if j.end == Accepted {
			trace.Passed++
		}
		if j.flow.Reset {
			trace.Resets++
		}
	}
	var out []status.FlowTrace
	for _, j := range count {
		out = append(out, *j)
	}
	slices.SortFunc(out, func(a, b status.FlowTrace) int {
		return cmp.Or(cmp.Compare(b.Packets, a.Packets), cmp.Compare(a.Ingress.Protocol, b.Ingress.Protocol),
			cmp.Compare(a.Ingress.From, b.Ingress.From), cmp.Compare(a.Ingress.To, b.Ingress.To), cmp.Compare(a.Egress.From, b.Egress.From),
			cmp.Compare(a.Egress.To, b.Egress.To), cmp.Compare(a.In, b.In), cmp.Compare(a.Out, b.Out), cmp.Compare(a.Location, b.Location))
	})
	return out[:min(len(out), maxFlows)]
}

// ends removes the client's port, which is the higher one: ephemeral ports are above those of
// servers.
func ends(f Flow) status.Ends {
	from, to := f.From, f.To
	if to.Port() >= firstOwn && to.Port() > from.Port() {
		to = netip.AddrPortFrom(to.Addr(), 0)
	} else {
		from = netip.AddrPortFrom(from.Addr(), 0)
	}
	return status.Ends{Protocol: f.Protocol, From: end(from), To: end(to)}
}
