package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"hawser.dev/hawser/e2e/chaos/schedule"
	"hawser.dev/hawser/lab"
	"hawser.dev/hawser/nodeagent/status"
)

// chaosLab is the lab into which the run injects faults.
type chaosLab struct {
	options
	dir      string // contains the lab's directory, and its initial files
	client   *lab.Client
	status   lab.Status
	topology schedule.Topology
	text     []byte                    // topology file at the start of every round
	global   map[string][]netip.Prefix // global prefixes by cluster
	networks map[string]string         // nodeNetwork by cluster

	unprotected *unprotected
}

// newChaosLab starts the lab.
func newChaosLab(ctx context.Context, o options) (*chaosLab, error) {
	dir, err := os.MkdirTemp("", "hwc-") // short: the path of a unix socket has at most 107 bytes
	if err != nil {
		return nil, fmt.Errorf("make directory of the lab: %w", err)
	}
	b := &chaosLab{options: o, dir: dir, networks: nodeNetworks(o.seed), unprotected: newUnprotected()}
	b.client = lab.NewClient(lab.Layout{Dir: b.labDir()})
	files := filepath.Join(dir, "files")
	err = o.variant.write(filepath.Join(o.root, "e2e/chaos/testdata/lab"), files, b.networks)
	if err == nil {
		_, err = b.hawser(ctx, "lab", "up", "-f", filepath.Join(files, "clusterset.yaml"), "-w", filepath.Join(files, "workloads"), "--workers", "2")
	}
	if err == nil {
		b.status, err = b.client.Status(ctx)
	}
	if err == nil {
		b.text, err = os.ReadFile(b.topologyFile())
	}
	if err == nil {
		b.topology = topologyOf(b.status, o.seed)
		b.global, err = b.globalPrefixes(ctx)
	}
	if err != nil {
		return nil, errors.Join(err, b.close())
	}
	return b, nil
}

func (b *chaosLab) labDir() string       { return filepath.Join(b.dir, "lab") }
func (b *chaosLab) repo() string         { return filepath.Join(b.labDir(), "repo") }
func (b *chaosLab) topologyFile() string { return filepath.Join(b.repo(), "clusterset.yaml") }

// close stops the lab.
func (b *chaosLab) close() error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	_, err := b.hawser(ctx, "lab", "down")
	return errors.Join(err, os.RemoveAll(b.dir))
}

// topologyOf returns the nodes and the faults that each allows. Watched pods run on the first
// worker of each cluster. The agents of one gateway and one worker are never killed.
func topologyOf(s lab.Status, seed uint64) schedule.Topology {
	var t schedule.Topology
	var gateways, workers []int
	for _, n := range s.Nodes {
		if !slices.Contains(t.Clusters, n.Cluster) {
			t.Clusters = append(t.Clusters, n.Cluster)
		}
		if n.Gateway {
			gateways = append(gateways, len(t.Nodes))
		} else {
			workers = append(workers, len(t.Nodes))
		}
		t.Nodes = append(t.Nodes, schedule.Node{
			ID: n.Cluster + "/" + n.Name, Cluster: n.Cluster, Gateway: n.Gateway, KeepsPower: n.Name == n.Cluster+"-w1",
		})
	}
	t.Nodes[gateways[seed%uint64(len(gateways))]].NeverKilled = true
	t.Nodes[workers[seed%uint64(len(workers))]].NeverKilled = true
	return t
}

// command returns a command with the lab's environment.
func (b *chaosLab) command(ctx context.Context, name string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Env = append(os.Environ(), lab.DirEnv+"="+b.labDir(), "PATH="+b.bin+":"+os.Getenv("PATH")+":/usr/sbin:/sbin",
		"GIT_AUTHOR_NAME=chaos", "GIT_AUTHOR_EMAIL=chaos@example.org", "GIT_COMMITTER_NAME=chaos", "GIT_COMMITTER_EMAIL=chaos@example.org")
	return cmd
}

func (b *chaosLab) hawser(ctx context.Context, args ...string) ([]byte, error) {
	return output(b.command(ctx, filepath.Join(b.bin, "hawser"), args...))
}

func output(cmd *exec.Cmd) ([]byte, error) {
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("%s: %w: %s%s", strings.Join(cmd.Args, " "), err, out, stderr.Bytes())
	}
	return out, nil
}

// pod returns a pod of the namespace of all workloads.
func (b *chaosLab) pod(ctx context.Context, cluster, name string) (pod, error) {
	at, err := b.client.ExecAt(ctx, cluster+"/shop/"+name)
	return pod{name: cluster + "/" + name, net: at.Net}, err
}

