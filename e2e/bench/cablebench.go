package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"strconv"
	"time"

	"hawser.dev/hawser/lab"
)

const (
	cableRounds  = 5
	cableTimeout = 90 * time.Second // until a link carries
)

// line is one way between two gateways, with what it gave.
type line struct {
	name           string
	client, server []string // of a hawser command: where the two ends run
	address        string
	speed          []float64 // bit/s
	middle         []time.Duration
}

// measureCables compares the drivers with the bare underlay, all in one lab.
func measureCables(ctx context.Context, c config) (s section, err error) {
	files := filepath.Join(c.root, "e2e/bench/testdata/drivers")
	t, err := newTestbedOf(ctx, c, filepath.Join(files, "clusterset.yaml"), filepath.Join(files, "workloads"), "--workers", "0")
	if err != nil {
		return s, err
	}
	defer func() { err = errors.Join(err, t.close()) }()
	state, err := t.status(ctx)
	if err != nil {
		return s, err
	}
	lines, err := cableLines(state)
	if err != nil {
		return s, err
	}
	me, err := self()
	if err != nil {
		return s, err
	}
	for _, l := range lines {
		serve := func(argv ...string) error { return t.background(append(append([]string{}, l.server...), argv...)...) }
		if err := errors.Join(serve("iperf3", "-s", "-p", iperfPort), serve(me, "echo", echoPort)); err != nil {
			return s, err
		}
		if err := within(ctx, cableTimeout, func() error { return t.cableLatency(ctx, l) }); err != nil {
			return s, fmt.Errorf("%s: %w", l.name, err)
		}
		l.middle = nil
	}
	for round := range cableRounds {
		for i := range lines {
			l := lines[(i+round)%len(lines)]
			if err := errors.Join(t.cableThroughput(ctx, l), t.cableLatency(ctx, l)); err != nil {
				return s, fmt.Errorf("%s: %w", l.name, err)
			}
		}
	}
	return cableSection(lines), nil
}

// cableLines begins with the bare underlay.
func cableLines(state lab.Status) ([]*line, error) {
	pods, wan := map[string]string{}, map[string]string{}
	for _, p := range state.Pods {
		if p.Namespace == "default" && p.Name == "client" {
			pods[p.Cluster] = p.IP
		}
	}
	for _, n := range state.Nodes {
		if len(n.WAN) > 0 {
			wan[n.Cluster] = n.WAN[0]
		}
	}
	lines := []*line{{
		name: "bare underlay", client: []string{"lab", "node", "b0/b0-a", "--"}, server: []string{"lab", "node", "b1/b1-a", "--"}, address: wan["b1"],
	}}
	for _, d := range []struct{ driver, cluster string }{{"wireguard", "b1"}, {"vxlan", "b2"}, {"ipsec", "b3"}} {
		lines = append(lines, &line{
			name: d.driver, client: []string{"lab", "exec", "b0/default/client", "--"},
			server: []string{"lab", "exec", d.cluster + "/default/client", "--"}, address: pods[d.cluster],
		})
	}
	for _, l := range lines {
		if l.address == "" {
			return nil, fmt.Errorf("%s: the lab has no address for it", l.name)
		}
	}
	return lines, nil
}

func (t *testbed) cableThroughput(ctx context.Context, l *line) error {
	argv := append(append([]string{}, l.client...), "iperf3", "-J", "-c", l.address, "-p", iperfPort, "-O", "1", "-t", strconv.Itoa(tunnelSeconds))
	out, err := t.hawser(ctx, argv...)
	if err != nil {
		return err
	}
	speed, err := iperfSpeed(out)
	l.speed = append(l.speed, speed)
	return err
}

func (t *testbed) cableLatency(ctx context.Context, l *line) error {
	me, err := self()
	if err != nil {
		return err
	}
	out, err := t.hawser(ctx, append(append([]string{}, l.client...), me, "ask", l.address+":"+echoPort, strconv.Itoa(tunnelRequests))...)
	if err != nil {
		return err
	}
	var took []time.Duration
	if err := json.Unmarshal(out, &took); err != nil {
		return err
	}
	l.middle = append(l.middle, median(took))
	return nil
}

func cableSection(lines []*line) section {
	s := section{
		title: "Each driver against the bare underlay",
		how: fmt.Sprintf(`
A lab in which one cluster has a link of each driver to another cluster. Pods on the gateways talk to each other at their own addresses, and the gateways themselves over
the bare underlay, in turn. Throughput is one TCP stream of iperf3 for %d s; latency is %d requests of %d bytes over one connection. WireGuard and IPsec run in userspace where the kernel
has none (see the kernel above). Ratios below 1 are what a driver costs.`, tunnelSeconds, tunnelRequests, echoSize),
	}
	bare := lines[0]
	for _, l := range lines[1:] {
		s.rows = append(s.rows,
			row{what: "throughput, " + l.name, figure: gigabits(median(l.speed)), reference: gigabits(median(bare.speed)),
				ratio: fmt.Sprintf("%.2f", ratio(l.speed, bare.speed))},
			row{what: "latency, p50, " + l.name, figure: millis(median(l.middle)), reference: millis(median(bare.middle)),
				ratio: fmt.Sprintf("%.2f", ratio(bare.middle, l.middle))})
	}
	return s
}
