// Package verify tests whether exports are reachable. It looks up their names as a client does. It
// opens a connection to each TCP port, and sends a datagram to each UDP port.
package verify

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"hawser.dev/hawser/nodeagent/status"
)

// MaxDuration is the maximum duration of all checks together.
const MaxDuration = time.Minute

const (
	maxConcurrent = 16
	// maxAddrsPerName limits the tested addresses of one name: a headless Service may have
	// thousands of pods.
	maxAddrsPerName = 3
	// maxDatagrams is the number of unanswered datagrams after which a UDP port counts as
	// silent.
	maxDatagrams = 3
)

// Verifier runs checks.
type Verifier struct {
	// Server is the name server. If it is invalid, the Verifier uses the servers and search
	// domains of /etc/resolv.conf.
	Server  netip.AddrPort
	Timeout time.Duration // of each lookup and connection
	// Prefixes contain every address that a name may have. The Verifier reports other addresses
	// and does not connect to them, because a forged answer must not direct its requests. Empty
	// allows every address.
	Prefixes []netip.Prefix
}

// All runs all checks and returns their results in the same order. Checks that have not started
// when ctx is done fail.
func (v Verifier) All(ctx context.Context, checks []status.Check) []status.Verified {
	out := make([]status.Verified, len(checks))
	var group errgroup.Group
	group.SetLimit(maxConcurrent)
	for i, c := range checks {
		group.Go(func() error {
			out[i] = v.verify(ctx, c)
			return nil
		})
	}
	_ = group.Wait() // all functions return nil; the results have the errors
	return out
}

func (v Verifier) verify(ctx context.Context, c status.Check) status.Verified {
	r := status.Verified{Check: c}
	switch {
	case c.Skipped != "":
		return r
	case c.NotReady != "":
		r.Error = c.NotReady
		return r
	case ctx.Err() != nil:
		r.Error = "not tested: no time was left"
		return r
	}
	start := time.Now()
	targets, err := v.targets(ctx, c)
	errs := []error{err}
	var silent []string
	for _, to := range targets {
		answered, err := true, error(nil)
		if to.protocol == "UDP" {
			answered, err = v.exchange(ctx, to)
		} else {
			err = v.connect(ctx, to)
		}
		switch {
		case err != nil:
			errs = append(errs, err)
		case !answered:
			silent = append(silent, to.String())
		default:
			r.Reached = append(r.Reached, to.String())
		}
	}
	r.Micros = time.Since(start).Microseconds()
	if err := errors.Join(errs...); err != nil {
		r.Error = strings.ReplaceAll(err.Error(), "\n", "; ")
	}
	if len(silent) > 0 {
		r.Unknown = "no reply from " + strings.Join(silent, ", ") + ": UDP servers may send none"
	}
	return r
}

// target is one address of a name with one port.
type target struct {
	netip.AddrPort
	protocol string
	dns      bool // a DNS server listens there
}

func (t target) String() string {
	if t.protocol == "UDP" {
		return t.AddrPort.String() + "/UDP"
	}
	return t.AddrPort.String()
}

// targets returns the addresses and ports to test for a check.
func (v Verifier) targets(ctx context.Context, c status.Check) ([]target, error) {
	var out []target
	for _, p := range c.Ports {
		hosts := []*net.SRV{{Target: c.Name, Port: p.Number}}
		if c.Headless && p.Name != "" {
			pods, err := v.pods(ctx, c.Name, p)
			if err != nil {
				return out, err
			}
			hosts = pods
		}
		for _, host := range hosts {
			addrs, err := v.addresses(ctx, host.Target)
			if err != nil {
				return out, err
			}
			for _, a := range addrs {
				out = append(out, target{netip.AddrPortFrom(a, host.Port), p.Protocol, isDNS(p)})
			}
		}
	}
	return out, nil
}

// pods returns up to maxAddrsPerName SRV records of a headless service.
func (v Verifier) pods(ctx context.Context, name string, p status.CheckPort) ([]*net.SRV, error) {
	ctx, cancel := context.WithTimeout(ctx, v.Timeout)
	defer cancel()
	_, srvs, err := v.resolver().LookupSRV(ctx, p.Name, strings.ToLower(p.Protocol), v.queryName(name))
	if err != nil {
		return nil, v.lookupError("_"+p.Name+"._"+strings.ToLower(p.Protocol)+"."+name, err)
	}
	srvs = srvs[:min(len(srvs), maxAddrsPerName)]
	for _, srv := range srvs {
		srv.Target = strings.TrimSuffix(srv.Target, ".")
		if !strings.HasSuffix("."+srv.Target, "."+name) {
			return nil, fmt.Errorf("look up %s: its SRV record names %s, a host outside the service", name, srv.Target)
		}
	}
	return srvs, nil
}

