package dns

import (
	"context"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/miekg/dns"

	"hawser.dev/hawser/internal/diff"
	"hawser.dev/hawser/nodeagent/desired"
	"hawser.dev/hawser/schema/fabric"
)

func addrs(texts ...string) []netip.Addr {
	var out []netip.Addr
	for _, text := range texts {
		out = append(out, netip.MustParseAddr(text))
	}
	return out
}

func sampleServices() []desired.Service {
	http := []desired.ServicePort{{Name: "http", Protocol: "TCP", Port: 80}, {Name: "metrics", Protocol: "UDP", Port: 9090}}
	return []desired.Service{
		{
			Namespace: "sample", Name: "whereami-cs", VIPs: addrs("243.0.0.1"), Ports: http,
			Clusters: []desired.ServiceCluster{{Name: "g1", IPs: addrs("242.1.0.8")}, {Name: "g2", IPs: addrs("242.2.0.8")}},
		},
		{
			Namespace: "sample", Name: "whereami-ss", Headless: true, Ports: []desired.ServicePort{{Name: "http", Protocol: "TCP", Port: 80}},
			Clusters: []desired.ServiceCluster{
				{Name: "g1", Hosts: []desired.ServiceHost{{IPs: addrs("242.1.0.5")}}},
				{Name: "g2", Hosts: []desired.ServiceHost{
					{Name: "whereami-0", IPs: addrs("242.2.0.5", "fd42::5")}, {Name: "whereami-1", IPs: addrs("242.2.0.6")},
				}},
				{Name: "g3"},
			},
		},
		{Namespace: "empty", Name: "nobody", Headless: true, Ports: http},
		{
			Namespace: "own", Name: "both", VIPs: addrs("243.0.0.7"),
			Ports: []desired.ServicePort{{Name: "tcp", Protocol: "TCP", Port: 42}, {Name: "udp", Protocol: "UDP", Port: 42}},
		},
		{
			Namespace: "own", Name: "web", Headless: true,
			Ports: []desired.ServicePort{{Name: "http", Protocol: "TCP", Port: 80}, {Name: "dns", Protocol: "UDP", Port: 53}, {Protocol: "TCP", Port: 53}},
			Clusters: []desired.ServiceCluster{
				{Name: "g1", Hosts: []desired.ServiceHost{{Name: "10-7-1-5", IPs: addrs("242.1.0.9"), Ports: map[string]int{"TCP/80": 8080}}}},
				{Name: "g2", Hosts: []desired.ServiceHost{{Name: "web-0", IPs: addrs("242.2.0.9")}}},
			},
		},
		{Namespace: "six", Name: "only", VIPs: addrs("fd43::1"), Ports: []desired.ServicePort{{Protocol: "TCP", Port: 80}}},
	}
}

func create[S diff.Spec](specs ...S) []diff.Change[S] {
	var out []diff.Change[S]
	for _, spec := range specs {
		out = append(out, diff.Change[S]{Op: diff.Create, Key: spec.Key(), Want: spec})
	}
	return out
}

func sampleStore(t testing.TB) *Store {
	t.Helper()
	return storeOf(t, sampleServices())
}

func storeOf(t testing.TB, services []desired.Service) *Store {
	t.Helper()
	s := NewStore()
	s.SetServerAddrs([]netip.AddrPort{netip.MustParseAddrPort("169.254.73.53:53")})
	ttl := fabric.Duration(5 * time.Second)
	zones := create(
		desired.Zone{Domain: "clusterset.local", ClusterNames: true, TTL: ttl, Serial: 7},
		desired.Zone{Domain: "Plain.example", TTL: ttl, Serial: 7, Extra: true},
	)
	if err := s.Zones().Apply(context.Background(), zones); err != nil {
		t.Fatal(err)
	}
	if err := s.Services().Apply(context.Background(), create(services...)); err != nil {
		t.Fatal(err)
	}
	return s
}

func reverse(addr string) string {
	name, err := dns.ReverseAddr(addr)
	if err != nil {
		panic(err)
	}
	return name
}

func question(t testing.TB, asked string) *dns.Msg {
	t.Helper()
	name, kind, _ := strings.Cut(asked, " ")
	qtype, known := dns.StringToType[kind]
	if !known {
		qtype = 65280
	}
	m := new(dns.Msg)
	m.Id, m.RecursionDesired = 3, true
	m.Question = []dns.Question{{Name: name, Qtype: qtype, Qclass: dns.ClassINET}}
	return m
}

func text(t testing.TB, records []dns.RR) []string {
	t.Helper()
	out := []string{}
	for _, rr := range records {
		out = append(out, strings.ReplaceAll(rr.String(), "\t", " "))
	}
	slices.Sort(out)
	return out
}

func TestAnswer(t *testing.T) {
	t.Parallel()
	snapshot := sampleStore(t).current.Load()
	for _, tt := range cases {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			query := question(t, tt.query)
			r := answer(snapshot, query)
			if r.Rcode != tt.rcode || !r.Response || r.RecursionAvailable || !r.RecursionDesired || r.Id != query.Id {
				t.Errorf("header %+v, want rcode %s", r.MsgHdr, dns.RcodeToString[tt.rcode])
			}
			if r.Authoritative != (tt.rcode != dns.RcodeRefused) {
				t.Errorf("authoritative is %v", r.Authoritative)
			}
			for section, pair := range map[string][2][]string{
				"answer":     {tt.answer, text(t, r.Answer)},
				"authority":  {tt.ns, text(t, r.Ns)},
				"additional": {tt.extra, text(t, r.Extra)},
			} {
				want := slices.Sorted(slices.Values(pair[0]))
				if d := cmp.Diff(append([]string{}, want...), pair[1]); d != "" {
					t.Errorf("%s (-want +got):\n%s", section, d)
				}
			}
			if _, err := r.Pack(); err != nil {
				t.Errorf("reply does not pack: %v", err)
			}
		})
	}
}

