package report

import (
	"sync"
	"time"

	"hawser.dev/hawser/internal/humanize"
	"hawser.dev/hawser/nodeagent/desired"
	"hawser.dev/hawser/nodeagent/status"
	"hawser.dev/hawser/schema/fabric"
)

// unknownWindow is how long the agent reports a dropped packet of an unknown source.
const unknownWindow = time.Minute

// unknownSources watches the counter of packets from unknown sources. Its methods are safe for
// concurrent use.
type unknownSources struct {
	mu    sync.Mutex
	read  bool // the counter was read before
	count uint64
	rose  time.Time // last increase
}

// recent reports whether the counter increased within unknownWindow. The first value is only a
// baseline, because the packets may be old. The counter restarts at zero when the rules are
// rewritten.
func (u *unknownSources) recent(dropped []status.Dropped, now time.Time) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	for _, d := range dropped {
		if d.Reason != desired.DropUnknownSource {
			continue
		}
		if u.read && d.Packets > u.count {
			u.rose = now
		}
		u.read, u.count = true, d.Packets
	}
	return !u.rose.IsZero() && now.Sub(u.rose) < unknownWindow
}

// unknownSource returns the problem. Its text is constant while packets are dropped, to avoid
// writes of the HawserNode.
func unknownSource(node string, own *fabric.Cluster) status.Problem {
	return status.Problem{
		Path: "clusters[" + own.Name + "].podCIDRs", Code: status.UnknownSource,
		Text: "node " + node + " drops packets to other clusters whose source is outside of podCIDRs " + humanize.Join(own.PodCIDRs, ", ") +
			" (" + desired.DropUnknownSource + "): put the prefix of the pods into podCIDRs; hawser diagnose shows the packets",
	}
}
