//go:build linux

package observe

import (
	"bytes"
	"context"
	"errors"
	"net/netip"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"syscall"

	"hawser.dev/hawser/internal/cli/agentquery"
	"hawser.dev/hawser/kubeclient"
	"hawser.dev/hawser/lab"
	"hawser.dev/hawser/nodeagent/status"
)

// labPods are programs in pods of the lab.
type labPods struct {
	mu  sync.Mutex
	all map[string]*labPod // by cluster/node
}

type labPod struct {
	out, errs bytes.Buffer
	cmd       *exec.Cmd
	done      chan struct{}
	ended     bool
	problem   string
}

// startLabPods runs hawser-agent in one pod of each node of the lab. Without a lab it returns
// errNoPods.
func startLabPods(ctx context.Context, f verifyFlags, nodes []agentquery.Response[status.Verification], args func(status.Verification) []string) (podRun, error) {
	if len(f.Sockets) > 0 {
		return nil, errNoPods
	}
	dir, err := agentquery.LabDir(f.Lab)
	if err != nil {
		return nil, err
	}
	client := lab.NewClient(lab.Layout{Dir: dir})
	s, err := client.Status(ctx)
	if errors.Is(err, lab.ErrNoLab) || errors.Is(err, lab.ErrNotRunning) {
		return nil, errNoPods
	}
	if err != nil {
		return nil, err
	}
	r := &labPods{all: map[string]*labPod{}}
	for _, n := range nodes {
		v := n.Value
		command := args(v)
		if command == nil {
			continue
		}
		pod := podOnNode(s, v.Cluster, v.Node)
		if pod == "" {
			continue // the node has no clients
		}
		p := &labPod{done: make(chan struct{})}
		r.all[v.Cluster+"/"+v.Node] = p
		cmd, err := client.AgentCommand(ctx, pod, command...)
		if err != nil {
			p.fail(err.Error())
			continue
		}
		// Ctrl-C on the terminal must only reach hawser, which stops the programs itself.
		cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
		cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
		cmd.Stdout, cmd.Stderr = lockedWriter{&r.mu, &p.out}, lockedWriter{&r.mu, &p.errs}
		if err := cmd.Start(); err != nil {
			p.fail(err.Error())
			continue
		}
		p.cmd = cmd
		go func() {
			defer close(p.done)
			err := cmd.Wait()
			r.mu.Lock()
			defer r.mu.Unlock()
			if p.ended = true; err != nil {
				p.problem = strings.TrimSpace(err.Error() + " " + p.errs.String())
			}
		}()
	}
	return r, nil
}

func (p *labPod) fail(reason string) {
	p.ended, p.problem = true, reason
	close(p.done)
}

// podOnNode returns a running pod on a node with its own address, as cluster/namespace/pod.
func podOnNode(s lab.Status, cluster, node string) string {
	at := slices.IndexFunc(s.Nodes, func(n lab.NodeStatus) bool { return n.Cluster == cluster && n.Name == node })
	if at < 0 {
		return ""
	}
	for _, p := range s.Pods {
		addr, err := netip.ParseAddr(p.IP)
		if p.Cluster != cluster || p.Node != node || !p.Running || err != nil {
			continue
		}
		for _, text := range s.Nodes[at].PodCIDRs {
			if prefix, err := netip.ParsePrefix(text); err == nil && prefix.Contains(addr) {
				return p.Cluster + "/" + p.Namespace + "/" + p.Name
			}
		}
	}
	return ""
}

func (r *labPods) outputs(ctx context.Context) (map[string]kubeclient.PodOutput, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	out := map[string]kubeclient.PodOutput{}
	for key, p := range r.all {
		text := bytes.TrimSpace(p.out.Bytes())
		if !p.ended {
			text = text[bytes.LastIndexByte(text, '\n')+1:]
		}
		out[key] = kubeclient.PodOutput{Ended: p.ended, Text: bytes.Clone(text), Reason: p.problem}
	}
	return out, ctx.Err()
}

func (r *labPods) stop(context.Context) {
	for _, p := range r.all {
		if p.cmd != nil {
			_ = p.cmd.Process.Signal(syscall.SIGTERM) // it may have exited
		}
		<-p.done
	}
}

// lockedWriter serializes writes.
type lockedWriter struct {
	mu *sync.Mutex
	to *bytes.Buffer
}

func (w lockedWriter) Write(b []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.to.Write(b)
}
