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
	// calmShare is how much of the processors' time may be in use for a machine to
	// count as calm, in percent.
	calmShare = 60
	// calmWhile is over how long that is looked at, and calmWithin how long it is
	// waited for: then the fault comes all the same, and the page says so.
	calmWhile  = 250 * time.Millisecond
	calmWithin = time.Minute
)

// processors is what /proc/stat counts of all processors together, in ticks.
type processors struct{ busy, all uint64 }

// readProcessors parses the first line of /proc/stat (proc_stat(5)): user, nice,
// system, idle, iowait, irq, softirq, steal; the guests' time is in user's.
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

// share is how much was in use since before, in percent.
func (p processors) share(before processors) int {
	if p.all == before.all {
		return 0
	}
	return int(100 * (p.busy - before.busy) / (p.all - before.all))
}

func nowProcessors() (processors, error) {
	raw, err := os.ReadFile("/proc/stat")
	if err != nil {
		return processors{}, fmt.Errorf("read how busy the processors are: %w", err)
	}
	return readProcessors(string(raw))
}

// waitIdle waits until the machine has time to spare: all agents of a lab share it,
// and what they still have to do after one fault would delay how they see the
// next. It gives the share in use at last, in percent.
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
