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
	scaleInterval = 250 * time.Millisecond // of the topology's defaults
	scaleMTU      = 1500 - 20 - 8 - 8 - 14 // inside VXLAN over IPv4
	scaleDevice   = "hw0"
	scaleAside    = "down0"
)

// scaleCast is what the process of the stand-ins reads.
type scaleCast struct {
	Addr   netip.Addr // of the gateway under test, inside the tunnels
	MAC    string     // its address on the overlay
	Keys   map[int]feed.PublicKey
	Others []fakeGateway
}

// fakeGateway is one of the others, as its process gets it.
type fakeGateway struct {
	Cluster, Gateway string
	Addr             netip.Addr // inside the tunnels
	Endpoint         netip.Addr
	Private          map[int][]byte
}

// scaleStandIns are the gateways of all other clusters, in one process: all that
// they say to the gateway under test, each with its own address and keys, by the
// agent's own packages. It ends with its standard input.
func scaleStandIns(ctx context.Context, in io.Reader) error {
	lines := bufio.NewReader(in)
	raw, err := lines.ReadBytes('\n')
	if err != nil {
		return fmt.Errorf("read cast: %w", err)
	}
	var cast scaleCast
	if err := json.Unmarshal(raw, &cast); err != nil {
		return fmt.Errorf("read cast: %w", err)
	}
	ctx, cancel := context.WithCancel(ctx)
	var wait sync.WaitGroup
	defer wait.Wait()
	defer cancel()
	for _, one := range cast.Others {
		for _, run := range cast.play(one) {
			wait.Go(func() { _ = run(ctx) }) // it ends with its context only
		}
	}
	_, _ = lines.ReadByte()
	return nil
}

// play makes all parts of one stand-in.
func (c scaleCast) play(one fakeGateway) []func(context.Context) error {
	log, wake := slog.New(slog.DiscardHandler), trigger.New()
	p := health.New(health.Config{
		Cluster: one.Cluster, Gateway: one.Gateway, Port: desired.ProbePort, Wake: wake,
		Settings: health.Settings{Interval: scaleInterval, Misses: 3},
	})
	p.SetListen([]health.Listen{{Addr: one.Addr}})
	p.SetReady(true)
	p.SetTargets([]health.Target{{Peer: health.GatewayID{Cluster: scaleOwn, Gateway: scaleGateway}, Source: one.Addr, Addr: c.Addr}})
	p.SetActiveLinks(map[string]model.Path{scaleOwn: {Local: one.Gateway, Remote: scaleGateway}})

	finder := pathmtu.New(pathmtu.Config{Port: desired.ProbePort, Log: log, Wake: wake})
	finder.Set(one.Cluster+"/"+one.Gateway, []netip.Addr{one.Addr}, []pathmtu.Link{{
		Peer: scaleOwn + "/" + scaleGateway, Source: one.Addr, Addr: c.Addr, MTU: scaleMTU, InUse: true,
	}})
	layer := transport.New(transport.Config{
		Port: desired.ProbePort, Log: log, Wake: wake, Machines: []transport.Protocol{p, finder},
	})

	own := []feed.Peer{{
		Cluster: scaleOwn, Gateway: scaleGateway, Keys: c.Keys, Source: one.Addr, Addr: netip.AddrPortFrom(c.Addr, desired.FeedPort),
	}}
	id := feed.Identity{Cluster: one.Cluster, Gateway: one.Gateway, Keys: map[int]fabric.Secret{}}
	for epoch, key := range one.Private {
		id.Keys[epoch] = fabric.Secret(key)
	}
	server, client := feed.NewServer(feed.Config{Log: log}), feed.NewClient(feed.Config{Log: log})
	server.SetIdentity(id)
	server.SetPeers(own)
	server.SetListen([]feed.Listen{{Addr: netip.AddrPortFrom(one.Addr, desired.FeedPort)}})
	_ = server.Publish(model.ClusterState{Cluster: one.Cluster}) // nothing is too large here
	client.SetIdentity(id)
	client.SetPeers(own)
	return []func(context.Context) error{layer.Run, server.Run, client.Run}
}

// stage gives a namespace all addresses of the others: one device of VXLAN takes
// what is for any of them, and each packet leaves from the endpoint of the one
// that sends it, by which the gateway under test knows it.
func (c scaleCast) stage(s *space) error {
	port := strconv.Itoa(51820 + fabric.VXLANOffset)
	script := "link add " + scaleDevice + " type vxlan id " + strconv.Itoa(desired.VXLANTunnelID) + " dstport " + port + " nolearning\n" +
		"link set " + scaleDevice + " mtu " + strconv.Itoa(scaleMTU) + " up\n" +
		"route add " + c.Addr.String() + " dev " + scaleDevice + "\n" +
		"neigh add " + c.Addr.String() + " lladdr " + c.MAC + " dev " + scaleDevice + "\n"
	if err := s.run(script, "ip", "-batch", "-"); err != nil {
		return err
	}
	if err := s.run("fdb add "+c.MAC+" dst "+scaleOwnWAN+" dev "+scaleDevice+"\n", "bridge", "-batch", "-"); err != nil {
		return err
	}
	// The inner source begins behind UDP 8, VXLAN 8, Ethernet 14 and 12 of IPv4.
	var senders []string
	for _, one := range c.Others {
		inner := one.Addr.As4()
		senders = append(senders, fmt.Sprintf("0x%x : %s", inner[:], one.Endpoint))
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
