package dns

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/miekg/dns"

	"hawser.dev/hawser/internal/diff"
	"hawser.dev/hawser/nodeagent/desired"
)

// converge makes one pass with one kind, like the engine.
func converge[S diff.Spec](t *testing.T, want []S, kind interface {
	Observe(context.Context) ([]S, error)
	Apply(context.Context, []diff.Change[S]) error
}) int {
	t.Helper()
	have, err := kind.Observe(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	changes, err := diff.Compute(want, have)
	if err != nil {
		t.Fatal(err)
	}
	if err := kind.Apply(context.Background(), changes); err != nil {
		t.Fatal(err)
	}
	return len(changes)
}

func randomServices(r *rand.Rand) []desired.Service {
	var out []desired.Service
	for i := range 40 {
		if r.IntN(3) == 0 {
			continue
		}
		s := desired.Service{Namespace: fmt.Sprintf("ns%d", i%5), Name: fmt.Sprintf("s%d", i), Headless: i%2 == 0}
		if s.Headless {
			host := desired.ServiceHost{IPs: []netip.Addr{netip.AddrFrom4([4]byte{242, 0, 0, byte(r.IntN(20))})}}
			s.Clusters = []desired.ServiceCluster{{Name: "g1", Hosts: []desired.ServiceHost{host}}}
		} else {
			s.VIPs = []netip.Addr{netip.AddrFrom4([4]byte{243, 0, 0, byte(i)})}
		}
		out = append(out, s)
	}
	return out
}

// TestApplyEqualsAFreshStore checks that after any history the store equals a new store with only
// the last state.
func TestApplyEqualsAFreshStore(t *testing.T) {
	t.Parallel()
	for seed := range uint64(30) {
		r := rand.New(rand.NewPCG(seed, 5))
		s := NewStore()
		var want []desired.Service
		for range 5 {
			want = randomServices(r)
			converge(t, want, s.Services())
			if again := converge(t, want, s.Services()); again != 0 {
				t.Fatalf("seed %d: %d changes in a second pass", seed, again)
			}
		}
		fresh := NewStore()
		converge(t, want, fresh.Services())
		have, expect := contents(s), contents(fresh)
		if d := cmp.Diff(expect, have); d != "" {
			t.Fatalf("seed %d (-fresh +store):\n%s", seed, d)
		}
		converge(t, nil, s.Services())
		if left := contents(s); len(left) != 0 {
			t.Fatalf("seed %d: %v is left", seed, left)
		}
	}
}

func contents(s *Store) map[string]string {
	out := map[string]string{}
	now := s.current.Load()
	for key, service := range now.services.all {
		out["service "+key] = fmt.Sprint(service.spec.Fields())
	}
	for namespace, count := range now.namespaces.all {
		out["namespace "+namespace] = fmt.Sprint(count)
	}
	for addr, owners := range now.reverse.all {
		out["reverse "+addr.String()] = fmt.Sprint(owners)
	}
	return out
}

func TestApplyLeavesReadersTheirSnapshot(t *testing.T) {
	t.Parallel()
	s := sampleStore(t)
	before := s.current.Load()
	converge(t, nil, s.Services())
	if r := answer(before, question(t, cs+" A")); len(r.Answer) != 1 {
		t.Error("an old snapshot changed")
	}
	if r := answer(s.current.Load(), question(t, cs+" A")); r.Rcode != dns.RcodeNameError {
		t.Error("the service was not removed")
	}
}

func TestZonesConverge(t *testing.T) {
	t.Parallel()
	s := NewStore()
	zones := []desired.Zone{{Domain: "local"}, {Domain: "clusterset.local"}, {Domain: "a.example"}}
	converge(t, zones, s.Zones())
	zones[1].Serial = 9
	if n := converge(t, zones, s.Zones()); n != 1 {
		t.Errorf("%d changes, want 1", n)
	}
	r := answer(s.current.Load(), question(t, "x.clusterset.local. A"))
	if len(r.Ns) != 1 || r.Ns[0].(*dns.SOA).Serial != 9 || r.Ns[0].Header().Name != "clusterset.local." {
		t.Errorf("the closest zone did not answer: %v", r.Ns)
	}
	if r := answer(s.current.Load(), question(t, "ns.dns.local. A")); r.Rcode != dns.RcodeSuccess || len(r.Answer) != 0 {
		t.Errorf("the address of the server is unknown, but the reply is %v", r)
	}
	converge(t, zones[:1], s.Zones())
	if have := s.current.Load().zones; len(have) != 1 {
		t.Errorf("%d zones, want 1", len(have))
	}
}

func TestTable(t *testing.T) {
	t.Parallel()
	table := newTable[int, int]()
	e := table.edit()
	for i := range 2000 {
		e.set(i, i)
	}
	full := e.persistentMap
	e = full.edit()
	for i := range 1000 {
		e.remove(i)
	}
	var keys []int
	for k := range e.all {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	if len(keys) != 1000 || keys[0] != 1000 {
		t.Errorf("%d keys from %d on", len(keys), keys[0])
	}
	if _, known := full.get(5); !known {
		t.Error("an edit changed the table that it came from")
	}
}

func BenchmarkApplyOneOf10000(b *testing.B) {
	s := NewStore()
	var all []desired.Service
	for i := range 10000 {
		vip := netip.AddrFrom4([4]byte{243, 0, byte(i >> 8), byte(i)})
		all = append(all, desired.Service{Namespace: "ns", Name: fmt.Sprintf("s%d", i), VIPs: []netip.Addr{vip}})
	}
	if err := s.Services().Apply(context.Background(), create(all...)); err != nil {
		b.Fatal(err)
	}
	change := create(all[77])
	for b.Loop() {
		if err := s.Services().Apply(context.Background(), change); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkAnswer(b *testing.B) {
	snapshot := sampleStore(b).current.Load()
	for _, asked := range []string{cs + " A", ss + " A", "_http._tcp." + cs + " SRV", "x." + cs + " A"} {
		b.Run(asked, func(b *testing.B) {
			query := question(b, asked)
			query.SetEdns0(1232, false)
			b.ReportAllocs()
			for b.Loop() {
				if answer(snapshot, query) == nil {
					b.Fatal("no answer")
				}
			}
		})
	}
}

func FuzzAnswer(f *testing.F) {
	for _, tt := range cases {
		raw, err := question(f, tt.query).Pack()
		if err != nil {
			f.Fatal(err)
		}
		f.Add(raw)
	}
	snapshot := sampleStore(f).current.Load()
	f.Fuzz(func(t *testing.T, raw []byte) {
		query := new(dns.Msg)
		if query.Unpack(raw) != nil {
			return
		}
		r := answer(snapshot, query)
		if r == nil {
			if !query.Response {
				t.Fatal("no reply to a query")
			}
			return
		}
		size := limit(query, "udp")
		truncate(r, size)
		packed, err := r.Pack()
		if err != nil {
			t.Fatalf("reply to %v does not pack: %v", query, err)
		}
		if r.Id != query.Id || !r.Response || r.RecursionAvailable || len(packed) > size && len(query.Question) < 2 {
			t.Fatalf("reply of %d bytes to %v: %v", len(packed), query, r)
		}
	})
}
