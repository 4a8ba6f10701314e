package drivertest

import (
	"bytes"
	"os/exec"
	"regexp"
	"strconv"
	"sync"
	"syscall"
)

// flow sends fifty packets a second to another gateway's pod, which replies to each.
type flow struct {
	env     *env
	ping    *exec.Cmd
	answers answers
}

func (g *gateway) flow(to *gateway) *flow {
	g.env.t.Helper()
	f := &flow{env: g.env, ping: g.command("ping", "-n", "-i", "0.02", "-I", g.pod(false), to.pod(false))}
	f.ping.Stdout = &f.answers
	if err := f.ping.Start(); err != nil {
		g.env.t.Fatal(err)
	}
	return f
}

// extraReplies is the number of further replies that stop waits for. Replies to packets in flight
// arrive before them, even on a slow machine.
const extraReplies = 100

// stop ends the flow and returns the number of lost packets.
func (f *flow) stop() (lost int) {
	f.env.t.Helper()
	last, _ := f.answers.count()
	f.env.eventually("replies to the last packets", func() bool { now, _ := f.answers.count(); return now >= last+extraReplies })
	last, lost = f.answers.count()
	if err := f.ping.Process.Signal(syscall.SIGINT); err != nil {
		f.env.t.Fatal(err)
	}
	_ = f.ping.Wait() // its exit status does not matter
	return lost
}

// answers parses the output of ping.
type answers struct {
	mu   sync.Mutex
	rest []byte // of an incomplete line
	last int    // number of the latest packet with a reply; ping counts to 65535, for 20 minutes
	seen map[int]bool
}

var answered = regexp.MustCompile(`icmp_seq=(\d+) ttl=`)

// Write parses the complete lines of raw.
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

// count returns the number of the latest packet with a reply, and the number of packets before it
// without a reply.
func (a *answers) count() (last, lost int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.last, a.last - len(a.seen)
}
