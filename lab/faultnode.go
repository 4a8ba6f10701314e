package lab

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"hawser.dev/hawser/lab/netnsexec"
)

// stopTimeout bounds the time that an agent has to exit after SIGTERM.
const stopTimeout = 10 * time.Second

func (d *daemon) killAgent(n *node, _ Fault) error {
	d.state.Stopped[n.id()] = true
	return d.convergeFaults()
}

func (d *daemon) startAgent(n *node, _ Fault) error {
	delete(d.state.Stopped, n.id())
	return d.convergeFaults()
}

// agentOf returns the running agent of a node.
func (d *daemon) agentOf(n *node) (*runningNode, error) {
	m, err := d.running(n)
	if err != nil {
		return nil, err
	}
	if m.agent == nil {
		return nil, fmt.Errorf("no agent runs on node %s: hawser lab fault start-agent %s", n.id(), n.id())
	}
	return m, nil
}

func (d *daemon) restartAgent(n *node, _ Fault) error {
	delete(d.state.Stopped, n.id())
	m, err := d.running(n)
	if err != nil {
		return err
	}
	if m.agent == nil {
		return d.convergeFaults()
	}
	return m.agent.crash()
}

func (d *daemon) stopAgent(n *node, _ Fault) error {
	m, err := d.agentOf(n)
	if err != nil {
		return err
	}
	d.state.Stopped[n.id()] = true
	err = m.agent.terminate(stopTimeout)
	m.agent = nil
	return errors.Join(err, d.convergeFaults())
}

func (d *daemon) upgradeAgent(n *node, f Fault) error {
	if f.Value != "" {
		info, err := os.Stat(f.Value)
		if err != nil {
			return fmt.Errorf("upgrade-agent: %w", err)
		}
		if !filepath.IsAbs(f.Value) || info.IsDir() || info.Mode()&0o111 == 0 {
			return fmt.Errorf("upgrade-agent: %s is not the absolute path of a program", f.Value)
		}
	}
	m, err := d.agentOf(n)
	if err != nil {
		return err
	}
	d.state.Agents[n.id()] = cmp.Or(f.Value, d.state.Agents[n.id()])
	err = m.agent.terminate(stopTimeout)
	m.agent = nil
	return errors.Join(err, d.convergeFaults())
}

func (d *daemon) freezeAgent(n *node, _ Fault) error { return d.signalAgent(n, unix.SIGSTOP) }
func (d *daemon) thawAgent(n *node, _ Fault) error   { return d.signalAgent(n, unix.SIGCONT) }

func (d *daemon) signalAgent(n *node, sig unix.Signal) error {
	m, err := d.agentOf(n)
	if err != nil {
		return err
	}
	process, _, _ := m.agent.state()
	return process.Signal(sig)
}

func (d *daemon) killTunnel(n *node, _ Fault) error   { return d.signalTunnels(n, unix.SIGKILL) }
func (d *daemon) freezeTunnel(n *node, _ Fault) error { return d.signalTunnels(n, unix.SIGSTOP) }
func (d *daemon) thawTunnel(n *node, _ Fault) error   { return d.signalTunnels(n, unix.SIGCONT) }

func (d *daemon) signalTunnels(n *node, sig unix.Signal) error {
	m, err := d.running(n)
	if err != nil {
		return err
	}
	processes, err := m.tunnels()
	if err != nil {
		return err
	}
	if len(processes) == 0 {
		return fmt.Errorf("node %s has no tunnel process: it is no gateway, or its kernel runs the tunnels", n.id())
	}
	m.frozen = sig == unix.SIGSTOP
	if sig == unix.SIGKILL {
		return kill(processes)
	}
	var errs []error
	for _, p := range processes {
		errs = append(errs, p.Signal(sig))
	}
	return errors.Join(errs...)
}

// killGateway kills the agent and the tunnels at the same time.
func (d *daemon) killGateway(n *node, _ Fault) error {
	m, err := d.agentOf(n)
	if err != nil {
		return err
	}
	processes, err := m.tunnels()
	if err != nil {
		return err
	}
	d.state.Stopped[n.id()] = true
	m.frozen = false
	m.agent.cancel()
	err = kill(processes)
	m.agent.stop()
	restarted, listErr := m.tunnels() // the agent may have restarted one before its own exit
	return errors.Join(err, listErr, kill(restarted), d.convergeFaults())
}

