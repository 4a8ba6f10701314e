package traffic

import (
	"context"
	"fmt"
	"net/netip"
	"sync/atomic"
)

// Refused are calls to what the caller must not reach, all the time.
type Refused struct {
	From    Pod
	To      netip.AddrPort
	Target  string
	UDP     bool
	Reached func(name string) // is told when there was an answer

	tries atomic.Int64
}

// Name says who calls what.
func (r *Refused) Name() string {
	return fmt.Sprintf("forbidden (udp %t) %s -> %s", r.UDP, r.From.Name, r.Target)
}

// Tries is how many calls there were.
func (r *Refused) Tries() int64 { return r.tries.Load() }

// Run calls until the context ends.
func (r *Refused) Run(ctx context.Context) {
	c := Calls{From: r.From, To: r.To, Target: r.Target, UDP: r.UDP}
	for wait(ctx, callEvery) {
		if c.Try() == nil {
			r.Reached(r.Name())
		}
		r.tries.Add(1)
	}
}
