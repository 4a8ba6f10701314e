package kube

import (
	"net/netip"
	"testing"

	"hawser.dev/hawser/nodeagent/facts"
	"hawser.dev/hawser/nodeagent/kube/kubetest"
)

// TestLeave: connections from an address that the host holds stay, those from another
// are ended, and the watches go on over new ones.
func TestLeave(t *testing.T) {
	t.Parallel()
	server := kubetest.New(t)
	server.Put(t, node("gateway", "203.0.113.1"), service("sample", "web"), slice("sample", "web", "a", "10.7.0.1"))
	r := start(t, server, nil)
	r.Follow(testFabric(nil))
	r.await(t, "the server", serves("sample", "web", "10.7.0.1"))
	var own []netip.Addr
	if n := r.client.Leave(func(a netip.Addr) bool { own = append(own, a); return true }); n != 0 || len(own) == 0 || !own[0].IsLoopback() {
		t.Fatalf("left %d of the connections from %v", n, own)
	}
	if n := r.client.Leave(func(netip.Addr) bool { return false }); n != len(own) {
		t.Errorf("left %d of the connections from %v", n, own)
	}
	server.Put(t, slice("sample", "web", "a", "10.7.0.2"))
	r.await(t, "what came over a new connection", func(s facts.State) bool { return serves("sample", "web", "10.7.0.2")(s) && s.Err == nil })
}
