package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"time"
)

const (
	tunnelRounds   = 7
	tunnelSeconds  = 3
	tunnelRequests = 4000
	iperfPort      = "5201"
	echoPort       = "5202"
)

// tunnelPath is one path from a pod of b1 to the same pod of b2, with its measurements.
type tunnelPath struct {
	name, pod, address string
	speed              []float64 // bit/s
	middle, worst      []time.Duration
}

func measureTunnel(ctx context.Context, c config) (s section, err error) {
	t, err := newTestbed(ctx, c)
	if err != nil {
		return s, err
	}
	defer func() { err = errors.Join(err, t.close()) }()
	reference, err := t.reference(ctx)
	if err != nil {
		return s, fmt.Errorf("reference: %w", err)
	}
	me, err := self()
	if err != nil {
		return s, err
	}
	var paths []*tunnelPath
	for _, pod := range []string{"worker", "gateway"} {
		server := "b2/bench/" + pod
		if err := errors.Join(t.background("lab", "exec", server, "--", "iperf3", "-s", "-p", iperfPort),
			t.background("lab", "exec", server, "--", me, "echo", echoPort)); err != nil {
			return s, err
		}
		ours, err := t.lookup(ctx, "b1/bench/worker", pod+".bench.svc.clusterset.local")
		if err != nil {
			return s, err
		}
		paths = append(paths, &tunnelPath{name: "Hawser", pod: pod, address: ours}, &tunnelPath{name: "by hand", pod: pod, address: reference[pod]})
	}
	for _, w := range paths {
		if err := within(ctx, 5*time.Second, func() error { return t.latency(ctx, &tunnelPath{pod: w.pod, address: w.address}) }); err != nil {
			return s, fmt.Errorf("%s, %s: %w", w.name, w.pod, err)
		}
	}
	for round := range tunnelRounds {
		for i := range paths {
			w := paths[(i+round)%len(paths)]
			if err := errors.Join(t.throughput(ctx, w), t.latency(ctx, w)); err != nil {
				return s, fmt.Errorf("%s, %s: %w", w.name, w.pod, err)
			}
		}
	}
	return tunnelSection(paths), nil
}

func (t *testbed) throughput(ctx context.Context, w *tunnelPath) error {
	speed, err := t.iperf(ctx, "b1/bench/"+w.pod, w.address, tunnelSeconds)
	w.speed = append(w.speed, speed)
	return err
}

// iperf sends at full speed from a pod for some seconds, and returns the received bit/s.
func (t *testbed) iperf(ctx context.Context, pod, address string, seconds int) (float64, error) {
	out, err := t.pod(ctx, pod, "iperf3", "-J", "-c", address, "-p", iperfPort, "-O", "1", "-t", strconv.Itoa(seconds))
	if err != nil {
		return 0, err
	}
	var result struct {
		End struct {
			Received struct {
				Speed float64 `json:"bits_per_second"`
			} `json:"sum_received"`
		} `json:"end"`
	}
	err = json.Unmarshal(out, &result)
	return result.End.Received.Speed, err
}

func (t *testbed) latency(ctx context.Context, w *tunnelPath) error {
	me, err := self()
	if err != nil {
		return err
	}
	out, err := t.pod(ctx, "b1/bench/"+w.pod, me, "requests", w.address+":"+echoPort, strconv.Itoa(tunnelRequests))
	if err != nil {
		return err
	}
	var took []time.Duration
	if err := json.Unmarshal(out, &took); err != nil {
		return err
	}
	w.middle, w.worst = append(w.middle, median(took)), append(w.worst, quantile(took, 0.99))
	return nil
}

func tunnelSection(paths []*tunnelPath) section {
	s := section{
		title: "Through the tunnel",
		method: fmt.Sprintf(`
Two clusters with the same prefixes. A pod calls a service of the other cluster through globalnet: clusterset IP, source NAT,
VXLAN to the gateway, WireGuard (userspace on both sides of the comparison), destination NAT. The reference is a WireGuard set up
by hand between the same gateways, with plain routes and second addresses for the same pods. Throughput is one TCP stream of
iperf3 for %d s; latency is %d requests of %d bytes over one connection. Ratios above 1 mean that Hawser was faster.`, tunnelSeconds, tunnelRequests, echoSize),
	}
	s.after = `
Pods on gateways show globalnet and the tunnel alone. Pods on workers have, on Hawser's side only, a VXLAN between worker and
gateway: the network of a
cluster does not carry other clusters' addresses, which the reference's plain routes take for granted. It is that VXLAN (eight times
through its device for a request and its answer) that costs the difference.`
	for i := 0; i < len(paths); i += 2 {
		ours, hand := paths[i], paths[i+1]
		location := ", pods on " + ours.pod + "s"
		fast := ratio(ours.speed, hand.speed)
		s.rows = append(s.rows, row{metric: "throughput" + location, figure: gigabits(median(ours.speed)), reference: gigabits(median(hand.speed)),
			ratio: fmt.Sprintf("%.2f", fast)}.withTarget("0.95 or better", fast >= 0.95))
		for _, q := range []struct {
			name       string
			ours, hand []time.Duration
		}{{"latency, p50", ours.middle, hand.middle}, {"latency, p99", ours.worst, hand.worst}} {
			quick := ratio(q.hand, q.ours)
			s.rows = append(s.rows, row{metric: q.name + location, figure: millis(median(q.ours)), reference: millis(median(q.hand)),
				ratio: fmt.Sprintf("%.2f", quick)}.withTarget("0.95 or better", quick >= 0.95))
		}
	}
	return s
}

// ratio returns the median of a/b over all rounds.
func ratio[T float64 | time.Duration](a, b []T) float64 {
	list := make([]float64, len(a))
	for i := range a {
		list[i] = float64(a[i]) / float64(b[i])
	}
	return median(list)
}

func gigabits(speed float64) string { return fmt.Sprintf("%.2f Gbit/s", speed/1e9) }
