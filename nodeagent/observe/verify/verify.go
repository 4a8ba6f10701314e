// Package verify proves that exports are reached from a node: it looks their names up as
// a client of the node does, and opens a TCP connection to each address that is answered.
package verify

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"hawser.dev/hawser/nodeagent/status"
)

// MaxDuration is how long an agent takes for all names at most.
const MaxDuration = time.Minute

const (
	atOnce = 16
	// maxAddrsPerName is how many addresses of one name are tried: a headless service may have
	// thousands of pods.
	maxAddrsPerName = 3
)

// Check is one name to prove.
type Check struct {
	Export  string // namespace/name
	Cluster string // of which the name is; empty = the name of the whole service
	Name    string // whole, with a dot at its end
	Ports   []Port // of TCP
	// Headless says that pods may have ports of their own, which SRV records tell.
	Headless bool
	Skip     string // why it cannot be proved; empty = it can
}

// Port is one TCP port of an export.
type Port struct {
	Name   string // empty = it has none, and no SRV record
	Number uint16
}

// Verifier asks one name server, and gives each attempt so much time.
type Verifier struct {
	Server  netip.AddrPort
	Timeout time.Duration
}

// All proves all names, and gives one result for each, in their order. What is not
// begun when ctx ends says so.
func (v Verifier) All(ctx context.Context, checks []Check) []status.Verified {
	out := make([]status.Verified, len(checks))
	var group errgroup.Group
	group.SetLimit(atOnce)
	for i, c := range checks {
		group.Go(func() error {
			out[i] = v.one(ctx, c)
			return nil
		})
	}
	_ = group.Wait() // every function gives nil; the errors are in the results
	return out
}

func (v Verifier) one(ctx context.Context, c Check) status.Verified {
	r := status.Verified{Export: c.Export, Cluster: c.Cluster, Name: strings.TrimSuffix(c.Name, "."), Skipped: c.Skip}
	if c.Skip != "" {
		return r
	}
	if ctx.Err() != nil {
		r.Error = "not tried: there was no time left"
		return r
	}
	begun := time.Now()
	targets, err := v.targets(ctx, c)
	for _, to := range targets {
		if failed := v.connect(ctx, to); failed != nil {
			err = errors.Join(err, failed)
			continue
		}
		r.Reached = append(r.Reached, to.String())
	}
	r.Micros = time.Since(begun).Microseconds()
	if err != nil {
		r.Error = strings.ReplaceAll(err.Error(), "\n", "; ")
	}
	return r
}

// targets gives where to connect for a name.
func (v Verifier) targets(ctx context.Context, c Check) ([]netip.AddrPort, error) {
	var out []netip.AddrPort
	for _, p := range c.Ports {
		at := []*net.SRV{{Target: c.Name, Port: p.Number}}
		if c.Headless && p.Name != "" {
			pods, err := v.pods(ctx, c.Name, p.Name)
			if err != nil {
				return out, err
			}
			at = pods
		}
		for _, a := range at {
			to, err := v.addresses(ctx, a.Target, a.Port)
			if err != nil {
				return out, err
			}
			out = append(out, to...)
		}
	}
	return out, nil
}

// pods gives some of the pods of a headless service.
func (v Verifier) pods(ctx context.Context, name, port string) ([]*net.SRV, error) {
	ctx, cancel := context.WithTimeout(ctx, v.Timeout)
	defer cancel()
	_, found, err := v.resolver().LookupSRV(ctx, port, "tcp", name)
	if err != nil {
		return nil, lookupError("_"+port+"._tcp."+name, err)
	}
	return found[:min(len(found), maxAddrsPerName)], nil
}

func (v Verifier) addresses(ctx context.Context, name string, port uint16) ([]netip.AddrPort, error) {
	ctx, cancel := context.WithTimeout(ctx, v.Timeout)
	defer cancel()
	found, err := v.resolver().LookupNetIP(ctx, "ip", name)
	if err != nil {
		return nil, lookupError(name, err)
	}
	slices.SortFunc(found, netip.Addr.Compare)
	out := make([]netip.AddrPort, 0, len(found))
	for _, addr := range found[:min(len(found), maxAddrsPerName)] {
		out = append(out, netip.AddrPortFrom(addr.Unmap(), port))
	}
	return out, nil
}

// lookupError says what the name server answered; of its own text net has the server of
// resolv.conf, which was not asked.
func lookupError(name string, err error) error {
	var dns *net.DNSError
	if errors.As(err, &dns) {
		return fmt.Errorf("look up %s: %s", strings.TrimSuffix(name, "."), dns.Err)
	}
	return fmt.Errorf("look up %s: %w", strings.TrimSuffix(name, "."), err)
}

func (v Verifier) resolver() *net.Resolver {
	var d net.Dialer
	return &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, network, _ string) (net.Conn, error) {
		return d.DialContext(ctx, network, v.Server.String())
	}}
}

func (v Verifier) connect(ctx context.Context, to netip.AddrPort) error {
	d := net.Dialer{Timeout: v.Timeout}
	conn, err := d.DialContext(ctx, "tcp", to.String())
	if err != nil {
		var op *net.OpError
		if errors.As(err, &op) {
			err = op.Err
		}
		return fmt.Errorf("connect to %s: %w", to, err)
	}
	return conn.Close()
}
