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

// maxFlightTime is the maximum time of a packet in flight. Diagnose ignores unfinished traces that
// started less than maxFlightTime before the end of the capture.
const maxFlightTime = time.Second

// maxFindingFlows is the maximum number of flows per finding.
const maxFindingFlows = 3

// flowTrace is the trace of one packet.
type flowTrace struct {
	startedAt time.Duration
	seen      time.Duration // time of the last step
	flow      *Flow         // of the first step that has one; nil = unknown
	last      *Flow         // of the last step that has one
	lastRule  RuleRef       // the last rule that the packet met
	end       Verdict
}

// Diagnose returns which rules dropped packets. steps are in order of time. lasted is the duration
// of the capture. blocks are the prefixes of other clusters, for the advice.
func Diagnose(steps []Step, lasted time.Duration, blocks []netip.Prefix) status.Diagnosis {
	var all []*flowTrace
	open := map[uint32]*flowTrace{}
	for _, s := range steps {
		if s.Rule.isOwn(chainPick) { // a new packet; the kernel reuses IDs
			t := &flowTrace{startedAt: s.At}
			open[s.ID], all = t, append(all, t)
		}
		t := open[s.ID]
		if next := matchTrace(all, t, s); next != nil {
			t, open[s.ID] = next, next
		}
		if t != nil {
			t.step(s)
		}
	}
	all = slices.DeleteFunc(all, func(t *flowTrace) bool {
		return t.flow == nil || t.end == Continues && t.startedAt > lasted-maxFlightTime
	})
	return summarize(all, lasted, blocks)
}

// maxHopTime is the maximum time of a packet from one hook to the next.
const maxHopTime = time.Second

// matchTrace returns the trace of a step whose trace ID is not in use; nil if no trace matches. The
// kernel derives the ID from the packet's hash, which NAT changes. matchTrace compares the packet's
// source and destination, because NAT changes only one of them.
func matchTrace(all []*flowTrace, byID *flowTrace, s Step) *flowTrace {
	if s.Flow == nil || byID != nil && byID.end == Continues {
		return nil
	}
	var other *flowTrace
	for _, t := range slices.Backward(all) {
		if s.At-t.startedAt > maxFlightTime+maxHopTime {
			break
		}
		if t.end != Continues || t.last == nil || t.last.Protocol != s.Flow.Protocol || s.At-t.seen > maxHopTime {
			continue
		}
		if t.last.From == s.Flow.From {
			return t
		}
		if other == nil && t.last.To == s.Flow.To {
			other = t
		}
	}
	return other
}

func (p RuleRef) isOwn(chain string) bool {
	return p.Family == "inet" && p.Table == Table && p.Chain == chain
}

func (t *flowTrace) step(s Step) {
	t.seen = s.At
	if s.Flow != nil {
		t.last = s.Flow
		if t.flow == nil {
			t.flow = s.Flow
		}
	}
	switch {
	case t.end == Dropped:
	case s.Verdict == Dropped || s.Verdict == Queued:
		t.end, t.lastRule = s.Verdict, s.Rule
	case s.Rule.isOwn(chainOut) || s.Rule.isOwn(chainInput):
		t.end = Accepted
	case s.Rule.Table != Table:
		t.lastRule = s.Rule
	}
}

// ends returns the ends of the packet as it arrived.
func (t *flowTrace) ends() status.Ends { return endsOf(*t.flow) }

