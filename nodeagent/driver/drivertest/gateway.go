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

// gateway is the single node of a cluster, with its agent.
type gateway struct {
	*namespace
	name     string // of both the cluster and the gateway
	index    int
	keys     map[int]pair // by epoch
	identity *age.X25519Identity
	before   string // inventory before the agent started
	agent    *exec.Cmd
}

// pod returns the address of a pod of the cluster. The host itself has this address.
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
	t := g.env.t
	t.Helper()
	log, err := os.Create(g.path("log"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = log.Close() }()
	g.agent = g.command(g.env.suite.Agent, append([]string{"run"}, g.flags()...)...)
	g.agent.Stdout, g.agent.Stderr = log, log
	if err := g.agent.Start(); err != nil {
		t.Fatal(err)
	}
}

// stop terminates the agent; its tunnels stay.
func (g *gateway) stop() {
	g.env.t.Helper()
	if err := g.agent.Process.Signal(syscall.SIGTERM); err != nil {
		g.env.t.Fatal(err)
	}
	_ = g.agent.Wait() // its exit status does not matter
	g.agent = nil
}

func (g *gateway) freeze() { _ = g.agent.Process.Signal(syscall.SIGSTOP) }
func (g *gateway) thaw()   { _ = g.agent.Process.Signal(syscall.SIGCONT) }

// cleanup removes all objects that the agent created.
func (g *gateway) cleanup() {
	g.env.t.Helper()
	g.run(g.env.suite.Agent, append([]string{"cleanup"}, g.flags()...)...)
}

// inventory lists the host's objects of the kinds that an agent creates.
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

// tunnels returns the name and interface index of each tunnel device.
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

// status queries the agent; ok is false if the agent does not respond.
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

// connection waits for the link to a remote cluster and returns it.
func (g *gateway) connection(remote string) status.Connection {
	g.env.t.Helper()
	var c status.Connection
	g.env.eventually(g.name+" reports its link to "+remote, func() (ok bool) {
		c, ok = g.find(remote)
		return ok
	})
	return c
}

func (g *gateway) connected(remote string) {
	g.env.t.Helper()
	g.env.eventually(g.name+" is connected to "+remote, func() bool {
		c, _ := g.find(remote)
		return c.Status == status.Connected
	})
}

func (g *gateway) disconnected(remote string) {
	g.env.t.Helper()
	g.env.eventually(g.name+" has no link to "+remote, func() bool {
		s, answers := g.status()
		_, there := g.find(remote)
		return answers && s.Digest != "" && !there
	})
}

// traffic holds the byte counters of a link.
type traffic struct{ rx, tx int64 }

func (g *gateway) traffic(remote string) traffic {
	g.env.t.Helper()
	c := g.connection(remote)
	return traffic{c.RxBytes, c.TxBytes}
}

// ping pings the pod of another cluster from this cluster's pod.
func (g *gateway) ping(other *gateway, six bool, options ...string) error {
	args := append([]string{"-q", "-I", g.pod(six)}, options...)
	return g.command("ping", append(args, other.pod(six))...).Run()
}

func (g *gateway) reaches(other *gateway, six bool) {
	g.env.t.Helper()
	g.env.eventually(g.name+" reaches "+other.pod(six), func() bool { return g.ping(other, six, "-c", "1", "-W", "1") == nil })
}

// eventually waits until holds returns true.
func (r *env) eventually(what string, holds func() bool) {
	r.t.Helper()
	deadline := time.Now().Add(maxWait)
	for !holds() {
		if time.Now().After(deadline) {
			r.t.Fatalf("timeout after %v: %s", maxWait, what)
		}
		time.Sleep(50 * time.Millisecond)
	}
}

// logState logs the agents' output and the hosts' state after a failure.
func (r *env) logState(t *testing.T) {
	for _, g := range r.gateways {
		if raw, err := os.ReadFile(g.path("log")); err == nil {
			t.Logf("agent of %s:\n%s", g.name, raw)
		}
		out, _ := g.command("sh", "-c", "ip -d link; ip rule; ip route show table all; nft list ruleset | grep -v ' icmp_echo\\| slots'").CombinedOutput()
		t.Logf("%s has\n%s", g.name, out)
	}
}
