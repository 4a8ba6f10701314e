package input

import (
	"context"
	"errors"
	"net/netip"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// TestResolver checks that names are looked up when they are set, on request and at each
// resolveInterval. A failed lookup keeps the last addresses.
func TestResolver(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		addr := func(text string) *netip.Addr { a := netip.MustParseAddr(text); return &a }
		var current atomic.Pointer[netip.Addr]
		current.Store(addr("::ffff:192.0.2.1"))
		var lookups, changes atomic.Int32
		r := newResolver(func(ctx context.Context, _, host string) ([]netip.Addr, error) {
			lookups.Add(1)
			switch a := current.Load(); {
			case host == "slow.example.com":
				<-ctx.Done()
				return nil, ctx.Err()
			case a == nil:
				return nil, errors.New("no such host")
			default:
				return []netip.Addr{netip.MustParseAddr("2001:db8::1"), *a}, nil
			}
		}, func() { changes.Add(1) })
		done := make(chan struct{})
		go func() { r.run(ctx); close(done) }()
		check := func(step, want string, wantLookups, wantChanges int32) {
			t.Helper()
			synctest.Wait()
			var have string
			if all := r.snapshot()["dns:gw.example.com"]; len(all) > 0 {
				have = all[0].String()
			}
			if have != want || lookups.Load() != wantLookups || changes.Load() != wantChanges {
				t.Errorf("%s: %s after %d lookups and %d changes, want %s, %d, %d", step, have, lookups.Load(), changes.Load(), want, wantLookups, wantChanges)
			}
		}
		check("no names", "", 0, 0)
		r.setNames([]string{"gw.example.com"})
		check("set", "192.0.2.1", 1, 1)
		r.setNames([]string{"gw.example.com"})
		check("set again", "192.0.2.1", 1, 1)
		current.Store(addr("192.0.2.2"))
		r.resolveNow()
		check("on request", "192.0.2.2", 2, 2)
		current.Store(nil)
		time.Sleep(resolveInterval)
		check("failed lookup", "192.0.2.2", 3, 2)
		current.Store(addr("192.0.2.3"))
		time.Sleep(resolveInterval)
		check("after the outage", "192.0.2.3", 4, 3)
		r.setNames([]string{"gw.example.com", "slow.example.com"})
		synctest.Wait()
		time.Sleep(resolveTimeout)
		r.resolveNow() // the slow name does not block later lookups
		check("slow name", "192.0.2.3", 8, 3)
		if all := r.snapshot(); len(all) != 1 || !slices.IsSortedFunc(all["dns:gw.example.com"], netip.Addr.Compare) {
			t.Errorf("snapshot %v", all)
		}
		cancel()
		<-done
	})
}
