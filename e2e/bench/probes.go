package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"time"
)

const (
	probeMeasure = 15 * time.Second
	probeDeaths  = 20
	idleDeaths   = 3
)

// probeRun is one world with what came out.
type probeRun struct {
	name string
	probing
	probed
	count      int             // of deaths of links in use
	used, idle []time.Duration // from the end of a gateway to the end of its link
	wrong      int             // links that were called dead and lived
	unseen     int             // ends that were not seen within deathLimit
}

func measureProbes(ctx context.Context, _ config) (s section, err error) {
	deaths, err := reps(probeDeaths)
	if err != nil {
		return s, err
	}
	world := func(clusters int, all bool, interval time.Duration) probing {
		return probing{Clusters: clusters, Gateways: 3, All: all, Interval: interval, Misses: 3, Measure: probeMeasure}
	}
	few, many := world(67, false, 250*time.Millisecond), world(1000, false, 250*time.Millisecond)
	fewAll, manyAll := few, many
	// Each gateway as a cluster of its own, whose one link is in use.
	fewAll.Clusters, fewAll.Gateways, fewAll.All = 201, 1, true
	manyAll.Clusters, manyAll.Gateways, manyAll.All = 3000, 1, true
	fast := world(67, false, 50*time.Millisecond)
	runs := []*probeRun{
		{name: "200 gateways", probing: few}, {name: "200 gateways, no budget", probing: fewAll},
		{name: "200 gateways, fast profile", probing: fast},
		{name: "3 000 gateways", probing: many}, {name: "3 000 gateways, no budget", probing: manyAll},
	}
	for _, r := range runs {
		r.count = deaths
		if err := r.measure(ctx); err != nil {
			return s, fmt.Errorf("%s: %w", r.name, err)
		}
		fmt.Fprintf(os.Stderr, "bench: %s: %+v, deaths %v %v, wrong %d\n", r.name, r.probed, r.used, r.idle, r.wrong)
	}
	return probesSection(runs), nil
}

// measure runs the gateway in one namespace and all the others in another.
func (r *probeRun) measure(ctx context.Context) (err error) {
	here, err := newSpace()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, here.close()) }()
	there, err := newSpace()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, there.close()) }()
	if err := errors.Join(join(here, "up0", there, "down0"), here.address("up0", probeOwn.String()+"/30"),
		there.address("down0", probeOwn.Next().String()+"/30")); err != nil {
		return err
	}
	if err := errors.Join(here.route("10.64.0.0/16", probeOwn.Next().String()), there.local("10.64.0.0/16")); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, 5*time.Minute)
	defer cancel()
	others, err := startPart(ctx, there, "probe-others", r.probing)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, others.close()) }()
	gateway, err := startPart(ctx, here, "probe-gateway", r.probing)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, gateway.close()) }()
	if r.probed, err = gateway.line(); err != nil {
		return err
	}
	return r.deaths(gateway, others)
}

// partProcess is this program, started for one part in a namespace. It gets a
// world on its standard input and ends with that.
type partProcess struct {
	cmd *exec.Cmd
	in  io.WriteCloser
	out *bufio.Reader
}

func startPart(ctx context.Context, at *space, name string, world probing) (*partProcess, error) {
	me, err := self()
	if err != nil {
		return nil, err
	}
	p := &partProcess{cmd: exec.CommandContext(ctx, me, name)}
	p.cmd.Stderr = os.Stderr
	if p.in, err = p.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	p.out = bufio.NewReader(out)
	if err := at.inside(p.cmd.Start); err != nil {
		return nil, err
	}
	raw, err := json.Marshal(world)
	if err == nil {
		_, err = p.in.Write(append(raw, '\n'))
	}
	if err != nil {
		return nil, errors.Join(err, p.close())
	}
	return p, nil
}

func (p *partProcess) close() error { return errors.Join(p.in.Close(), p.cmd.Wait()) }

func (p *partProcess) line() (line probed, err error) {
	raw, err := p.out.ReadBytes('\n')
	if errors.Is(err, io.EOF) {
		err = errors.New("the gateway ended")
	}
	if err != nil {
		return line, err
	}
	return line, json.Unmarshal(raw, &line)
}

