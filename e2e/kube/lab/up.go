package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"hawser.dev/hawser/e2e/kube/cni"
	"hawser.dev/hawser/lab/netnsexec"
)

// stepTimeout bounds a step of up on a slow machine.
const stepTimeout = 5 * time.Minute

// up starts the clusters, and returns when their nodes are ready and their DNS answers.
func (l *Lab) up(ctx context.Context, agent string, say func(string, ...any)) error {
	_, err := os.Stat(l.path("lab.json"))
	if err == nil {
		return fmt.Errorf("there are clusters in %s: run `kubelab down` first", l.Dir)
	}
	l.Machines = l.plan()
	if err := os.MkdirAll(l.Dir, 0o755); err != nil {
		return fmt.Errorf("make directory: %w", err)
	}
	if err := l.save(); err != nil { // from here on down can remove the lab
		return err
	}
	if err := os.MkdirAll(l.path("machines"), 0o755); err != nil {
		return fmt.Errorf("make directory: %w", err)
	}
	if l.CNI.Script, err = l.writeScript(); err != nil {
		return err
	}
	if l.Images, err = l.writeImages(agent); err != nil {
		return err
	}
	say("images written")
	if err := errors.Join(l.save(), raiseInotifyLimit(l.Dir), l.createInternet()); err != nil {
		return err
	}
	authorities := map[string]*authority{}
	for _, m := range l.Machines {
		if m.Number == 0 {
			if authorities[m.Cluster], err = l.writeCertificates(m); err != nil {
				return err
			}
		} else if m.Cluster == l.Clusters[0] && m.Number == 1 { // the first node; control planes start meanwhile
			if err := l.fillStore(ctx); err != nil {
				return err
			}
			say("images imported")
		}
		if err := l.startMachine(m); err != nil {
			return err
		}
	}
	if err := l.startAPIProxy(authorities); err != nil {
		return err
	}
	say("machines started")
	for _, m := range l.Machines[:len(l.Clusters)] {
		if err := l.finishCluster(ctx, m, say); err != nil {
			return err
		}
	}
	return nil
}

// writeScript writes the script of the clusters' network to the lab's directory.
func (l *Lab) writeScript() (string, error) {
	read := func() ([]byte, error) { return os.ReadFile(l.CNI.Name) }
	if recipe, err := cni.Find(l.CNI.Name); err == nil {
		read = recipe.Script
	}
	text, err := read()
	if err != nil {
		return "", fmt.Errorf("read network %s: %w", l.CNI.Name, err)
	}
	at := l.path("cni.sh")
	if err := os.WriteFile(at, text, 0o644); err != nil {
		return "", fmt.Errorf("read network %s: %w", l.CNI.Name, err)
	}
	return at, nil
}

// startMachine wires a machine and starts it.
func (l *Lab) startMachine(m Node) error {
	if err := l.connectMachine(m); err != nil {
		return err
	}
	env := map[string]string{}
	maps.Copy(env, l.CNI.Settings)
	maps.Copy(env, map[string]string{
		"CLUSTER": m.Cluster, "NODE": m.As, "ADDRESS": m.Addrs[0].String(), "ROUTER": l.routerPrefixes(m.Index)[0].Addr().String(),
		"PODS": joinList(l.podPrefixes(m.Index)), "SERVICES": joinList(l.servicePrefixes(m.Index)), "NODE_PODS": joinList(l.nodePodPrefixes(m)),
		"DNS": l.dnsAddr(m.Index).String(), "API": l.apiAddr(m.Index).String(), "PROXY": l.Proxy, "IMAGES": strings.Join(l.Images, " "),
		"CONTROL": netip.AddrPortFrom(l.controlNode(m.Index).Addrs[0], 6443).String(),
		"FIRST":   netip.AddrPortFrom(l.plannedAddrs(m.Index, 1)[0], 53).String(),
		"CNI":     l.CNI.Script, "CNI_BIN": l.CNI.Bin,
	})
	script := "node.sh"
	if m.Number == 0 {
		script = "control.sh"
	}
	if err := os.MkdirAll(l.path("machines", m.Name), 0o755); err != nil {
		return fmt.Errorf("make directory of %s: %w", m.Name, err)
	}
	if err := l.writeAddress(m); err != nil {
		return err
	}
	return l.startInit(m, script, env)
}

