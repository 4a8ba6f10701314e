package drivertest

import (
	"bytes"
	"os/exec"
	"regexp"
	"strconv"
	"sync"
	"syscall"
)

// flow is fifty packets a second to another gateway's pod, each of which is answered.
type flow struct {
	rig     *rig
	ping    *exec.Cmd
	answers answers
}

func (g *gateway) flow(to *gateway) *flow {
	g.rig.t.Helper()
	f := &flow{rig: g.rig, ping: g.command("ping", "-n", "-i", "0.02", "-I", g.pod(false), to.pod(false))}
	f.ping.Stdout = &f.answers
	if err := f.ping.Start(); err != nil {
		g.rig.t.Fatal(err)
	}
	return f
}

// later is how many answers more are waited for in the end: those to packets that were
// on their way are among them, however slow the machine is.
const later = 100

// stop ends the flow and gives the number of packets that were lost.
func (f *flow) stop() (lost int) {
	f.rig.t.Helper()
	last, _ := f.answers.count()
	f.rig.eventually("answers to the last packets", func() bool { now, _ := f.answers.count(); return now >= last+later })
	last, lost = f.answers.count()
	if err := f.ping.Process.Signal(syscall.SIGINT); err != nil {
		f.rig.t.Fatal(err)
	}
	_ = f.ping.Wait() // how it ends is not the matter here
	return lost
}

// answers reads what ping writes.
type answers struct {
	mu   sync.Mutex
	rest []byte // of a line
	last int    // number of the latest packet that was answered; ping counts to 65535, for 20 minutes
	seen map[int]bool
}

var answered = regexp.MustCompile(`icmp_seq=(\d+) ttl=`)

// Write takes some of it.
func (a *answers) Write(raw []byte) (int, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.rest = append(a.rest, raw...)
	for {
		line, rest, whole := bytes.Cut(a.rest, []byte("\n"))
		if !whole {
			return len(raw), nil
		}
		a.rest = rest
		if m := answered.FindSubmatch(line); m != nil {
			n, _ := strconv.Atoi(string(m[1]))
			if a.seen == nil {
				a.seen = map[int]bool{}
			}
			a.seen[n], a.last = true, max(a.last, n)
		}
	}
}

// count gives the number of the latest packet that was answered, and how many up to it
// were not.
func (a *answers) count() (last, lost int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.last, a.last - len(a.seen)
}
