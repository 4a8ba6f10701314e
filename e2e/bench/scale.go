package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"syscall"
	"time"
)

const (
	scaleFew     = 100
	scaleMany    = 1000
	scaleMeasure = 20 * time.Second
	scaleAdded   = 10 // gateways to add, one after the other
	scaleLimit   = 3 * time.Minute
	scalePoll    = 100 * time.Millisecond
)

// scaleRun is the result of one size.
type scaleRun struct {
	others    int
	connected time.Duration // from the agent's start until all links are connected
	pass      time.Duration // duration of the first pass, which creates everything
	objects   int           // changes of that pass
	idle      float64       // share of one processor at rest
	memory    int64         // bytes
	added     []addedGateway
}

// addedGateway is the cost of one more gateway.
type addedGateway struct {
	seen    time.Duration // from the new fabric until the link is connected
	cpu     time.Duration // of the agent until then, without its use at rest
	pass    time.Duration // the longest pass
	changed int           // changed objects
}

func measureScale(ctx context.Context, c config) (s section, err error) {
	w, err := newScaleWorld(scaleMany + scaleAdded)
	if err != nil {
		return s, err
	}
	var runs []scaleRun
	for _, others := range []int{scaleFew, scaleMany} {
		r := scaleRun{others: others}
		if err := r.measure(ctx, c, w); err != nil {
			return s, fmt.Errorf("%d gateways: %w", others, err)
		}
		fmt.Fprintf(os.Stderr, "bench: %+v\n", r)
		runs = append(runs, r)
	}
	return scaleSection(runs[0], runs[1]), nil
}

func (r *scaleRun) measure(ctx context.Context, c config, w *scaleWorld) (err error) {
	dir, err := os.MkdirTemp("", "hwb-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	// The stand-ins of gateways added later exist from the start.
	if err := w.publish(r.others + scaleAdded); err != nil {
		return err
	}
	fakes, err := w.standIns()
	if err != nil {
		return err
	}
	if err := errors.Join(w.publish(r.others), w.writeStatic(dir), w.write(dir)); err != nil {
		return err
	}
	here, there, err := scaleSpaces(fakes)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, here.close(), there.close()) }()
	others, err := startStandIns(ctx, there, fakes)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, others.close()) }()
	a := &scaleAgent{dir: dir}
	start := time.Now()
	if err := a.start(here, c); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, a.stop(err), a.saveLog(c, r.others)) }()
	if err := a.await(ctx, r.others); err != nil {
		return err
	}
	r.connected = time.Since(start)
	if err := r.measureIdle(ctx, a); err != nil {
		return err
	}
	for i := range scaleAdded {
		if err := r.add(ctx, a, w, r.others+i+1); err != nil {
			return fmt.Errorf("add gateway %d: %w", i+1, err)
		}
	}
	return nil
}

// scaleSpaces returns the namespaces of the gateway's host and of all others.
func scaleSpaces(fakes scaleFakes) (here, there *space, err error) {
	if here, err = newSpace(); err != nil {
		return nil, nil, err
	}
	if there, err = newSpace(); err != nil {
		return nil, nil, errors.Join(err, here.close())
	}
	err = errors.Join(join(here, "up0", there, scaleAside), here.address("up0", scaleOwnWAN+"/30"),
		there.address(scaleAside, scaleOthersAt+"/30"), there.local(scaleTunnels), there.local(scaleOthers))
	if err == nil {
		err = errors.Join(here.route(scaleOthers, scaleOthersAt), fakes.configure(there))
	}
	if err != nil {
		return nil, nil, errors.Join(err, here.close(), there.close())
	}
	return here, there, nil
}

// standIns is a process of this program that acts as the other gateways in a namespace. It reads
// its gateways from standard input, and ends at the end of the input.
type standIns struct {
	cmd *exec.Cmd
	in  io.WriteCloser
}

func (p *standIns) close() error { return errors.Join(p.in.Close(), p.cmd.Wait()) }

func startStandIns(ctx context.Context, at *space, fakes scaleFakes) (*standIns, error) {
	me, err := self()
	if err != nil {
		return nil, err
	}
	p := &standIns{cmd: exec.CommandContext(ctx, me, "scale-others")}
	p.cmd.Stderr = os.Stderr
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if p.in, err = p.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	if err := at.inside(p.cmd.Start); err != nil {
		return nil, err
	}
	raw, err := json.Marshal(fakes)
	if err == nil {
		_, err = p.in.Write(append(raw, '\n'))
	}
	if err != nil {
		return nil, errors.Join(err, p.close())
	}
	return p, nil
}

