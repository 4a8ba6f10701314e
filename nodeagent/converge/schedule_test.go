package converge

import (
	"errors"
	"testing"
	"time"
)

// TestSchedule requests passes at times after a full pass that ended at 0, and checks which one
// is next, and when.
func TestSchedule(t *testing.T) {
	t.Parallel()
	const ms = time.Millisecond
	end := time.Unix(1000, 0)
	changed := Report{Took: ms, Changed: []Change{{}}}
	failed := Report{Took: ms, Failed: []Problem{{Err: errors.New("no")}}}
	busy := func(s *schedule) { // for 2 s without a rest
		for i := range 20 {
			s.finishRound(end.Add(time.Duration(i-20)*100*ms), Report{Took: 100 * ms}, time.Minute)
		}
	}
	for _, tt := range []struct {
		name   string
		before func(s *schedule)
		report Report
		after  func(s *schedule)
		now    time.Duration
		want   reason
		at     time.Duration
	}{
		{name: "no request", want: resync, at: time.Minute},
		{name: "period is over", now: 2 * time.Minute, want: resync, at: 2 * time.Minute},
		{name: "trigger", after: requests(triggerToken), want: triggerToken, at: minRest},
		{name: "trigger later", after: requests(triggerToken), now: time.Second, want: triggerToken, at: time.Second},
		{name: "trigger while busy", before: busy, report: Report{Took: 100 * ms}, after: requests(triggerToken), want: triggerToken, at: 100 * ms},
		{name: "drift", after: requests(driftToken), want: driftToken, at: minRest},
		{name: "drift after own changes", report: changed, after: requests(driftToken), want: driftToken, at: driftSettleTime},
		{name: "trigger after own changes", report: changed, after: requests(driftToken, triggerToken), want: triggerToken, at: minRest},
		{name: "urgent", after: requests(urgentToken, triggerToken), want: urgentToken, at: 0},
		{name: "urgent and full pass are due", after: requests(urgentToken, triggerToken), now: time.Second, want: urgentToken, at: time.Second},
		{name: "round after an urgent pass", after: func(s *schedule) { s.urgent(end, 0) }, want: followUp, at: roundDelay},
		{name: "round after several urgent passes", after: func(s *schedule) { s.urgent(end, 0); s.urgent(end.Add(100*ms), 0) }, now: 100 * ms, want: followUp, at: roundDelay},
		{name: "drift after an urgent pass", after: func(s *schedule) { s.urgent(end, 0); s.request(driftToken) }, want: driftToken, at: roundDelay},
		{name: "trigger after an urgent pass", after: func(s *schedule) { s.urgent(end, 0); s.request(triggerToken) }, want: triggerToken, at: minRest},
		{name: "urgent again", after: func(s *schedule) { s.urgent(end, ms); s.request(urgentToken) }, want: urgentToken, at: ms + minUrgentInterval},
		{name: "slow urgent passes", after: func(s *schedule) { s.urgent(end, 200*ms); s.request(urgentToken) }, now: 200 * ms, want: followUp, at: 200 * ms},
		{name: "failure", report: failed, want: resync, at: minBackoff},
		{name: "second failure", before: func(s *schedule) { s.finishRound(end, failed, time.Minute) }, report: failed, want: resync, at: 2 * minBackoff},
		{name: "failure with progress", before: func(s *schedule) { s.finishRound(end, failed, time.Minute) },
			report: Report{Took: ms, Failed: failed.Failed, Changed: changed.Changed}, want: resync, at: minBackoff},
		{name: "failure after a clean pass", before: func(s *schedule) {
			s.finishRound(end, failed, time.Minute)
			s.finishRound(end, changed, time.Minute)
		}, report: failed, want: resync, at: minBackoff},
		{name: "trigger after a failure", report: failed, after: requests(triggerToken), want: triggerToken, at: maxRest},
		{name: "deferred change", report: Report{Took: ms, Next: end.Add(5 * time.Second)}, want: resync, at: 5 * time.Second},
		{name: "overdue deferred change", report: Report{Took: ms, Next: end.Add(-time.Second)}, want: resync, at: minRest},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			var s schedule
			if tt.before != nil {
				tt.before(&s)
			}
			s.startRound()
			s.finishRound(end, tt.report, time.Minute)
			if tt.after != nil {
				tt.after(&s)
			}
			got, at := s.next(end.Add(tt.now))
			if got != tt.want || !at.Equal(end.Add(tt.at)) {
				t.Errorf("next is reason %d at %v, want %d at %v", got, at.Sub(end), tt.want, tt.at)
			}
		})
	}
}

// TestScheduleStartFull checks that a full pass serves all requests but the urgent one.
func TestScheduleStartFull(t *testing.T) {
	t.Parallel()
	now := time.Unix(1000, 0)
	var s schedule
	s.finishRound(now, Report{}, time.Minute)
	s.urgent(now, 0)
	requests(urgentToken, triggerToken, driftToken)(&s)
	s.startRound()
	s.finishRound(now, Report{}, time.Minute)
	if why, at := s.next(now); why != urgentToken || !at.Equal(now.Add(minUrgentInterval)) {
		t.Errorf("next is reason %d at %v", why, at.Sub(now))
	}
	s.requested[urgentToken] = false
	if why, at := s.next(now); why != resync || !at.Equal(now.Add(time.Minute)) {
		t.Errorf("next without the urgent request is reason %d at %v", why, at.Sub(now))
	}
}

func requests(list ...reason) func(*schedule) {
	return func(s *schedule) {
		for _, r := range list {
			s.request(r)
		}
	}
}

func (s *schedule) urgent(start time.Time, took time.Duration) {
	s.startUrgent()
	s.followUrgent(start)
	s.finishUrgent(start.Add(took))
}
