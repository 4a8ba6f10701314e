package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/netip"
	"strconv"
	"strings"
	"sync"
	"time"

	"hawser.dev/hawser/internal/trigger"
	"hawser.dev/hawser/nodeagent/desired"
	"hawser.dev/hawser/nodeagent/model"
	"hawser.dev/hawser/nodeagent/peer/feed"
	"hawser.dev/hawser/nodeagent/peer/health"
	"hawser.dev/hawser/nodeagent/peer/pathmtu"
	"hawser.dev/hawser/nodeagent/peer/transport"
	"hawser.dev/hawser/schema/fabric"
)

const (
	scaleInterval = 250 * time.Millisecond // the topology's default
	// scaleIdle is the share of the probes of a link without traffic, as of a gateway with as many links as
	// the one under test: 100 a second for all links, and one in four intervals.
	scaleIdle   = time.Second / 100 / 4
	scaleMTU    = 1500 - 20 - 8 - 8 - 14 // inside VXLAN over IPv4
	scaleDevice = "hw0"
	scaleAside  = "down0"
)

// scaleFakes is the input of the stand-ins' process.
type scaleFakes struct {
	Addr   netip.Addr // tunnel address of the gateway under test
	MAC    string     // its hardware address on the overlay
	Keys   map[int]feed.PublicKey
	Others []fakeGateway
}

// fakeGateway is one of the other gateways.
type fakeGateway struct {
	Cluster, Gateway string
	Addr             netip.Addr // tunnel address
	Endpoint         netip.Addr
	Private          map[int][]byte
}

// scaleStandIns acts as the gateways of all other clusters, in one process. Each sends its own
// probes and feed, with its own address and keys, through the agent's packages. It returns at the
// end of its input.
func scaleStandIns(ctx context.Context, in io.Reader) error {
	lines := bufio.NewReader(in)
	raw, err := lines.ReadBytes('\n')
	if err != nil {
		return fmt.Errorf("read the stand-ins: %w", err)
	}
	var fakes scaleFakes
	if err := json.Unmarshal(raw, &fakes); err != nil {
		return fmt.Errorf("read the stand-ins: %w", err)
	}
	ctx, cancel := context.WithCancel(ctx)
	var wait sync.WaitGroup
	defer wait.Wait()
	defer cancel()
	for _, fake := range fakes.Others {
		for _, run := range fakes.parts(fake) {
			wait.Go(func() { _ = run(ctx) }) // ends only with its context
		}
	}
	_, _ = lines.ReadByte()
	return nil
}

// parts returns the goroutines of one stand-in.
func (c scaleFakes) parts(fake fakeGateway) []func(context.Context) error {
	log, wake := slog.New(slog.DiscardHandler), trigger.New()
	p := health.New(health.Config{
		Cluster: fake.Cluster, Gateway: fake.Gateway, Port: desired.ProbePort, Wake: wake,
		Settings: health.Settings{Interval: max(scaleInterval, scaleIdle*time.Duration(len(c.Others))), Misses: 3},
	})
	p.SetListen([]health.Listen{{Addr: fake.Addr}})
	p.SetReady(true)
	p.SetTargets([]health.Target{{Peer: health.GatewayID{Cluster: scaleOwn, Gateway: scaleGateway}, Source: fake.Addr, Addr: c.Addr}})
	p.SetActiveLinks(map[string]model.Path{scaleOwn: {Local: fake.Gateway, Remote: scaleGateway}})

	finder := pathmtu.New(pathmtu.Config{Port: desired.ProbePort, Log: log, Wake: wake})
	finder.Set(fake.Cluster+"/"+fake.Gateway, []netip.Addr{fake.Addr}, []pathmtu.Link{{
		Peer: scaleOwn + "/" + scaleGateway, Source: fake.Addr, Addr: c.Addr, MTU: scaleMTU, InUse: true,
	}})
	layer := transport.New(transport.Config{
		Port: desired.ProbePort, Log: log, Wake: wake, Protocols: []transport.Protocol{p, finder},
	})

	own := []feed.Peer{{
		Cluster: scaleOwn, Gateway: scaleGateway, Keys: c.Keys, Source: fake.Addr, Addr: netip.AddrPortFrom(c.Addr, desired.FeedPort),
	}}
	id := feed.Identity{Cluster: fake.Cluster, Gateway: fake.Gateway, Keys: map[int]fabric.Secret{}}
	for epoch, key := range fake.Private {
		id.Keys[epoch] = fabric.Secret(key)
	}
	server, client := feed.NewServer(feed.Config{Log: log}), feed.NewClient(feed.Config{Log: log})
	server.SetIdentity(id)
	server.SetPeers(own)
	server.SetListen([]feed.Listen{{Addr: netip.AddrPortFrom(fake.Addr, desired.FeedPort)}})
	_ = server.Publish(model.ClusterState{Cluster: fake.Cluster}) // an empty state is never too large
	client.SetIdentity(id)
	client.SetPeers(own, nil)
	return []func(context.Context) error{layer.Run, server.Run, client.Run}
}

// configure adds the addresses of all others to a namespace. One VXLAN device receives the packets
// for all of them. Each packet leaves with the endpoint of its sender as its source, by which the
// gateway under test identifies it.
func (c scaleFakes) configure(s *space) error {
	port := strconv.Itoa(51820 + fabric.VXLANOffset)
	script := "link add " + scaleDevice + " type vxlan id " + strconv.Itoa(desired.TunnelVNI) + " dstport " + port + " nolearning\n" +
		"link set " + scaleDevice + " mtu " + strconv.Itoa(scaleMTU) + " up\n" +
		"route add " + c.Addr.String() + " dev " + scaleDevice + "\n" +
		"neigh add " + c.Addr.String() + " lladdr " + c.MAC + " dev " + scaleDevice + "\n"
	if err := s.run(script, "ip", "-batch", "-"); err != nil {
		return err
	}
	if err := s.run("fdb add "+c.MAC+" dst "+scaleOwnWAN+" dev "+scaleDevice+"\n", "bridge", "-batch", "-"); err != nil {
		return err
	}
	// Offset of the inner source address: UDP 8, VXLAN 8, Ethernet 14, IPv4 12 bytes.
	var senders []string
	for _, fake := range c.Others {
		inner := fake.Addr.As4()
		senders = append(senders, fmt.Sprintf("0x%x : %s", inner[:], fake.Endpoint))
	}
	return s.run(`table ip standin {
  chain out {
    type filter hook postrouting priority 0
    udp dport `+port+` ip saddr set @th,336,32 map { `+strings.Join(senders, ", ")+` }
  }
}
table netdev standin {
  chain in {
    type filter hook ingress device `+scaleDevice+` priority 0
    meta pkttype set host
  }
}
`, "nft", "-f", "-")
}
