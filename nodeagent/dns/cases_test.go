package dns

import "github.com/miekg/dns"

// testCase is a query and the whole reply in zone-file text; records are compared sorted.
type testCase struct {
	name, query string // name and type
	rcode       int
	answer      []string
	ns          []string
	extra       []string
}

const (
	soa      = "clusterset.local. 5 IN SOA ns.dns.clusterset.local. hostmaster.clusterset.local. 7 7200 1800 86400 5"
	plainSOA = "plain.example. 5 IN SOA ns.dns.plain.example. hostmaster.plain.example. 7 7200 1800 86400 5"
	cs       = "whereami-cs.sample.svc.clusterset.local."
	ss       = "whereami-ss.sample.svc.clusterset.local."
)

var nodata = []string{soa}

var cases = []testCase{
	// ClusterSetIP
	{name: "vip", query: cs + " A", answer: []string{cs + " 5 IN A 243.0.0.1"}},
	{name: "vip has no v6", query: cs + " AAAA", ns: nodata},
	{name: "v6 vip", query: "only.six.svc.clusterset.local. AAAA", answer: []string{"only.six.svc.clusterset.local. 5 IN AAAA fd43::1"}},
	{name: "v6 vip has no v4", query: "only.six.svc.clusterset.local. A", ns: nodata},
	{
		name: "case is kept", query: "WhereAmI-CS.sample.SVC.clusterset.local. A",
		answer: []string{"WhereAmI-CS.sample.SVC.clusterset.local. 5 IN A 243.0.0.1"},
	},
	{name: "cluster", query: "g2." + cs + " A", answer: []string{"g2." + cs + " 5 IN A 242.2.0.8"}},
	{name: "unknown cluster", query: "g9." + cs + " A", rcode: dns.RcodeNameError, ns: nodata},
	{name: "host of a service without hosts", query: "h.g2." + cs + " A", rcode: dns.RcodeNameError, ns: nodata},
	{
		name: "srv", query: "_http._tcp." + cs + " SRV", answer: []string{"_http._tcp." + cs + " 5 IN SRV 0 50 80 " + cs},
		extra: []string{cs + " 5 IN A 243.0.0.1"},
	},
	{
		name: "srv of a cluster", query: "_metrics._udp.g1." + cs + " SRV",
		answer: []string{"_metrics._udp.g1." + cs + " 5 IN SRV 0 50 9090 g1." + cs}, extra: []string{"g1." + cs + " 5 IN A 242.1.0.8"},
	},
	{
		name: "srv of the service's name", query: cs + " SRV",
		answer: []string{cs + " 5 IN SRV 0 50 80 " + cs, cs + " 5 IN SRV 0 50 9090 " + cs}, extra: []string{cs + " 5 IN A 243.0.0.1"},
	},
	{
		name: "srv of one number in two protocols", query: "both.own.svc.clusterset.local. SRV",
		answer: []string{"both.own.svc.clusterset.local. 5 IN SRV 0 50 42 both.own.svc.clusterset.local."},
		extra:  []string{"both.own.svc.clusterset.local. 5 IN A 243.0.0.7"},
	},
	{name: "srv name has no A", query: "_http._tcp." + cs + " A", ns: nodata},
	{name: "between srv and service", query: "_tcp." + cs + " SRV", ns: nodata},
	{name: "srv of the wrong protocol", query: "_http._udp." + cs + " SRV", rcode: dns.RcodeNameError, ns: nodata},
	{name: "protocol without ports", query: "_sctp." + cs + " SRV", rcode: dns.RcodeNameError, ns: nodata},
	{name: "srv of an unknown cluster", query: "_http._tcp.g9." + cs + " SRV", rcode: dns.RcodeNameError, ns: nodata},
	{name: "port without a name", query: "_tcp.only.six.svc.clusterset.local. SRV", rcode: dns.RcodeNameError, ns: nodata},

	// Headless
	{name: "headless", query: ss + " A", answer: []string{ss + " 5 IN A 242.1.0.5", ss + " 5 IN A 242.2.0.5", ss + " 5 IN A 242.2.0.6"}},
	{name: "headless v6", query: ss + " AAAA", answer: []string{ss + " 5 IN AAAA fd42::5"}},
	{
		name: "headless cluster", query: "g2." + ss + " A",
		answer: []string{"g2." + ss + " 5 IN A 242.2.0.5", "g2." + ss + " 5 IN A 242.2.0.6"},
	},
	{name: "headless cluster without pods", query: "g3." + ss + " A", rcode: dns.RcodeNameError, ns: nodata},
	{name: "srv of a cluster without pods", query: "_http._tcp.g3." + ss + " SRV", rcode: dns.RcodeNameError, ns: nodata},
	{name: "pod", query: "whereami-0.g2." + ss + " A", answer: []string{"whereami-0.g2." + ss + " 5 IN A 242.2.0.5"}},
	{name: "pod by its address", query: "242-1-0-5.g1." + ss + " A", answer: []string{"242-1-0-5.g1." + ss + " 5 IN A 242.1.0.5"}},
	{name: "pod of another cluster", query: "whereami-0.g1." + ss + " A", rcode: dns.RcodeNameError, ns: nodata},
	{name: "below a pod", query: "x.whereami-0.g2." + ss + " A", rcode: dns.RcodeNameError, ns: nodata},
	{
		name: "headless srv", query: "_http._tcp.g2." + ss + " SRV",
		answer: []string{
			"_http._tcp.g2." + ss + " 5 IN SRV 0 50 80 whereami-0.g2." + ss, "_http._tcp.g2." + ss + " 5 IN SRV 0 50 80 whereami-1.g2." + ss,
		},
		extra: []string{
			"whereami-0.g2." + ss + " 5 IN A 242.2.0.5", "whereami-0.g2." + ss + " 5 IN AAAA fd42::5", "whereami-1.g2." + ss + " 5 IN A 242.2.0.6",
		},
	},
	{
		name: "srv of a pod", query: "_http._tcp.242-1-0-5.g1." + ss + " SRV",
		answer: []string{"_http._tcp.242-1-0-5.g1." + ss + " 5 IN SRV 0 50 80 242-1-0-5.g1." + ss},
		extra:  []string{"242-1-0-5.g1." + ss + " 5 IN A 242.1.0.5"},
	},
	{name: "headless without pods", query: "nobody.empty.svc.clusterset.local. A", rcode: dns.RcodeNameError, ns: nodata},
	{
		name: "srv of a headless name", query: "web.own.svc.clusterset.local. SRV",
		answer: []string{
			"web.own.svc.clusterset.local. 5 IN SRV 0 50 8080 10-7-1-5.g1.web.own.svc.clusterset.local.",
			"web.own.svc.clusterset.local. 5 IN SRV 0 50 53 10-7-1-5.g1.web.own.svc.clusterset.local.",
			"web.own.svc.clusterset.local. 5 IN SRV 0 50 80 web-0.g2.web.own.svc.clusterset.local.",
			"web.own.svc.clusterset.local. 5 IN SRV 0 50 53 web-0.g2.web.own.svc.clusterset.local.",
		},
		extra: []string{
			"10-7-1-5.g1.web.own.svc.clusterset.local. 5 IN A 242.1.0.9", "web-0.g2.web.own.svc.clusterset.local. 5 IN A 242.2.0.9",
		},
	},
	{
		name: "srv of a port with a different number on the pod", query: "_http._tcp.g1.web.own.svc.clusterset.local. SRV",
		answer: []string{"_http._tcp.g1.web.own.svc.clusterset.local. 5 IN SRV 0 50 8080 10-7-1-5.g1.web.own.svc.clusterset.local."},
		extra:  []string{"10-7-1-5.g1.web.own.svc.clusterset.local. 5 IN A 242.1.0.9"},
	},

	// The rest of the zone
	{name: "apex", query: "clusterset.local. A", ns: nodata},
	{name: "soa", query: "clusterset.local. SOA", answer: []string{soa}},
	{
		name: "ns", query: "clusterset.local. NS", answer: []string{"clusterset.local. 5 IN NS ns.dns.clusterset.local."},
		extra: []string{"ns.dns.clusterset.local. 5 IN A 169.254.73.53"},
	},
	{name: "name server", query: "ns.dns.clusterset.local. A", answer: []string{"ns.dns.clusterset.local. 5 IN A 169.254.73.53"}},
	{name: "above the name server", query: "dns.clusterset.local. A", ns: nodata},
	{name: "version", query: "dns-version.clusterset.local. TXT", answer: []string{`dns-version.clusterset.local. 5 IN TXT "1.0.0"`}},
	{name: "version has no A", query: "dns-version.clusterset.local. A", ns: nodata},
	{name: "svc", query: "svc.clusterset.local. A", ns: nodata},
	{name: "namespace", query: "sample.svc.clusterset.local. A", ns: nodata},
	{name: "unknown namespace", query: "other.svc.clusterset.local. A", rcode: dns.RcodeNameError, ns: nodata},
	{name: "unknown service", query: "x.sample.svc.clusterset.local. A", rcode: dns.RcodeNameError, ns: nodata},
	{name: "not svc", query: "x.sample.pod.clusterset.local. A", rcode: dns.RcodeNameError, ns: nodata},
	{name: "any", query: cs + " ANY", answer: []string{cs + ` 5 IN HINFO "RFC8482" ""`}},
	{name: "any of nothing", query: "x." + cs + " ANY", rcode: dns.RcodeNameError, ns: nodata},
	{name: "other type", query: cs + " MX", ns: nodata},
	{name: "type without a name", query: cs + " TYPE65280", ns: nodata},
	{name: "transfer", query: "clusterset.local. AXFR", rcode: dns.RcodeRefused},
	{name: "escaped dot below", query: `whereami-cs\.sample.svc.clusterset.local. A`, rcode: dns.RcodeNameError, ns: nodata},
	{name: "escaped dot at the border", query: `x\.clusterset.local. A`, rcode: dns.RcodeRefused},

	// A zone without cluster names
	{
		name: "other zone", query: "whereami-cs.sample.svc.plain.example. A",
		answer: []string{"whereami-cs.sample.svc.plain.example. 5 IN A 243.0.0.1"},
	},
	{name: "no cluster names", query: "g2.whereami-cs.sample.svc.plain.example. A", rcode: dns.RcodeNameError, ns: []string{plainSOA}},
	{name: "no cluster names, but pods", query: "g2.whereami-ss.sample.svc.plain.example. A", ns: []string{plainSOA}},
	{
		name: "no cluster names, no pods", query: "g3.whereami-ss.sample.svc.plain.example. A", rcode: dns.RcodeNameError, ns: []string{plainSOA},
	},
	{
		name: "pod without cluster names", query: "whereami-0.g2.whereami-ss.sample.svc.plain.example. A",
		answer: []string{"whereami-0.g2.whereami-ss.sample.svc.plain.example. 5 IN A 242.2.0.5"},
	},

	// Outside and reverse
	{name: "outside", query: "example.org. A", rcode: dns.RcodeRefused},
	{name: "root", query: ". NS", rcode: dns.RcodeRefused},
	{name: "suffix without a dot", query: "myclusterset.local. A", rcode: dns.RcodeRefused},
	{name: "ptr of a vip", query: "1.0.0.243.in-addr.arpa. PTR", answer: []string{"1.0.0.243.in-addr.arpa. 5 IN PTR " + cs}},
	{
		name: "ptr of a v6 host", query: reverse("fd42::5") + " PTR",
		answer: []string{reverse("fd42::5") + " 5 IN PTR whereami-0.g2." + ss},
	},
	{
		name: "other type of a reverse name", query: "1.0.0.243.in-addr.arpa. A",
		ns: []string{"1.0.0.243.in-addr.arpa. 5 IN SOA ns.dns.clusterset.local. hostmaster.clusterset.local. 7 7200 1800 86400 5"},
	},
	{name: "unknown reverse", query: "9.9.9.9.in-addr.arpa. PTR", rcode: dns.RcodeRefused},
	{name: "half a reverse", query: "0.0.243.in-addr.arpa. PTR", rcode: dns.RcodeRefused},
	{name: "broken reverse", query: "x.0.0.243.in-addr.arpa. PTR", rcode: dns.RcodeRefused},
}
