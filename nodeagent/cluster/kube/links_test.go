package kube

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"hawser.dev/hawser/nodeagent/cluster/kube/kubetest"
)

func linked(rtt int64, loss int) NodeStatus {
	s := gatewayStatus()
	s.LinkStates = []LinkState{
		{Gateway: "a", RemoteCluster: "g2", RemoteGateway: "a", State: LinkUp, Active: true, RTT: rtt, Loss: loss},
		{Gateway: "a", RemoteCluster: "g3", RemoteGateway: "a", State: LinkDown},
	}
	return s
}

// TestSuppressNoise checks that small or early changes of measurements cause no write. Any other
// change causes a write.
func TestSuppressNoise(t *testing.T) {
	t.Parallel()
	change := func(s NodeStatus, f func(*LinkState)) NodeStatus { f(&s.LinkStates[0]); return s }
	for _, tt := range []struct {
		name          string
		written, want NodeStatus
		since         time.Duration
		write         bool
	}{
		{"the same", linked(10_000, 0), linked(10_000, 0), time.Hour, false},
		{"jitter", linked(10_000, 0), linked(11_500, 10), time.Hour, false},
		{"jitter of a fast link", linked(200, 0), linked(600, 0), time.Hour, false},
		{"twice the time, at once", linked(10_000, 0), linked(20_000, 0), 59 * time.Second, false},
		{"twice the time", linked(10_000, 0), linked(20_000, 0), time.Minute, true},
		{"half the time", linked(10_000, 0), linked(5_000, 0), time.Minute, true},
		{"loss, at once", linked(10_000, 0), linked(10_000, 100), 59 * time.Second, false},
		{"loss", linked(10_000, 0), linked(10_000, 100), time.Minute, true},
		{"no loss again", linked(10_000, 100), linked(10_000, 0), time.Minute, true},
		{"the first measurement", linked(0, 0), linked(300, 0), 0, true},
		{"down", linked(10_000, 0), change(linked(10_000, 0), func(l *LinkState) { l.State = LinkDown }), 0, true},
		{"no longer active", linked(10_000, 0), change(linked(10_000, 0), func(l *LinkState) { l.Active = false }), 0, true},
		{"another link instead", linked(10_000, 0), change(linked(10_000, 0), func(l *LinkState) { l.RemoteCluster = "g4" }), 0, true},
		{"one link less", linked(10_000, 0), NodeStatus{}, 0, true},
	} {
		if write := !cmp.Equal(tt.written, suppressNoise(tt.written, tt.want, tt.since)); write != tt.write {
			t.Errorf("%s: written is %t, want %t", tt.name, write, tt.write)
		}
	}
}

// TestQuiet checks that new measurements of unchanged links cause no writes. A change is written
// with the latest measurements.
func TestQuiet(t *testing.T) {
	t.Parallel()
	server := kubetest.New(t)
	r, source := reporting(t, server, linked(10_000, 0))
	reads := 0
	r.nodeStatus = func() NodeStatus {
		source.set(func(s *NodeStatus) {
			reads++
			s.LinkStates = slices.Clone(s.LinkStates)
			s.LinkStates[0].RTT, s.LinkStates[0].Loss = 5_000+rand.Int64N(20_000), rand.IntN(300)
		})
		return source.get()
	}
	count := func() int { source.mu.Lock(); defer source.mu.Unlock(); return reads }
	run(t, r)
	eventually(t, "the object", func() bool {
		return server.Get("hawsernodes", "n1") != nil && field(server.Get("hawsernodes", "n1"), "status", "fabric") == "abc"
	})
	before, from := len(server.Writes()), count()
	eventually(t, "reads", func() bool { return count() > from+100 })
	if writes := len(server.Writes()) - before; writes != 0 {
		t.Errorf("%d writes for %d reads of links with new measurements", writes, count()-from)
	}
	source.set(func(s *NodeStatus) {
		s.LinkStates = slices.Clone(s.LinkStates)
		s.LinkStates[1].State = LinkUp
	})
	eventually(t, "the change", func() bool { return len(server.Writes()) > before })
}

