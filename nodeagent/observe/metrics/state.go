package metrics

import (
	"math"
	"slices"
	"strings"

	"github.com/prometheus/client_golang/prometheus"

	"hawser.dev/hawser/nodeagent/projection"
	"hawser.dev/hawser/nodeagent/status"
)

// Snapshot is what metrics show that are read at the moment of a scrape.
type Snapshot struct {
	status.Status
	Gateways int // of the own cluster, in the fabric in force
	// Reachable are the clusters to which there is a way when all links live, by name.
	Reachable []string
}

// stateMetrics are those of the agent, its inputs and its links. What a scrape costs
// grows with the links and the other clusters, as does what status reports about them.
type stateMetrics struct {
	look    func() Snapshot
	metrics []stateMetric
}

// stateMetric is one metric with the values that it has now.
type stateMetric struct {
	desc   *prometheus.Desc
	kind   prometheus.ValueType
	values func(Snapshot, func(value float64, labels ...string))
}

// RegisterState adds what is read from the agent's state whenever somebody scrapes.
func (m *Metrics) RegisterState(look func() Snapshot) {
	m.own.MustRegister(&stateMetrics{look: look, metrics: slices.Concat(agentMetrics(), reachMetrics(), linkMetrics())})
}

// Describe names the metrics.
func (c *stateMetrics) Describe(out chan<- *prometheus.Desc) {
	for _, m := range c.metrics {
		out <- m.desc
	}
}

// Collect looks once and gives all values.
func (c *stateMetrics) Collect(out chan<- prometheus.Metric) {
	state := c.look()
	for _, m := range c.metrics {
		m.values(state, func(value float64, labels ...string) {
			out <- prometheus.MustNewConstMetric(m.desc, m.kind, value, labels...)
		})
	}
}

func gaugeOf(name, help string, labels []string, values func(Snapshot, func(float64, ...string))) stateMetric {
	return stateMetric{prometheus.NewDesc(name, help, labels, nil), prometheus.GaugeValue, values}
}

// agentMetrics are those of the agent itself.
func agentMetrics() []stateMetric {
	return []stateMetric{
		gaugeOf("hawser_agent_info", "Always 1; the labels name the gateway that the node is, if any, and the agent's version.",
			[]string{"gateway", "version"}, func(s Snapshot, give func(float64, ...string)) { give(1, s.Gateway, s.Version) }),
		gaugeOf("hawser_fabric_info", "Always 1; the labels name the clusterset and the digest of the fabric in force. Absent without one.",
			[]string{"clusterset", "digest"}, func(s Snapshot, give func(float64, ...string)) {
				if s.Digest != "" {
					give(1, s.Clusterset, s.Digest)
				}
			}),
		gaugeOf("hawser_ready", "1 while the last round left nothing to do, nothing failed, and names are answered.", nil,
			func(s Snapshot, give func(float64, ...string)) { give(yes(s.Ready)) }),
		gaugeOf("hawser_drained", "1 while this node's gateway is to be left (hawser-agent drain).", nil,
			func(s Snapshot, give func(float64, ...string)) { give(yes(s.Drained)) }),
		gaugeOf("hawser_gateways", "Gateways of this cluster, as the fabric in force has them. Absent without one.", nil,
			func(s Snapshot, give func(float64, ...string)) {
				if s.Digest != "" {
					give(float64(s.Gateways))
				}
			}),
		gaugeOf("hawser_imports_taken", "ServiceImports of this cluster that should be Hawser's and are written by somebody else.", nil,
			func(s Snapshot, give func(float64, ...string)) { give(float64(len(ForeignImports(s.Status)))) }),
		gaugeOf("hawser_input_ok", "1 while an input is read as it is now, 0 while an older copy of it is in force, or none.",
			[]string{"input"}, inputValues),
		gaugeOf("hawser_input_refused", "1 while a document is not acted on, by the reason: who signed it, for whom, or its revision.",
			[]string{"input", "reason"}, func(s Snapshot, give func(float64, ...string)) {
				for _, i := range s.Inputs {
					if i.Refused != "" {
						give(1, i.Name, i.Refused)
					}
				}
			}),
		{
			prometheus.NewDesc("hawser_dropped_packets_total", "Packets that the rules of this node dropped, by reason. Begins anew when the rules are written anew.",
				[]string{"reason"}, nil), prometheus.CounterValue, func(s Snapshot, give func(float64, ...string)) {
				for _, d := range s.Dropped {
					give(float64(d.Packets), d.Reason)
				}
			},
		},
		gaugeOf("hawser_conntrack_entries", "Connections that the node's kernel keeps track of.", nil,
			func(s Snapshot, give func(float64, ...string)) {
				if s.Conntrack != nil {
					give(float64(s.Conntrack.Entries))
				}
			}),
		gaugeOf("hawser_conntrack_limit", "How many it can (nf_conntrack_max).", nil,
			func(s Snapshot, give func(float64, ...string)) {
				if s.Conntrack != nil {
					give(float64(s.Conntrack.Limit))
				}
			}),
		gaugeOf("hawser_signers_pinned", "1 while this agent acts only on what pinned signers signed.", nil,
			func(s Snapshot, give func(float64, ...string)) { give(yes(s.Trust != nil)) }),
	}
}

