package main

import (
	"bytes"
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

// measureHops compares Hawser's driver vxlan, with and without direct packets between nodes, with
// the datapath of Submariner's VXLAN driver, each in its own lab.
func measureHops(ctx context.Context, c config) (s section, err error) {
	direct, tunnel, reference := &hopPath{name: "Hawser"}, &hopPath{name: "Hawser with nodeNetwork: tunnel"}, &hopPath{name: "two hops by hand"}
	paths := []*hopPath{direct, tunnel, reference}
	defer func() {
		for _, p := range paths {
			if p.lab != nil {
				err = errors.Join(err, p.lab.close())
			}
		}
	}()
	if err := direct.openHawser(ctx, c, "direct"); err != nil {
		return s, err
	}
	if err := tunnel.openHawser(ctx, c, "tunnel"); err != nil {
		return s, err
	}
	if err := reference.open(ctx, c, vxlanTopology(c), func() (string, error) { return reference.lab.twoHops(ctx) }, "--bare"); err != nil {
		return s, err
	}
	for round := range hopRounds {
		for i := range paths {
			p := paths[(i+round)%len(paths)]
			if err := p.measure(ctx); err != nil {
				return s, fmt.Errorf("%s: %w", p.name, err)
			}
		}
	}
	return hopSection(direct, tunnel, reference), nil
}

func vxlanTopology(c config) string {
	return filepath.Join(c.root, "e2e/bench/testdata/vxlan/clusterset.yaml")
}

// openHawser starts the lab of p with agents, and waits until its packets take the given path
// between nodes and gateways.
func (p *hopPath) openHawser(ctx context.Context, c config, nodeNetwork string) error {
	text, err := os.ReadFile(vxlanTopology(c))
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "hwb-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	topology := filepath.Join(dir, "clusterset.yaml")
	text = bytes.ReplaceAll(text, []byte("    gateways:\n"), []byte("    nodeNetwork: "+nodeNetwork+"\n    gateways:\n"))
	if err := os.WriteFile(topology, text, 0o600); err != nil {
		return err
	}
	err = p.open(ctx, c, topology, func() (string, error) {
		return p.lab.lookup(ctx, "b1/bench/worker", "worker.bench.svc.clusterset.local")
	})
	if err != nil || nodeNetwork == "tunnel" {
		return err
	}
	return within(ctx, time.Minute, func() error { return p.lab.allDirect(ctx) })
}

// allDirect fails while a node sends packets in VXLAN to a gateway of its cluster, or a gateway
// to a node.
func (t *testbed) allDirect(ctx context.Context) error {
	out, err := t.hawser(ctx, "show", "nodes", "-o", "json")
	if err != nil {
		return err
	}
	var answer struct {
		Agents []struct {
			Node  string `json:"node"`
			Nodes []struct {
				Node string `json:"node"`
				Path string `json:"path"`
			} `json:"nodes"`
		} `json:"agents"`
	}
	if err := json.Unmarshal(out, &answer); err != nil {
		return err
	}
	pairs := 0
	for _, agent := range answer.Agents {
		for _, node := range agent.Nodes {
			if node.Path != "direct" {
				return fmt.Errorf("%s to %s: %s", agent.Node, node.Node, node.Path)
			}
			pairs++
		}
	}
	if pairs == 0 {
		return errors.New("no agent reports the paths between nodes")
	}
	return nil
}

func (p *hopPath) open(ctx context.Context, c config, topology string, address func() (string, error), flags ...string) (err error) {
	workloads := filepath.Join(c.root, "e2e/bench/testdata/lab/workloads")
	if p.lab, err = newTestbedOf(ctx, c, topology, workloads, flags...); err != nil {
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
	if p.address, err = address(); err != nil {
		return err
	}
	return within(ctx, 20*time.Second, func() error { _, err := p.connect(ctx); return err })
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

// connect returns the number of connections a second that a pod opens, one after the other.
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

func hopSection(direct, tunnel, reference *hopPath) section {
	s := section{
		title: "VXLAN between clusters, compared with two hops by hand",
		method: fmt.Sprintf(`
Three labs of two clusters with the same prefixes run at once. A pod on a worker connects to a pod on a worker of the other cluster.
Hawser has `+"`driver: vxlan`"+` and a clusterset IP. With `+"`nodeNetwork: tunnel`"+` packets are in VXLAN three times: to the gateway, to
the other gateway and to the worker. Otherwise they are in VXLAN only between the gateways. The reference is a lab
without agents, with the rules, routes and links of Submariner 0.19 with Globalnet and its VXLAN driver: no clusterset IP, and the
pods' own network from the gateway to the worker; one rule of kube-proxy per port. Throughput is one TCP stream of iperf3 for %d
s. Connections are %d sequential TCP handshakes and resets. %d rounds in turn. Ratios above 1 mean that Hawser was faster.`, hopSeconds, hopConnections, hopRounds),
	}
	for _, p := range []struct {
		*hopPath
		location string
		target   float64
	}{{direct, ", direct packets", 1.2}, {tunnel, ", `nodeNetwork: tunnel`", 0.8}} {
		target := fmt.Sprintf("%.2f or better", p.target)
		fast, many := ratio(p.throughput, reference.throughput), ratio(p.rate, reference.rate)
		s.rows = append(s.rows,
			row{metric: "throughput" + p.location, figure: gigabits(median(p.throughput)), reference: gigabits(median(reference.throughput)),
				ratio: fmt.Sprintf("%.2f", fast)}.withTarget(target, fast >= p.target),
			row{metric: "new connections" + p.location, figure: perSecond(p.rate), reference: perSecond(reference.rate),
				ratio: fmt.Sprintf("%.2f", many)}.withTarget(target, many >= p.target))
	}
	s.after = fmt.Sprintf(`
Direct packets save two of three hops, and the reference has two. By these figures a path with one hop and no rules would reach %.2f
of the reference's throughput and %.2f of its new connections. The rest is probably the cost of Hawser's rules.`,
		oneHop(median(direct.throughput), median(tunnel.throughput), median(reference.throughput)),
		oneHop(median(direct.rate), median(tunnel.rate), median(reference.rate)))
	return s
}

// oneHop estimates the time per bit of one VXLAN hop. It returns the factor by which the reference,
// which has two hops, would be faster with one hop.
func oneHop(direct, tunnel, reference float64) float64 {
	hop := (1/tunnel - 1/direct) / 2
	return 1 / (1 - reference*hop)
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

// connectAll opens connections one after the other. It resets each, so no port stays in TIME_WAIT.
// It prints the total time in nanoseconds.
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
