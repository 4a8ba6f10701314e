package metrics

import (
	"math"
	"slices"
	"strings"

	"github.com/prometheus/client_golang/prometheus"

	"hawser.dev/hawser/nodeagent/status"
)

// Snapshot has the state that a scrape reads.
type Snapshot struct {
	status.Status
	Gateways int // of this cluster, in the current fabric
	// Reachable are the names of clusters that have a path if all links are up.
	Reachable []string
}

// stateMetrics collects the metrics of the agent, its inputs and its links. The cost of a scrape
// grows with the number of links and other clusters.
type stateMetrics struct {
	snapshot func() Snapshot
	metrics  []stateMetric
}

// stateMetric is one metric and the function that returns its values.
type stateMetric struct {
	desc   *prometheus.Desc
	kind   prometheus.ValueType
	values func(Snapshot, func(value float64, labels ...string))
}

// RegisterState adds the metrics that each scrape reads from a snapshot of the agent's state.
func (m *Metrics) RegisterState(snapshot func() Snapshot) {
	m.own.MustRegister(&stateMetrics{snapshot: snapshot, metrics: slices.Concat(agentMetrics(), reachMetrics(), linkMetrics())})
}

// Describe implements prometheus.Collector.
func (c *stateMetrics) Describe(out chan<- *prometheus.Desc) {
	for _, m := range c.metrics {
		out <- m.desc
	}
}

// Collect implements prometheus.Collector. All values are from one snapshot.
func (c *stateMetrics) Collect(out chan<- prometheus.Metric) {
	state := c.snapshot()
	for _, m := range c.metrics {
		m.values(state, func(value float64, labels ...string) {
			out <- prometheus.MustNewConstMetric(m.desc, m.kind, value, labels...)
		})
	}
}

func gaugeOf(name, help string, labels []string, values func(Snapshot, func(float64, ...string))) stateMetric {
	return stateMetric{prometheus.NewDesc(name, help, labels, nil), prometheus.GaugeValue, values}
}

// agentMetrics returns the metrics of the agent itself.
func agentMetrics() []stateMetric {
	return []stateMetric{
		gaugeOf("hawser_agent_info", "Always 1; the labels name the gateway that the node is, if any, and the agent's version.",
			[]string{"gateway", "version"}, func(s Snapshot, emit func(float64, ...string)) { emit(1, s.Gateway, s.Version) }),
		gaugeOf("hawser_fabric_info", "Always 1; the labels name the clusterset and the digest of the current fabric. Absent without a fabric.",
			[]string{"clusterset", "digest"}, func(s Snapshot, emit func(float64, ...string)) {
				if s.Digest != "" {
					emit(1, s.Clusterset, s.Digest)
				}
			}),
		gaugeOf("hawser_ready", "1 if the last round was complete, nothing failed, and the name server runs.", nil,
			func(s Snapshot, emit func(float64, ...string)) { emit(boolValue(s.Ready)) }),
		gaugeOf("hawser_drained", "1 while this node's gateway is drained (hawser-agent drain).", nil,
			func(s Snapshot, emit func(float64, ...string)) { emit(boolValue(s.Drained)) }),
		gaugeOf("hawser_gateways", "Gateways of this cluster in the current fabric. Absent without a fabric.", nil,
			func(s Snapshot, emit func(float64, ...string)) {
				if s.Digest != "" {
					emit(float64(s.Gateways))
				}
			}),
		gaugeOf("hawser_problems", "Problems that the agent reports, by code and severity. Absent for a code without problems.", []string{"code", "severity"},
			problemValues),
		gaugeOf("hawser_input_ok", "1 if the current version of an input is in use, 0 if an older copy or none is.",
			[]string{"input"}, inputValues),
		gaugeOf("hawser_input_refused", "1 while a document is refused, by reason: its signer, its recipient, or its revision.",
			[]string{"input", "reason"}, func(s Snapshot, emit func(float64, ...string)) {
				for _, i := range s.Inputs {
					if i.Refused != "" {
						emit(1, i.Name, i.Refused)
					}
				}
			}),
		{
			prometheus.NewDesc("hawser_dropped_packets_total", "Packets that the rules of this node dropped, by reason. Restarts at 0 when the rules are rewritten.",
				[]string{"reason"}, nil), prometheus.CounterValue, func(s Snapshot, emit func(float64, ...string)) {
				for _, d := range s.Dropped {
					emit(float64(d.Packets), d.Reason)
				}
			},
		},
		gaugeOf("hawser_conntrack_entries", "Entries of the kernel's connection tracking table.", nil,
			func(s Snapshot, emit func(float64, ...string)) {
				if s.Conntrack != nil {
					emit(float64(s.Conntrack.Entries))
				}
			}),
		gaugeOf("hawser_conntrack_limit", "Maximum of these entries (nf_conntrack_max).", nil,
			func(s Snapshot, emit func(float64, ...string)) {
				if s.Conntrack != nil {
					emit(float64(s.Conntrack.Limit))
				}
			}),
		gaugeOf("hawser_signers_pinned", "1 if this agent accepts only fabrics of pinned signers.", nil,
			func(s Snapshot, emit func(float64, ...string)) { emit(boolValue(s.Trust != nil)) }),
	}
}

