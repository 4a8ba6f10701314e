package conntrack

import (
	"context"
	"os"
	"strings"
	"testing"

	"hawser.dev/hawser/internal/netnstest"
)

// space is a network namespace that forwards packets, like a node.
type space struct {
	*netnstest.Space
	t testing.TB
}

func newSpace(t testing.TB) *space {
	t.Helper()
	s := &space{netnstest.New(t, "nft", "bridge"), t}
	for _, name := range []string{"ipv4/ip_forward=1", "ipv6/conf/all/forwarding=1", "ipv4/conf/all/rp_filter=0"} {
		key, value, _ := strings.Cut(name, "=")
		s.sysctl(key, value)
	}
	return s
}

func (s *space) sysctl(name, value string) {
	s.t.Helper()
	s.Inside(func() {
		if err := os.WriteFile("/proc/sys/net/"+name, []byte(value), 0o644); err != nil {
			s.t.Error(err)
		}
	})
}

// tunnel creates a veth pair between two namespaces.
func tunnel(a *space, nameA string, b *space, nameB string) {
	a.t.Helper()
	a.IP("link add " + nameA + " type veth peer name " + nameB + " netns " + b.Name)
	a.IP("link set " + nameA + " up")
	b.IP("link set " + nameB + " up")
}

// startSyncer starts a Syncer in the namespace. It ends with the test.
func (s *space) startSyncer(ctx context.Context, k *Syncer) {
	s.t.Helper()
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan error, 1)
	go s.Inside(func() { done <- k.Run(ctx) })
	s.t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			s.t.Error(err)
		}
	})
}
