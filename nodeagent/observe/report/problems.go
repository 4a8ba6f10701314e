package report

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"hawser.dev/hawser/internal/humanize"
	"hawser.dev/hawser/nodeagent/converge"
	"hawser.dev/hawser/nodeagent/desired"
	"hawser.dev/hawser/nodeagent/model"
	"hawser.dev/hawser/nodeagent/round"
	"hawser.dev/hawser/nodeagent/status"
)

// conntrackFullPercent is the use of the connection table above which the agent reports a problem.
const conntrackFullPercent = 90

// roundOverdueTime is the time by which a round may be late before the node is not ready. A round
// of a large clusterset on a busy machine takes seconds.
const roundOverdueTime = 30 * time.Second

// roundOverdue reports whether no round has completed for resync (0 = converge.Resync) and
// roundOverdueTime since the end of the last round. It uses the monotonic clock, which ignores
// changes of the wall clock and stops while the machine sleeps.
func roundOverdue(last converge.Report, resync time.Duration, now time.Time) bool {
	return now.Sub(last.At.Add(last.Took)) > cmp.Or(resync, converge.Resync)+roundOverdueTime
}

// problemList collects problems of one node.
type problemList struct {
	*Reporter
	all []status.Problem
}

func (l *problemList) add(code, path, text string) {
	l.all = append(l.all, l.catalog.New(l.config.Cluster, l.config.Node, code, path, text))
}

// unready returns the problems that make the node not ready. They determine the condition Ready,
// hawser_ready and the readiness probe (Reporter.Ready).
func (r *Reporter) unready(v round.Outcome) []status.Problem {
	l := problemList{Reporter: r}
	if v.Node == nil {
		l.add(status.NoFabric, "", "the agent has no fabric, keys or facts yet")
		return l.all
	}
	// The time in the text does not change while the agent hangs, so that the HawserNode is
	// written only once.
	if roundOverdue(v.Report, r.config.Resync, time.Now()) {
		l.add(status.RoundOverdue, "", "the agent hangs: no round has completed since "+v.Report.At.UTC().Format(time.RFC3339))
	}
	for _, text := range converge.Texts(v.Report.Failed) {
		l.add(status.ChangesFailed, "", text)
	}
	for _, text := range converge.Texts(v.Report.Fights) {
		l.add(status.ChangesReverted, "", text)
	}
	for _, text := range converge.Texts(slices.Concat(v.Report.Blocked, v.Report.Deferred)) {
		l.add(status.ChangesBlocked, "", text)
	}
	if v.Report.Interrupted && len(l.all) == 0 {
		l.add(status.ChangesBlocked, "", "the last round was interrupted, and another round follows")
	}
	if !r.config.Publication.DNSCleanedUp(v.Input) {
		l.add(status.DNSNotRemoved, "", "the cluster's DNS still has the block of Hawser")
	}
	if r.dnsUnavailable(v) {
		l.add(status.DNSNotServing, "", "the agent does not answer DNS queries for the clusterset: another program may use port 53 of dns.address")
	}
	return l.all
}

// problems returns all problems that the agent knows. s is the status without Problems.
func (r *Reporter) problems(s *status.Status, v round.Outcome, now time.Time) []status.Problem {
	l := problemList{Reporter: r, all: r.unready(v)}
	l.addInputs(s.Inputs)
	objects, dns, _ := r.config.Publication.Errors()
	for _, text := range objects {
		l.add(status.ObjectsNotWritten, "", text)
	}
	for _, text := range dns {
		l.add(status.DNSNotConfigured, "", text)
	}
	if v.Node == nil {
		return l.all
	}
	for _, p := range v.Problems {
		l.add(p.Code, p.Path, p.Text)
	}
	refused := r.config.State().Endpoints.Refused
	for _, cluster := range slices.Sorted(maps.Keys(refused)) {
		for _, reason := range refused[cluster] {
			l.add(status.EndpointRefused, "clusters["+cluster+"].gateways", "an endpoint that "+cluster+" announces is refused: "+reason)
		}
	}
	for _, cluster := range lostFeeds(s.Paths, v.Input.ClusterStates, r.config.Peers.Stale(), now) {
		l.add(status.FeedLost, "clusters["+cluster+"]", "node "+s.Node+" receives no feed of cluster "+cluster+
			" (TCP "+strconv.Itoa(desired.FeedPort)+"), so the ready endpoints of its exports are unknown")
	}
	drops := r.drops.reasons(s.Dropped, now)
	if own := v.Input.Fabric.Cluster(r.config.Cluster); own != nil && drops[desired.DropUnknownSource] {
		l.add(status.UnknownSource, "clusters["+own.Name+"].podCIDRs", "node "+s.Node+" drops packets to other clusters whose source is outside of podCIDRs "+
			humanize.Join(own.PodCIDRs, ", ")+" ("+desired.DropUnknownSource+"): put the prefix of the pods into podCIDRs; hawser diagnose shows the packets")
	}
	if drops[desired.DropQuota] {
		l.add(status.QuotaReached, "limits.connections", "node "+s.Node+" drops connections of a pod that has as many as limits.connections allows")
	}
	// The text does not change with the number of entries, so that the HawserNode is not
	// written again.
	if c := s.Conntrack; c != nil && c.Limit > 0 && c.Entries*100 > c.Limit*conntrackFullPercent {
		l.add(status.ConntrackFull, "", fmt.Sprintf("more than %d %% of the connection table of node %s is in use (nf_conntrack_max %d)", conntrackFullPercent, s.Node, c.Limit))
	}
	return l.all
}

// lostFeeds returns the clusters whose path has been up for stale without a state from a gateway or
// relay. If the path is down, the state of the links shows the cause.
func lostFeeds(paths []status.Path, live map[string]model.ClusterState, stale time.Duration, now time.Time) []string {
	var out []string
	for i := range paths {
		p := &paths[i]
		if _, received := live[p.Cluster]; !received && p.Rank != status.Ranks()[0] && now.Sub(p.Since) >= stale {
			out = append(out, p.Cluster)
		}
	}
	return out
}

// addInputs adds the inputs that cannot be read or written. It skips feeds of other clusters, which
// lostFeeds returns.
func (l *problemList) addInputs(inputs []status.InputState) {
	codes := map[string]string{
		"fabric": status.FabricStale, "keys": status.KeysStale, "facts": status.FactsStale, "state directory": status.StateNotSaved,
		"feed": status.FeedNotServed, inputLease: status.LeaseNotWritten, inputReport: status.ReportNotWritten,
	}
	for _, i := range inputs {
		code, known := codes[i.Name]
		if strings.HasPrefix(i.Name, "metrics on ") {
			code, known = status.MetricsNotServed, true
		}
		if known && i.Error != "" {
			l.add(code, "", i.Name+": "+i.Error)
		}
	}
}
