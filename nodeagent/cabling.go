package nodeagent

import (
	"encoding/json"
	"errors"
	"log/slog"
	"os"
	"slices"
	"strings"

	"hawser.dev/hawser/internal/atomicfile"
	"hawser.dev/hawser/nodeagent/cable"
	"hawser.dev/hawser/nodeagent/change"
	"hawser.dev/hawser/nodeagent/converge"
	"hawser.dev/hawser/nodeagent/desired"
	"hawser.dev/hawser/nodeagent/project"
	"hawser.dev/hawser/nodeagent/status"
	"hawser.dev/hawser/schema/fabric"
)

// cabling changes the cables of this gateway's pairs.
type cabling struct {
	*change.Exchange
	cluster string
	aside   func(peer string) bool // a pair should go over a second cable for now
}

func newCabling(config Config, log *slog.Logger, look func()) *cabling {
	path := config.statePath("cables.json")
	return &cabling{cluster: config.Cluster, Exchange: change.New(change.Config{
		Port: desired.CablePort, Log: log, Kept: keptCables(path, log), OnChange: look,
		Keep: func(kept map[string]change.Kept) error {
			raw, err := json.Marshal(kept)
			if err != nil {
				return err
			}
			return atomicfile.Write(path, raw, 0o600)
		},
	})}
}

// keptCables reads what the run before kept; nothing when that cannot be read.
func keptCables(path string, log *slog.Logger) map[string]change.Kept {
	var kept map[string]change.Kept
	raw, err := os.ReadFile(path)
	if err == nil {
		err = json.Unmarshal(raw, &kept)
	}
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		log.Warn("cables of the run before not read", "err", err)
		return nil
	}
	for name, k := range kept {
		for i, c := range k.Cables {
			k.Cables[i] = dated(c)
		}
		k.Use = dated(k.Use)
		kept[name] = k
	}
	return kept
}

// dated gives a cable that an agent from before there were epochs kept the only
// one that there was.
func dated(c change.Cable) change.Cable {
	if c.Epoch == 0 && keyed(c.Driver) {
		c.Epoch = 1
	}
	return c
}

// keyed reports whether a driver's cables have keys, and so epochs.
func keyed(driver string) bool {
	d := cable.Named(driver)
	return d != nil && d.Traits().Keys != ""
}

// follow tells of the pairs that the prober probes, and gives the cables of those
// that change theirs.
func (c *cabling) follow(f *fabric.Fabric, keys *fabric.Keys, p probing) map[string][]project.Cable {
	self := c.cluster + "/" + p.gateway
	var peers []change.Peer
	for _, t := range p.targets {
		want, ok := c.want(f, keys, p.gateway, t.Peer.Cluster, t.Peer.Gateway)
		if t.Device == "" && ok {
			peers = append(peers, change.Peer{
				Name: t.Peer.String(), Want: want, Keys: c.keys(f, keys, p.gateway, t.Peer.Cluster, t.Peer.Gateway), Aside: c.aside(t.Peer.String()),
				Source: t.Source, Addr: t.Addr,
			})
		}
	}
	if p.gateway == "" {
		self = ""
	}
	c.Set(self, peers)
	out := map[string][]project.Cable{}
	for peer, cables := range c.Cables() {
		for _, one := range cables {
			out[peer] = append(out[peer], turned(self, peer, one))
		}
	}
	return out
}

// want is the cable that the fabric says.
func (c *cabling) want(f *fabric.Fabric, keys *fabric.Keys, gateway, cluster, remote string) (change.Cable, bool) {
	a, b := f.Cluster(c.cluster).Gateway(gateway), f.Cluster(cluster).Gateway(remote)
	if a == nil || b == nil {
		return change.Cable{}, false
	}
	is := project.CableOf(f.Link(c.cluster, cluster), f.Epochs, keys, a, b)
	if d := cable.Named(is.Driver); d != nil && d.Traits().Fixed {
		return change.Cable{Driver: is.Driver, Epoch: is.Epoch}, true
	}
	return turnedBack(c.cluster+"/"+gateway, cluster+"/"+remote, is), true
}

