package main

import (
	"testing"
	"time"

	"hawser.dev/hawser/e2e/chaos/sniff"
	"hawser.dev/hawser/lab"
)

// TestUnprotected tests that only a node without rules may send unencrypted packets, and only
// until its agent has written them.
func TestUnprotected(t *testing.T) {
	t.Parallel()
	u := newUnprotected()
	from := sniff.HardwareAddr(lab.HardwareAddr("g1/g1-w1", lab.SideLAN))
	other := sniff.HardwareAddr(lab.HardwareAddr("g1/g1-w2", lab.SideLAN))
	before := time.Now()
	end := u.powerLost("g1/g1-w1")
	without := time.Now()
	check := func(at time.Time, from sniff.HardwareAddr, want bool) {
		t.Helper()
		if got := u.permits(sniff.Finding{At: at, From: from}); got != want {
			t.Errorf("a packet after %v: %v, want %v", at.Sub(before), got, want)
		}
	}
	check(before, from, false)
	check(without, from, true)
	check(without, other, false)
	again := u.powerLost("g1/g1-w1")
	end() // of a boot before the last one
	check(time.Now(), from, true)
	again()
	check(time.Now(), from, false)
	check(without, from, true) // reported late
	if n := u.count(); n != 3 {
		t.Errorf("%d packets counted, want 3", n)
	}
}
