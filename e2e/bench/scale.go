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
	scaleFew     = 50
	scaleMany    = 500
	scaleMeasure = 20 * time.Second
	scaleAdded   = 10 // gateways that are added, one after the other
	scaleLimit   = 3 * time.Minute
	scalePoll    = 100 * time.Millisecond
)

// scaleRun is one size with what came out.
type scaleRun struct {
	others    int
	connected time.Duration // from the agent's start until all links are
	pass      time.Duration // the first one, in which all is made
	objects   int           // of that pass
	idle      float64       // share of one processor
	memory    int64         // bytes
	added     []addedGateway
}

// addedGateway is what one more gateway cost.
type addedGateway struct {
	seen    time.Duration // from the new fabric until the link is connected
	cpu     time.Duration // of the agent until then, beyond what it uses at rest
	pass    time.Duration // the longest one
	changed int           // objects
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
	// The stand-ins of those that come later are there from the start.
	if err := w.publish(r.others + scaleAdded); err != nil {
		return err
	}
	cast, err := w.standIns()
	if err != nil {
		return err
	}
	if err := errors.Join(w.publish(r.others), w.furnish(dir), w.write(dir)); err != nil {
		return err
	}
	here, there, err := scaleSpaces(cast)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, here.close(), there.close()) }()
	others, err := startCast(ctx, there, cast)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, others.close()) }()
	a := &scaleAgent{dir: dir}
	begin := time.Now()
	if err := a.start(here, c); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, a.stop(err), a.keep(c, r.others)) }()
	if err := a.await(ctx, r.others); err != nil {
		return err
	}
	r.connected = time.Since(begin)
	if err := r.rest(ctx, a); err != nil {
		return err
	}
	for i := range scaleAdded {
		if err := r.add(ctx, a, w, r.others+i+1); err != nil {
			return fmt.Errorf("add gateway %d: %w", i+1, err)
		}
	}
	return nil
}

// scaleSpaces are the gateway's host, and the rest of the world.
func scaleSpaces(cast scaleCast) (here, there *space, err error) {
	if here, err = newSpace(); err != nil {
		return nil, nil, err
	}
	if there, err = newSpace(); err != nil {
		return nil, nil, errors.Join(err, here.close())
	}
	err = errors.Join(join(here, "up0", there, scaleAside), here.address("up0", scaleOwnWAN+"/30"),
		there.address(scaleAside, scaleOthersAt+"/30"), there.local(scaleTunnels), there.local(scaleOthers))
	if err == nil {
		err = errors.Join(here.route(scaleOthers, scaleOthersAt), cast.stage(there))
	}
	if err != nil {
		return nil, nil, errors.Join(err, here.close(), there.close())
	}
	return here, there, nil
}

// standIns are this program, started as the other gateways in a namespace. It gets its cast
// on its standard input and ends with that.
type standIns struct {
	cmd *exec.Cmd
	in  io.WriteCloser
}

func (p *standIns) close() error { return errors.Join(p.in.Close(), p.cmd.Wait()) }

func startCast(ctx context.Context, at *space, cast scaleCast) (*standIns, error) {
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
	raw, err := json.Marshal(cast)
	if err == nil {
		_, err = p.in.Write(append(raw, '\n'))
	}
	if err != nil {
		return nil, errors.Join(err, p.close())
	}
	return p, nil
}

// rest measures the agent while nothing happens.
func (r *scaleRun) rest(ctx context.Context, a *scaleAgent) error {
	// What a new link costs is not what a link costs: let probes find their rates.
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
	before, begin := a.processor(), time.Now()
	if err := pauseFor(ctx, scaleMeasure); err != nil {
		return err
	}
	r.idle = (a.processor() - before).Seconds() / time.Since(begin).Seconds()
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

// add has one more cluster join, and waits until its gateway is connected.
func (r *scaleRun) add(ctx context.Context, a *scaleAgent, w *scaleWorld, others int) error {
	if err := w.publish(others); err != nil {
		return err
	}
	known, err := a.passes()
	if err != nil {
		return err
	}
	cpu, begin := a.processor(), time.Now()
	if err := w.write(a.dir); err != nil {
		return err
	}
	if err := a.await(ctx, others); err != nil {
		return err
	}
	one := addedGateway{seen: time.Since(begin)}
	one.cpu = a.processor() - cpu - time.Duration(r.idle*float64(one.seen))
	passes, err := a.passes()
	if err != nil {
		return err
	}
	for _, p := range passes[len(known):] {
		one.changed += p.changed
		one.pass = max(one.pass, p.took)
	}
	r.added = append(r.added, one)
	return nil
}
