package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"time"
)

const (
	hopRounds      = 30 // short rounds: the load of the machine changes from second to second
	hopSeconds     = 1
	hopConnections = 1000
	acceptPort     = "5203"
)

// hopPath is the path from the pod of b1's worker to the pod of b2's worker, in a lab of its
// own, with the measurements.
type hopPath struct {
	name       string
	lab        *testbed
	address    string
	throughput []float64 // bit/s
	rate       []float64 // connections a second
}

// measureHops compares Hawser's driver vxlan with the datapath of Submariner's VXLAN driver, each
// in its own lab.
func measureHops(ctx context.Context, c config) (s section, err error) {
	hawser, reference := &hopPath{name: "Hawser"}, &hopPath{name: "two hops by hand"}
	defer func() {
		for _, p := range []*hopPath{hawser, reference} {
			if p.lab != nil {
				err = errors.Join(err, p.lab.close())
			}
		}
	}()
	open := func(p *hopPath, address func(context.Context) (string, error), flags ...string) error {
		data := filepath.Join(c.root, "e2e/bench/testdata")
		if p.lab, err = newTestbedOf(ctx, c, filepath.Join(data, "vxlan/clusterset.yaml"), filepath.Join(data, "lab/workloads"), flags...); err != nil {
			return err
		}
		me, err := self()
		if err != nil {
			return err
		}
		for _, server := range [][]string{{"iperf3", "-s", "-p", iperfPort}, {me, "accept", acceptPort}} {
			if err := p.lab.background(append([]string{"lab", "exec", "b2/bench/worker", "--"}, server...)...); err != nil {
				return err
			}
		}
		if p.address, err = address(ctx); err != nil {
			return err
		}
		return within(ctx, 20*time.Second, func() error { _, err := p.connect(ctx); return err })
	}
	err = open(hawser, func(ctx context.Context) (string, error) {
		return hawser.lab.lookup(ctx, "b1/bench/worker", "worker.bench.svc.clusterset.local")
	})
	if err == nil {
		err = open(reference, func(ctx context.Context) (string, error) { return reference.lab.twoHops(ctx) }, "--bare")
	}
	if err != nil {
		return s, err
	}
	for round := range hopRounds {
		paths := []*hopPath{hawser, reference}
		if round%2 == 1 {
			paths = []*hopPath{reference, hawser}
		}
		for _, p := range paths {
			if err := p.measure(ctx); err != nil {
				return s, fmt.Errorf("%s: %w", p.name, err)
			}
		}
	}
	return hopSection(hawser, reference), nil
}

func (p *hopPath) measure(ctx context.Context) error {
	throughput, err := p.lab.iperf(ctx, "b1/bench/worker", p.address, hopSeconds)
	if err != nil {
		return err
	}
	rate, err := p.connect(ctx)
	p.throughput, p.rate = append(p.throughput, throughput), append(p.rate, rate)
	return err
}

// connect returns how many connections a second a pod opens, one after the other.
func (p *hopPath) connect(ctx context.Context) (rate float64, err error) {
	me, err := self()
	if err != nil {
		return 0, err
	}
	out, err := p.lab.pod(ctx, "b1/bench/worker", me, "connect", p.address+":"+acceptPort, strconv.Itoa(hopConnections))
	if err != nil {
		return 0, err
	}
	var took time.Duration
	err = json.Unmarshal(out, &took)
	return hopConnections / took.Seconds(), err
}

func hopSection(hawser, reference *hopPath) section {
	s := section{
		title: "VXLAN between clusters, compared with two hops by hand",
		how: fmt.Sprintf(`
Two labs of two clusters with the same prefixes run at once. A pod on a worker connects to a pod on a worker of the other cluster.
Hawser has `+"`driver: vxlan`"+`: clusterset IP, VXLAN to the gateway, to the other gateway and to the worker. The reference is a lab
without agents, with the rules, routes and links of Submariner 0.19 with Globalnet and its VXLAN driver: no clusterset IP, and the
pods' own network from the gateway to the worker; one rule of kube-proxy per port. Throughput is one TCP stream of iperf3 for %d
s. Connections are %d sequential TCP handshakes and resets. %d rounds in turn. Ratios above 1 mean that Hawser was faster.`, hopSeconds, hopConnections, hopRounds),
	}
	const target = 1.2
	aim := fmt.Sprintf("%.2f or better", target)
	fast, many := ratio(hawser.throughput, reference.throughput), ratio(hawser.rate, reference.rate)
	s.rows = []row{
		row{what: "throughput", figure: gigabits(median(hawser.throughput)), reference: gigabits(median(reference.throughput)),
			ratio: fmt.Sprintf("%.2f", fast)}.withTarget(aim, fast >= target),
		row{what: "new connections", figure: perSecond(hawser.rate), reference: perSecond(reference.rate),
			ratio: fmt.Sprintf("%.2f", many)}.withTarget(aim, many >= target),
	}
	return s
}

func perSecond(rate []float64) string { return fmt.Sprintf("%.0f/s", median(rate)) }

// acceptAll accepts and closes connections to a port, until it is killed.
func acceptAll(port string) error {
	listener, err := net.Listen("tcp", ":"+port)
	if err != nil {
		return err
	}
	for {
		conn, err := listener.Accept()
		if err != nil {
			return err
		}
		_ = conn.Close()
	}
}

// connectAll opens connections one after the other and resets each, so that no port waits. It
// prints the time for all of them, in nanoseconds.
func connectAll(address, count string) error {
	n, err := strconv.Atoi(count)
	if err != nil {
		return err
	}
	target, err := net.ResolveTCPAddr("tcp", address)
	if err != nil {
		return err
	}
	start := time.Now()
	for range n {
		conn, err := net.DialTCP("tcp", nil, target)
		if err != nil {
			return err
		}
		if err := errors.Join(conn.SetLinger(0), conn.Close()); err != nil {
			return err
		}
	}
	return json.NewEncoder(os.Stdout).Encode(time.Since(start))
}
