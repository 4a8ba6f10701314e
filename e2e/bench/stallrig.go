package main

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"time"

	"hawser.dev/hawser/e2e/bench/flow"
)

// The clusterset in testdata/three, as the sections with faults use it.
const (
	stallNear   = "s1" // has the client
	stallFar    = "s2" // has the servers
	stallPort   = 5300
	stallDomain = ".bench.svc.clusterset.local"
)

// stallBed is the lab of three clusters with sockets in its pods.
type stallBed struct {
	*testbed
	*fleet
	yield   func() error // gives the processors back
	near    flow.Place
	servers map[string]*flow.Reflector // by pod
}

// newStallBed makes the lab with some words of the topology replaced by others.
func newStallBed(ctx context.Context, c config, other map[string]string, more ...string) (*stallBed, error) {
	files := filepath.Join(c.root, "e2e/bench/testdata/three")
	topology, err := altered(filepath.Join(files, "clusterset.yaml"), other)
	if err != nil {
		return nil, err
	}
	defer os.Remove(topology)
	b := &stallBed{servers: map[string]*flow.Reflector{}, yield: prefer()}
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

func (b *stallBed) furnish(ctx context.Context) (err error) {
	if b.fleet, err = b.newFleet(ctx); err != nil {
		return err
	}
	at, err := b.client.Place(ctx, stallNear+"/bench/client")
	if err != nil {
		return err
	}
	b.near = flow.Place(at.Net)
	for _, pod := range []string{"one", "back-1", "back-2", "back-3", "head-0", "head-1", "head-2"} {
		at, err := b.client.Place(ctx, stallFar+"/bench/"+pod)
		if err != nil {
			return err
		}
		if b.servers[pod], err = flow.Reflect(flow.Place(at.Net), stallPort); err != nil {
			return fmt.Errorf("serve in %s: %w", pod, err)
		}
	}
	return nil
}

func (b *stallBed) close() error {
	errs := []error{b.yield()}
	for _, server := range b.servers {
		errs = append(errs, server.Close())
	}
	return errors.Join(append(errs, b.testbed.close())...)
}

// address looks a name of the servers up as the client sees it.
func (b *stallBed) address(ctx context.Context, name string) (netip.AddrPort, error) {
	text, err := b.lookup(ctx, stallNear+"/bench/client", name+stallDomain)
	if err != nil {
		return netip.AddrPort{}, err
	}
	addr, err := netip.ParseAddr(text)
	return netip.AddrPortFrom(addr, stallPort), err
}

// traffic is what flows from the client to one server while faults happen.
type traffic struct {
	packets  *flow.Packets
	requests *flow.Requests
	dials    *flow.Dials
}

const (
	packetRate   = 1000 // a second
	dialRate     = 50   // a second
	requestPause = 5 * time.Millisecond
)

func (b *stallBed) traffic(ctx context.Context, server string) (*traffic, error) {
	to, err := b.address(ctx, server)
	if err != nil {
		return nil, err
	}
	packets, err := flow.StartPackets(b.near, to, packetRate)
	if err != nil {
		return nil, err
	}
	return &traffic{
		packets:  packets,
		requests: flow.StartRequests(b.near, to, requestPause),
		dials:    flow.StartDials(b.near, to, dialRate),
	}, nil
}

// close ends all flows; what they saw stays.
func (t *traffic) close() error {
	return errors.Join(t.packets.Close(), t.requests.Close(), t.dials.Close())
}

// settle waits until the packets have flowed without a loss for a while.
func (t *traffic) settle(ctx context.Context, while, limit time.Duration) error {
	return within(ctx, limit, func() error { return t.packets.Whole(while) })
}
