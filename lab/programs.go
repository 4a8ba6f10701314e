package lab

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"hawser.dev/hawser/lab/netnsexec"
)

// runAgents starts the agents of nodes that have a fabric, like a pod starts when its ConfigMap
// exists.
func (d *daemon) runAgents(w *desiredLab) error {
	var errs []error
	for i := range w.nodes {
		n := &w.nodes[i]
		m := d.nodes[n.id()]
		if m == nil {
			continue
		}
		run := !d.state.Stopped[n.id()] && d.published.clusters[n.cluster] != nil
		switch {
		case run && m.agent == nil:
			p, err := d.agentProgram(n, m)
			if err != nil {
				errs = append(errs, err)
				continue
			}
			m.agent = startChild(p, d.log)
		case !run && m.agent != nil && d.state.Stopped[n.id()]:
			m.agent.stop()
			m.agent = nil
		}
	}
	return errors.Join(errs...)
}

func (d *daemon) agentProgram(n *node, m *runningNode) (program, error) {
	dir := d.nodeDir(n)
	if err := d.identity(n, filepath.Join(dir, "identity")); err != nil {
		return program{}, err
	}
	if err := d.pinSigners(n, filepath.Join(dir, "trust", "signers")); err != nil {
		return program{}, err
	}
	leases := d.layout.path("leases", n.cluster)
	if err := os.MkdirAll(leases, 0o700); err != nil {
		return program{}, fmt.Errorf("make directory of Leases: %w", err)
	}
	nodes := d.hawserNodes(n.cluster)
	if err := os.MkdirAll(nodes, 0o700); err != nil {
		return program{}, fmt.Errorf("make directory of HawserNodes: %w", err)
	}
	argv := []string{
		cmp.Or(d.state.Agents[n.id()], d.config.Agent), "run", "--cluster", n.cluster, "--node", n.name,
		"--fabric", filepath.Join(dir, "fabric"), "--keys", filepath.Join(dir, "keys"), "--identity", filepath.Join(dir, "identity"),
		"--trust", filepath.Join(dir, "trust", "signers"), "--facts", filepath.Join(dir, "facts"), "--state", filepath.Join(dir, "state"), "--socket", "/run/agent.sock",
	}
	if d.state.Agents[n.id()] == "" { // agents of other versions may not have these flags
		argv = append(argv, "--leases", leases, "--hawsernodes", nodes)
	}
	e := d.nodeExec(n, m.ns.path, argv)
	return d.inNamespace("agent of "+n.id(), filepath.Join(dir, "agent.log"), e), nil
}

// hawserNodes returns the directory with the HawserNodes of a cluster's agents.
func (d *daemon) hawserNodes(cluster string) string { return d.layout.path("hawsernodes", cluster) }

// bootID returns the file with the boot ID of a node, which changes at each boot.
func (d *daemon) bootID(n *node) string { return filepath.Join(d.nodeDir(n), "boot_id") }

// inNamespace returns a program that runs in namespaces.
func (d *daemon) inNamespace(name, log string, e netnsexec.Exec) program {
	return program{
		name: name, argv: append([]string{d.config.Hawser, "lab", "nsexec"}, e.Args()...),
		env: environment(d.layout, d.config), log: log,
	}
}

// nodeExec returns the environment of a program on a node.
func (d *daemon) nodeExec(n *node, path string, argv []string) netnsexec.Exec {
	return netnsexec.Exec{
		Net: path, Resolv: d.layout.resolv(n.cluster, "default"), Hosts: d.layout.hosts(),
		Run: filepath.Join(d.nodeDir(n), "run"), KeepDir: d.layout.Dir, BootID: d.bootID(n), Hostname: n.name, Argv: argv,
	}
}

// identity writes the age identity that decrypts the cluster's keys. A cluster that joined by a
// commit may use the recipient of any cluster of the lab.
func (d *daemon) identity(n *node, path string) error {
	c, _ := d.topology.cluster(n.cluster)
	files, err := filepath.Glob(d.layout.identity("*"))
	if err != nil {
		return fmt.Errorf("find identity of cluster %s: %w", n.cluster, err)
	}
	for _, file := range files {
		raw, err := os.ReadFile(file)
		if err != nil {
			return fmt.Errorf("read identity of cluster %s: %w", n.cluster, err)
		}
		if have, err := recipientIn(raw); err == nil && have == c.recipient {
			_, err := writeFile(path, raw, 0o600)
			return err
		}
	}
	if !n.gateway {
		return nil
	}
	return fmt.Errorf("cluster %s: its recipient is not from this lab: use the output of hawser lab recipient %s", c.name, c.name)
}

// podProgram returns the program of a pod with a command.
func (d *daemon) podProgram(m *runningNode, c *runningPod) (program, error) {
	log := d.layout.path("pods", strings.ReplaceAll(c.spec.id(), "/", ".")+".log")
	if err := os.MkdirAll(filepath.Dir(log), 0o755); err != nil {
		return program{}, fmt.Errorf("pod %s: %w", c.spec.id(), err)
	}
	e := d.podExec(m, c)
	e.Argv = c.spec.Command()
	return d.inNamespace("program of pod "+c.spec.id(), log, e), nil
}

// podExec returns the environment of a program in a pod.
func (d *daemon) podExec(m *runningNode, c *runningPod) netnsexec.Exec {
	e := netnsexec.Exec{
		Net: m.ns.path, Resolv: d.layout.resolv(c.spec.cluster, c.spec.Namespace), Hosts: d.layout.hosts(), Hostname: cmp.Or(c.spec.Hostname, c.spec.Name),
	}
	if c.ns != nil {
		e.Net = c.ns.path
	}
	return e
}
