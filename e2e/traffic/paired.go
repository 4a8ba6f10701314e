package traffic

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
)

// Paired is a flow through the tested path and a control flow through an unchanged path. One
// program runs both at the same time, so datagrams that a busy machine drops are lost in both
// and do not count against the first.
type Paired struct {
	Changed, Control UDP
	Margin           int    // datagrams that the changed flow may lose beyond the control flow
	Ready            func() // called when both flows received their first answer; may be nil
}

// PairedReport is the result of both flows.
type PairedReport struct {
	Changed UDPReport `json:"changed"`
	Control UDPReport `json:"control"`
	Margin  int       `json:"margin"`
	Excess  int       `json:"excess"` // loss of the changed flow minus loss of the control flow
}

// Run runs both flows until ctx ends.
func (b Paired) Run(ctx context.Context) (PairedReport, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var answered atomic.Int32
	ready := func() {
		if answered.Add(1) == 2 && b.Ready != nil {
			b.Ready()
		}
	}
	b.Changed.Ready, b.Control.Ready = ready, ready
	report := PairedReport{Margin: b.Margin}
	var errs [2]error
	var group sync.WaitGroup
	for i, one := range []struct {
		flow UDP
		into *UDPReport
	}{{b.Changed, &report.Changed}, {b.Control, &report.Control}} {
		group.Go(func() {
			if *one.into, errs[i] = one.flow.Run(ctx); errs[i] != nil {
				cancel() // one flow alone is no measurement
			}
		})
	}
	group.Wait()
	report.Excess = report.Changed.Lost - report.Control.Lost
	return report, errors.Join(errs[:]...)
}

// Err returns an error if the changed flow lost more than the margin beyond the control flow. It
// also returns an error if the control flow lost too much for a comparison.
func (r PairedReport) Err() error {
	switch {
	case r.Control.Received*2 < r.Control.Sent || r.Control.Received == 0:
		return fmt.Errorf("the control flow lost %d of %d datagrams: no comparison is possible", r.Control.Lost, r.Control.Sent)
	case r.Excess > r.Margin:
		return fmt.Errorf("the changed flow lost %d of %d datagrams and the control flow %d of %d: %d more, and %d are allowed",
			r.Changed.Lost, r.Changed.Sent, r.Control.Lost, r.Control.Sent, r.Excess, r.Margin)
	}
	return nil
}
