package dns

import (
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/miekg/dns"

	"hawser.dev/hawser/nodeagent/desired"
)

// bigStore has the headless service big with a number of hosts, each with its own ports: the
// most expensive announcement of another cluster.
func bigStore(t testing.TB, hosts int) *Store {
	t.Helper()
	s := NewStore()
	zone := desired.Zone{Domain: "clusterset.local", ClusterNames: true}
	if err := s.Zones().Apply(context.Background(), create(zone)); err != nil {
		t.Fatal(err)
	}
	svc := desired.Service{Namespace: "sample", Name: "big", Headless: true, Clusters: []desired.ServiceCluster{{Name: "g2"}}}
	own := map[string]int{}
	for port := 1; port <= 256; port++ {
		svc.Ports = append(svc.Ports, desired.ServicePort{Name: fmt.Sprintf("p%d", port), Protocol: "TCP", Port: port})
		own[fmt.Sprintf("TCP/%d", port)] = 8080 // one number: one record for 256 ports
	}
	a := netip.MustParseAddr("242.2.0.1")
	for i := range hosts {
		svc.Clusters[0].Hosts = append(svc.Clusters[0].Hosts, desired.ServiceHost{Name: fmt.Sprintf("pod-%d", i), IPs: []netip.Addr{a}, Ports: own})
		a = a.Next()
	}
	if err := s.Services().Apply(context.Background(), create(svc)); err != nil {
		t.Fatal(err)
	}
	return s
}

// TestAnswersCostWhatFits checks that a reply is built from the records that fit, not from all
// hosts of a name. The test counts allocations, which do not depend on the machine.
func TestAnswersCostWhatFits(t *testing.T) {
	few, many := bigStore(t, 5_000), bigStore(t, 50_000)
	for _, name := range []string{"big.sample.svc.clusterset.local. A", "big.sample.svc.clusterset.local. SRV",
		"_p1._tcp.big.sample.svc.clusterset.local. SRV", "g2.big.sample.svc.clusterset.local. A"} {
		for _, size := range []int{udpSize, dns.MaxMsgSize} {
			query := question(t, name)
			r := answerWithin(many.current.Load(), query, size)
			// At most one record more than fits: it makes truncate mark the reply.
			least := minRecord + 4
			if built := len(r.Answer); built == 0 || built > size/least+1 {
				t.Errorf("%s: %d records for %d bytes", name, built, size)
			}
			if truncate(r, size); !r.Truncated || len(r.Answer) == 0 {
				t.Errorf("%s, %d bytes: truncated %t, %d records", name, size, r.Truncated, len(r.Answer))
			}
			cost := func(s *Store) float64 {
				return testing.AllocsPerRun(5, func() { answerWithin(s.current.Load(), query, size) })
			}
			if a, b := cost(few), cost(many); b > a+10 {
				t.Errorf("%s, %d bytes: %.0f allocations of 5,000 hosts, %.0f of 50,000", name, size, a, b)
			}
		}
	}
}

// TestReverseIsBounded checks that the PTR reply is bounded, although many services have the same
// address.
func TestReverseIsBounded(t *testing.T) {
	s := bigStore(t, 1)
	for i := range 5000 {
		svc := desired.Service{Namespace: "sample", Name: fmt.Sprintf("s%d", i), VIPs: []netip.Addr{netip.MustParseAddr("243.0.0.9")}}
		if err := s.Services().Apply(context.Background(), create(svc)); err != nil {
			t.Fatal(err)
		}
	}
	r := answerWithin(s.current.Load(), question(t, "9.0.0.243.in-addr.arpa. PTR"), udpSize)
	if built := len(r.Answer); built == 0 || built > udpSize/minRecord+1 {
		t.Errorf("%d records", built)
	}
}

// TestAllHostsGetUsed checks that each truncated reply starts at a different host, so all hosts are
// in equally many replies.
func TestAllHostsGetUsed(t *testing.T) {
	const hosts = 1000
	s := bigStore(t, hosts)
	for _, qtype := range []uint16{dns.TypeA, dns.TypeSRV} {
		used := map[string]int{}
		for id := range 2 * hosts {
			m := new(dns.Msg)
			m.SetQuestion("big.sample.svc.clusterset.local.", qtype)
			m.Id = uint16(id)
			r := answerWithin(s.current.Load(), m, udpSize)
			truncate(r, udpSize)
			for _, rr := range r.Answer {
				switch rr := rr.(type) {
				case *dns.A:
					used[rr.A.String()]++
				case *dns.SRV:
					used[rr.Target]++
				}
			}
		}
		least, most := 1<<30, 0
		for _, n := range used {
			least, most = min(least, n), max(most, n)
		}
		if len(used) != hosts || 2*least < most {
			t.Errorf("%s: %d hosts used, from %d to %d times", dns.TypeToString[qtype], len(used), least, most)
		}
	}
}

// TestConnectionEndsGracefully checks that a client that sends more queries than one connection
// accepts gets all replies before the end, and no reset.
func TestConnectionEndsGracefully(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	packets, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	stream, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	config := Config{Store: bigStore(t, 1), Log: slog.New(slog.DiscardHandler)}
	go func() { done <- serve(ctx, config, packets, lingeringListener{stream}) }()
	conn, err := net.Dial("tcp", stream.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	_ = conn.SetDeadline(time.Now().Add(20 * time.Second))
	var all []byte
	for range maxQueries + 100 {
		raw, err := question(t, "big.sample.svc.clusterset.local. A").Pack()
		if err != nil {
			t.Fatal(err)
		}
		all = append(binary.BigEndian.AppendUint16(all, uint16(len(raw))), raw...)
	}
	if _, err := conn.Write(all); err != nil {
		t.Fatal(err)
	}
	answers := 0
	for {
		var size [2]byte
		if _, err := io.ReadFull(conn, size[:]); err != nil {
			if err != io.EOF {
				t.Errorf("after %d answers: %v", answers, err)
			}
			break
		}
		if _, err := io.CopyN(io.Discard, conn, int64(binary.BigEndian.Uint16(size[:]))); err != nil {
			t.Fatal(err)
		}
		answers++
	}
	if answers != maxQueries {
		t.Errorf("%d answers, want %d", answers, maxQueries)
	}
	_ = conn.Close()
	cancel()
	<-done
}
