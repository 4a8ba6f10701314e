package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/netip"
	"os"
	"strings"
	"syscall"
	"time"

	"hawser.dev/hawser/internal/bell"
	"hawser.dev/hawser/nodeagent/health"
	"hawser.dev/hawser/nodeagent/model"
	"hawser.dev/hawser/nodeagent/status"
	"hawser.dev/hawser/nodeagent/transport"
)

// probePort is both ends' port in the section probes.
const probePort = 4805

// probing is the world of the gateway whose probing is measured: it is the only
// one of its cluster that runs, and its clusterset has Clusters others with
// three gateways each. Of every three pairs of clusters it carries one.
type probing struct {
	Clusters int
	Gateways int  // a cluster
	All      bool // every link is in use, so that none is probed less often
	Interval time.Duration
	Misses   int
	Measure  time.Duration
}

var probeOwn = netip.MustParseAddr("10.63.0.1")

// remote is one gateway of another cluster.
type remote struct {
	cluster, gateway string
	addr             netip.Addr
	used             bool
}

func (w probing) remotes() []remote {
	var out []remote
	for c := range w.Clusters {
		for g := range w.Gateways {
			i := len(out)
			out = append(out, remote{
				cluster: fmt.Sprintf("c%d", c), gateway: fmt.Sprintf("c%d-%c", c, 'a'+g),
				addr: netip.AddrFrom4([4]byte{10, 64, byte(i >> 8), byte(i)}), used: w.All || c%3 == 0 && g == c/3%w.Gateways,
			})
		}
	}
	return out
}

func (w probing) settings() health.Settings {
	return health.Settings{Interval: w.Interval, Misses: w.Misses}
}

// probed is what the process of the gateway says.
type probed struct {
	Links   int           `json:",omitempty"` // connected
	CPU     time.Duration `json:",omitempty"`
	Took    time.Duration `json:",omitempty"`
	Sent    uint64        `json:",omitempty"`
	Replied uint64        `json:",omitempty"`
	Memory  int64         `json:",omitempty"` // bytes in use
	Dead    string        `json:",omitempty"` // address of a gateway that does not answer any more
	Back    string        `json:",omitempty"` // address of one that answers again
	At      time.Time     // of this line
}

// probeGateway is the gateway: a process of its own, so that its cost is its own.
// It reads its world from standard input and writes what happens, until its
// standard input ends.
func probeGateway(ctx context.Context, in io.Reader, out io.Writer) error {
	lines := bufio.NewReader(in)
	w, err := readWorld(lines)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	changed := make(chan struct{}, 1)
	wake := bell.New()
	p := health.New(health.Config{Cluster: "own", Gateway: "own-a", Port: probePort, Wake: wake, Settings: w.settings(), OnChange: func() {
		select {
		case changed <- struct{}{}:
		default:
		}
	}})
	p.SetListen([]health.Listen{{Addr: probeOwn}})
	p.SetReady(true)
	use := map[string]model.Path{}
	var targets []health.Target
	for _, r := range w.remotes() {
		targets = append(targets, health.Target{Peer: health.Peer{Cluster: r.cluster, Gateway: r.gateway}, Source: probeOwn, Addr: r.addr})
		if r.used {
			use[r.cluster] = model.Path{Local: "own-a", Remote: r.gateway}
		}
	}
	p.SetTargets(targets)
	p.SetUse(use)
	ended := make(chan error, 2)
	go func() { ended <- carry(p, wake).Run(ctx) }()
	go func() { _, err := lines.ReadByte(); ended <- ignore(err, io.EOF) }()
	return tell(ctx, p, w, changed, ended, json.NewEncoder(out))
}

// carry is a transport of one prober.
func carry(p *health.Prober, wake bell.Bell) *transport.Transport {
	return transport.New(transport.Config{
		Port: probePort, Log: slog.New(slog.DiscardHandler), Wake: wake, Machines: []transport.Machine{p},
	})
}

func readWorld(lines *bufio.Reader) (w probing, err error) {
	raw, err := lines.ReadBytes('\n')
	if err == nil {
		err = json.Unmarshal(raw, &w)
	}
	if err != nil {
		return w, fmt.Errorf("read world: %w", err)
	}
	return w, nil
}

func ignore(err, target error) error {
	if err == target {
		return nil
	}
	return err
}

// tell waits until all links are connected, measures, and then names every
// gateway that dies.
func tell(ctx context.Context, p *health.Prober, w probing, changed chan struct{}, ended chan error, out *json.Encoder) error {
	whole := func() error {
		if n := connectedLinks(p.Snapshot()); n < len(w.remotes()) {
			return fmt.Errorf("%d of %d links are connected", n, len(w.remotes()))
		}
		return nil
	}
	// A machine that cannot keep up is measured too; the figures say so.
	_ = within(ctx, time.Minute, whole)
	// What a new target costs is not what a link costs: let the rates settle.
	time.Sleep(w.Measure / 2)
	line, err := cost(p, w.Measure)
	if err == nil {
		err = out.Encode(line)
	}
	if err != nil {
		return err
	}
	dead := map[netip.Addr]bool{}
	for ctx.Err() == nil {
		select {
		case err := <-ended:
			return err
		case <-changed:
		}
		now := time.Now()
		for _, link := range p.Snapshot().Links {
			if err := report(link, dead, now, out); err != nil {
				return err
			}
		}
	}
	return ctx.Err()
}

// report tells of a link that died, or came back.
func report(link health.Link, dead map[netip.Addr]bool, now time.Time, out *json.Encoder) error {
	addr := link.Target.Addr
	was, is := dead[addr], link.State == status.Disconnected
	dead[addr] = is
	switch {
	case is && !was:
		return out.Encode(probed{Dead: addr.String(), At: now})
	case was && !is:
		return out.Encode(probed{Back: addr.String(), At: now})
	}
	return nil
}

// cost measures this process for a while.
func cost(p *health.Prober, while time.Duration) (probed, error) {
	begin, before, used := time.Now(), p.Snapshot().Stats, processorTime()
	time.Sleep(while)
	after := p.Snapshot()
	line := probed{
		Links: connectedLinks(after), CPU: processorTime() - used, Took: time.Since(begin), At: time.Now(),
		Sent: after.Stats.Sent - before.Sent, Replied: after.Stats.Replied - before.Replied,
	}
	var err error
	line.Memory, err = residentMemory()
	return line, err
}

func connectedLinks(s health.Snapshot) (n int) {
	for _, link := range s.Links {
		if link.State == status.Connected {
			n++
		}
	}
	return n
}

func processorTime() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0 // cannot happen: the arguments are right
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// residentMemory reads VmRSS of this process.
func residentMemory() (int64, error) {
	raw, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(raw)) {
		var kib int64
		if n, _ := fmt.Sscanf(line, "VmRSS: %d kB", &kib); n == 1 {
			return kib << 10, nil
		}
	}
	return 0, fmt.Errorf("no VmRSS in /proc/self/status")
}