// address returns the address of a pod inside its cluster. Callers check for the zero address.
func (b *chaosLab) address(cluster, name string, family int) netip.Addr {
	for _, p := range b.status.Pods {
		if p.Cluster == cluster && p.Namespace == "shop" && p.Name == name {
			return ofFamily(strings.Join(p.IPs, ", "), family)
		}
	}
	return netip.Addr{}
}

// lock returns the allocated prefixes and addresses by name, from the published lock file.
func (b *chaosLab) lock(ctx context.Context) (map[string]string, error) {
	raw, err := output(b.command(ctx, "git", "-C", b.repo(), "show", "rendered:clusterset.lock.yaml"))
	if err != nil {
		return nil, err
	}
	return parseLock(string(raw)), nil
}

// globalPrefixes returns the global prefixes of each cluster.
func (b *chaosLab) globalPrefixes(ctx context.Context) (map[string][]netip.Prefix, error) {
	lock, err := b.lock(ctx)
	if err != nil {
		return nil, err
	}
	out := map[string][]netip.Prefix{}
	for _, cluster := range b.topology.Clusters {
		for text := range strings.SplitSeq(lock["clusters["+cluster+"].blocks"], ", ") {
			prefix, err := netip.ParsePrefix(strings.Trim(text, `"`))
			if err != nil {
				return nil, fmt.Errorf("global prefixes of cluster %s: %w", cluster, err)
			}
			out[cluster] = append(out[cluster], prefix)
		}
	}
	return out, nil
}

// directPaths returns the numbers of paths between nodes and gateways that are direct now, and that
// are direct if no network drops such packets. Each pair counts for both ends and each family.
func (b *chaosLab) directPaths(ctx context.Context) (direct, all int, err error) {
	raw, err := b.hawser(ctx, "show", "nodes", "-o", "json")
	if err != nil {
		return 0, 0, err
	}
	var shown struct {
		Agents []struct {
			Nodes []status.NodePath `json:"nodes"`
		} `json:"agents"`
	}
	if err := json.Unmarshal(raw, &shown); err != nil {
		return 0, 0, fmt.Errorf("parse the output of hawser show nodes: %w", err)
	}
	for _, agent := range shown.Agents {
		for _, path := range agent.Nodes {
			if path.Path == status.NodeDirect {
				direct++
			}
		}
	}
	for _, a := range b.topology.Nodes {
		for _, o := range b.topology.Nodes {
			if a.Cluster == o.Cluster && a.Gateway != o.Gateway && b.networks[a.Cluster] == autoNetwork {
				all += len(b.variant.families())
			}
		}
	}
	return direct, all, nil
}

// parseLock parses the lines "name: [address]" of a lock file.
func parseLock(text string) map[string]string {
	out := map[string]string{}
	for _, line := range strings.Split(text, "\n") {
		name, value, found := strings.Cut(line, ": ")
		if found && strings.HasPrefix(line, "  ") {
			out[strings.TrimSpace(name)] = strings.Trim(value, "[]")
		}
	}
	return out
}

// node returns a node by CLUSTER/NODE; the zero value if the lab has no such node.
func (b *chaosLab) node(id string) lab.NodeStatus {
	i := slices.IndexFunc(b.status.Nodes, func(n lab.NodeStatus) bool { return n.Cluster+"/"+n.Name == id })
	if i < 0 {
		return lab.NodeStatus{}
	}
	return b.status.Nodes[i]
}

// ports returns the range of the tunnels' ports: two epochs for each gateway ordinal of the
// largest cluster, and for one gateway that a commit may add.
func (b *chaosLab) ports() [2]uint16 {
	const first = 51820
	count, most := map[string]int{}, 0
	for _, n := range b.topology.Nodes {
		if n.Gateway {
			count[n.Cluster]++
			most = max(most, count[n.Cluster])
		}
	}
	return [2]uint16{first, first + 2*uint16(most) + 1}
}

// ready returns nil if the published commit has the content of the newest one, and every agent has
// its fabric. The reconciler publishes nothing for a commit that restores the published content.
func (b *chaosLab) ready(ctx context.Context) error {
	s, err := b.client.Status(ctx)
	if err != nil {
		return err
	}
	b.status = s
	if changed, err := output(b.command(ctx, "git", "-C", b.repo(), "diff", "--name-only", s.Source, "HEAD")); err != nil {
		return err
	} else if len(changed) > 0 {
		return fmt.Errorf("commit %s is published, and later commits change %s", s.Source, strings.Fields(string(changed)))
	}
	if !s.Ready {
		return fmt.Errorf("not ready: %s", strings.Join(s.Waiting, "; "))
	}
	return nil
}
