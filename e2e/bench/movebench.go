package main

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"hawser.dev/hawser/nodeagent/converge"
	"hawser.dev/hawser/nodeagent/desired"
	"hawser.dev/hawser/nodeagent/kernel"
	"hawser.dev/hawser/nodeagent/model"
	"hawser.dev/hawser/nodeagent/projection"
	"hawser.dev/hawser/schema/fabric"
)

const moveRounds = 50

// moveBench is a gateway. The agent's engine writes its routes, as after the failure of a link.
type moveBench struct {
	space *space
	ns    *kernel.Namespace
	input projection.Input
}

// moveTimes is the result of one size.
type moveTimes struct {
	clusters, routes       int
	all, computed, written []time.Duration // whole state; routes only; from the choice to the kernel
}

func measureMove(ctx context.Context, _ config) (s section, err error) {
	s = section{
		title: "From a choice to the kernel",
		method: fmt.Sprintf(`
A gateway in clustersets of 20 and of 1000 clusters with three gateways each; one cluster's traffic moves to another of its
gateways. *Routes* is the pure part: fabric and choices to desired routes. *To the kernel* is the engine in a namespace: from the
trigger, through the comparison with the written routes, to the kernel's acknowledgement. The reference is the whole desired
state of the node, which the next pass computes. %d moves.`, moveRounds),
	}
	for _, clusters := range []int{20, 1000} {
		t, err := moves(ctx, clusters)
		if err != nil {
			return s, fmt.Errorf("%d clusters: %w", clusters, err)
		}
		wholeState := median(t.all)
		for _, r := range []struct {
			name  string
			times []time.Duration
		}{{"routes", t.computed}, {"to the kernel", t.written}} {
			for _, q := range []struct {
				name  string
				share float64
			}{{"p50", 0.5}, {"p99", 0.99}} {
				have := quantile(r.times, q.share)
				s.rows = append(s.rows, row{
					metric: fmt.Sprintf("%s, %s, %d clusters, %d routes", r.name, q.name, t.clusters, t.routes), figure: millis(have),
					reference: millis(wholeState) + " (whole state)", ratio: fmt.Sprintf("%.2f", have.Seconds()/wholeState.Seconds()),
				})
			}
		}
	}
	return s, nil
}

func moves(ctx context.Context, clusters int) (t moveTimes, err error) {
	b := &moveBench{input: moveInput(clusters)}
	t.clusters = clusters
	wanted := projection.Routes(b.input)
	if t.routes = len(wanted); t.routes < clusters {
		return t, fmt.Errorf("%d routes for %d clusters", t.routes, clusters)
	}
	if b.space, err = newSpace(); err != nil {
		return t, err
	}
	defer func() { err = errors.Join(err, b.space.close()) }()
	if b.ns, err = kernel.Open(b.space.path()); err != nil {
		return t, err
	}
	defer func() { err = errors.Join(err, b.ns.Close()) }()
	if err := b.links(wanted); err != nil {
		return t, err
	}
	for i := range moveRounds / 5 {
		b.flip(i)
		start := time.Now()
		_, _ = projection.Desired(b.input)
		t.all = append(t.all, time.Since(start))
	}
	for i := range moveRounds {
		b.flip(i)
		start := time.Now()
		_ = projection.Routes(b.input)
		t.computed = append(t.computed, time.Since(start))
	}
	t.written, err = b.run(ctx)
	return t, err
}

// links creates devices for the routes, with the tunnels' names.
func (b *moveBench) links(routes []desired.Route) error {
	other, err := newSpace()
	if err != nil {
		return err
	}
	b.space.atEnd = append(b.space.atEnd, other.close)
	created := map[string]bool{"": true}
	for _, r := range routes {
		if created[r.Device] {
			continue
		}
		created[r.Device] = true
		if err := join(b.space, r.Device, other, r.Device); err != nil {
			return err
		}
		number := byte(len(created))
		if err := b.space.address(r.Device, netip.PrefixFrom(netip.AddrFrom4([4]byte{198, 18, number, 1}), 24).String()); err != nil {
			return err
		}
	}
	// Routes name the node's own addresses as their source.
	var sources []string
	for _, r := range routes {
		if r.Src.IsValid() && !slices.Contains(sources, r.Src.String()) {
			sources = append(sources, r.Src.String())
		}
	}
	for _, addr := range sources {
		if err := b.space.address("lo", addr+"/32"); err != nil {
			return err
		}
	}
	return nil
}

// flip moves the traffic of one remote cluster to another of its gateways.
func (b *moveBench) flip(round int) {
	c := b.input.Fabric.Clusters[1+round%(len(b.input.Fabric.Clusters)-1)]
	path := b.input.Paths[c.Name]
	at := slices.IndexFunc(c.Gateways, func(g fabric.Gateway) bool { return g.Name == path.Remote })
	path.Remote = c.Gateways[(at+1)%len(c.Gateways)].Name
	b.input.Paths[c.Name], b.input.GatewayPaths[c.Name] = path, path
}

