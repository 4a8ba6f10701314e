package dns

import (
	"context"
	"net/netip"
	"slices"
	"sync"

	"golang.org/x/sync/errgroup"
)

// ServeDynamic serves at the addresses that where returns, and calls where again for each token of
// changed. It ignores config.Addr. It calls config.Serving, one call at a time, with true when all
// addresses are served, and with false when one no longer is.
func ServeDynamic(ctx context.Context, config Config, where func() []netip.AddrPort, changed <-chan struct{}) error {
	serving := config.Serving
	for ctx.Err() == nil {
		addrs := where()
		if len(addrs) == 0 {
			wait(ctx, changed)
			continue
		}
		group, at := errgroup.WithContext(ctx)
		at, stop := context.WithCancel(at)
		config.Store.SetServerAddrs(addrs)
		var mu sync.Mutex // also orders the calls of serving: the last one has the current state
		up := 0
		config.Serving = func(serves bool) {
			mu.Lock()
			defer mu.Unlock()
			if serves {
				up++
			} else {
				up--
			}
			if serving != nil {
				serving(up == len(addrs))
			}
		}
		for _, config.Addr = range addrs {
			one := config
			group.Go(func() error { return Serve(at, one) })
		}
		for at.Err() == nil && slices.Equal(where(), addrs) {
			wait(at, changed)
		}
		stop()
		if err := group.Wait(); err != nil {
			return err
		}
	}
	return nil
}

// wait returns at the next token, or when ctx is done.
func wait(ctx context.Context, tokens <-chan struct{}) {
	select {
	case <-ctx.Done():
	case <-tokens:
	}
}
