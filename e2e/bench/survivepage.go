package main

import (
	"fmt"
	"strings"
	"time"

	"hawser.dev/hawser/e2e/traffic"
)

func surviveSection(n int, list []survival) section {
	s := section{
		title: "Compared with one active gateway and a lease",
		method: fmt.Sprintf(`
The lab of three clusters, once with an active and a passive gateway per cluster, set up by hand, and twice with Hawser's default
profile. By hand, a lease decides with client-go's defaults (%s, renewed every %s, retried every %s to %s); the passive gateway
has tunnel, keys and rules already. Its destination NAT selects a random backend, its source NAT one of %d addresses; only
conntrack knows which. A flow of %d UDP packets a second runs, and %d TCP connections of each kind are open before the gateway
loses power, half of them to a service with three backends, half to named pods: *idle* (the client speaks after the move), *busy*
(four requests a second), *client-push* and *server-push* (only that side sends). A connection *survives* if it transfers data
within %s with the lease, because TCP backs off, and within %s with Hawser. %d repetitions each.`,
			leaseDuration, leaseRetry, leaseRetry, time.Duration((1+leaseJitter)*float64(leaseRetry)), egressIPs, packetRate, perKind, anchorGrace, ourGrace, n),
		table: [][]string{{"gateways", "who died", "stall p50", "max", "packets lost p50"}},
	}
	s.table[0] = append(append(s.table[0], kinds()...), "survived, all")
	var failed []string
	stalls := map[string]time.Duration{}
	var names []string
	for _, near := range []bool{true, false} {
		for _, name := range setupsOf(list) {
			row, stall := surviveRow(name, near, list)
			s.table = append(s.table, row)
			if stalls[name] = max(stalls[name], stall); near {
				names = append(names, name)
			}
		}
	}
	for _, result := range list {
		if result.Err != "" {
			failed = append(failed, fmt.Sprintf("- %s, repetition %d, %s: %s", result.Setup, result.Rep+1, result.Victim, result.Err))
		}
	}
	for _, name := range names[min(1, len(names)):] {
		s.after += fmt.Sprintf("The median stall with %s is %.0f times the stall with %s. ", names[0], float64(stalls[names[0]])/float64(max(stalls[name], 1)), name)
	}
	if len(failed) > 0 {
		s.after += fmt.Sprintf("\n\nFailed repetitions, which the table includes:\n\n%s", strings.Join(failed, "\n"))
	}
	return s
}

// kinds returns the names of the connections' kinds, in the order of the table.
func kinds() []string {
	var out []string
	for _, kind := range traffic.Kinds() {
		out = append(out, string(kind))
	}
	return out
}

// setupsOf returns the names of the setups in the order of the measurement.
func setupsOf(list []survival) []string {
	var names []string
	for _, result := range list {
		if len(names) == 0 || names[len(names)-1] != result.Setup {
			names = append(names, result.Setup)
		}
	}
	return names
}

func surviveRow(name string, near bool, list []survival) (row []string, middle time.Duration) {
	var stall []time.Duration
	var lost []int
	alive, count, all, total := map[string]int{}, map[string]int{}, 0, 0
	for _, result := range list {
		if result.Setup != name || result.Near != near {
			continue
		}
		for kind, n := range result.Count {
			count[kind], alive[kind] = count[kind]+n, alive[kind]+result.Alive[kind]
			total, all = total+n, all+result.Alive[kind]
		}
		if result.Count != nil { // nil without a measurement, which the notes mention
			stall, lost = append(stall, result.Stall), append(lost, result.Lost)
		}
	}
	gateway := "the server's"
	if near {
		gateway = "the client's"
	}
	if len(stall) == 0 {
		return []string{name, gateway, "none", "none", "none", "", "", "", "", ""}, 0
	}
	middle = median(stall)
	row = []string{name, gateway, millis(middle), millis(quantile(stall, 1)), fmt.Sprint(median(lost))}
	for _, kind := range kinds() {
		row = append(row, share(alive[kind], count[kind]))
	}
	return append(row, fmt.Sprintf("%d of %d", all, total)), middle
}

// share formats a part of a whole in percent. Only the whole is 100 %.
func share(part, whole int) string {
	if whole == 0 {
		return "none"
	}
	percent := 100 * float64(part) / float64(whole)
	if part < whole && percent > 99.9 {
		percent = 99.9
	}
	return fmt.Sprintf("%.3g %%", percent)
}