// summarize counts the traces and explains the dropped packets.
func summarize(all []*flowTrace, lasted time.Duration, blocks []netip.Prefix) status.Diagnosis {
	out := status.Diagnosis{Seconds: lasted.Seconds(), Packets: len(all), Sampled: rateLimited(all)}
	passed := map[status.Ends]bool{}
	for _, t := range all {
		if t.end == Accepted {
			out.Passed++
			passed[t.ends()] = true
		}
	}
	// Report a packet whose trace stops only if no similar packet passed. The kernel may copy a
	// packet, and the copy has another ID.
	all = slices.DeleteFunc(all, func(t *flowTrace) bool {
		return t.end != Accepted && t.end != Dropped && passed[t.ends()]
	})
	found := map[string]*status.Finding{}
	for _, t := range all {
		if t.end == Accepted {
			continue
		}
		f := explainDrop(t, blocks)
		key := f.Kind + f.Location
		if found[key] == nil {
			found[key] = &f
		}
		found[key].Packets++
		if text := t.text(); len(found[key].Flows) < maxFindingFlows && !slices.Contains(found[key].Flows, text) {
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

// rateLimited reports whether the rate limit may have skipped packets, because rate packets started
// within one second. Traces are in the order of their start.
func rateLimited(all []*flowTrace) bool {
	for i := rate - 1; i < len(all); i++ {
		if all[i].startedAt-all[i-rate+1].startedAt <= time.Second {
			return true
		}
	}
	return false
}

// text returns the ends of the packet as it arrived and, if different, as it left.
func (t *flowTrace) text() string {
	first, last := endsOf(*t.flow), endsOf(*t.last)
	text := first.String()
	if last != first {
		text += ", then " + last.String()
	}
	if t.last.In != "" {
		text += ", in " + t.last.In
	}
	if t.last.Out != "" {
		text += ", out " + t.last.Out
	}
	return text
}

// maxFlows is the maximum number of flows in a diagnosis.
const maxFlows = 500

// firstEphemeralPort is the first ephemeral port of Linux (net.ipv4.ip_local_port_range).
const firstEphemeralPort = 32768

// groupTraces groups the traces of similar packets. middle is half of the capture time.
func groupTraces(all []*flowTrace, middle time.Duration) []status.FlowTrace {
	count := map[status.FlowTrace]*status.FlowTrace{}
	for _, t := range all {
		// Similar traces have the same key, which has no packet count.
		key := status.FlowTrace{Ingress: endsOf(*t.flow), Egress: endsOf(*t.last), In: t.flow.In, Out: t.last.Out}
		if t.end != Accepted {
			f := explainDrop(t, nil)
			key.Kind, key.Location = f.Kind, f.Location
		}
		if count[key] == nil {
			trace := key
			trace.First, trace.Middle = t.startedAt.Seconds(), t.startedAt.Seconds()
			count[key] = &trace
		}
		trace := count[key]
		trace.Packets++
		trace.Last = t.startedAt.Seconds() // traces are in the order of their start
		if math.Abs(trace.Last-middle.Seconds()) < math.Abs(trace.Middle-middle.Seconds()) {
			trace.Middle = trace.Last
		}
		if t.end == Accepted {
			trace.Passed++
		}
		if t.flow.Reset {
			trace.Resets++
		}
	}
	var out []status.FlowTrace
	for _, trace := range count {
		out = append(out, *trace)
	}
	slices.SortFunc(out, func(a, b status.FlowTrace) int {
		return cmp.Or(cmp.Compare(b.Packets, a.Packets), cmp.Compare(a.Ingress.Protocol, b.Ingress.Protocol),
			cmp.Compare(a.Ingress.From, b.Ingress.From), cmp.Compare(a.Ingress.To, b.Ingress.To), cmp.Compare(a.Egress.From, b.Egress.From),
			cmp.Compare(a.Egress.To, b.Egress.To), cmp.Compare(a.In, b.In), cmp.Compare(a.Out, b.Out), cmp.Compare(a.Location, b.Location))
	})
	return out[:min(len(out), maxFlows)]
}

// endsOf returns the ends of a packet without the client's port. If the destination port is
// ephemeral and the higher one, it is the client's. Otherwise the source port is.
func endsOf(f Flow) status.Ends {
	from, to := f.From, f.To
	if to.Port() >= firstEphemeralPort && to.Port() > from.Port() {
		to = netip.AddrPortFrom(to.Addr(), 0)
	} else {
		from = netip.AddrPortFrom(from.Addr(), 0)
	}
	return status.Ends{Protocol: f.Protocol, From: end(from), To: end(to)}
}