func TestAnswerToOddQueries(t *testing.T) {
	t.Parallel()
	snapshot := sampleStore(t).current.Load()
	edited := func(edit func(*dns.Msg)) *dns.Msg {
		m := question(t, cs+" A")
		edit(m)
		return answer(snapshot, m)
	}
	tests := []struct {
		name string
		edit func(*dns.Msg)
		want int
	}{
		{"no question", func(m *dns.Msg) { m.Question = nil }, dns.RcodeFormatError},
		{"two questions", func(m *dns.Msg) { m.Question = append(m.Question, m.Question[0]) }, dns.RcodeFormatError},
		{"notify", func(m *dns.Msg) { m.Opcode = dns.OpcodeNotify }, dns.RcodeNotImplemented},
		{"update", func(m *dns.Msg) { m.Opcode = dns.OpcodeUpdate }, dns.RcodeNotImplemented},
		{"chaos", func(m *dns.Msg) { m.Question[0].Qclass = dns.ClassCHAOS }, dns.RcodeRefused},
		{"class any", func(m *dns.Msg) { m.Question[0].Qclass = dns.ClassANY }, dns.RcodeSuccess},
		{"edns", func(m *dns.Msg) { m.SetEdns0(4096, true) }, dns.RcodeSuccess},
		{"edns version", func(m *dns.Msg) { m.SetEdns0(4096, false).IsEdns0().SetVersion(1) }, dns.RcodeBadVers},
		{"two edns", func(m *dns.Msg) { m.SetEdns0(1, false).SetEdns0(2, false) }, dns.RcodeFormatError},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			if r := edited(tt.edit); r.Rcode != tt.want {
				t.Errorf("rcode %s, want %s", dns.RcodeToString[r.Rcode], dns.RcodeToString[tt.want])
			}
		})
	}
	if r := edited(func(m *dns.Msg) { m.Response = true }); r != nil {
		t.Errorf("a response got the reply %v", r)
	}
	if opt := edited(func(m *dns.Msg) { m.SetEdns0(4096, true) }).IsEdns0(); opt == nil || !opt.Do() || opt.UDPSize() != udpSize {
		t.Errorf("reply to EDNS has %v", opt)
	}
}

func TestRotation(t *testing.T) {
	t.Parallel()
	snapshot := sampleStore(t).current.Load()
	first := map[string]int{}
	for id := range uint16(30) {
		query := question(t, ss+" A")
		query.Id = id
		first[answer(snapshot, query).Answer[0].(*dns.A).A.String()]++
	}
	if len(first) != 3 || first["242.2.0.5"] != 10 {
		t.Errorf("the first address was %v", first)
	}
}

func TestFit(t *testing.T) {
	t.Parallel()
	s := sampleStore(t)
	big := desired.Service{
		Namespace: "sample", Name: "big", Headless: true, Ports: []desired.ServicePort{{Name: "http", Protocol: "TCP", Port: 80}},
	}
	cluster := desired.ServiceCluster{Name: "g1"}
	for i := range 200 {
		cluster.Hosts = append(cluster.Hosts, desired.ServiceHost{IPs: []netip.Addr{netip.AddrFrom4([4]byte{242, 1, 1, byte(i)})}})
	}
	big.Clusters = []desired.ServiceCluster{cluster}
	if err := s.Services().Apply(context.Background(), create(big)); err != nil {
		t.Fatal(err)
	}
	tests := []struct {
		name, asked, transport string
		edns                   uint16
		size                   int
		truncated              bool
		answers                int // minimum number
	}{
		{"small", cs + " A", "udp", 0, 512, false, 1},
		{"plain udp", "big.sample.svc.clusterset.local. A", "udp", 0, 512, true, 20},
		{"edns", "big.sample.svc.clusterset.local. A", "udp", 1000, 1000, true, 40},
		{"greedy edns", "big.sample.svc.clusterset.local. A", "udp", 65535, udpSize, true, 60},
		{"tiny edns", "big.sample.svc.clusterset.local. A", "udp", 1, 512, true, 20},
		{"tcp", "big.sample.svc.clusterset.local. A", "tcp", 0, dns.MaxMsgSize, false, 200},
		{"glue is removed first", "_http._tcp.g2." + ss + " SRV", "udp", 0, 512, false, 2},
		{"tcp srv", "_http._tcp.big.sample.svc.clusterset.local. SRV", "tcp", 0, dns.MaxMsgSize, false, 200},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			query := question(t, tt.asked)
			if tt.edns > 0 {
				query.SetEdns0(tt.edns, false)
			}
			r := answer(s.current.Load(), query)
			truncate(r, limit(query, tt.transport))
			raw, err := r.Pack()
			if err != nil || len(raw) > tt.size || r.Truncated != tt.truncated || len(r.Answer) < tt.answers {
				t.Errorf("%d bytes, truncated %v, %d answers, %v", len(raw), r.Truncated, len(r.Answer), err)
			}
			if (r.IsEdns0() != nil) != (tt.edns > 0) {
				t.Error("the OPT record is wrong")
			}
		})
	}
}