// finishCluster waits for a cluster, sets the pod prefixes of its nodes, and deploys its DNS.
func (l *Lab) finishCluster(ctx context.Context, control Node, say func(string, ...any)) error {
	c := control.Cluster
	ctx, cancel := context.WithTimeout(ctx, stepTimeout)
	defer cancel()
	if err := l.retryKubectl(ctx, c, "get", "--raw", "/readyz"); err != nil {
		return err
	}
	say("%s: API server ready", c)
	text, err := l.corednsManifest(control.Index)
	if err != nil {
		return err
	}
	if _, err := l.kubectl(ctx, c, text, "apply", "--server-side", "-f", "-"); err != nil {
		return err
	}
	for _, n := range l.peers(control) {
		if err := l.awaitNode(ctx, n); err != nil {
			return err
		}
	}
	limit := "--timeout=" + stepTimeout.String()
	if _, err := l.kubectl(ctx, c, "", "wait", "--for=condition=Ready", "node", "--all", limit); err != nil {
		return err
	}
	say("%s: nodes ready", c)
	if _, err := l.kubectl(ctx, c, "", "-n", "kube-system", "rollout", "status", "deployment/coredns", limit); err != nil {
		return err
	}
	say("%s: DNS ready", c)
	return l.retryKubectl(ctx, c, "get", "serviceaccount", "default")
}

// awaitNode waits until a node has joined, and sets its part of the pods' prefixes if the network
// needs it.
func (l *Lab) awaitNode(ctx context.Context, n Node) error {
	if !l.CNI.PodCIDRs {
		return l.retryKubectl(ctx, n.Cluster, "get", "node", n.As)
	}
	pods := l.nodePodPrefixes(n)
	patch, err := json.Marshal(map[string]any{"spec": map[string]any{"podCIDR": pods[0], "podCIDRs": pods}})
	if err != nil {
		return fmt.Errorf("admit %s: %w", n.As, err)
	}
	return l.retryKubectl(ctx, n.Cluster, "patch", "node", n.As, "-p", string(patch))
}

// corednsManifest returns CoreDNS's manifest with the cluster's addresses. Without kube-proxy
// CoreDNS runs in the network of the first node, where the network's replacement of kube-proxy
// reaches it.
func (l *Lab) corednsManifest(index int) (string, error) {
	raw, err := files.ReadFile("coredns.yaml")
	if err != nil {
		return "", fmt.Errorf("read coredns.yaml: %w", err)
	}
	text := strings.ReplaceAll(string(raw), "DNSADDRESS", l.dnsAddr(index).String())
	if l.Proxy != "none" {
		return text, nil
	}
	for from, to := range map[string]string{
		"    .:53 {\n": fmt.Sprintf("    .:53 {\n        bind %s\n", l.plannedAddrs(index, 1)[0]),
		"      dnsPolicy: Default\n": fmt.Sprintf("      dnsPolicy: Default\n      hostNetwork: true\n      nodeSelector: {kubernetes.io/hostname: %sn1}\n",
			l.Clusters[index-1]),
	} {
		text = strings.Replace(text, from, to, 1)
	}
	return text, nil
}

// kubectl runs kubectl on a cluster.
func (l *Lab) kubectl(ctx context.Context, cluster, input string, args ...string) (string, error) {
	args = append([]string{"--kubeconfig", l.kubeconfig(), "--context", cluster}, args...)
	cmd := exec.CommandContext(ctx, filepath.Join(l.Bin, "kubectl"), args...)
	cmd.Stdin = strings.NewReader(input)
	out, err := cmd.CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("kubectl %s: %w: %s", strings.Join(args[2:], " "), err, strings.TrimSpace(string(out)))
	}
	return string(out), nil
}

// retryKubectl repeats a kubectl command until it succeeds.
func (l *Lab) retryKubectl(ctx context.Context, cluster string, args ...string) error {
	for {
		_, err := l.kubectl(ctx, cluster, "", args...)
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(200 * time.Millisecond):
		}
	}
}

