package conntrack

import (
	"context"
	"encoding/binary"
	"net/netip"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// insert creates conntrack entries for flows of the pod: even numbers to the export, odd
// numbers elsewhere.
func (s *space) insert(flows int, to func(i int) netip.AddrPort) {
	s.t.Helper()
	s.Inside(func() {
		socket, err := nl.Subscribe(unix.NETLINK_NETFILTER)
		if err != nil {
			s.t.Error(err)
			return
		}
		defer socket.Close()
		for i := range flows {
			pod := netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 7, byte(1 + i>>16), byte(1 + i>>12&15)}), uint16(10_000+i&0xfff))
			f := Flow{Protocol: unix.IPPROTO_TCP, Orig: Tuple{pod, netip.MustParseAddrPort("243.0.0.1:80")}, Reply: Tuple{to(i), pod}}
			request := nl.NewNetlinkRequest(unix.NFNL_SUBSYS_CTNETLINK<<8|msgNew, unix.NLM_F_CREATE)
			request.AddData(&nl.Nfgenmsg{NfgenFamily: unix.AF_INET, Version: nl.NFNETLINK_V0})
			request.AddRawData(f.encode())
			if err := socket.Send(request); err != nil {
				s.t.Error(err)
				return
			}
		}
	})
}

// encode returns the attributes of a new entry.
func (f *Flow) encode() []byte {
	name := f.entryAttributes()
	orig := name[:len(name)-8] // without the identifier
	back := Flow{Protocol: f.Protocol, Orig: f.Reply}
	reply := back.entryAttributes()
	reply = reply[:len(reply)-8]
	binary.NativeEndian.PutUint16(reply[2:], unix.NLA_F_NESTED|ctaTupleReply)
	out := append(append([]byte{}, orig...), reply...)
	out = append(out, attribute(ctaStatus, binary.BigEndian.AppendUint32(nil, 1<<3|statusSeenReply|statusAssured))...)
	out = append(out, attribute(ctaTimeout, binary.BigEndian.AppendUint32(nil, 1000))...)
	state := attribute(unix.NLA_F_NESTED|ctaProtoInfoTCP, attribute(ctaTCPState, []byte{tcpEstablished}))
	return append(out, attribute(unix.NLA_F_NESTED|ctaProtoInfo, state)...)
}

// count returns the number of conntrack entries.
func (s *space) count() (n int) {
	s.t.Helper()
	s.Inside(func() {
		raw, err := os.ReadFile("/proc/sys/net/netfilter/nf_conntrack_count")
		if err == nil {
			n, err = strconv.Atoi(strings.TrimSpace(string(raw)))
		}
		if err != nil {
			s.t.Error(err)
		}
	})
	return n
}

// TestMany refreshes ten thousand of twenty thousand flows: the gateway then has an entry for
// each, with the shared source.
func TestMany(t *testing.T) {
	t.Parallel()
	const all, moved = 20_000, 10_000
	r := newTestNetwork(t)
	r.node.insert(all, func(i int) netip.AddrPort {
		if i%2 == 0 {
			return netip.MustParseAddrPort("242.2.0.32:80")
		}
		return netip.MustParseAddrPort("242.9.0.32:80")
	})
	if n := r.node.count(); n < all {
		t.Fatalf("the node has %d entries, want %d", n, all)
	}
	k := r.syncer()
	k.PathMoved("g2", remotePrefixes)
	begin := time.Now()
	stats := r.node.runDue(k, begin)
	t.Logf("%d refresh packets took %s", stats.Sent, time.Since(begin))
	if stats.Sent != moved || stats.Failed != 0 || stats.Skipped != 0 {
		t.Fatalf("stats %+v, want %d refresh packets", stats, moved)
	}
	known := 0
	for _, f := range r.a.flows() {
		if f.Reply.To.Addr() == netip.MustParseAddr(sharedIP) {
			known++
		}
	}
	if known != moved {
		t.Errorf("the gateway learned %d flows, want %d", known, moved)
	}
}

// TestOtherHost sends nothing if the route does not use the device between nodes, or is a
// blackhole.
func TestOtherHost(t *testing.T) {
	t.Parallel()
	r := newTestNetwork(t)
	r.open("tcp4")
	for _, route := range []string{"route replace 242.2.0.0/16 dev pod0", "route replace blackhole 242.2.0.0/16"} {
		r.node.IP("route del 242.2.0.0/16", route)
		k := r.syncer()
		k.PathMoved("g2", remotePrefixes)
		if stats := r.node.runDue(k, time.Now()); stats.Sent != 0 || stats.Failed != 0 || stats.Rounds != 1 {
			t.Errorf("%s: stats %+v, want a round without a refresh packet", route, stats)
		}
	}
}

// TestRun checks that Run works when due, and returns when ctx is done.
func TestRun(t *testing.T) {
	t.Parallel()
	r := newTestNetwork(t)
	s := r.open("tcp4")
	r.move("b")
	k := r.syncer()
	r.node.startSyncer(context.Background(), k)
	k.PathMoved("g2", remotePrefixes)
	s.push("through b")
	if !s.receives("through b", testTimeout) {
		t.Error("no refresh packet was sent")
	}
}

// BenchmarkList reads 100 000 entries without a match.
func BenchmarkList(b *testing.B) {
	s := newSpace(b)
	s.insert(100_000, func(int) netip.AddrPort { return netip.MustParseAddrPort("242.9.0.32:80") })
	if n := s.count(); n < 100_000 {
		b.Fatalf("only %d entries", n)
	}
	moves := []*pathMove{{cluster: "g2", prefixes: remotePrefixes}}
	b.ReportAllocs()
	for b.Loop() {
		s.Inside(func() {
			if flows, _, err := findIdleFlows(b.Context(), time.Now(), moves); err != nil || len(flows) > 0 {
				b.Fatal(flows, err)
			}
		})
	}
}

// FuzzParse feeds the decoder of conntrack messages.
func FuzzParse(f *testing.F) {
	pod := netip.MustParseAddrPort("10.7.1.5:4000")
	flow := Flow{Protocol: unix.IPPROTO_TCP, Orig: Tuple{pod, netip.MustParseAddrPort("243.0.0.1:80")}, Reply: Tuple{netip.MustParseAddrPort("242.2.0.32:80"), pod}}
	whole := append([]byte{unix.AF_INET, 0, 0, 0}, flow.encode()...)
	f.Add(whole)
	f.Add(whole[:30])
	f.Add([]byte{2, 0, 0, 0, 3, 0, 1, 0})
	if got, ok := parse(whole); !ok || got.Orig != flow.Orig || got.Reply != flow.Reply || got.State != tcpEstablished || got.ExpiresIn != 1000*time.Second {
		f.Fatalf("parsed %+v %v", got, ok)
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		if got, ok := parse(raw); ok {
			buildRefresh(got.Protocol, Tuple{got.Reply.To, got.Reply.From}, refreshTTL)
			got.entryAttributes()
		}
	})
}