// problemValues counts the problems of each code.
func problemValues(s Snapshot, emit func(float64, ...string)) {
	count := map[[2]string]int{}
	for _, p := range s.Problems {
		count[[2]string{p.Code, string(p.Severity)}]++
	}
	for labels, n := range count {
		emit(float64(n), labels[:]...)
	}
}

// feedInput is the name prefix of inputs that are feeds. Metric hawser_feed_connected shows feeds.
const feedInput = "feed "

// inputValues emits whether each input except feeds is OK. Labels contain no address, path or
// error.
func inputValues(s Snapshot, emit func(float64, ...string)) {
	worst := map[string]bool{}
	var names []string
	for _, i := range s.Inputs {
		if strings.HasPrefix(i.Name, feedInput) {
			continue
		}
		name, _, _ := strings.Cut(i.Name, " on ") // metrics listeners: without the address
		if ok, seen := worst[name]; !seen {
			names = append(names, name)
			worst[name] = i.OK
		} else {
			worst[name] = ok && i.OK
		}
	}
	for _, name := range names {
		emit(boolValue(worst[name]), name)
	}
}

// reachMetrics returns the metrics about other clusters, which every node has.
func reachMetrics() []stateMetric {
	return []stateMetric{
		gaugeOf("hawser_path_up", "1 while a path to that cluster is up, over a link or in transit.", []string{"remote_cluster"},
			func(s Snapshot, emit func(float64, ...string)) {
				up := map[string]bool{}
				for _, p := range s.Paths {
					up[p.Cluster] = p.Rank != status.Ranks()[0]
				}
				// With transit, a cluster that was never reached has no entry in
				// the paths.
				for _, cluster := range s.Reachable {
					emit(boolValue(up[cluster]), cluster)
				}
			}),
		gaugeOf("hawser_feed_connected", "1 while the feed from that gateway is connected.",
			[]string{"remote_cluster", "remote_gateway"}, func(s Snapshot, emit func(float64, ...string)) {
				for _, i := range s.Inputs {
					if peer, is := strings.CutPrefix(i.Name, feedInput); is {
						cluster, gateway, _ := strings.Cut(peer, "/")
						emit(boolValue(i.OK), cluster, gateway)
					}
				}
			}),
	}
}

// linkMetrics returns the metrics of each link of a gateway.
func linkMetrics() []stateMetric {
	var out []stateMetric
	add := func(kind prometheus.ValueType, name, help string, value func(status.Connection) float64) {
		desc := prometheus.NewDesc(name, help, []string{"gateway", "remote_cluster", "remote_gateway"}, nil)
		out = append(out, stateMetric{desc, kind, func(s Snapshot, emit func(float64, ...string)) {
			for _, c := range s.Connections {
				emit(value(c), c.Gateway, c.RemoteCluster, c.RemoteGateway)
			}
		}})
	}
	gauge := func(name, help string, value func(status.Connection) float64) {
		add(prometheus.GaugeValue, name, help, value)
	}
	trip := func(name, help string, micros func(*status.RTT) int64) {
		gauge(name, help, func(c status.Connection) float64 {
			if c.RTT == nil {
				return math.NaN()
			}
			return float64(micros(c.RTT)) / 1e6
		})
	}
	gauge("hawser_link_up", "1 while the link answers probes.",
		func(c status.Connection) float64 { return boolValue(c.Status == status.Connected) })
	gauge("hawser_link_active", "1 while the link is the active one of its pair of clusters.",
		func(c status.Connection) float64 { return boolValue(c.Active) })
	gauge("hawser_link_rank", "Rank of the link: 0 down, 1 isolated, 2 draining, 3 unsteady, 4 good.",
		func(c status.Connection) float64 { return float64(slices.Index(status.Ranks(), c.Rank)) })
	trip("hawser_link_rtt_seconds", "Average round-trip time over the window of probes.", func(r *status.RTT) int64 { return r.Avg })
	trip("hawser_link_rtt_min_seconds", "Minimum round-trip time over the window.", func(r *status.RTT) int64 { return r.Min })
	trip("hawser_link_rtt_max_seconds", "Maximum round-trip time over the window.", func(r *status.RTT) int64 { return r.Max })
	trip("hawser_link_rtt_stddev_seconds", "Standard deviation of the round-trip time over the window.",
		func(r *status.RTT) int64 { return r.StdDev })
	gauge("hawser_link_loss_ratio", "Share of probes lost over the window, 0 to 1.", func(c status.Connection) float64 { return c.Loss })
	gauge("hawser_link_since_seconds", "Time of the last change between up and down, in seconds since 1970.",
		func(c status.Connection) float64 { return float64(c.Since.UnixMilli()) / 1e3 })
	gauge("hawser_link_mtu_bytes", "Maximum size of a packet inside the tunnel.",
		func(c status.Connection) float64 { return float64(c.MTU) })
	add(prometheus.CounterValue, "hawser_link_receive_bytes_total", "Bytes received from the peer.",
		func(c status.Connection) float64 { return float64(c.RxBytes) })
	add(prometheus.CounterValue, "hawser_link_transmit_bytes_total", "Bytes sent to the peer.",
		func(c status.Connection) float64 { return float64(c.TxBytes) })
	return out
}

func boolValue(b bool) float64 {
	if b {
		return 1
	}
	return 0
}