// measureIdle measures the agent while nothing changes.
func (r *scaleRun) measureIdle(ctx context.Context, a *scaleAgent) error {
	// A new link costs more than an older one until its probes reach their final rate.
	if err := pauseFor(ctx, scaleMeasure/2); err != nil {
		return err
	}
	passes, err := a.passes()
	if err != nil {
		return err
	}
	for _, p := range passes {
		if p.changed > r.objects {
			r.objects, r.pass = p.changed, p.took
		}
	}
	before, start := a.processor(), time.Now()
	if err := pauseFor(ctx, scaleMeasure); err != nil {
		return err
	}
	r.idle = (a.processor() - before).Seconds() / time.Since(start).Seconds()
	r.memory, err = a.memory()
	return err
}

func pauseFor(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}

// add adds one more cluster, and waits until its gateway is connected.
func (r *scaleRun) add(ctx context.Context, a *scaleAgent, w *scaleWorld, others int) error {
	if err := w.publish(others); err != nil {
		return err
	}
	before, err := a.passes()
	if err != nil {
		return err
	}
	cpu, start := a.processor(), time.Now()
	if err := w.write(a.dir); err != nil {
		return err
	}
	if err := a.awaitFeed(ctx, fmt.Sprintf("c%d", others)); err != nil {
		return err
	}
	if err := a.await(ctx, others); err != nil {
		return err
	}
	gateway := addedGateway{seen: time.Since(start)}
	gateway.cpu = a.processor() - cpu - time.Duration(r.idle*float64(gateway.seen))
	passes, err := a.passes()
	if err != nil {
		return err
	}
	for _, p := range passes[len(before):] {
		gateway.changed += p.changed
		gateway.pass = max(gateway.pass, p.took)
	}
	r.added = append(r.added, gateway)
	return nil
}

func scaleSection(few, many scaleRun) section {
	s := section{
		title: "One agent and many gateways",
		method: fmt.Sprintf(`
One gateway runs the built agent in a namespace. One process plays the gateways of %d (%d) other clusters with the same prefixes,
each with its own address and keys (probes, full-size probes, a feed in each direction), over VXLAN. *At rest* is the agent's
share of one core over %s without changes. Then %d clusters join in turn: *until it is connected* runs from the new fabric to the
status that reports the link (read once the agent's log has the cluster's feed); *processor* is the agent's use until then
beyond its use at rest. The reference is a tenth of the
gateways: ratio 1 does not grow with them, 0.10 grows in proportion.`,
			many.others, few.others, scaleMeasure, scaleAdded),
	}
	times := func(metric string, figure func(scaleRun) time.Duration) row {
		return row{metric: metric, figure: millis(figure(many)), reference: millis(figure(few)),
			ratio: fmt.Sprintf("%.2f", figure(few).Seconds()/figure(many).Seconds())}
	}
	added := func(figure func(addedGateway) time.Duration) func(scaleRun) time.Duration {
		return func(r scaleRun) time.Duration { // the median
			var all []time.Duration
			for _, a := range r.added {
				all = append(all, figure(a))
			}
			return median(all)
		}
	}
	objects := func(r scaleRun) int {
		var all []int
		for _, a := range r.added {
			all = append(all, a.changed)
		}
		return median(all)
	}
	s.rows = []row{
		times("until all links are connected", func(r scaleRun) time.Duration { return r.connected }),
		times("the first pass, in which all is made", func(r scaleRun) time.Duration { return r.pass }),
		{metric: "objects made", figure: fmt.Sprint(many.objects), reference: fmt.Sprint(few.objects),
			ratio: fmt.Sprintf("%.2f", float64(few.objects)/float64(many.objects))},
		{metric: "at rest, processor", figure: fmt.Sprintf("%.1f %%", many.idle*100), reference: fmt.Sprintf("%.1f %%", few.idle*100),
			ratio: fmt.Sprintf("%.2f", few.idle/many.idle)},
		{metric: "at rest, memory", figure: fmt.Sprintf("%d MiB", many.memory>>20), reference: fmt.Sprintf("%d MiB", few.memory>>20),
			ratio: fmt.Sprintf("%.2f", float64(few.memory)/float64(many.memory))},
		times("one more gateway, until it is connected", added(func(a addedGateway) time.Duration { return a.seen })),
		times("one more gateway, the longest pass", added(func(a addedGateway) time.Duration { return a.pass })),
		times("one more gateway, processor", added(func(a addedGateway) time.Duration { return a.cpu })),
		{metric: "one more gateway, objects changed", figure: fmt.Sprint(objects(many)), reference: fmt.Sprint(objects(few)),
			ratio: fmt.Sprintf("%.2f", float64(objects(few))/float64(objects(many)))},
	}
	return s
}