func (v Verifier) addresses(ctx context.Context, name string) ([]netip.Addr, error) {
	ctx, cancel := context.WithTimeout(ctx, v.Timeout)
	defer cancel()
	addrs, err := v.resolver().LookupNetIP(ctx, "ip", v.queryName(name))
	if err != nil {
		return nil, v.lookupError(name, err)
	}
	slices.SortFunc(addrs, netip.Addr.Compare)
	out := make([]netip.Addr, 0, maxAddrsPerName)
	for _, addr := range addrs[:min(len(addrs), maxAddrsPerName)] {
		addr = addr.Unmap()
		if len(v.Prefixes) > 0 && !slices.ContainsFunc(v.Prefixes, func(p netip.Prefix) bool { return p.Contains(addr) }) {
			return nil, fmt.Errorf("look up %s: the answer is %s, no address of the clusterset", name, addr)
		}
		out = append(out, addr)
	}
	return out, nil
}

// queryName returns the name to look up. Without v.Server it has no trailing dot, so that the
// search domains apply.
func (v Verifier) queryName(name string) string {
	if v.Server.IsValid() {
		return name + "."
	}
	return name
}

// lookupError returns a lookup error that names the servers of resolv.conf unless v.Server is set.
// The error of package net names a server of resolv.conf even if v.Server was queried, and no
// server after a timeout.
func (v Verifier) lookupError(name string, err error) error {
	var dns *net.DNSError
	if errors.As(err, &dns) {
		err = errors.New(dns.Err)
	}
	if servers := nameServers(); !v.Server.IsValid() && len(servers) > 0 {
		name += " at " + strings.Join(servers, ", ")
	}
	return fmt.Errorf("look up %s: %w", name, err)
}

// nameServers returns the name servers of /etc/resolv.conf; nil if it cannot be read.
func nameServers() []string {
	raw, _ := os.ReadFile("/etc/resolv.conf")
	var out []string
	for line := range strings.Lines(string(raw)) {
		if f := strings.Fields(line); len(f) > 1 && f[0] == "nameserver" {
			out = append(out, f[1])
		}
	}
	return out
}

func (v Verifier) resolver() *net.Resolver {
	if !v.Server.IsValid() {
		return &net.Resolver{PreferGo: true}
	}
	var d net.Dialer
	return &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, network, _ string) (net.Conn, error) {
		return d.DialContext(ctx, network, v.Server.String())
	}}
}

// connect opens a connection and closes it. It reads nothing.
func (v Verifier) connect(ctx context.Context, to target) error {
	d := net.Dialer{Timeout: v.Timeout}
	conn, err := d.DialContext(ctx, "tcp", to.AddrPort.String())
	if err != nil {
		return fmt.Errorf("connect to %s: %w", to, opError(err))
	}
	return conn.Close()
}

// exchange sends up to maxDatagrams datagrams until a reply or an ICMP error arrives. It returns
// false if none arrived.
func (v Verifier) exchange(ctx context.Context, to target) (bool, error) {
	d := net.Dialer{Timeout: v.Timeout}
	conn, err := d.DialContext(ctx, "udp", to.AddrPort.String())
	if err != nil {
		return false, fmt.Errorf("send to %s: %w", to, opError(err))
	}
	defer func() { _ = conn.Close() }()
	stop := context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	reply := make([]byte, 1) // the rest of the datagram is discarded
	for range maxDatagrams {
		_ = conn.SetDeadline(time.Now().Add(v.Timeout / maxDatagrams))
		if ctx.Err() != nil {
			return false, fmt.Errorf("send to %s: %w", to, ctx.Err())
		}
		_, err := conn.Write(payload(to.dns))
		if err == nil {
			_, err = conn.Read(reply)
		}
		var timeout net.Error
		switch {
		case err == nil:
			return true, nil
		case ctx.Err() != nil:
			return false, fmt.Errorf("send to %s: %w", to, ctx.Err())
		case !errors.As(err, &timeout) || !timeout.Timeout():
			return false, fmt.Errorf("send to %s: %w", to, opError(err))
		}
	}
	return false, nil
}

// isDNS reports whether a port is a DNS server's, by its name or number.
func isDNS(p status.CheckPort) bool {
	return p.Number == 53 || p.Name == "dns" || strings.HasPrefix(p.Name, "dns-")
}

// payload returns the datagram to send: the query "NS ." for DNS servers, otherwise a newline.
func payload(dns bool) []byte {
	if !dns {
		return []byte("\n")
	}
	return []byte{
		'h', 'w', 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, // ID, no flags, one question
		0, 0, 2, 0, 1, // the root, NS, IN
	}
}

// opError returns the error without its operation and addresses.
func opError(err error) error {
	var op *net.OpError
	if errors.As(err, &op) {
		return op.Err
	}
	return err
}
