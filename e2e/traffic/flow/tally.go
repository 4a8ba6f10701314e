package flow

import "time"

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

// tally counts a flow. It holds no socket and no clock: times are since the
// beginning. Datagrams are numbered from 0 and leave in order.
type tally struct {
	report    UDPReport
	threshold time.Duration

	sentAt   [window]time.Duration
	answered [window]bool
	sealed   int // numbers below are judged
	highest  int // number answered so far, -1 = none

	lastSent, lastAnswer time.Duration
	rtts                 time.Duration
	lostFrom             time.Duration // of the row of lost ones that is open
	lostRow              int
}

func newTally(began time.Time, threshold time.Duration) *tally {
	return &tally{report: UDPReport{Began: began, Silences: []Gap{}, Outages: []Gap{}}, threshold: threshold, highest: -1}
}

// send notes that the next datagram leaves, and gives its number.
func (t *tally) send(at time.Duration) int {
	n := t.report.Sent
	if n-t.sealed == window {
		t.seal(n - window + 1)
	}
	if n > 0 {
		t.report.Pause = max(t.report.Pause, Millis(at-t.lastSent))
	}
	t.sentAt[n%window], t.answered[n%window] = at, false
	t.lastSent = at
	t.report.Sent++
	return n
}

// receive notes an answer.
func (t *tally) receive(n int, at time.Duration) {
	if n < t.sealed || n >= t.report.Sent {
		return // too late, or not ours
	}
	if t.answered[n%window] {
		t.report.Duplicates++
		return
	}
	t.answered[n%window] = true
	t.report.Received++
	if n < t.highest {
		t.report.Reordered++
	}
	t.highest = max(t.highest, n)
	rtt := at - t.sentAt[n%window]
	t.rtts += rtt
	t.report.RTT.Max = max(t.report.RTT.Max, Millis(rtt))
	t.silence(at)
}

// silence closes the time since the last answer.
func (t *tally) silence(until time.Duration) {
	gap := t.gap(t.lastAnswer, until, 0)
	t.lastAnswer = until
	if gap.Long > t.report.Silence.Long {
		t.report.Silence = gap
	}
	if time.Duration(gap.Long) >= t.threshold && len(t.report.Silences) < mostGaps {
		t.report.Silences = append(t.report.Silences, gap)
	}
}

// seal judges all numbers below n.
func (t *tally) seal(n int) {
	for ; t.sealed < n; t.sealed++ {
		at := t.sentAt[t.sealed%window]
		switch {
		case t.answered[t.sealed%window]:
			t.outage(at)
		case t.lostRow == 0:
			t.lostFrom = at
			fallthrough
		default:
			t.lostRow++
			t.report.Lost++
		}
	}
}

// outage closes a row of lost datagrams.
func (t *tally) outage(until time.Duration) {
	if t.lostRow == 0 {
		return
	}
	gap := t.gap(t.lostFrom, until, t.lostRow)
	t.lostRow = 0
	if gap.Long > t.report.Outage.Long {
		t.report.Outage = gap
	}
	if len(t.report.Outages) < mostGaps {
		t.report.Outages = append(t.report.Outages, gap)
	}
}

func (t *tally) gap(from, until time.Duration, lost int) Gap {
	return Gap{At: t.report.Began.Add(from), From: Millis(from), Long: Millis(until - from), Lost: lost}
}

// finish gives the report; the sending ended at end.
func (t *tally) finish(end time.Duration) UDPReport {
	t.seal(t.report.Sent)
	t.outage(end)
	if end > t.lastAnswer {
		t.silence(end)
	}
	t.report.Lasted = Millis(end)
	if t.report.Received > 0 {
		t.report.RTT.Mean = Millis(t.rtts / time.Duration(t.report.Received))
	}
	return t.report
}
