package dns

import (
	"bytes"
	"context"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/miekg/dns"

	"hawser.dev/hawser/nodeagent/desired"
)

// ownAddr returns an address that is unique among the tests, with a port that the kernel
// assigns to no client.
func ownAddr() netip.AddrPort {
	addr := netip.AddrFrom4([4]byte{127, 53, byte(rand.N(255)), byte(1 + rand.N(254))})
	return netip.AddrPortFrom(addr, 5353)
}

func TestServe(t *testing.T) {
	t.Parallel()
	addr := ownAddr()
	var mu sync.Mutex
	counted := map[Query]int{}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	var serving atomic.Int32
	config := Config{Addr: addr, Store: sampleStore(t), Log: slog.New(slog.DiscardHandler), Serving: func(on bool) {
		if on {
			serving.Add(1)
		} else {
			serving.Add(-1)
		}
	}, Count: func(q Query) {
		mu.Lock()
		defer mu.Unlock()
		counted[q]++
	}}
	config.Store.SetServerAddrs([]netip.AddrPort{config.Addr})
	go func() { done <- Serve(ctx, config) }()
	for _, transport := range []string{"udp", "tcp"} {
		r := exchange(t, transport, addr, question(t, cs+" A"))
		if len(r.Answer) != 1 || r.Answer[0].(*dns.A).A.String() != "243.0.0.1" {
			t.Errorf("%s: %v", transport, r)
		}
	}
	r := exchange(t, "udp", addr, question(t, "clusterset.local. NS"))
	if len(r.Extra) == 0 || r.Extra[0].(*dns.A).A.String() != addr.Addr().String() {
		t.Errorf("wrong address of the name server: %v", r)
	}
	if serving.Load() != 1 {
		t.Error("the server replies, but Serving was not called")
	}
	malformed(t, addr)
	if r := exchange(t, "udp", addr, question(t, "x."+cs+" A")); r.Rcode != dns.RcodeNameError {
		t.Errorf("after a malformed query: %v", r)
	}
	cancel()
	select {
	case err := <-done:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(10 * time.Second):
		t.Fatal("Serve does not end")
	}
	if serving.Load() != 0 {
		t.Error("the server no longer replies, but Serving was not called")
	}
	mu.Lock()
	defer mu.Unlock()
	for _, want := range []Query{{"udp", "A", "NOERROR"}, {"tcp", "A", "NOERROR"}, {"udp", "A", "NXDOMAIN"}} {
		if counted[want] == 0 {
			t.Errorf("%v was not counted", want)
		}
	}
}

