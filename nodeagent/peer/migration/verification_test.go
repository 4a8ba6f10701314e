package migration

import (
	"testing"
	"time"
)

// TestVerification checks that two consecutive replies verify a tunnel. It is silent after four
// probes and two seconds without a reply.
func TestVerification(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		replies  []uint64 // to which of the probes 1, 2, ..., in the order of arrival
		probes   int      // sent before the replies
		after    int      // sent after them
		silence  time.Duration
		verified bool
		silent   bool
	}{
		"one reply":           {probes: 2, replies: []uint64{1}},
		"two replies":         {probes: 2, replies: []uint64{1, 2}, verified: true},
		"out of order":        {probes: 2, replies: []uint64{2, 1}, verified: true},
		"one reply twice":     {probes: 2, replies: []uint64{1, 1}},
		"a number never sent": {probes: 2, replies: []uint64{1, 7}},
		"a reply to number 0": {probes: 2, replies: []uint64{1, 0}},
		"a late reply":        {probes: probeHistory + 1, replies: []uint64{1, 2}},
		"three are lost":      {probes: 2, replies: []uint64{1, 2}, after: 3, silence: time.Minute, verified: true},
		"four are lost":       {probes: 2, replies: []uint64{1, 2}, after: 4, silence: time.Minute, silent: true},
		"four in flight":      {probes: 2, replies: []uint64{1, 2}, after: 4, silence: time.Second, verified: true},
	}
	for name, tt := range tests {
		now := time.Unix(1000, 0)
		v := verification{}
		v.restart(now)
		seq := uint64(0)
		probe := func(n int) {
			for range n {
				seq++
				v.onProbe(seq, now)
			}
		}
		probe(tt.probes)
		for _, r := range tt.replies {
			v.onReply(r, now)
		}
		probe(tt.after)
		now = now.Add(tt.silence)
		if v.isVerified(now) != tt.verified || v.isSilent(now) != tt.silent {
			t.Errorf("%s: verified %t, silent %t", name, v.isVerified(now), v.isSilent(now))
		}
	}
}
