package schema

import (
	"net/netip"
	"strings"
	"testing"
)

// annexed is a lock whose only cluster has pods mapped beside its block.
func annexed(t *testing.T) (*ClusterSet, *Lock) {
	t.Helper()
	top := world([]int{1}, nil)
	before, list := Allocate(top, nil)
	noErrors(t, list)
	c := &top.Spec.Clusters[0]
	c.PodCIDRs = append(c.PodCIDRs, netip.MustParsePrefix("10.200.0.0/15"), netip.MustParsePrefix("fd00:200::/48"))
	lock, list := Allocate(top, before)
	noErrors(t, list)
	if n := len(lock.clusters[c.Name].annexes); n == 0 || !lock.Mapped(top, c) {
		t.Fatalf("%d annexes:\n%s", n, marshal(t, lock))
	}
	for _, line := range strings.Split(marshal(t, before), "\n") {
		if !strings.Contains(marshal(t, lock), line) {
			t.Errorf("%q is no longer there", line)
		}
	}
	return top, lock
}

// TestAnnexGC: what is in use stays, and what left is free again.
func TestAnnexGC(t *testing.T) {
	t.Parallel()
	top, lock := annexed(t)
	if have := marshal(t, lock.GC(top)); have != marshal(t, lock) {
		t.Errorf("in use:\n%s", have)
	}
	c := &top.Spec.Clusters[0]
	c.PodCIDRs = c.PodCIDRs[:len(c.PodCIDRs)-2]
	if have := marshal(t, lock.GC(top).Forget(nil)); strings.Contains(have, "annexes") || strings.Contains(have, "10.200") {
		t.Errorf("left:\n%s", have)
	}
	if list := CheckLock(top, lock.GC(top)); len(list) > 0 {
		t.Errorf("check: %v", list)
	}
}

// TestAnnexPublished: what was published and not committed is carried on, and
// nobody else gets it.
func TestAnnexPublished(t *testing.T) {
	t.Parallel()
	top, lock := annexed(t)
	c := &top.Spec.Clusters[0]
	committed := lock.clone()
	committed.clusters[c.Name].annexes = nil
	for _, p := range c.PodCIDRs[len(c.PodCIDRs)-2:] {
		delete(committed.clusters[c.Name].mappings, p)
	}
	have, list := committed.Over(top, lock)
	if len(list) > 0 || marshal(t, have) != marshal(t, lock) {
		t.Errorf("carried on: %v\n%s", list, marshal(t, have))
	}
	other := committed.clone()
	other.cluster("other").blocks = lock.clone().clusters[c.Name].annexes
	if have, _ := other.Over(top, lock); len(have.clusters["other"].blocks) > 0 || !have.clusters[c.Name].mapped(c.PodCIDRs[len(c.PodCIDRs)-2]) {
		t.Errorf("taken:\n%s", marshal(t, have))
	}
}
