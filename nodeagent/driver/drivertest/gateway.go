package drivertest

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"filippo.io/age"

	"hawser.dev/hawser/internal/unixsocket"
	"hawser.dev/hawser/nodeagent/desired"
	"hawser.dev/hawser/nodeagent/status"
)

// gateway is the only node of a cluster, and its agent.
type gateway struct {
	*space
	name     string // of cluster and gateway
	index    int
	keys     map[int]pair // by epoch
	identity *age.X25519Identity
	before   string // what the host had before
	agent    *exec.Cmd
}

// pod is the address of a pod of the cluster: the host itself has it.
func (g *gateway) pod(six bool) string {
	if six {
		return fmt.Sprintf("fd00:%d::1", g.index)
	}
	return fmt.Sprintf("10.%d.0.1", g.index)
}

func (g *gateway) flags() []string {
	return []string{
		"--cluster", g.name, "--node", "node-" + g.name, "--fabric", g.path("fabric"), "--keys", g.path("keys"),
		"--identity", g.path("identity.txt"), "--facts", g.path("facts"), "--state", g.path("state"), "--socket", g.path("s"),
	}
}

// start starts the agent.
func (g *gateway) start() {
	t := g.rig.t
	t.Helper()
	log, err := os.Create(g.path("log"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = log.Close() }()
	g.agent = g.command(g.rig.suite.Agent, append([]string{"run"}, g.flags()...)...)
	g.agent.Stdout, g.agent.Stderr = log, log
	if err := g.agent.Start(); err != nil {
		t.Fatal(err)
	}
}

// stop ends the agent; its tunnels stay.
func (g *gateway) stop() {
	g.rig.t.Helper()
	if err := g.agent.Process.Signal(syscall.SIGTERM); err != nil {
		g.rig.t.Fatal(err)
	}
	_ = g.agent.Wait() // how it ends is not the matter here
	g.agent = nil
}

func (g *gateway) freeze() { _ = g.agent.Process.Signal(syscall.SIGSTOP) }
func (g *gateway) thaw()   { _ = g.agent.Process.Signal(syscall.SIGCONT) }

// cleanup removes all that the agent made.
func (g *gateway) cleanup() {
	g.rig.t.Helper()
	g.run(g.rig.suite.Agent, append([]string{"cleanup"}, g.flags()...)...)
}

// inventory tells what of the kinds that an agent makes is on the host.
func (g *gateway) inventory() string {
	var out strings.Builder
	for _, line := range strings.Split(g.run("ip", "-o", "link"), "\n") {
		if words := strings.Fields(line); len(words) > 1 {
			out.WriteString(words[1] + "\n")
		}
	}
	for _, command := range []string{"ip rule", "ip -6 rule", "nft list tables", "ip route show table all proto 73", "ip -6 route show table all proto 73"} {
		words := strings.Fields(command)
		out.WriteString(g.run(words[0], words[1:]...))
	}
	return out.String()
}

// tunnels gives the devices to other clusters that there are: name and number.
func (g *gateway) tunnels() []string {
	var out []string
	for _, line := range strings.Split(g.run("ip", "-o", "link"), "\n") {
		words := strings.Fields(line)
		if len(words) > 1 && desired.IsTunnel(strings.TrimSuffix(words[1], ":")) {
			out = append(out, strings.TrimSuffix(words[1], ":")+" "+strings.TrimSuffix(words[0], ":"))
		}
	}
	return out
}

// status asks the agent; not ok while it does not answer.
func (g *gateway) status() (s status.Status, ok bool) {
	client := unixsocket.Client(g.path("s"))
	client.Timeout = 5 * time.Second
	answer, err := client.Get("http://agent/status")
	if err != nil {
		return s, false
	}
	defer func() { _ = answer.Body.Close() }()
	return s, json.NewDecoder(answer.Body).Decode(&s) == nil
}

func (g *gateway) find(remote string) (status.Connection, bool) {
	s, _ := g.status()
	for _, c := range s.Connections {
		if c.RemoteCluster == remote {
			return c, true
		}
	}
	return status.Connection{}, false
}

// connection gives the link to a remote cluster, which must be there.
func (g *gateway) connection(remote string) status.Connection {
	g.rig.t.Helper()
	var c status.Connection
	g.rig.eventually(g.name+" tells of its link to "+remote, func() (ok bool) {
		c, ok = g.find(remote)
		return ok
	})
	return c
}

func (g *gateway) connected(remote string) {
	g.rig.t.Helper()
	g.rig.eventually(g.name+" is connected to "+remote, func() bool {
		c, _ := g.find(remote)
		return c.Status == status.Connected
	})
}

func (g *gateway) disconnected(remote string) {
	g.rig.t.Helper()
	g.rig.eventually(g.name+" has no link to "+remote, func() bool {
		s, answers := g.status()
		_, there := g.find(remote)
		return answers && s.Digest != "" && !there
	})
}

// traffic is what a link counted.
type traffic struct{ rx, tx int64 }

func (g *gateway) traffic(remote string) traffic {
	g.rig.t.Helper()
	c := g.connection(remote)
	return traffic{c.RxBytes, c.TxBytes}
}

// ping pings the pod of another cluster from the own one.
func (g *gateway) ping(other *gateway, six bool, options ...string) error {
	args := append([]string{"-q", "-I", g.pod(six)}, options...)
	return g.command("ping", append(args, other.pod(six))...).Run()
}

func (g *gateway) reaches(other *gateway, six bool) {
	g.rig.t.Helper()
	g.rig.eventually(g.name+" reaches "+other.pod(six), func() bool { return g.ping(other, six, "-c", "1", "-W", "1") == nil })
}

// eventually waits until something holds.
func (r *rig) eventually(what string, holds func() bool) {
	r.t.Helper()
	deadline := time.Now().Add(patience)
	for !holds() {
		if time.Now().After(deadline) {
			r.t.Fatalf("not within %v: %s", patience, what)
		}
		time.Sleep(50 * time.Millisecond)
	}
}

// tell logs what the agents said, after something failed.
func (r *rig) tell(t *testing.T) {
	for _, g := range r.gateways {
		if raw, err := os.ReadFile(g.path("log")); err == nil {
			t.Logf("agent of %s:\n%s", g.name, raw)
		}
		out, _ := g.command("sh", "-c", "ip -d link; ip rule; ip route show table all; nft list ruleset | grep -v ' echo\\| slots'").CombinedOutput()
		t.Logf("%s has\n%s", g.name, out)
	}
}
