package allocate

import (
	"net/netip"
	"strings"
	"testing"

	"hawser.dev/hawser/schema"
	"hawser.dev/hawser/schema/lockfile"
	"hawser.dev/hawser/schema/lockmerge"
)

// lockWithExtensions returns a lock with one cluster, whose pods are mapped outside of its block.
func lockWithExtensions(t *testing.T) (*schema.ClusterSet, *lockfile.Lock) {
	t.Helper()
	top := newTopology([]int{1}, nil)
	before, list := Allocate(top, nil)
	noErrors(t, list)
	c := &top.Spec.Clusters[0]
	c.PodCIDRs = append(c.PodCIDRs, netip.MustParsePrefix("10.200.0.0/15"), netip.MustParsePrefix("fd00:200::/48"))
	lock, list := Allocate(top, before)
	noErrors(t, list)
	if n := len(lock.Clusters[c.Name].ExtensionBlocks); n == 0 || !lock.Mapped(top, c) {
		t.Fatalf("%d extensions:\n%s", n, marshal(t, lock))
	}
	for _, line := range strings.Split(marshal(t, before), "\n") {
		if !strings.Contains(marshal(t, lock), line) {
			t.Errorf("%q is no longer there", line)
		}
	}
	return top, lock
}

// TestExtensionGC checks that used extension blocks stay, and that unused ones are freed.
func TestExtensionGC(t *testing.T) {
	t.Parallel()
	top, lock := lockWithExtensions(t)
	if have := marshal(t, lock.GC(top)); have != marshal(t, lock) {
		t.Errorf("in use:\n%s", have)
	}
	c := &top.Spec.Clusters[0]
	c.PodCIDRs = c.PodCIDRs[:len(c.PodCIDRs)-2]
	if have := marshal(t, lock.GC(top).PruneReleased(nil)); strings.Contains(have, "extensionBlocks") || strings.Contains(have, "10.200") {
		t.Errorf("left:\n%s", have)
	}
	if list := Check(top, lock.GC(top)); len(list) > 0 {
		t.Errorf("check: %v", list)
	}
}

// TestExtensionPublished checks that an extension block that is published but not committed stays
// with its cluster.
func TestExtensionPublished(t *testing.T) {
	t.Parallel()
	top, lock := lockWithExtensions(t)
	c := &top.Spec.Clusters[0]
	committed := lock.Clone()
	committed.Clusters[c.Name].ExtensionBlocks = nil
	for _, p := range c.PodCIDRs[len(c.PodCIDRs)-2:] {
		delete(committed.Clusters[c.Name].Mappings, p)
	}
	have, list := lockmerge.OntoPublished(committed, top, lock)
	if len(list) > 0 || marshal(t, have) != marshal(t, lock) {
		t.Errorf("retained: %v\n%s", list, marshal(t, have))
	}
	other := committed.Clone()
	other.Cluster("other").Blocks = lock.Clone().Clusters[c.Name].ExtensionBlocks
	if have, _ := lockmerge.OntoPublished(other, top, lock); len(have.Clusters["other"].Blocks) > 0 || !have.Clusters[c.Name].Mapped(c.PodCIDRs[len(c.PodCIDRs)-2]) {
		t.Errorf("taken:\n%s", marshal(t, have))
	}
}
