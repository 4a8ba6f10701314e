package feed

import (
	"context"
	"encoding/base64"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"os/signal"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"hawser.dev/hawser/internal/socket/nodepair"
	"hawser.dev/hawser/internal/trigger"
	"hawser.dev/hawser/nodeagent/model"
	"hawser.dev/hawser/schema/fabric"
)

func TestMain(m *testing.M) { os.Exit(nodepair.Main(m, runNode)) }

// runNode relays (gateway ADDR PRIVATE) or subscribes (node ADDR GATEWAY PUBLIC) over hw-vx0. The
// subscriber prints whether it is connected and knows cluster b.
func runNode(role []string) error {
	ctx, cancel := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer cancel()
	key, err := base64.StdEncoding.DecodeString(role[len(role)-1])
	if err != nil {
		return err
	}
	local := netip.MustParseAddr(role[1])
	config := Config{Timing: testTiming, Log: slog.New(slog.DiscardHandler)}
	if role[0] == "gateway" {
		s := NewServer(config)
		s.SetIdentity(Identity{Cluster: "a", Gateway: "gw", Keys: map[int]fabric.Secret{1: fabric.Secret(key)}})
		s.SetListen([]Listen{{Addr: netip.AddrPortFrom(local, 4805), Device: "hw-vx0"}})
		states := map[string]RemoteState{"b": {State: model.ClusterState{Cluster: "b"}}}
		if err := s.PublishRelay(states); err != nil {
			return err
		}
		return s.Run(ctx)
	}
	changed := trigger.New()
	config.OnChange = changed.Fire
	c := NewClient(config)
	c.SetIdentity(Identity{Cluster: "a", Node: "w1"})
	c.SetPeers([]Peer{{
		Cluster: "a", Gateway: "gw", Keys: map[int]PublicKey{1: PublicKey(key)}, Device: "hw-vx0",
		Addr: netip.AddrPortFrom(netip.MustParseAddr(role[2]), 4805), Source: local,
	}}, testClusters)
	done := make(chan error, 1)
	go func() { done <- c.Run(ctx) }()
	for {
		select {
		case <-ctx.Done():
			return <-done
		case <-changed:
			_, known := c.Snapshot()["b"]
			fmt.Println("connected", c.States()[0].Connected, "knows b", known)
		}
	}
}

func TestOverVXLAN(t *testing.T) {
	t.Parallel()
	p := nodepair.New(t)
	secret, public := newKeyPair(t)
	p.Start(0, "gateway "+p.IPv4[0]+" "+base64.StdEncoding.EncodeToString(secret[:]))
	lines := p.Start(1, "node "+p.IPv4[1]+" "+p.IPv4[0]+" "+base64.StdEncoding.EncodeToString(public[:]))
	nodepair.Await(t, lines, "connected true knows b true")
	p.IP(0, "link del hw-vx0")
	nodepair.Await(t, lines, "connected false knows b true")
	p.VXLAN(0)
	nodepair.Await(t, lines, "connected true knows b true")
}

// TestLostSYN loses the first packet of a connection, for example because a route is missing.
// Another socket connects instead of the same one a second later.
func TestLostSYN(t *testing.T) {
	t.Parallel()
	p := nodepair.New(t)
	secret, public := newKeyPair(t)
	p.Start(0, "gateway "+p.IPv4[0]+" "+base64.StdEncoding.EncodeToString(secret[:]))
	p.NFT(0, `table ip t {
		set lost { type inet_service; flags dynamic; size 16; }
		counter repeated { }
		counter served { }
		chain c {
			type filter hook input priority 0;
			iifname "hw-vx0" tcp dport 4805 tcp flags & (syn|ack) == syn jump first
		}
		chain first {
			tcp sport @lost counter name repeated
			quota until 70 bytes add @lost { tcp sport } drop
			counter name served
		}
	}`)
	lines := p.Start(1, "node "+p.IPv4[1]+" "+p.IPv4[0]+" "+base64.StdEncoding.EncodeToString(public[:]))
	nodepair.Await(t, lines, "connected true knows b true")
	list := p.NFT(0, "list", "table", "ip", "t")
	if strings.Count(list, "packets 0 bytes 0") != 1 || !regexp.MustCompile(`elements = \{ \d+ \}`).MatchString(list) {
		t.Errorf("want a lost SYN of one port, a connection from another port, and no second SYN of the first port:\n%s", list)
	}
}