func (d *daemon) loseTunnels(n *node, _ Fault) error {
	if _, err := d.running(n); err != nil {
		return err
	}
	d.state.Lost[n.id()] = true
	return d.convergeFaults()
}

func (d *daemon) powerOff(n *node, _ Fault) error {
	d.state.Off[n.id()] = true
	return d.convergeFaults()
}

func (d *daemon) powerOn(n *node, _ Fault) error {
	delete(d.state.Off, n.id())
	return d.convergeFaults()
}

func (d *daemon) reboot(n *node, f Fault) error {
	if err := d.powerOff(n, f); err != nil {
		return err
	}
	delete(d.state.Stopped, n.id())
	return d.powerOn(n, f)
}

// corruptFabric overwrites every file of the fabric. It stops the sync of the node's cluster, which
// would repair the files at once.
func (d *daemon) corruptFabric(n *node, _ Fault) error {
	d.state.SyncStopped[n.cluster] = true
	files, err := filepath.Glob(filepath.Join(d.nodeDir(n), "fabric", "*"))
	if err != nil {
		return fmt.Errorf("find fabric of node %s: %w", n.id(), err)
	}
	errs := []error{d.state.write(d.layout.state())}
	for _, file := range files {
		errs = append(errs, os.WriteFile(file, []byte("not a fabric\n"), 0o644))
	}
	return errors.Join(errs...)
}

func kill(processes []netnsexec.Process) error {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	return netnsexec.Kill(ctx, processes)
}

// tunnels returns the node's tunnel processes: `hawser-agent wireguard DEVICE`.
func (m *runningNode) tunnels() ([]netnsexec.Process, error) {
	inode, err := netnsexec.Inode(m.ns.path)
	if err != nil {
		return nil, err
	}
	var out []netnsexec.Process
	for _, p := range netnsexec.Processes(map[uint64]bool{inode: true}, "") {
		raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", p.PID))
		if args := bytes.Split(raw, []byte{0}); err == nil && len(args) > 1 && string(args[1]) == "wireguard" {
			out = append(out, p)
		}
	}
	return out, nil
}

// thaw continues the frozen programs of the node.
func (m *runningNode) thaw() error {
	var errs []error
	if m.agent != nil {
		process, _, _ := m.agent.state()
		errs = append(errs, process.Signal(unix.SIGCONT))
	}
	if m.frozen {
		processes, err := m.tunnels()
		errs = append(errs, err)
		for _, p := range processes {
			errs = append(errs, p.Signal(unix.SIGCONT))
		}
		m.frozen = false
	}
	return errors.Join(errs...)
}

// tunnelDevices is the name prefix of the agent's tunnel devices.
const tunnelDevices = "hw-wg"

// setTunnelDrop disables or restores the tunnels. While they are disabled, new tunnel devices also
// drop all packets.
func (m *runningNode) setTunnelDrop(drop bool) error {
	if m.lost == drop {
		return nil
	}
	var text strings.Builder
	text.WriteString("table inet lab-lost\ndelete table inet lab-lost\n")
	if drop {
		text.WriteString("table inet lab-lost {\n")
		for hook, match := range map[string]string{"prerouting": "iifname", "postrouting": "oifname"} {
			rule := fmt.Sprintf("%s %q drop", match, tunnelDevices+"*")
			chain(&text, hook, "type filter hook "+hook+" priority -300", []string{rule})
		}
		text.WriteString("}\n")
	}
	if err := loadRules(m.ns.path, text.String()); err != nil {
		return fmt.Errorf("node %s: %w", m.spec.id(), err)
	}
	m.lost = drop
	if !drop {
		return nil
	}
	links, err := m.ns.link.LinkList()
	if err != nil {
		return fmt.Errorf("node %s: list links: %w", m.spec.id(), err)
	}
	var errs []error
	for _, link := range links {
		if strings.HasPrefix(link.Attrs().Name, tunnelDevices) {
			errs = append(errs, m.ns.remove(link.Attrs().Name))
		}
	}
	return errors.Join(errs...)
}