// down removes the clusters in the directory completely, also partial ones and none. It does not
// depend on files that a crash may have damaged: it finds programs by the lab's networks and mark,
// and kernel objects by the directory's path.
func down(dir string) error {
	l := &Lab{Dir: dir}
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("look for clusters: %w", err)
	}
	ours := func(e fs.DirEntry) bool { return strings.HasPrefix(e.Name(), "lab.json") }
	if len(entries) > 0 && !slices.ContainsFunc(entries, ours) {
		return fmt.Errorf("no clusters in %s: the directory is not changed", dir)
	}
	errs := []error{l.endProcesses()}
	cgroups, err := l.cgroups()
	errs = append(errs, err, removeCgroups(cgroups), netnsexec.RemoveAll(l.path("net")), restoreInotifyLimit(dir))
	if err := errors.Join(errs...); err != nil {
		return err
	}
	for _, entry := range entries { // last lab.json, which marks the directory as a lab
		if !ours(entry) {
			errs = append(errs, os.RemoveAll(l.path(entry.Name())))
		}
	}
	if err := errors.Join(append(errs, os.RemoveAll(dir))...); err != nil {
		return fmt.Errorf("remove %s: %w", dir, err)
	}
	return nil
}

// endProcesses kills the lab's processes. It repeats until none is left, as an ending process may
// have started another.
func (l *Lab) endProcesses() error {
	ctx, cancel := context.WithTimeout(context.Background(), 60*time.Second)
	defer cancel()
	for {
		left := netnsexec.Processes(netnsexec.Inodes(l.path("net")), l.environmentMark())
		if len(left) == 0 {
			return nil
		}
		if err := netnsexec.Kill(ctx, left); err != nil {
			return err
		}
	}
}

// cgroups returns the cgroups of all machines: from the records, and without a record from the
// cgroup of this process.
func (l *Lab) cgroups() ([]string, error) {
	records, err := filepath.Glob(l.path("machines", "*.json"))
	if err != nil {
		return nil, fmt.Errorf("find records: %w", err)
	}
	var out []string
	for _, file := range records {
		// A crash may have left an empty file, which has no cgroups.
		if r, err := l.record(strings.TrimSuffix(filepath.Base(file), ".json")); err == nil {
			out = append(out, r.Cgroups...)
		}
	}
	all, err := hierarchies()
	if err != nil {
		return out, err
	}
	patterns := unifiedCgroups(l.objectPrefix() + "*")
	for _, h := range all {
		patterns = append(patterns, filepath.Join(h.dir, l.objectPrefix()+"*"))
	}
	for _, pattern := range patterns {
		more, err := filepath.Glob(pattern)
		if err != nil {
			return out, fmt.Errorf("find cgroups: %w", err)
		}
		out = append(out, more...)
	}
	return out, nil
}

// The programs of the nodes need more inotify instances than the kernel allows a user by default.
// The limit applies to the whole machine (inotify(7)). Running labs share the directory
// watchDir: the first lab raises the limit, and the last lab restores it.
const (
	watchLimit = "/proc/sys/fs/inotify/max_user_instances"
	watchDir   = "/run/hawser-kube-watches"
	watchWant  = 2048
)

func raiseInotifyLimit(dir string) (err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("raise limit of watches: %w", err)
		}
	}()
	if err := os.MkdirAll(watchDir, 0o755); err != nil {
		return err
	}
	raw, err := os.ReadFile(watchLimit)
	if err != nil {
		return err
	}
	have, err := strconv.Atoi(strings.TrimSpace(string(raw)))
	if err != nil {
		return err
	}
	if have < watchWant {
		former := filepath.Join(watchDir, "former")
		if _, err := os.Stat(former); errors.Is(err, fs.ErrNotExist) {
			if err := os.WriteFile(former, raw, 0o644); err != nil {
				return err
			}
		}
		if err := os.WriteFile(watchLimit, []byte(strconv.Itoa(watchWant)), 0o644); err != nil {
			return err
		}
	}
	return os.WriteFile(filepath.Join(watchDir, "of"+strings.ReplaceAll(dir, "/", "-")), nil, 0o644)
}

func restoreInotifyLimit(dir string) error {
	if err := os.Remove(filepath.Join(watchDir, "of"+strings.ReplaceAll(dir, "/", "-"))); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("restore limit of watches: %w", err)
	}
	if others, err := filepath.Glob(filepath.Join(watchDir, "of-*")); err != nil || len(others) > 0 {
		return err
	}
	former, err := os.ReadFile(filepath.Join(watchDir, "former"))
	if err == nil {
		err = os.WriteFile(watchLimit, former, 0o644)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("restore limit of watches: %w", err)
	}
	return os.RemoveAll(watchDir)
}
