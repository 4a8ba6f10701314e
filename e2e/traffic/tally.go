package traffic

import (
	"slices"
	"time"
)

// Gap is a time in which something did not happen.
type Gap struct {
	At   time.Time `json:"at"`   // when it began
	From Millis    `json:"from"` // the same, since the beginning of the flow
	Long Millis    `json:"long"` // how long it was
	Lost int       `json:"lost"` // datagrams lost in a row; 0 for a silence
}

// UDPReport is what became of a flow of datagrams. Times of sending and of
// receiving are the sender's own.
type UDPReport struct {
	Target     string    `json:"target"`
	Began      time.Time `json:"began"`
	Lasted     Millis    `json:"lasted"`
	Sent       int       `json:"sent"`
	Received   int       `json:"received"` // each once
	Lost       int       `json:"lost"`     // no answer, also not in the end, until none came for Grace
	Duplicates int       `json:"duplicates"`
	Reordered  int       `json:"reordered"` // answers to a datagram after the answer to a later one
	RTT        struct {
		Mean Millis `json:"mean"`
		Max  Millis `json:"max"`
	} `json:"rtt"`
	Silence   Gap    `json:"silence"`             // the longest time without any answer
	Outage    Gap    `json:"outage"`              // the longest row of lost datagrams, in time of sending
	Pause     Millis `json:"pause"`               // the longest time in which the sender itself did not send
	Silences  []Gap  `json:"silences"`            // those over the threshold, the first mostGaps
	Outages   []Gap  `json:"outages"`             // likewise
	SendError string `json:"sendError,omitempty"` // the last one
}

const (
	// window is how many datagrams may be under way; what is answered later counts as lost.
	window = 1 << 15
	// mostGaps bounds the lists of a report.
	mostGaps = 1000
)

// tally is the log of a flow. It holds no socket and no clock: times are since the
// beginning. Datagrams are numbered from 0 and leave in order.
type tally struct {
	sent    []time.Duration // by number, which rises
	back    []bool          // by number: it was answered
	arrived []time.Duration // of first answers, in the order of arrival

	duplicates, reordered int
	highest               int           // number answered so far; -1 = none
	rtts, rtt             time.Duration // in all, and the longest
}

func newTally() *tally { return &tally{highest: -1} }

// send notes that the next datagram leaves, and gives its number.
func (t *tally) send(at time.Duration) int {
	t.sent, t.back = append(t.sent, at), append(t.back, false)
	return len(t.sent) - 1
}

// receive notes an answer.
func (t *tally) receive(n int, at time.Duration) {
	if n < 0 || n >= len(t.sent) || n < len(t.sent)-window {
		return // not ours, or too late
	}
	if t.back[n] {
		t.duplicates++
		return
	}
	t.back[n] = true
	t.arrived = append(t.arrived, at)
	if n < t.highest {
		t.reordered++
	}
	t.highest = max(t.highest, n)
	rtt := at - t.sent[n]
	t.rtts, t.rtt = t.rtts+rtt, max(t.rtt, rtt)
}

// gap is the longest time without an answer that touches the time from..to.
func (t *tally) gap(from, to time.Duration) time.Duration { return longest(t.arrived, from, to) }

// longest is the longest time between two that touches from..to; times rise.
func longest(times []time.Duration, from, to time.Duration) time.Duration {
	i, _ := slices.BinarySearch(times, from)
	last := time.Duration(0)
	if i > 0 {
		last = times[i-1]
	}
	var most time.Duration
	for ; i < len(times) && last < to; i++ {
		most, last = max(most, times[i]-last), times[i]
	}
	return max(most, to-last)
}

// lost counts the datagrams that were sent from..to, and those of them that were not
// answered.
func (t *tally) lost(from, to time.Duration) (lost, sent int) {
	first, _ := slices.BinarySearch(t.sent, from)
	end, _ := slices.BinarySearch(t.sent, to)
	for _, back := range t.back[first:max(first, end)] {
		if sent++; !back {
			lost++
		}
	}
	return lost, sent
}

// report sums a flow up that began at a moment and whose sending ended at end. Silences
// from threshold on are listed.
func (t *tally) report(began time.Time, end, threshold time.Duration) UDPReport {
	r := UDPReport{
		Began: began, Lasted: Millis(end), Sent: len(t.sent), Received: len(t.arrived), Lost: len(t.sent) - len(t.arrived),
		Duplicates: t.duplicates, Reordered: t.reordered, Silences: []Gap{}, Outages: []Gap{},
	}
	r.RTT.Max = Millis(t.rtt)
	if r.Received > 0 {
		r.RTT.Mean = Millis(t.rtts / time.Duration(r.Received))
	}
	note := func(from, until time.Duration, lost int, most *Gap, list *[]Gap, least time.Duration) {
		gap := Gap{At: began.Add(from), From: Millis(from), Long: Millis(until - from), Lost: lost}
		if gap.Long > most.Long {
			*most = gap
		}
		if until-from >= least && len(*list) < mostGaps {
			*list = append(*list, gap)
		}
	}
	last := time.Duration(0)
	for _, at := range t.arrived {
		note(last, at, 0, &r.Silence, &r.Silences, threshold)
		last = at
	}
	if end > last {
		note(last, end, 0, &r.Silence, &r.Silences, threshold)
	}
	row := 0
	for n, back := range append(slices.Clip(t.back), true) {
		at := end
		if n < len(t.sent) {
			at = t.sent[n]
		}
		if n > 0 && n < len(t.sent) {
			r.Pause = max(r.Pause, Millis(at-t.sent[n-1]))
		}
		switch {
		case !back:
			row++
		case row > 0:
			note(t.sent[n-row], at, row, &r.Outage, &r.Outages, 0)
			row = 0
		}
	}
	return r
}
