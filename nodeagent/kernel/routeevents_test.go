package kernel

import (
	"testing"
	"time"
)

// TestRouteEvents checks that every change of routes changes the stamp before the command that made
// the change returns.
func TestRouteEvents(t *testing.T) {
	t.Parallel()
	w := newTestNode(t)
	w.ip(t, "link add name va type veth peer name vb")
	w.ip(t, "link set vb up")
	now := time.Now()
	stamp := func() string {
		t.Helper()
		s, err := w.ns.events.stamp(now)
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	w.ip(t, "link set va up")
	for _, command := range []string{
		"addr add 192.0.2.1/24 dev va", "route add 198.51.100.0/24 dev va proto 73 table 7300 src 192.0.2.1",
		"route add 203.0.113.0/24 dev va proto 73 table 7300", "route change 203.0.113.0/24 dev va proto 73 table 7300 mtu 1300",
		"-6 route add fd00:1::/64 dev va proto 73 table 7300", "-6 route del fd00:1::/64 table 7300",
		"addr del 192.0.2.1/24 dev va", "link set va down", "link del va",
	} {
		before := stamp()
		w.ip(t, command)
		if after := stamp(); after == before {
			t.Errorf("%s: the stamp is %s before and after", command, after)
		}
	}
	before := stamp()
	now = now.Add(routeEventsTimeout)
	if after := stamp(); after == before {
		t.Errorf("the stamp %s never expires", after)
	}
}
