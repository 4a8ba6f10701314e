package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"hawser.dev/hawser/lab/netnsexec"
)

// summary holds the totals of a run.
type summary struct {
	rounds     int
	faults     map[string]int // by kind
	broken     time.Duration
	recoveries []time.Duration
	violations map[string]int // by sort
	memory     map[netnsexec.Process]usage
}

func newSummary() summary { return summary{faults: map[string]int{}, violations: map[string]int{}} }

func (s *summary) count(found []violation) {
	for _, v := range found {
		s.violations[v.sort]++
	}
}

// print writes the summary of the whole run.
func (s *summary) print(out io.Writer, c *chaos) {
	total := 0
	var kinds []string
	for _, k := range slices.Sorted(maps.Keys(s.faults)) {
		total += s.faults[k]
		kinds = append(kinds, fmt.Sprintf("%s %d", k, s.faults[k]))
	}
	fmt.Fprintf(out, "seed %d%s: %d faults in %d rounds (%s)\n", c.seed, c.variant, total, s.rounds, strings.Join(kinds, ", "))
	slices.Sort(s.recoveries)
	if n := len(s.recoveries); n > 0 {
		fmt.Fprintf(out, "recovery after the last heal: p50 %.2fs, p99 %.2fs, worst %.2fs of %d flows and rounds\n",
			s.recoveries[n/2].Seconds(), s.recoveries[n*99/100].Seconds(), s.recoveries[n-1].Seconds(), n)
	}
	var ok, failed, tries int64
	for _, f := range c.trafficSet.flows {
		counts := f.counts()
		ok, failed = ok+counts.ok, failed+counts.failed
	}
	for _, r := range c.trafficSet.refused {
		tries += r.tries.Load()
	}
	fmt.Fprintf(out, "calls and messages answered %d, not answered during faults %d; forbidden calls %d; frames checked %d, %d of them from nodes without rules\n",
		ok, failed, tries, c.captures.frames(), c.unprotected.count())
	for p, u := range s.memory {
		if first, ok := c.first[p]; ok {
			fmt.Fprintf(out, "%s: %d KiB after the first round, %d KiB at the end; %d and %d files\n",
				u.name, first.rss>>10, u.rss>>10, first.files, u.files)
		}
	}
	fmt.Fprintf(out, "violations: safety %d, late %d\n", s.violations[safety], s.violations[late])
}

// reportViolations prints the violations of a round and the command that repeats it, and saves
// the evidence.
func (c *chaos) reportViolations(ctx context.Context, round int, story string, logs map[string]int64) error {
	text := fmt.Sprintf("VIOLATED: seed %d, round %d (again: make chaos SEED=%d FAULTS=%d ROUND=%d%s)\n%s",
		c.seed, round, c.seed, c.faults, round, c.variant, story)
	fmt.Fprint(c.out, text)
	return c.saveEvidence(ctx, round, text, logs)
}

// account returns the history of one round: the actions and the violations in the order of time.
func account(start, healed time.Time, history []action, found []violation) string {
	type line struct {
		at   time.Duration
		text string
	}
	var lines []line
	for _, h := range history {
		lines = append(lines, line{h.at, h.String()})
	}
	for _, v := range found {
		at := v.at.Sub(start)
		lines = append(lines, line{at, fmt.Sprintf("%7.3fs  ** %s: %s", at.Seconds(), v.sort, v.text)})
	}
	lines = append(lines, line{healed.Sub(start), fmt.Sprintf("%7.3fs  -- all healed (round started at %s)", healed.Sub(start).Seconds(), start.Format("15:04:05.000"))})
	slices.SortStableFunc(lines, func(a, b line) int { return cmp.Compare(a.at, b.at) })
	var out strings.Builder
	for _, l := range lines {
		out.WriteString("  " + l.text + "\n")
	}
	return out.String()
}

// stateScript prints Hawser's objects in the kernel of a node.
const stateScript = `ip -s link; ip addr; ip rule; ip -6 rule; ip route show table all; ip -6 route show table all; ip neigh; bridge fdb; nft list table inet hawser; wg show all; cat /proc/net/nf_conntrack; true`

// saveEvidence writes the history, the agents' logs of the round, and the nodes' kernel state.
func (c *chaos) saveEvidence(ctx context.Context, round int, story string, logs map[string]int64) error {
	dir := filepath.Join(c.evidence, fmt.Sprintf("chaos-%d-%d", c.seed, round))
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("save evidence: %w", err)
	}
	errs := []error{os.WriteFile(filepath.Join(dir, "story.txt"), []byte(story), 0o644)}
	for _, n := range c.status.Nodes {
		path := filepath.Join(n.Dir, "agent.log")
		raw, err := os.ReadFile(path)
		if err == nil {
			part := raw[min(logs[path], int64(len(raw))):]
			errs = append(errs, os.WriteFile(filepath.Join(dir, n.Cluster+"-"+n.Name+".log"), part, 0o644))
		}
		state, err := c.foreign.onNode(ctx, n.Cluster+"/"+n.Name, stateScript)
		if err == nil {
			errs = append(errs, os.WriteFile(filepath.Join(dir, n.Cluster+"-"+n.Name+".kernel"), []byte(state), 0o644))
		}
	}
	if links, err := c.hawser(ctx, "show", "connections", "-o", "json"); err == nil {
		errs = append(errs, os.WriteFile(filepath.Join(dir, "connections.json"), links, 0o644))
	}
	return errors.Join(errs...)
}