// exchange sends a query until the server replies.
func exchange(t *testing.T, transport string, addr netip.AddrPort, query *dns.Msg) *dns.Msg {
	t.Helper()
	client := dns.Client{Net: transport, Timeout: time.Second}
	deadline := time.Now().Add(10 * time.Second)
	for {
		r, _, err := client.Exchange(query, addr.String())
		if err == nil {
			return r
		}
		if time.Now().After(deadline) {
			t.Fatalf("%s: %v", transport, err)
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// malformed sends a query with a truncated question.
func malformed(t *testing.T, addr netip.AddrPort) {
	t.Helper()
	conn, err := net.Dial("udp4", addr.String())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	_ = conn.SetDeadline(time.Now().Add(10 * time.Second))
	if _, err := conn.Write(append([]byte{7, 7, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0}, 63, 'x')); err != nil {
		t.Fatal(err)
	}
	raw := make([]byte, 512)
	n, err := conn.Read(raw)
	r := new(dns.Msg)
	if err != nil || r.Unpack(raw[:n]) != nil || r.Rcode != dns.RcodeFormatError || !bytes.Equal(raw[:2], []byte{7, 7}) {
		t.Errorf("a malformed query got %x, %v", raw[:n], err)
	}
}

func TestServeWaitsForItsAddress(t *testing.T) {
	t.Parallel()
	addr := ownAddr()
	taken, err := net.Listen("tcp4", addr.String())
	if err != nil {
		t.Fatal(err)
	}
	var log bytes.Buffer
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	logged := make(chan struct{}, 16)
	handler := notifying{slog.NewTextHandler(&log, nil), logged}
	go func() { done <- Serve(ctx, Config{Addr: addr, Store: sampleStore(t), Log: slog.New(handler)}) }()
	<-logged // that the address cannot be bound
	_ = taken.Close()
	if r := exchange(t, "tcp", addr, question(t, cs+" A")); len(r.Answer) != 1 {
		t.Errorf("got %v", r)
	}
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
	if !bytes.Contains(log.Bytes(), []byte("name server does not answer")) {
		t.Errorf("log: %s", log.String())
	}
}

// notifying signals each log record.
type notifying struct {
	slog.Handler
	logged chan struct{}
}

func (n notifying) Handle(ctx context.Context, r slog.Record) error {
	err := n.Handler.Handle(ctx, r)
	select {
	case n.logged <- struct{}{}:
	default:
	}
	return err
}

// writer stores the replies of a handler.
type writer struct {
	dns.ResponseWriter
	raw []byte
}

func (w *writer) Write(raw []byte) (int, error) {
	w.raw = bytes.Clone(raw)
	return len(raw), nil
}

func (w *writer) WriteMsg(m *dns.Msg) error {
	raw, err := m.Pack()
	if err == nil {
		_, err = w.Write(raw)
	}
	return err
}

// TestUnpackableNames checks that invalid names of one cluster do not affect the records of other
// clusters in a shared service. No packet can contain such names.
func TestUnpackableNames(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", 63)
	for _, tt := range []struct{ name, service, namespace, host, cluster string }{
		{"no label between two dots", "web", "own", "a..b", "g1"},
		{"a label too long", "web", "own", long + "x", "g1"},
		{"the whole name too long", long, long, long, long},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			store := storeOf(t, []desired.Service{{
				Namespace: tt.namespace, Name: tt.service, Headless: true, Ports: []desired.ServicePort{{Name: "http", Protocol: "TCP", Port: 80}},
				Clusters: []desired.ServiceCluster{
					{Name: "g2", Hosts: []desired.ServiceHost{{Name: "web-0", IPs: addrs("242.2.0.9")}}},
					{Name: tt.cluster, Hosts: []desired.ServiceHost{{Name: tt.host, IPs: addrs("242.1.0.9")}}},
				},
			}})
			serve := handler(Config{Store: store, Log: slog.New(slog.DiscardHandler)}, "tcp")
			name := tt.service + "." + tt.namespace + ".svc.clusterset.local."
			for asked, want := range map[string]string{
				"_http._tcp." + name + " SRV":    "web-0.g2." + name,
				"9.0.2.242.in-addr.arpa. PTR":    "web-0.g2." + name,
				"9.0.1.242.in-addr.arpa. PTR":    "",
				"9.0.1.242.in-addr.arpa. SOA":    "ns.dns.clusterset.local.",
				"_http._tcp.g2." + name + " SRV": "web-0.g2." + name,
				"web-0.g2." + name + " A":        "242.2.0.9",
			} {
				w := &writer{}
				serve.ServeDNS(w, question(t, asked))
				var r dns.Msg
				if err := r.Unpack(w.raw); err != nil {
					t.Errorf("%s: no answer: %v", asked, err)
					continue
				}
				if r.Rcode != dns.RcodeSuccess || want != "" && (len(r.Answer) != 1 || !strings.Contains(r.Answer[0].String(), want)) {
					t.Errorf("%s: %v", asked, &r)
				}
			}
		})
	}
}

// TestUnpackableReply checks that a reply that cannot be encoded is SERVFAIL at once, so the client
// does not wait.
func TestUnpackableReply(t *testing.T) {
	t.Parallel()
	query := question(t, cs+" A")
	query.SetEdns0(1232, false)
	r := answer(sampleStore(t).current.Load(), query)
	r.Answer = append(r.Answer, &dns.PTR{Hdr: dns.RR_Header{Name: cs, Rrtype: dns.TypePTR, Class: dns.ClassINET}, Ptr: "a..b."})
	raw, r := pack(query, r)
	var have dns.Msg
	if err := have.Unpack(raw); err != nil {
		t.Fatal(err)
	}
	if have.Rcode != dns.RcodeServerFailure || r.Rcode != have.Rcode || have.Id != query.Id || !have.Response || len(have.Question) != 1 || len(have.Answer) != 0 {
		t.Errorf("got %v", &have)
	}
}