// feedInput begins the names of inputs that are feeds, which have a metric of their own.
const feedInput = "feed "

// inputValues leaves feeds out, and adds no label that a path or an error could be in.
func inputValues(s Snapshot, give func(float64, ...string)) {
	worst := map[string]bool{}
	var names []string
	for _, i := range s.Inputs {
		if strings.HasPrefix(i.Name, feedInput) {
			continue
		}
		name, _, _ := strings.Cut(i.Name, " on ") // an address
		if ok, seen := worst[name]; !seen {
			names = append(names, name)
			worst[name] = i.OK
		} else {
			worst[name] = ok && i.OK
		}
	}
	for _, name := range names {
		give(yes(worst[name]), name)
	}
}

// reachMetrics are those of other clusters as every node has them.
func reachMetrics() []stateMetric {
	return []stateMetric{
		gaugeOf("hawser_path_up", "1 while there is a path to that cluster on which all answer.", []string{"remote_cluster"},
			func(s Snapshot, give func(float64, ...string)) {
				up := map[string]bool{}
				for _, p := range s.Paths {
					up[p.Cluster] = p.Rank != status.Ranks()[0]
				}
				// Where clusters pass on, one that was never reached has no path.
				for _, cluster := range s.Reachable {
					give(yes(up[cluster]), cluster)
				}
			}),
		gaugeOf("hawser_feed_connected", "1 while this node hears that gateway of the state of exports.",
			[]string{"remote_cluster", "remote_gateway"}, func(s Snapshot, give func(float64, ...string)) {
				for _, i := range s.Inputs {
					if peer, is := strings.CutPrefix(i.Name, feedInput); is {
						cluster, gateway, _ := strings.Cut(peer, "/")
						give(yes(i.OK), cluster, gateway)
					}
				}
			}),
	}
}

// linkMetrics are those of each link of a gateway.
func linkMetrics() []stateMetric {
	var out []stateMetric
	add := func(kind prometheus.ValueType, name, help string, value func(status.Connection) float64) {
		desc := prometheus.NewDesc(name, help, []string{"gateway", "remote_cluster", "remote_gateway"}, nil)
		out = append(out, stateMetric{desc, kind, func(s Snapshot, give func(float64, ...string)) {
			for _, c := range s.Connections {
				give(value(c), c.Gateway, c.RemoteCluster, c.RemoteGateway)
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
		func(c status.Connection) float64 { return yes(c.Status == status.Connected) })
	gauge("hawser_link_chosen", "1 while the link carries the traffic of its pair of clusters.",
		func(c status.Connection) float64 { return yes(c.Chosen) })
	gauge("hawser_link_rank", "How fit the link is: 0 down, 1 alone, 2 draining, 3 unsteady, 4 good.",
		func(c status.Connection) float64 { return float64(slices.Index(status.Ranks(), c.Rank)) })
	trip("hawser_link_rtt_seconds", "Average round-trip time over the window of probes.", func(r *status.RTT) int64 { return r.Avg })
	trip("hawser_link_rtt_min_seconds", "Least round-trip time over the window.", func(r *status.RTT) int64 { return r.Min })
	trip("hawser_link_rtt_max_seconds", "Greatest round-trip time over the window.", func(r *status.RTT) int64 { return r.Max })
	trip("hawser_link_rtt_stddev_seconds", "Standard deviation of the round-trip time over the window.",
		func(r *status.RTT) int64 { return r.StdDev })
	gauge("hawser_link_loss_ratio", "Share of probes lost over the window, 0 to 1.", func(c status.Connection) float64 { return c.Loss })
	gauge("hawser_link_since_seconds", "Time since when the link is up or down, in seconds since 1970.",
		func(c status.Connection) float64 { return float64(c.Since.UnixMilli()) / 1e3 })
	gauge("hawser_link_mtu_bytes", "Bytes that a packet inside the tunnel may have.",
		func(c status.Connection) float64 { return float64(c.MTU) })
	add(prometheus.CounterValue, "hawser_link_receive_bytes_total", "Bytes received from the peer.",
		func(c status.Connection) float64 { return float64(c.RxBytes) })
	add(prometheus.CounterValue, "hawser_link_transmit_bytes_total", "Bytes sent to the peer.",
		func(c status.Connection) float64 { return float64(c.TxBytes) })
	return out
}

func yes(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

// ForeignImports reports those that somebody else writes.
func ForeignImports(s status.Status) []string {
	var out []string
	for _, p := range s.Problems {
		if p.Code == projection.ImportForeign {
			out = append(out, p.Text)
		}
	}
	return out
}
