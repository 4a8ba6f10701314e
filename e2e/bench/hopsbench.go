package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

const (
	hopRounds   = 30 // short ones, as what a busy machine does else changes from second to second
	hopSeconds  = "1"
	hopConnects = 1000
	acceptPort  = "5203"
)

// hop is one way from the pod of b1's worker to the one of b2's, in a lab of its own,
// with what it gave.
type hop struct {
	name    string
	t       *testbed
	address string
	speed   []float64 // bit/s
	rate    []float64 // connections a second
}

// measureHops compares the VXLAN of Hawser between clusters with the same by hand, as
// Submariner lays it, each in a lab of its own. With another build beside this one it
// gets a lab too.
func measureHops(ctx context.Context, c config) (s section, err error) {
	hops := []*hop{{name: "Hawser"}, {name: "two hops by hand"}}
	if c.beside != "" {
		hops = append(hops, &hop{name: "Hawser of another build"})
	}
	defer func() {
		for _, h := range hops {
			if h.t != nil {
				err = errors.Join(err, h.t.close())
			}
		}
	}()
	undo := prefer() // client and server, not the agents: on a busy machine the others would be measured
	defer func() { err = errors.Join(err, undo()) }()
	for i, h := range hops {
		if err := h.open(ctx, c, i); err != nil {
			return s, fmt.Errorf("%s: %w", h.name, err)
		}
	}
	for round := range hopRounds {
		for i := range hops {
			h := hops[(i+round)%len(hops)]
			if err := h.measure(ctx); err != nil {
				return s, fmt.Errorf("%s: %w", h.name, err)
			}
		}
	}
	return hopSection(hops), nil
}

// open makes the lab and waits until the way carries.
func (h *hop) open(ctx context.Context, c config, i int) (err error) {
	var more []string
	switch i {
	case 1:
		more = []string{"--bare"}
	case 2:
		c.bin = c.beside
	}
	data := filepath.Join(c.root, "e2e/bench/testdata")
	h.t, err = newTestbedOf(ctx, c, filepath.Join(data, "vxlan/clusterset.yaml"), filepath.Join(data, "lab/workloads"), more...)
	if err != nil {
		return err
	}
	me, err := self()
	if err != nil {
		return err
	}
	serve := func(argv ...string) error {
		return h.t.start(nil, append([]string{"lab", "exec", "b2/bench/worker", "--"}, argv...)...)
	}
	if err := errors.Join(serve("iperf3", "-s", "-p", iperfPort), serve(me, "accept", acceptPort)); err != nil {
		return err
	}
	if i == 1 {
		h.address, err = h.t.twoHops(ctx)
	} else {
		h.address, err = h.t.lookup(ctx, "b1/bench/worker", "worker.bench.svc.clusterset.local")
	}
	if err != nil {
		return err
	}
	return within(ctx, cableTimeout, func() error { _, err := h.connects(ctx); return err })
}

func (h *hop) measure(ctx context.Context) error {
	out, err := h.t.pod(ctx, "b1/bench/worker", "iperf3", "-J", "-c", h.address, "-p", iperfPort, "-t", hopSeconds)
	if err != nil {
		return err
	}
	speed, err := iperfSpeed(out)
	if err != nil {
		return err
	}
	rate, err := h.connects(ctx)
	h.speed, h.rate = append(h.speed, speed), append(h.rate, rate)
	return err
}

// connects gives how many connections a second a pod opens, one after the other.
func (h *hop) connects(ctx context.Context) (rate float64, err error) {
	me, err := self()
	if err != nil {
		return 0, err
	}
	out, err := h.t.pod(ctx, "b1/bench/worker", me, "connect", h.address, strconv.Itoa(hopConnects))
	if err != nil {
		return 0, err
	}
	var took time.Duration
	err = json.Unmarshal(out, &took)
	return hopConnects / took.Seconds(), err
}

func hopSection(hops []*hop) section {
	s := section{
		title: "VXLAN between clusters, beside two hops by hand",
		how: fmt.Sprintf(`
Two labs of the same two clusters with the same prefixes, at once. A pod on a worker of one calls a pod on a worker of the other.
Hawser has `+"`driver: vxlan`"+`: clusterset IP, VXLAN to the gateway, to the other gateway and to the worker. The reference is a lab
without agents, set up by hand after what Submariner 0.19 writes with Globalnet and its VXLAN driver: the same without the
clusterset IP, and from the gateway to the worker the route of the pods' own network, which the lab's network carries; of what
kube-proxy does there it has one rule a port. Throughput is one TCP stream of iperf3 for %s s, connections are %d TCP handshakes and
resets one after the other, in turn, %d rounds; clients and servers have the processors first (autogroup). Ratios above 1 mean that
Hawser was faster.`, hopSeconds, hopConnects, hopRounds),
	}
	ours := hops[0]
	for _, h := range hops[1:] {
		target := 1.2
		if h.name != "two hops by hand" {
			target = 0.97
		}
		aim := fmt.Sprintf("%.2f or better", target)
		fast, many := ratio(ours.speed, h.speed), ratio(ours.rate, h.rate)
		named := func(figure string) string { return figure + " (" + h.name + ")" }
		s.rows = append(s.rows,
			row{what: "throughput", figure: gigabits(median(ours.speed)), reference: named(gigabits(median(h.speed))),
				ratio: fmt.Sprintf("%.2f", fast)}.aim(aim, fast >= target),
			row{what: "new connections", figure: each(ours.rate), reference: named(each(h.rate)),
				ratio: fmt.Sprintf("%.2f", many)}.aim(aim, many >= target))
	}
	return s
}

func each(rate []float64) string { return fmt.Sprintf("%.0f/s", median(rate)) }

// acceptAll takes and closes connections to a port, until it is killed.
func acceptAll(port string) error {
	n, err := strconv.Atoi(port)
	if err != nil {
		return err
	}
	listener, err := listenOn(n)
	if err != nil {
		return err
	}
	for {
		conn, _, err := unix.Accept(listener)
		if err != nil {
			return fmt.Errorf("accept: %w", err)
		}
		_ = unix.Close(conn)
	}
}

// connectAll opens connections one after the other, as space.connect does, and prints
// what all of them took, in nanoseconds.
func connectAll(address, count string) error {
	n, err := strconv.Atoi(count)
	if err != nil {
		return err
	}
	target, err := netip.ParseAddrPort(address + ":" + acceptPort)
	if err != nil {
		return err
	}
	to := sockaddr(target)
	begin := time.Now()
	for range n {
		if err := connectOnce(&to, 0); err != nil { // the kernel knows which ports are free
			return err
		}
	}
	return json.NewEncoder(os.Stdout).Encode(time.Since(begin))
}
