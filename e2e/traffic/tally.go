package traffic

import (
	"slices"
	"time"
)

// Gap is a period of silence or of lost datagrams.
type Gap struct {
	At   time.Time `json:"at"`   // start
	From Millis    `json:"from"` // start, since the start of the flow
	Long Millis    `json:"long"` // duration
	Lost int       `json:"lost"` // datagrams lost in a row; 0 for a silence
}

// UDPReport is the result of a flow of datagrams. All times are by the sender's clock.
type UDPReport struct {
	Target     string    `json:"target"`
	StartedAt  time.Time `json:"startedAt"`
	Lasted     Millis    `json:"lasted"`
	Sent       int       `json:"sent"`
	Received   int       `json:"received"` // without duplicates
	Lost       int       `json:"lost"`     // no answer, not even within Grace after the last one
	Duplicates int       `json:"duplicates"`
	Reordered  int       `json:"reordered"` // answers to a datagram after the answer to a later one
	RTT        struct {
		Mean Millis `json:"mean"`
		Max  Millis `json:"max"`
	} `json:"rtt"`
	Silence   Gap    `json:"silence"`             // the longest time without any answer
	Outage    Gap    `json:"outage"`              // the longest run of lost datagrams, by time of sending
	Pause     Millis `json:"pause"`               // the longest time in which the sender itself did not send
	Silences  []Gap  `json:"silences"`            // over the threshold, the first maxGaps
	Outages   []Gap  `json:"outages"`             // the first maxGaps
	SendError string `json:"sendError,omitempty"` // the last one
}

const (
	// window is the number of datagrams in flight; answers to older ones count as lost.
	window = 1 << 15
	// maxGaps bounds the lists of a report.
	maxGaps = 1000
)

// tally is the log of a flow. It has no socket and no clock: times are relative to the
// start of the flow. Datagrams are numbered from 0 and sent in order.
type tally struct {
	sent     []time.Duration // by number, ascending
	answered []bool          // by number: answered
	arrived  []time.Duration // first answers, in the order of arrival

	duplicates, reordered int
	highest               int           // highest number answered so far; -1: none
	rtts, rtt             time.Duration // sum, and the longest
}

func newTally() *tally { return &tally{highest: -1} }

// send records that the next datagram is sent, and returns its number.
func (t *tally) send(at time.Duration) int {
	t.sent, t.answered = append(t.sent, at), append(t.answered, false)
	return len(t.sent) - 1
}

// receive records an answer.
func (t *tally) receive(n int, at time.Duration) {
	if n < 0 || n >= len(t.sent) || n < len(t.sent)-window {
		return // not of this flow, or too late
	}
	if t.answered[n] {
		t.duplicates++
		return
	}
	t.answered[n] = true
	t.arrived = append(t.arrived, at)
	if n < t.highest {
		t.reordered++
	}
	t.highest = max(t.highest, n)
	rtt := at - t.sent[n]
	t.rtts, t.rtt = t.rtts+rtt, max(t.rtt, rtt)
}

// gap returns the longest time without an answer that overlaps from..to.
func (t *tally) gap(from, to time.Duration) time.Duration { return longest(t.arrived, from, to) }

// longest returns the longest interval between two times that overlaps from..to. times ascend.
func longest(times []time.Duration, from, to time.Duration) time.Duration {
	i, _ := slices.BinarySearch(times, from)
	last := time.Duration(0)
	if i > 0 {
		last = times[i-1]
	}
	var result time.Duration
	for ; i < len(times) && last < to; i++ {
		result, last = max(result, times[i]-last), times[i]
	}
	return max(result, to-last)
}

// lost returns the number of datagrams sent in from..to, and how many of these have no answer.
func (t *tally) lost(from, to time.Duration) (lost, sent int) {
	first, _ := slices.BinarySearch(t.sent, from)
	end, _ := slices.BinarySearch(t.sent, to)
	for _, answered := range t.answered[first:max(first, end)] {
		if sent++; !answered {
			lost++
		}
	}
	return lost, sent
}

// report summarises a flow that began at a time and whose last datagram was sent at end. It
// lists silences of at least threshold.
func (t *tally) report(start time.Time, end, threshold time.Duration) UDPReport {
	r := UDPReport{
		StartedAt: start, Lasted: Millis(end), Sent: len(t.sent), Received: len(t.arrived), Lost: len(t.sent) - len(t.arrived),
		Duplicates: t.duplicates, Reordered: t.reordered, Silences: []Gap{}, Outages: []Gap{},
	}
	r.RTT.Max = Millis(t.rtt)
	if r.Received > 0 {
		r.RTT.Mean = Millis(t.rtts / time.Duration(r.Received))
	}
	record := func(from, until time.Duration, lost int, maximum *Gap, list *[]Gap, minimum time.Duration) {
		gap := Gap{At: start.Add(from), From: Millis(from), Long: Millis(until - from), Lost: lost}
		if gap.Long > maximum.Long {
			*maximum = gap
		}
		if until-from >= minimum && len(*list) < maxGaps {
			*list = append(*list, gap)
		}
	}
	last := time.Duration(0)
	for _, at := range t.arrived {
		record(last, at, 0, &r.Silence, &r.Silences, threshold)
		last = at
	}
	if end > last {
		record(last, end, 0, &r.Silence, &r.Silences, threshold)
	}
	run := 0
	for n, answered := range append(slices.Clip(t.answered), true) {
		at := end
		if n < len(t.sent) {
			at = t.sent[n]
		}
		if n > 0 && n < len(t.sent) {
			r.Pause = max(r.Pause, Millis(at-t.sent[n-1]))
		}
		switch {
		case !answered:
			run++
		case run > 0:
			record(t.sent[n-run], at, run, &r.Outage, &r.Outages, 0)
			run = 0
		}
	}
	return r
}
