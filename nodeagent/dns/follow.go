package dns

import (
	"context"
	"net/netip"
	"slices"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
)

const (
	addrFirst = 10 * time.Millisecond  // between tries while the address is absent
	addrRetry = 200 * time.Millisecond // between checks for changed addresses
)

// ServeDynamic serves at the addresses that where returns, and follows their changes. It
// ignores config.Addr. It calls config.Serving with true when all addresses are served, and
// with false when one no longer is.
func ServeDynamic(ctx context.Context, config Config, where func() []netip.AddrPort) error {
	serving := config.Serving
	for ctx.Err() == nil {
		addrs := where()
		if len(addrs) == 0 {
			pause(ctx, addrFirst)
			continue
		}
		group, at := errgroup.WithContext(ctx)
		at, stop := context.WithCancel(at)
		config.Store.SetServerAddrs(addrs)
		var up atomic.Int32
		config.Serving = func(serves bool) {
			change := int32(-1)
			if serves {
				change = 1
			}
			if all := int(up.Add(change)) == len(addrs); serving != nil {
				serving(all)
			}
		}
		for _, config.Addr = range addrs {
			one := config
			group.Go(func() error { return Serve(at, one) })
		}
		for at.Err() == nil && slices.Equal(where(), addrs) {
			pause(at, addrRetry)
		}
		stop()
		if err := group.Wait(); err != nil {
			return err
		}
	}
	return nil
}

func pause(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}
