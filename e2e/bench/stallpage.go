package main

import (
	"fmt"
	"strings"
	"time"
)

func stallSection(p profile, n int, list []faultRun) section {
	s := section{
		title: fmt.Sprintf("A gateway dies: %s profile (%s x %d)", p.name, p.interval, p.misses),
		method: fmt.Sprintf(`
Three clusters with the same prefixes and globalnet, two of them with three gateways. A pod sends to a pod of another cluster %d
UDP packets a second (each is returned), %d new TCP connections a second (each with a request), and small requests over one open
connection. Each fault hits a gateway of the link in use %d times, in turn at both ends, and is cleared after the flow was whole
for %s. Before each fault the lab is idle (at most %d %% of the processors). *Stall* is the longest time without a returned
packet; *lost* packets were never returned, *on return* after the fault was cleared. *Failed* connections got no answer within %s;
*late* ones needed a second SYN (1 s). *Longest request*: TCP repeats after 0.2, 0.4 and 0.8 s. *Moved* is the time from the fault
to that log line on each live node.`,
			packetRate, dialRate, n, watched, calmShare, dialTimeout),
		table: [][]string{{"fault", "stall p50", "p99", "max", "lost p50", "p99", "on return", "new connections failed", "late",
			"longest request p50", "p99", "moved p50", "p99", fmt.Sprintf("stall p99 %s", millis(p.worst))}},
	}
	if p.name != "default" {
		s.method = fmt.Sprintf("Clusters, load, faults and columns are as in the default profile; each fault %d times, from an idle lab (at most %d %% of the processors).", n, calmShare)
	}
	for _, t := range faultCases() {
		s.table = append(s.table, stallRow(p, t.name, list))
	}
	s.after = stallNotes(n, list)
	return s
}

func stallRow(p profile, name string, list []faultRun) []string {
	var stall, request, moved []time.Duration
	var lost []int
	failed, slow, returned := 0, 0, 0
	for _, result := range list {
		if result.Fault != name {
			continue
		}
		stall, request, lost = append(stall, result.Stall), append(request, result.Request), append(lost, result.Lost)
		for _, took := range result.Moved {
			moved = append(moved, took)
		}
		failed, slow, returned = failed+result.Failed+result.Broken, slow+result.Late, returned+result.Returned
	}
	worst := quantile(stall, 0.99)
	verdict := "met"
	if worst > p.worst {
		verdict = "**missed**"
	}
	row := []string{name, millis(median(stall)), millis(worst), millis(quantile(stall, 1)),
		fmt.Sprint(median(lost)), fmt.Sprint(quantile(lost, 0.99)), fmt.Sprint(returned), fmt.Sprint(failed), fmt.Sprint(slow),
		millis(median(request)), millis(quantile(request, 0.99))}
	if len(moved) == 0 {
		return append(row, "none", "none", verdict)
	}
	return append(row, millis(median(moved)), millis(quantile(moved, 0.99)), verdict)
}

// pausedLong is the pause of the sender from which the page mentions it.
const pausedLong = 50 * time.Millisecond

// stallNotes returns the notes about failed and doubtful repetitions.
func stallNotes(n int, list []faultRun) string {
	var failed []string
	for _, result := range list {
		if result.Err != "" {
			failed = append(failed, fmt.Sprintf("- %s, repetition %d, %s: %s", result.Fault, result.Rep+1, result.Victim, result.Err))
		}
	}
	out := fmt.Sprintf("With %d repetitions the p99 is the slowest of all. ", n)
	if n > 100 {
		out = ""
	}
	busy, paused, longest := 0, 0, time.Duration(0)
	for _, result := range list {
		if result.Busy > calmShare {
			busy++
		}
		if result.Paused > pausedLong {
			paused++
		}
		longest = max(longest, result.Paused)
	}
	if busy > 0 {
		out += fmt.Sprintf("Before %d of the faults the processors were still busy after %s. ", busy, calmWithin)
	}
	if paused > 0 {
		out += fmt.Sprintf("In %d the sender itself paused for more than %s, %s at most. ", paused, pausedLong, millis(longest))
	}
	if len(failed) == 0 {
		return out + fmt.Sprintf("All %d recovered, and the links settled.", len(list))
	}
	return out + fmt.Sprintf("%d of %d did not recover or settle in time; their figures are in the table too:\n\n%s",
		len(failed), len(list), strings.Join(failed, "\n"))
}
