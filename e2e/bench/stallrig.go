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

// The clusterset in testdata/three, as the sections with faults use it.
const (
	stallNear   = "s1" // has the client
	stallFar    = "s2" // has the servers
	stallPort   = 5300
	stallDomain = ".bench.svc.clusterset.local"
)

// failoverLab is the lab of three clusters with sockets in its pods.
type failoverLab struct {
	*testbed
	*labAgents
	yield   func() error // gives the processors back
	near    traffic.Socket
	servers map[string]*traffic.Server // by pod
	newest  map[string]*atomic.Int64   // by pod: when the client began the last of the dials that came there, UnixNano
}

// newStallBed makes the lab with some words of the topology replaced by others.
func newStallBed(ctx context.Context, c config, other map[string]string, more ...string) (*failoverLab, error) {
	files := filepath.Join(c.root, "e2e/bench/testdata/three")
	topology, err := altered(filepath.Join(files, "clusterset.yaml"), other)
	if err != nil {
		return nil, err
	}
	defer os.Remove(topology)
	b := &failoverLab{servers: map[string]*traffic.Server{}, newest: map[string]*atomic.Int64{}, yield: traffic.RaisePriority()}
	if b.testbed, err = newTestbedOf(ctx, c, topology, filepath.Join(files, "workloads"), more...); err != nil {
		return nil, err
	}
	if err := b.furnish(ctx); err != nil {
		return nil, errors.Join(err, b.close())
	}
	return b, nil
}

// altered writes a copy of a file in which words are replaced by others.
func altered(file string, other map[string]string) (string, error) {
	raw, err := os.ReadFile(file)
	if err != nil {
		return "", err
	}
	text := string(raw)
	for from, to := range other {
		if strings.Count(text, from) != 1 {
			return "", fmt.Errorf("%s does not say %q once", file, from)
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

func (b *failoverLab) furnish(ctx context.Context) (err error) {
	if b.labAgents, err = b.newFleet(ctx); err != nil {
		return err
	}
	at, err := b.client.Place(ctx, stallNear+"/bench/client")
	if err != nil {
		return err
	}
	b.near = traffic.Socket{Net: at.Net}
	for _, pod := range []string{"one", "back-1", "back-2", "back-3", "head-0", "head-1", "head-2"} {
		at, err := b.client.Place(ctx, stallFar+"/bench/"+pod)
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

// address looks a name of the servers up as the client sees it.
func (b *failoverLab) address(ctx context.Context, name string) (netip.AddrPort, error) {
	text, err := b.lookup(ctx, stallNear+"/bench/client", name+stallDomain)
	if err != nil {
		return netip.AddrPort{}, err
	}
	addr, err := netip.ParseAddr(text)
	return netip.AddrPortFrom(addr, stallPort), err
}

// flows is what flows from the client to one server while faults happen.
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

// close ends all flows; what they saw stays.
func (t *flows) close() error {
	return errors.Join(t.packets.Close(), t.requests.Close(), t.dials.Close())
}

// settle waits until the packets have flowed without a loss for a while.
func (t *flows) settle(ctx context.Context, while, limit time.Duration) error {
	return within(ctx, limit, func() error { return t.packets.CheckComplete(while) })
}
