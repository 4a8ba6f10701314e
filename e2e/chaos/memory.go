package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"

	"hawser.dev/hawser/lab/netnsexec"
)

// usage holds the memory and open files of one process.
type usage struct {
	name  string
	rss   int64 // anonymous memory, in bytes
	files int   // open files
}

// measureUnkilled measures the processes of the nodes whose agents are never killed. The key is the
// process, so a restarted one is not compared with its predecessor.
func (b *chaosLab) measureUnkilled(ctx context.Context) (map[netnsexec.Process]usage, error) {
	out := map[netnsexec.Process]usage{}
	for _, n := range b.topology.Nodes {
		if !n.NeverKilled {
			continue
		}
		at, err := b.client.ExecAt(ctx, n.ID)
		if err != nil {
			return nil, err
		}
		inode, err := netnsexec.Inode(at.Net)
		if err != nil {
			return nil, err
		}
		for _, p := range netnsexec.Processes(map[uint64]bool{inode: true}, "") {
			if u, err := measure(p.PID); err == nil && strings.HasPrefix(u.name, "hawser-agent") {
				u.name = n.ID + " " + u.name
				out[p] = u
			}
		}
	}
	return out, nil
}

func measure(pid int) (usage, error) {
	var u usage
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	if err != nil {
		return u, err
	}
	args := strings.Split(string(bytes.TrimRight(raw, "\x00")), "\x00")
	u.name = args[0][strings.LastIndexByte(args[0], '/')+1:]
	for _, arg := range args[1:min(len(args), 3)] {
		if !strings.HasPrefix(arg, "-") {
			u.name += " " + arg
		}
	}
	if raw, err = os.ReadFile(fmt.Sprintf("/proc/%d/status", pid)); err != nil {
		return u, err
	}
	u.rss = anonymous(string(raw))
	files, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid))
	u.files = len(files)
	return u, err
}

// anonymous returns RssAnon of proc_pid_status(5) in bytes.
func anonymous(status string) int64 {
	for _, line := range strings.Split(status, "\n") {
		if rest, found := strings.CutPrefix(line, "RssAnon:"); found {
			kib, err := strconv.ParseInt(strings.Fields(rest)[0], 10, 64)
			if err != nil {
				return 0
			}
			return kib << 10
		}
	}
	return 0
}

// Allowed growth: memory that the garbage collector has not collected yet, and the one-time
// cost of more state of the clusterset.
const (
	growthFactor = 1.5
	growthSlack  = 12 << 20 // bytes
	growthFiles  = 32
)

// listGrown lists the processes that grew beyond the allowed growth.
func listGrown(before, after map[netnsexec.Process]usage) []string {
	var out []string
	for p, a := range before {
		b, alive := after[p]
		if !alive {
			continue
		}
		if float64(b.rss) > float64(a.rss)*growthFactor+growthSlack {
			out = append(out, fmt.Sprintf("%s uses %d KiB; after the first round it used %d KiB", a.name, b.rss>>10, a.rss>>10))
		}
		if b.files > a.files+growthFiles {
			out = append(out, fmt.Sprintf("%s has %d open files; after the first round it had %d", a.name, b.files, a.files))
		}
	}
	return out
}
