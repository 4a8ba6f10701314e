package dns

import (
	"context"
	"log/slog"
	"net/netip"
	"sync/atomic"
	"testing"
	"time"
)

// TestServingHasTheLatestState checks that ServeDynamic calls Serving one call at a time, so that a
// call with an older state cannot end last.
func TestServingHasTheLatestState(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var calls atomic.Int32
	complete, changed := make(chan struct{}), make(chan struct{})
	serving := func(all bool) {
		if calls.Add(1) > 1 {
			t.Error("Serving is called while another call runs")
		}
		defer calls.Add(-1)
		switch {
		case ctx.Err() != nil:
		case all:
			close(complete)
		default: // time for the other address to be served
			select {
			case <-complete:
			case <-time.After(100 * time.Millisecond):
			}
		}
	}
	addrs := []netip.AddrPort{netip.MustParseAddrPort("127.0.0.1:0"), netip.MustParseAddrPort("127.0.0.2:0")}
	done := make(chan error, 1)
	go func() {
		done <- ServeDynamic(ctx, Config{Store: NewStore(), Log: slog.New(slog.DiscardHandler), Serving: serving},
			func() []netip.AddrPort { return addrs }, changed)
	}()
	select {
	case <-complete:
	case <-time.After(10 * time.Second):
		t.Error("the server does not serve all addresses")
	}
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
}
