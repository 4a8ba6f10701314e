package trace

import (
	"cmp"
	"math"
	"net/netip"
	"slices"
	"time"

	"hawser.dev/hawser/nodeagent/status"
)

// mostJourneys are listed of a node.
const mostJourneys = 500

// firstOwn is the first port that Linux gives to a client which asks for none
// (net.ipv4.ip_local_port_range).
const firstOwn = 32768

// alike joins the journeys of like packets; middle is half of the time that the node looked.
func alike(all []*journey, middle time.Duration) []status.Journey {
	count := map[status.Journey]*status.Journey{}
	for _, j := range all {
		like := j.like()
		if count[like] == nil {
			told := like
			told.First, told.Middle = j.began.Seconds(), j.began.Seconds()
			count[like] = &told
		}
		told := count[like]
		told.Packets++
		told.Last = j.began.Seconds() // they are in the order of their beginnings
		if math.Abs(told.Last-middle.Seconds()) < math.Abs(told.Middle-middle.Seconds()) {
			told.Middle = told.Last
		}
		if j.end == Accepted {
			told.Passed++
		}
		if j.flow.Reset {
			told.Resets++
		}
	}
	var out []status.Journey
	for _, j := range count {
		out = append(out, *j)
	}
	slices.SortFunc(out, func(a, b status.Journey) int {
		return cmp.Or(cmp.Compare(b.Packets, a.Packets), cmp.Compare(a.Came.Protocol, b.Came.Protocol),
			cmp.Compare(a.Came.From, b.Came.From), cmp.Compare(a.Came.To, b.Came.To), cmp.Compare(a.Left.From, b.Left.From),
			cmp.Compare(a.Left.To, b.Left.To), cmp.Compare(a.In, b.In), cmp.Compare(a.Out, b.Out), cmp.Compare(a.Place, b.Place))
	})
	return out[:min(len(out), mostJourneys)]
}

// like is what the journey has in common with others, without a number of packets.
func (j *journey) like() status.Journey {
	out := status.Journey{Came: ends(*j.flow), Left: ends(*j.last), In: j.flow.In, Out: j.last.Out}
	if j.end != Accepted {
		f := finding(j)
		out.Kind, out.Place = f.Kind, f.Place
	}
	return out
}

// ends leaves out the port of the client: of the end with the higher one, as those that
// Linux chooses are above those that servers listen at.
func ends(f Flow) status.Ends {
	from, to := f.From, f.To
	if to.Port() >= firstOwn && to.Port() > from.Port() {
		to = netip.AddrPortFrom(to.Addr(), 0)
	} else {
		from = netip.AddrPortFrom(from.Addr(), 0)
	}
	return status.Ends{Protocol: f.Protocol, From: end(from), To: end(to)}
}
