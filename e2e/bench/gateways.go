package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"hawser.dev/hawser/lab"
)

const (
	spreadRounds  = 5
	spreadSeconds = 3
	spreadHub     = "hub"
	// uplink is what one gateway's underlay link carries in the second comparison.
	uplink = 100_000_000 // bit/s
	// heldWithin is when links that were cut too often are used again at the latest.
	heldWithin = 90 * time.Second
)

// spreadBed is a cluster with three gateways and three others.
type spreadBed struct {
	*testbed
	*fleet
	remotes []string          // clusters
	address map[string]string // by cluster
}

// spreadFigure is the throughput of all pairs together, round by round.
type spreadFigure struct{ one, three []float64 }

func measureGateways(ctx context.Context, c config) (s section, err error) {
	rounds, err := reps(spreadRounds)
	if err != nil {
		return s, err
	}
	files := filepath.Join(c.root, "e2e/bench/testdata/spread")
	b := &spreadBed{remotes: []string{"spoke1", "spoke2", "spoke3"}, address: map[string]string{}}
	if b.testbed, err = newTestbedOf(ctx, c, filepath.Join(files, "clusterset.yaml"), filepath.Join(files, "workloads")); err != nil {
		return s, err
	}
	defer func() { err = errors.Join(err, b.close()) }()
	if b.fleet, err = b.newFleet(ctx); err != nil {
		return s, err
	}
	for i, remote := range b.remotes {
		if err := b.background("lab", "exec", remote+"/bench/server", "--", "iperf3", "-s", "-p", iperfPort); err != nil {
			return s, err
		}
		if b.address[remote], err = b.lookup(ctx, spreadHub+"/bench/client", fmt.Sprintf("server%d.bench.svc.clusterset.local", i+1)); err != nil {
			return s, err
		}
	}
	spread, err := b.spread(ctx)
	if err != nil {
		return s, err
	}
	free, err := b.compare(ctx, rounds, spread)
	if err != nil {
		return s, err
	}
	if err := b.limit(); err != nil {
		return s, err
	}
	narrow, err := b.compare(ctx, rounds, spread)
	if err != nil {
		return s, err
	}
	return spreadSection(rounds, spread, free, narrow), nil
}

// spread gives the hub's gateway of each pair when all of them live.
func (b *spreadBed) spread(ctx context.Context) (map[string]string, error) {
	out := map[string]string{}
	for _, remote := range b.remotes {
		now, err := b.awaitRest(ctx, spreadHub, remote, restWithin)
		if err != nil {
			return nil, err
		}
		out[remote] = now.near
	}
	return out, nil
}

// compare measures with all gateways and with one, in turn.
func (b *spreadBed) compare(ctx context.Context, rounds int, spread map[string]string) (f spreadFigure, err error) {
	only := spread[b.remotes[0]]
	for range rounds {
		if err := b.awaitSpread(ctx, spread); err != nil {
			return f, err
		}
		speed, err := b.together(ctx)
		if err != nil {
			return f, err
		}
		f.three = append(f.three, speed)
		if speed, err = b.alone(ctx, only); err != nil {
			return f, err
		}
		f.one = append(f.one, speed)
	}
	return f, nil
}

// awaitSpread waits until the pairs are where they were at first. Links that were
// cut three times within a minute are held back for a while.
func (b *spreadBed) awaitSpread(ctx context.Context, spread map[string]string) error {
	return within(ctx, heldWithin, func() error {
		now, err := b.spread(ctx)
		if err == nil && !maps.Equal(now, spread) {
			err = fmt.Errorf("pairs are carried by %v, not by %v", now, spread)
		}
		return err
	})
}

// alone measures while the hub's other gateways are cut off.
func (b *spreadBed) alone(ctx context.Context, only string) (speed float64, err error) {
	for _, id := range b.ids(spreadHub) {
		if !b.nodes[id].Gateway || id == only {
			continue
		}
		if err := b.fault(ctx, lab.Fault{Kind: "cut", Target: id, Side: lab.SideWAN}); err != nil {
			return 0, err
		}
		defer func() { err = errors.Join(err, mend(ctx, b.fleet, id)) }()
	}
	err = within(ctx, backWithin, func() error {
		for _, remote := range b.remotes {
			now, err := b.inUse(ctx, spreadHub, remote)
			if err == nil && now.near != only {
				err = fmt.Errorf("%s is still in use", now.near)
			}
			if err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return 0, err
	}
	return b.together(ctx)
}

// together sends to all remote clusters at once.
func (b *spreadBed) together(ctx context.Context) (float64, error) {
	speeds := make([]float64, len(b.remotes))
	group, ctx := errgroup.WithContext(ctx)
	for i, remote := range b.remotes {
		group.Go(func() error {
			// A server of iperf3 that is not done with the last client refuses the next.
			return within(ctx, 30*time.Second, func() (err error) {
				speeds[i], err = b.iperf(ctx, spreadHub+"/bench/client", b.address[remote], spreadSeconds)
				return err
			})
		})
	}
	err := group.Wait()
	sum := 0.0
	for _, speed := range speeds {
		sum += speed
	}
	return sum, err
}

// limit makes the underlay links of the hub's gateways narrow, as those of
// machines that have one network card each.
func (b *spreadBed) limit() error {
	var errs []error
	for _, id := range b.ids(spreadHub) {
		if b.nodes[id].Gateway {
			errs = append(errs, b.rules(id, fmt.Sprintf("table netdev benchlimit {\nchain out { type filter hook egress device \"wan0\" priority 0; "+
				"limit rate over %d kbytes/second burst 256 kbytes drop; }\n}\n", uplink/8/1000)))
		}
	}
	return errors.Join(errs...)
}

func spreadSection(rounds int, spread map[string]string, free, narrow spreadFigure) section {
	var carried []string
	gateways := map[string]bool{}
	for remote, gateway := range spread {
		carried = append(carried, remote+" by "+strings.TrimPrefix(gateway, spreadHub+"/"))
		gateways[gateway] = true
	}
	slices.Sort(carried)
	quick, wide := ratio(free.three, free.one), ratio(narrow.three, narrow.one)
	return section{
		title: "One gateway and three",
		how: fmt.Sprintf(`
A cluster with three gateways sends to three clusters with one each, one TCP stream of iperf3 for %d s to each at once; the figure is the sum. The
reference is the same while the underlay of two of its gateways is cut, so that the third carries all. Of %d rounds, in turn. With all three, the pairs
were carried by %d gateways: %s. The first row is what the machine gives: all gateways of the lab share its two cores, so more of them cannot be
faster, and the row shows only that they are not slower. In the second the underlay link of each gateway of the cluster is limited to %.0f Mbit/s, as if each were a machine
with its own line: that is where a second gateway counts.`,
			spreadSeconds, rounds, len(gateways), strings.Join(carried, ", "), float64(uplink)/1e6),
		rows: []row{
			{what: "three gateways, shared processor", figure: gigabits(median(free.three)), reference: gigabits(median(free.one)) + " (one gateway)", ratio: fmt.Sprintf("%.2f", quick)},
			{what: "three gateways, a line of their own each", figure: gigabits(median(narrow.three)), reference: gigabits(median(narrow.one)) + " (one gateway)", ratio: fmt.Sprintf("%.2f", wide)},
		},
	}
}
