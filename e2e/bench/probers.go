package main

import (
	"bufio"
	"context"
	"errors"
	"io"
	"strconv"
	"strings"
	"sync"
	"time"

	"hawser.dev/hawser/internal/bell"
	"hawser.dev/hawser/nodeagent/health"
	"hawser.dev/hawser/nodeagent/model"
)

// As health has them, for the rate at which the others probe.
const (
	standbyRate = 400
	maxStretch  = 20
)

// probeOthers are the gateways of all other clusters, in one process: real
// probers, each with the gateway that is measured as its only target. It reads
// its world from standard input, and then the numbers of those that shall end.
func probeOthers(ctx context.Context, in io.Reader) error {
	lines := bufio.NewReader(in)
	w, err := readWorld(lines)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	var wait sync.WaitGroup
	defer wait.Wait()
	defer cancel()
	list := w.remotes()
	stops := make([]context.CancelFunc, len(list))
	for i, other := range list {
		wake := bell.New()
		p := w.prober(other, list, wake)
		one, stop := context.WithCancel(ctx)
		stops[i] = stop
		wait.Go(func() { _ = carry(p, wake).Run(one) }) // it ends with its context only
	}
	for {
		text, err := lines.ReadString('\n')
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		i, err := strconv.Atoi(strings.TrimSpace(text))
		if err != nil {
			return err
		}
		stops[i]()
	}
}

func (w probing) prober(other remote, list []remote, wake bell.Bell) *health.Prober {
	settings := w.settings()
	if !other.used {
		// With one target each they would not know of a budget; in a real set they
		// have as many standby links as the gateway that is measured.
		settings.Interval *= time.Duration(stretch(list, settings.Interval))
	}
	p := health.New(health.Config{Cluster: other.cluster, Gateway: other.gateway, Port: probePort, Wake: wake, Settings: settings})
	p.SetListen([]health.Listen{{Addr: other.addr}})
	p.SetReady(true)
	p.SetTargets([]health.Target{{Peer: health.Peer{Cluster: "own", Gateway: "own-a"}, Source: other.addr, Addr: probeOwn}})
	if other.used {
		p.SetUse(map[string]model.Path{"own": {Local: other.gateway, Remote: "own-a"}})
	}
	return p
}

// stretch gives the intervals between two probes of a standby link.
func stretch(list []remote, interval time.Duration) int {
	standby := 0
	for _, other := range list {
		if !other.used {
			standby++
		}
	}
	perSecond := float64(standby) / interval.Seconds()
	return int(min(max((perSecond+standbyRate-1)/standbyRate, 1), maxStretch))
}