// run moves traffic repeatedly, and measures each move until the kernel has the routes.
func (b *moveBench) run(ctx context.Context) (took []time.Duration, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	urgent, trigger, done := make(chan struct{}, 1), make(chan struct{}, 1), make(chan struct{})
	var failed error
	engine := &converge.Engine[[]desired.Route]{
		Stages: []converge.Stage[[]desired.Route]{
			converge.MarkUrgent(converge.NewStage(kernel.NewRoutes(b.ns),
				func(r []desired.Route) []desired.Route { return r }, func(r desired.Route) string { return r.Origin })),
		},
		OnReport: func(r converge.Report) {
			failed = errors.Join(failed, r.Err())
			select {
			case done <- struct{}{}:
			case <-ctx.Done():
			}
		},
		Resync: time.Hour,
	}
	source := func(context.Context) ([]desired.Route, string, bool) { return projection.Routes(b.input), "", true }
	written := make(chan time.Time, 1)
	engine.Urgent = &converge.UrgentConfig[[]desired.Route]{Source: source, Trigger: urgent, Done: func() { written <- time.Now() }}
	ended := make(chan struct{})
	go func() { engine.Run(ctx, source, trigger); close(ended) }()
	defer func() { cancel(); <-ended; err = errors.Join(err, failed) }()
	if err := awaitPass(done); err != nil { // the first pass creates everything
		return nil, err
	}
	for i := range moveRounds {
		b.flip(i) // safe: the engine is idle
		start := time.Now()
		urgent <- struct{}{}
		select {
		case at := <-written:
			took = append(took, at.Sub(start))
		case <-time.After(10 * time.Second):
			return took, errors.New("no urgent pass within 10 s")
		}
		if err := awaitPass(done); err != nil { // the full pass that follows
			return took, err
		}
	}
	return took, nil
}

func awaitPass(done chan struct{}) error {
	select {
	case <-done:
		return nil
	case <-time.After(30 * time.Second):
		return errors.New("no pass within 30 s")
	}
}

// moveInput is a gateway of the first of many clusters with three gateways each.
func moveInput(clusters int) projection.Input {
	prefix := func(text string) []netip.Prefix { return []netip.Prefix{netip.MustParsePrefix(text)} }
	f := &fabric.Fabric{
		Domain: "clusterset.local", Epochs: []int{1}, DNS: fabric.DNS{Address: netip.MustParseAddr("169.254.73.53")},
		GlobalPools: prefix("242.0.0.0/8"), ServicePools: prefix("243.0.0.0/16"), TunnelPools: prefix("241.0.0.0/16"),
	}
	in := projection.Input{Fabric: f, Cluster: "c0", Node: "c0-a", Paths: map[string]model.Path{}, GatewayPaths: map[string]model.Path{}}
	for i := range clusters {
		name := fmt.Sprintf("c%d", i)
		block := nth("242.0.0.0/8", i<<10)
		c := fabric.Cluster{
			Name: name, Globalnet: true, EgressMode: fabric.EgressShared, EgressIPs: []netip.Addr{block.Next()},
			PodCIDRs: prefix("10.7.0.0/16"), ServiceCIDRs: prefix("10.77.0.0/16"), GlobalCIDRs: []netip.Prefix{netip.PrefixFrom(block, 22)},
		}
		for ordinal, letter := range []string{"a", "b", "c"} {
			c.Gateways = append(c.Gateways, fabric.Gateway{
				Name: name + "-" + letter, Node: name + "-" + letter, Endpoints: []string{"203.0.113.11"}, Port: 51820, Ordinal: ordinal,
				Addresses: []netip.Addr{nth("241.0.0.0/16", 3*i+ordinal+1)}, Keys: []fabric.Key{{Epoch: 1, Public: "pub-" + name + letter}},
			})
		}
		f.Clusters = append(f.Clusters, c)
		if i > 0 {
			in.Paths[name] = model.Path{Local: "c0-a", Remote: name + "-a"}
			in.GatewayPaths[name] = in.Paths[name]
		}
	}
	in.Keys = &fabric.Keys{APIVersion: fabric.KeysAPIVersion, Cluster: "c0", Epochs: []fabric.EpochKeys{{Epoch: 1, PSKSeed: fabric.Secret{1},
		Gateways: map[string]fabric.Secret{"c0-a": {1}, "c0-b": {2}, "c0-c": {3}}}}}
	in.Facts.Nodes = []model.Node{{Name: "c0-a", Addrs: []netip.Addr{netip.MustParseAddr("192.168.0.1")}}}
	return in
}