// deaths ends some of the others, one after the other, and waits each time until
// the gateway says so. One that it calls dead already, though it lives, is left
// out and counted.
func (r *probeRun) deaths(gateway, others *partProcess) error {
	lines := make(chan probed)
	go func() {
		defer close(lines)
		for {
			line, err := gateway.line()
			if err != nil {
				return
			}
			lines <- line
		}
	}()
	defer func() { // the gateway ends after this, and with it the lines
		go func() {
			for range lines {
			}
		}()
	}()
	down := map[string]bool{}
	for i, other := range r.remotes() {
		into, want := &r.idle, min(idleDeaths, r.count)
		if other.used {
			into, want = &r.used, r.count
		}
		if len(*into) >= want || down[other.addr.String()] {
			continue
		}
		end := time.Now()
		if _, err := fmt.Fprintln(others.in, i); err != nil {
			return err
		}
		at, err := r.await(lines, down, other.addr.String())
		if err != nil {
			return err
		}
		if at.IsZero() {
			if r.unseen++; r.unseen == hopeless {
				return nil
			}
			continue
		}
		*into = append(*into, at.Sub(end))
	}
	return nil
}

// await reads until a gateway is called dead, and gives the zero time when that
// takes too long; others that are called dead count as wrong.
func (r *probeRun) await(lines chan probed, down map[string]bool, dead string) (time.Time, error) {
	limit := time.After(deathLimit)
	for {
		select {
		case <-limit:
			return time.Time{}, nil
		case line, open := <-lines:
			switch {
			case !open:
				return time.Time{}, errors.New("the gateway ended")
			case line.Dead == dead:
				return line.At, nil
			case line.Dead != "":
				down[line.Dead] = true
				r.wrong++
			default:
				delete(down, line.Back)
			}
		}
	}
}

// deathLimit is longer than a standby link can take to be seen dead.
const deathLimit = 20 * time.Second

func probesSection(runs []*probeRun) section {
	s := section{
		title: "What probing costs",
		how: fmt.Sprintf(`
One gateway, a process with the agent's prober, and the gateways of all other clusters, each with a prober of its own that answers and probes back,
over real sockets between two namespaces. The clusters have three gateways each; of every three pairs of clusters the gateway carries one, as
with three gateways on its own side. A link that neither end uses is probed less often once all of them together would cost more than
%d probes a second. *No budget* is the same number of gateways with every link probed at the full rate. Processor and memory are those of the
gateway's process, in percent of one core over %s, answers to the others' probes included, tunnels not. *Seen dead* is the time from the
end of the other side to the change of the link, of %d links in use and %d standby links, one after the other; *not seen* are those not
called dead within %s, and *wrongly* counts the links that were called dead meanwhile and lived: a machine that cannot keep up.`,
			standbyRate, probeMeasure, runs[0].count, min(idleDeaths, runs[0].count), deathLimit),
		table: [][]string{{"other gateways", "probes x misses", "connected", "sent", "answered", "processor", "a probe and an answer", "memory", "seen dead, in use, p50", "max", "standby, max", "not seen", "wrongly"}},
	}
	for _, r := range runs {
		s.table = append(s.table, r.row())
	}
	return s
}

func (r *probeRun) row() []string {
	middle, worst, idle := "none", "none", "none"
	if len(r.used) > 0 {
		middle, worst = millis(median(r.used)), millis(quantile(r.used, 1))
	}
	if len(r.idle) > 0 {
		idle = millis(quantile(r.idle, 1))
	}
	return []string{
		r.name, fmt.Sprintf("%s x %d", r.Interval, r.Misses), fmt.Sprintf("%d of %d", r.Links, len(r.remotes())),
		perSecond(int(r.Sent), r.Took), perSecond(int(r.Replied), r.Took), fmt.Sprintf("%.1f %%", 100*r.CPU.Seconds()/r.Took.Seconds()),
		millis(r.CPU / time.Duration(max(r.Sent, 1))), fmt.Sprintf("%d MiB", r.Memory>>20),
		middle, worst, idle, fmt.Sprint(r.unseen), fmt.Sprint(r.wrong),
	}
}
