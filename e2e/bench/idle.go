package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"
)

const (
	// calmShare is the share of the processors' time, in percent, below which a machine is idle.
	calmShare = 60
	// calmWhile is the measured interval. calmWithin bounds the wait for an idle machine: after
	// it the fault is injected anyway, and the page mentions it.
	calmWhile  = 250 * time.Millisecond
	calmWithin = time.Minute
)

// processors holds the time of all processors from /proc/stat, in ticks.
type processors struct{ busy, all uint64 }

// readProcessors parses the first line of /proc/stat (proc_stat(5)): user, nice,
// system, idle, iowait, irq, softirq, steal; user includes the guests' time.
func readProcessors(text string) (p processors, err error) {
	line, _, _ := strings.Cut(text, "\n")
	fields := strings.Fields(line)
	if len(fields) < 9 || fields[0] != "cpu" {
		return p, fmt.Errorf("first line of /proc/stat is %q", line)
	}
	for i, field := range fields[1:9] {
		n, err := strconv.ParseUint(field, 10, 64)
		if err != nil {
			return p, fmt.Errorf("first line of /proc/stat: %w", err)
		}
		if p.all += n; i != 3 && i != 4 {
			p.busy += n
		}
	}
	return p, nil
}

// share returns the share in use since before, in percent.
func (p processors) share(before processors) int {
	if p.all == before.all {
		return 0
	}
	return int(100 * (p.busy - before.busy) / (p.all - before.all))
}

func nowProcessors() (processors, error) {
	raw, err := os.ReadFile("/proc/stat")
	if err != nil {
		return processors{}, fmt.Errorf("read the processors' load: %w", err)
	}
	return readProcessors(string(raw))
}

// waitIdle waits until the machine is idle. All agents of a lab share its processors: their work
// after one fault would delay the detection of the next. It returns the last share in use, in
// percent.
func waitIdle(ctx context.Context) (share int, err error) {
	before, err := nowProcessors()
	for end := time.Now().Add(calmWithin); err == nil; {
		select {
		case <-ctx.Done():
			return share, ctx.Err()
		case <-time.After(calmWhile):
		}
		now, failed := nowProcessors()
		share, before, err = now.share(before), now, errors.Join(err, failed)
		if share <= calmShare || time.Now().After(end) {
			break
		}
	}
	return share, err
}