// TestListLinks checks that a HawserNode has at most MaxLinks links in order, and that it omits the
// least important links.
func TestListLinks(t *testing.T) {
	t.Parallel()
	var links []LinkState
	for i := range 2000 {
		l := LinkState{Gateway: "gateway-with-a-long-name", RemoteCluster: fmt.Sprintf("a-cluster-with-a-long-name-%04d", i), RemoteGateway: "gateway-with-a-long-name", State: LinkUp, RTT: 123_456, Loss: 12}
		switch {
		case i%40 == 1:
			l.State = LinkDown
		case i%10 == 2:
			l.Active = true
		}
		links = append(links, l)
	}
	rand.Shuffle(len(links), func(i, j int) { links[i], links[j] = links[j], links[i] })
	have := ListLinks(links)
	count := map[string]int{}
	for _, l := range have {
		switch {
		case l.State == LinkDown:
			count["down"]++
		case l.Active:
			count["active"]++
		}
	}
	sorted := slices.IsSortedFunc(have, func(a, b LinkState) int { return strings.Compare(a.RemoteCluster, b.RemoteCluster) })
	if len(have) != MaxLinks || count["down"] != 50 || count["active"] != 200 || !sorted {
		t.Errorf("%d links, %v, in order: %t", len(have), count, sorted)
	}
	raw, err := json.Marshal(NodeStatus{LinkStates: have})
	if err != nil || len(raw) > 128<<10 {
		t.Errorf("%d bytes, %v", len(raw), err)
	}
	t.Logf("%d bytes for %d links", len(raw), len(have))
	if few := ListLinks(links[:3]); len(few) != 3 {
		t.Errorf("of three links %d are listed", len(few))
	}
}

// TestNodes checks that one list and one watch follow the HawserNodes. While the server is
// unreachable the last status stays, with an error.
func TestNodes(t *testing.T) {
	t.Parallel()
	server := kubetest.New(t)
	object := func(name, status string) string {
		return "apiVersion: hawser.dev/v1alpha1\nkind: HawserNode\nmetadata: {name: " + name + "}\nstatus: " + status
	}
	server.Put(t, object("n1", "{cluster: g1, role: gateway, linkStates: [{gateway: a, remoteCluster: g2, remoteGateway: b, state: Up, active: true, rttMicroseconds: 1200, lossPerMille: 3}]}"),
		object("n2", "{cluster: g1, role: worker}"), object("odd", "{cluster: [g1]}"))
	client, err := Open(Config{Kubeconfig: server.Kubeconfig(t)})
	if err != nil {
		t.Fatal(err)
	}
	n := NewNodes(client)
	if _, err := n.Current(); err == nil {
		t.Error("no error before the first list")
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); n.Run(ctx) }()
	t.Cleanup(func() { cancel(); <-done })
	eventually(t, "the nodes", func() bool { _, err := n.Current(); return err == nil })
	status, _ := n.Current()
	want := map[string]NodeStatus{"n2": {Cluster: "g1", Role: Worker}, "n1": {Cluster: "g1", Role: Gateway, LinkStates: []LinkState{
		{Gateway: "a", RemoteCluster: "g2", RemoteGateway: "b", State: LinkUp, Active: true, RTT: 1200, Loss: 3}}}}
	if diff := cmp.Diff(want, status); diff != "" {
		t.Errorf("-want +have:\n%s", diff)
	}
	server.Put(t, object("n2", "{cluster: g1, role: worker, version: v2}"))
	eventually(t, "a change", func() bool { status, _ := n.Current(); return status["n2"].Version == "v2" })
	server.Delete("hawsernodes", "n2")
	eventually(t, "a deleted node", func() bool { status, _ := n.Current(); return len(status) == 1 })
	for _, request := range server.Requests() {
		if !strings.Contains(request, "/apis/hawser.dev/v1alpha1/hawsernodes") {
			t.Errorf("request %s", request)
		}
	}
	server.SetUnreachable(true)
	eventually(t, "an error for the unreachable server", func() bool { status, err := n.Current(); return err != nil && len(status) == 1 })
	server.SetUnreachable(false)
	eventually(t, "the server", func() bool { _, err := n.Current(); return err == nil })
}
