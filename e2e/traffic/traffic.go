// Package traffic generates and measures traffic: numbered datagrams, long-lived TCP
// connections of four kinds, and new connections at a rate. Every message has a mark, a number
// and its sender's name, so a test finds lost, duplicated and leaked messages.
//
// One process measures inside any number of network namespaces (see Socket), with one clock
// for both ends. The program hawser-traffic runs the same measurements in a pod.
package traffic

import (
	"context"
	"fmt"
	"net"
	"slices"
	"syscall"
	"time"
)

// Resolve resolves every HOST:PORT to one IP:PORT for each address of the host, in the order
// of the arguments, with sorted addresses.
func Resolve(ctx context.Context, targets []string) ([]string, error) {
	var out []string
	for _, target := range targets {
		name, port, err := net.SplitHostPort(target)
		if err != nil {
			return nil, fmt.Errorf("target %q: not HOST:PORT: %w", target, err)
		}
		addresses, err := net.DefaultResolver.LookupHost(ctx, name)
		if err != nil {
			return nil, fmt.Errorf("resolve target %s: %w", target, err)
		}
		slices.Sort(addresses)
		for _, address := range addresses {
			out = append(out, net.JoinHostPort(address, port))
		}
	}
	return out, nil
}

// RaiseFiles raises the process's limit of open files to n, or to the hard limit if that is
// lower. It fails if the hard limit is below minimum.
func RaiseFiles(n, minimum uint64) error {
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		return fmt.Errorf("read limit of open files: %w", err)
	}
	if limit.Cur >= n {
		return nil
	}
	raised := syscall.Rlimit{Cur: n, Max: max(n, limit.Max)}
	if syscall.Setrlimit(syscall.RLIMIT_NOFILE, &raised) == nil {
		return nil
	}
	limit.Cur = limit.Max
	if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		return fmt.Errorf("raise limit of open files to %d: %w", limit.Cur, err)
	}
	if limit.Cur < minimum {
		return fmt.Errorf("open files are limited to %d, but the test needs %d: raise it with ulimit -n", limit.Cur, minimum)
	}
	return nil
}

// Millis is a duration in a report: milliseconds with three decimals.
type Millis time.Duration

// MarshalJSON writes milliseconds.
func (m Millis) MarshalJSON() ([]byte, error) {
	return fmt.Appendf(nil, "%.3f", float64(m)/float64(time.Millisecond)), nil
}

// UnmarshalJSON reads milliseconds.
func (m *Millis) UnmarshalJSON(raw []byte) error {
	var ms float64
	if _, err := fmt.Sscan(string(raw), &ms); err != nil {
		return fmt.Errorf("read milliseconds %q: %w", raw, err)
	}
	*m = Millis(ms * float64(time.Millisecond))
	return nil
}

// Spread summarises durations. It is zero without durations.
type Spread struct {
	Count int    `json:"count"`
	P50   Millis `json:"p50"`
	P90   Millis `json:"p90"`
	P99   Millis `json:"p99"`
	Max   Millis `json:"max"`
}

// Summarise returns the spread of durations, by nearest rank.
func Summarise(values []time.Duration) Spread {
	if len(values) == 0 {
		return Spread{}
	}
	sorted := slices.Sorted(slices.Values(values))
	rank := func(percent int) Millis { return Millis(sorted[(len(sorted)*percent+99)/100-1]) }
	return Spread{Count: len(sorted), P50: rank(50), P90: rank(90), P99: rank(99), Max: rank(100)}
}

// pause waits for d, or until ctx is done.
func pause(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}
