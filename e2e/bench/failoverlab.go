package main

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"time"

	"hawser.dev/hawser/e2e/traffic"
)

// Names in the clusterset of testdata/three.
const (
	stallNear   = "s1" // cluster of the client
	stallFar    = "s2" // cluster of the servers
	stallPort   = 5300
	stallDomain = ".bench.svc.clusterset.local"
)

// failoverLab is the lab of three clusters with sockets in its pods.
type failoverLab struct {
	*testbed
	*labAgents
	yield   func() error // restores the scheduling priority
	near    traffic.Socket
	servers map[string]*traffic.Server // by pod
	newest  map[string]*atomic.Int64   // by pod: start of the newest dial that arrived there, by the client's clock, UnixNano
}

// newFailoverLab starts the lab. It first replaces the words of other in the topology.
func newFailoverLab(ctx context.Context, c config, other map[string]string, more ...string) (*failoverLab, error) {
	files := filepath.Join(c.root, "e2e/bench/testdata/three")
	topology, err := withReplacements(filepath.Join(files, "clusterset.yaml"), other)
	if err != nil {
		return nil, err
	}
	defer os.Remove(topology)
	b := &failoverLab{servers: map[string]*traffic.Server{}, newest: map[string]*atomic.Int64{}, yield: traffic.RaisePriority()}
	if b.testbed, err = newTestbedOf(ctx, c, topology, filepath.Join(files, "workloads"), more...); err != nil {
		return nil, err
	}
	if err := b.openSockets(ctx); err != nil {
		return nil, errors.Join(err, b.close())
	}
	return b, nil
}

// withReplacements writes a copy of a file with replaced words, and returns its path. Each word
// must occur once.
func withReplacements(file string, other map[string]string) (string, error) {
	raw, err := os.ReadFile(file)
	if err != nil {
		return "", err
	}
	text := string(raw)
	for from, to := range other {
		if strings.Count(text, from) != 1 {
			return "", fmt.Errorf("%s does not contain %q exactly once", file, from)
		}
		text = strings.Replace(text, from, to, 1)
	}
	copied, err := os.CreateTemp("", "hwb-*.yaml")
	if err != nil {
		return "", err
	}
	_, err = copied.WriteString(text)
	return copied.Name(), errors.Join(err, copied.Close())
}

// openSockets finds the client's namespace and starts the servers.
func (b *failoverLab) openSockets(ctx context.Context) (err error) {
	if b.labAgents, err = b.newLabAgents(ctx); err != nil {
		return err
	}
	at, err := b.client.ExecAt(ctx, stallNear+"/bench/client")
	if err != nil {
		return err
	}
	b.near = traffic.Socket{Net: at.Net}
	for _, pod := range []string{"one", "back-1", "back-2", "back-3", "head-0", "head-1", "head-2"} {
		at, err := b.client.ExecAt(ctx, stallFar+"/bench/"+pod)
		if err != nil {
			return err
		}
		newest := &atomic.Int64{}
		b.newest[pod] = newest
		seen := func(s traffic.Seen) {
			for begun := s.Begun.UnixNano(); s.Caller == dialer; {
				if last := newest.Load(); begun <= last || newest.CompareAndSwap(last, begun) {
					return
				}
			}
		}
		if b.servers[pod], err = traffic.Serve(traffic.Socket{Net: at.Net}, pod, seen, stallPort); err != nil {
			return fmt.Errorf("serve in %s: %w", pod, err)
		}
	}
	return nil
}

func (b *failoverLab) close() error {
	errs := []error{b.yield()}
	for _, server := range b.servers {
		errs = append(errs, server.Close())
	}
	return errors.Join(append(errs, b.testbed.close())...)
}

// address resolves a name of the servers in the client's pod.
func (b *failoverLab) address(ctx context.Context, name string) (netip.AddrPort, error) {
	text, err := b.lookup(ctx, stallNear+"/bench/client", name+stallDomain)
	if err != nil {
		return netip.AddrPort{}, err
	}
	addr, err := netip.ParseAddr(text)
	return netip.AddrPortFrom(addr, stallPort), err
}

// flows is the traffic from the client to one server during faults.
type flows struct {
	packets  *traffic.Flow
	requests *background
	dials    *background
}

const (
	packetRate   = 1000 // a second
	dialRate     = 50   // a second
	requestPause = 5 * time.Millisecond
)

func (b *failoverLab) flows(ctx context.Context, server string) (*flows, error) {
	to, err := b.address(ctx, server)
	if err != nil {
		return nil, err
	}
	packets, err := startPackets(b.near, to, packetRate)
	if err != nil {
		return nil, err
	}
	return &flows{
		packets:  packets,
		requests: startRequests(b.near, to, requestPause),
		dials:    startDials(b.near, to, dialRate),
	}, nil
}

// close ends all flows. Their results stay readable.
func (t *flows) close() error {
	return errors.Join(t.packets.Close(), t.requests.Close(), t.dials.Close())
}

// awaitComplete waits until no packet is lost for the duration while.
func (t *flows) awaitComplete(ctx context.Context, while, limit time.Duration) error {
	return within(ctx, limit, func() error { return t.packets.CheckComplete(while) })
}
