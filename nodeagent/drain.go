package nodeagent

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"
	"time"

	"hawser.dev/hawser/internal/atomicfile"
	"hawser.dev/hawser/nodeagent/health"
	"hawser.dev/hawser/nodeagent/project"
	"hawser.dev/hawser/nodeagent/status"
	"hawser.dev/hawser/schema/fabric"
)

// drainedFile marks, in the state folder, that this gateway is to be left.
const drainedFile = "drained"

// drainRest is how long nobody must have used a drained gateway before it counts
// as left: for packets under way, and for nodes that learn of it last.
const drainRest = time.Second

// drain is the wish that this gateway be left. That of a person survives restarts;
// that of whoever restarts the agent ends with it.
type drain struct {
	path string

	mu      sync.Mutex
	drained bool
	passing bool      // until the agent ends
	used    time.Time // when somebody was seen to use it last
}

func newDrain(path string) (*drain, error) {
	d := &drain{path: path, used: time.Now()}
	_, err := os.Stat(path)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("look for the mark of a drained gateway: %w", err)
	}
	d.drained = err == nil
	return d, nil
}

// set drains, or takes it back.
func (d *drain) set(drained bool) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !drained {
		d.passing = false
	}
	if drained == d.drained {
		return nil
	}
	if drained {
		if err := atomicfile.Write(d.path, []byte("drained by hawser-agent drain; hawser-agent undrain takes it back\n"), 0o600); err != nil {
			return err
		}
	} else if err := os.Remove(d.path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("undrain: %w", err)
	}
	d.drained, d.used = drained, time.Now()
	return nil
}

// pass drains until the agent ends, or until set takes it back.
func (d *drain) pass() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.passing {
		d.passing, d.used = true, time.Now()
	}
}

func (d *drain) is() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.drained || d.passing
}

// left reports whether a gateway that is not used now was not for long enough.
func (d *drain) left(used bool, now time.Time) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if used {
		d.used = now
	}
	return now.Sub(d.used) >= drainRest
}

// setDrained drains this gateway, or takes it back.
func (a *Agent) setDrained(drained bool) error {
	if err := a.drain.set(drained); err != nil {
		return err
	}
	a.log.Info(map[bool]string{true: "drained", false: "undrained"}[drained])
	a.announce()
	return nil
}

// passDrained drains this gateway until the agent ends.
func (a *Agent) passDrained() {
	a.drain.pass()
	a.log.Info("drained until the agent ends")
	a.announce()
}

// announce tells the prober whether this gateway is to be left, and looks anew.
func (a *Agent) announce() {
	a.peers.prober.SetDraining(a.drain.is() || a.leaving.Load())
	a.urgent.Ring()
	a.look()
}

// drainState tells how far a drain is.
func (a *Agent) drainState(now time.Time) status.Drain {
	out := status.Drain{Drained: a.drain.is()}
	in := a.shown.Load().input
	if in.Fabric == nil {
		return out
	}
	own := in.Fabric.Cluster(a.config.Cluster)
	if own == nil || own.GatewayOn(a.config.Node) == nil {
		return out
	}
	out.Gateway = own.GatewayOn(a.config.Node).Name
	v := sight{fabric: in.Fabric, cluster: own.Name, gateway: out.Gateway, snapshot: a.peers.snapshot(), before: in.Before}
	users := a.choice.users(in.Fabric, v.snapshot, health.Peer{Cluster: own.Name, Gateway: out.Gateway})
	needed := a.choice.needed(v, in.Live)
	free := false
	for _, u := range users {
		out.Used = append(out.Used, u.String())
		if slices.Contains(needed, u.cluster) {
			out.Needed = append(out.Needed, u.cluster)
		} else {
			free = true
		}
	}
	if a.drain.left(free, now) {
		return out
	}
	out.Needed = nil
	if len(out.Used) == 0 {
		out.Used = []string{"packets under way"}
	}
	return out
}

// needed names the clusters that are reached over this gateway only. What others
// say is live.
func (c *choice) needed(v sight, live map[string]project.Live) []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	know := knowledge{choice: c, sight: v, live: live}
	ways := health.Ways(project.NewNet(v.fabric, v.before), c.cluster, health.Links{Own: v.without, Passing: func(a, b string) health.Rank {
		switch c.cluster {
		case a:
			return v.without(b)
		case b:
			return v.without(a)
		}
		return know.passing(a, b)
	}})
	var out []string
	for i := range v.fabric.Clusters {
		if name := v.fabric.Clusters[i].Name; name != c.cluster && len(ways[name].Over) == 0 {
			out = append(out, name)
		}
	}
	return out
}

// without ranks the best link to a neighbour that leads over another gateway of
// this cluster than this one.
func (v sight) without(neighbour string) health.Rank {
	rank := health.Down
	for _, near := range v.fabric.Cluster(v.cluster).Gateways {
		for _, far := range v.fabric.Cluster(neighbour).Gateways {
			if near.Name != v.gateway {
				rank = max(rank, v.snapshot.Rank(near.Name, health.Peer{Cluster: neighbour, Gateway: far.Name}))
			}
		}
	}
	return rank
}

// user is a cluster whose traffic a gateway carries, and how that is known.
type user struct{ cluster, who string }

func (u user) String() string { return u.cluster + " (" + u.who + ")" }

// users names the clusters whose traffic a gateway of this or of another cluster
// carries: by the choice of this node, or by what gateways of other clusters say.
func (c *choice) users(f *fabric.Fabric, s health.Snapshot, gateway health.Peer) []user {
	var out []user
	for i := range f.Clusters {
		remote := &f.Clusters[i]
		if remote.Name != c.cluster && (gateway.Cluster == c.cluster || gateway.Cluster == remote.Name) {
			if who := c.usedWith(f, remote, s, gateway); who != "" {
				out = append(out, user{remote.Name, who})
			}
		}
	}
	return out
}

// usedWith says who uses a gateway for the traffic between this cluster and
// another; empty = nobody.
func (c *choice) usedWith(f *fabric.Fabric, remote *fabric.Cluster, s health.Snapshot, gateway health.Peer) string {
	c.mu.Lock()
	path := c.last[remote.Name].Path
	c.mu.Unlock()
	own := gateway.Cluster == c.cluster
	if own && path.Local == gateway.Gateway || !own && path.Via == "" && path.Remote == gateway.Gateway {
		return sight{cluster: c.cluster}.name(remote.Name, path)
	}
	for _, far := range remote.Gateways {
		for _, near := range f.Cluster(c.cluster).Gateways {
			concerns := own && near.Name == gateway.Gateway || !own && far.Name == gateway.Gateway
			if concerns && s.Uses(near.Name, health.Peer{Cluster: remote.Name, Gateway: far.Name}) {
				return "by " + remote.Name + "/" + far.Name
			}
		}
	}
	return ""
}