// keys gives the epochs in which a pair can have cables. An agent to which no keys
// came yet gives up none of those that the run before had.
func (c *cabling) keys(f *fabric.Fabric, keys *fabric.Keys, gateway, cluster, remote string) change.Keys {
	if keys == nil {
		return nil
	}
	a, b := f.Cluster(c.cluster).Gateway(gateway), f.Cluster(cluster).Gateway(remote)
	out := change.Keys{}
	for _, d := range cable.Drivers() {
		name := d.Traits().Name
		out[name] = cable.Epochs(name, f.Epochs, keys, a, b)
	}
	return out
}

// turned gives a cable as this end sees it.
func turned(self, peer string, c change.Cable) project.Cable {
	if self > peer {
		c.Ports[0], c.Ports[1] = c.Ports[1], c.Ports[0]
	}
	return project.Cable{Driver: c.Driver, Own: c.Ports[0], Remote: c.Ports[1], Alt: c.Alt, Epoch: c.Epoch}
}

// stand tells what a pass left in the kernel. A cable of which anything failed
// does not stand.
func (c *cabling) stand(r converge.Report, in project.Input, n *node) {
	own := in.Fabric.Cluster(c.cluster)
	if r.Interrupted || n == nil || own == nil {
		return
	}
	gateway := own.GatewayOn(in.Node)
	if gateway == nil {
		return
	}
	self, all := c.cluster+"/"+gateway.Name, map[string]change.Applied{}
	for _, made := range n.Cables {
		peer := made.Cluster + "/" + made.Gateway
		one, ok := c.cableOf(in, gateway.Name, made)
		if !ok {
			continue
		}
		if _, known := all[peer]; !known {
			all[peer] = change.Applied{Use: c.used(in, self, peer, one), Devices: map[change.Cable][]string{}}
		}
		if !slices.ContainsFunc(slices.Concat(r.Failed, r.Blocked, r.Fights), func(p converge.Problem) bool { return concerns(p, made) }) {
			all[peer].Devices[one] = append(all[peer].Devices[one], made.Link)
		}
	}
	c.Applied(all)
}

// cableOf finds which of the cables of its pair a way to a remote gateway is.
func (c *cabling) cableOf(in project.Input, gateway string, made desired.Cable) (change.Cable, bool) {
	self, peer := c.cluster+"/"+gateway, made.Cluster+"/"+made.Gateway
	if held := in.Cables[peer]; len(held) > 0 {
		if made.Rank >= len(held) {
			return change.Cable{}, false
		}
		return turnedBack(self, peer, held[made.Rank]), true
	}
	return c.want(in.Fabric, in.Keys, gateway, made.Cluster, made.Gateway)
}

// used is the cable that is sent over; only is the one that there is otherwise.
func (c *cabling) used(in project.Input, self, peer string, only change.Cable) change.Cable {
	if held := in.Cables[peer]; len(held) > 0 {
		return turnedBack(self, peer, held[0])
	}
	return only
}

func turnedBack(self, peer string, p project.Cable) change.Cable {
	out := change.Cable{Driver: p.Driver, Ports: [2]int{p.Own, p.Remote}, Alt: p.Alt, Epoch: p.Epoch}
	if self > peer {
		out.Ports[0], out.Ports[1] = out.Ports[1], out.Ports[0]
	}
	return out
}

// concerns reports whether a problem may keep a cable from working: all but those
// of names and of other cables.
func concerns(p converge.Problem, made desired.Cable) bool {
	switch p.Kind {
	case "dns zone", "dns service":
		return false
	case "ipsec":
		return made.Driver == fabric.DriverIPsec && (p.Key == "" || p.Key == made.Connection())
	}
	link, _, _ := strings.Cut(p.Key, "/")
	return !desired.IsCable(link) || link == made.Link
}

// changing tells how far the change of a pair is; nil = none goes on.
func changing(all map[string]change.Progress, peer string) *status.Change {
	p, ok := all[peer]
	if !ok {
		return nil
	}
	return &status.Change{From: p.Use.String(), To: p.Next.String(), Since: p.Since, Why: p.Why}
}
