package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"hawser.dev/hawser/internal/atomicfile"
)

// DefaultDir is the default directory of the clusters, without --dir and HAWSER_KUBE_LAB.
const DefaultDir = "/var/tmp/hawser-kube"

// DirEnv is the environment variable that names the directory.
const DirEnv = "HAWSER_KUBE_LAB"

// networkProxy is the Proxy of clusters whose network implements Services itself.
const networkProxy = "network"

// Lab holds the options of `up`. The other commands read it from the directory.
type Lab struct {
	Dir      string         // directory of the lab
	Bin      string         // directory of the programs that hack/setup-kube.sh built
	Clusters []string       // names; contexts of the kubeconfig
	Families string         // address families: ipv4, ipv6 or dual
	Nodes    int            // initial nodes of each cluster: <cluster>n1, ...
	Machines []Node         // control planes first
	Flat     bool           // each cluster has its own prefixes
	Pods     []netip.Prefix // IPv4 prefixes of --pods, one for each cluster; or nil
	Proxy    string         // implementation of Services: nftables, iptables, network or none
	Images   []string       // archives of images; only a loaded agent's archive still exists
	CNI      Network
}

// Network holds the options of `up` about the pod network.
type Network struct {
	Name     string // a network of e2e/kube/cni, or the path of a script
	Script   string // path of the script for nodes, in the lab's directory
	Bin      string // directory of the programs that the script starts
	Settings map[string]string
	PodCIDRs bool // Node objects have the node's prefixes
	Routed   bool // the lab routes the pods of a node to it
}

// Node is one machine of the lab: a control plane (Number 0) or a node.
type Node struct {
	Name    string
	Cluster string
	Index   int // number of the cluster, from 1
	Number  int
	As      string       // name of the Node object
	Addrs   []netip.Addr // addresses in the cluster's network, one of each family
}

func load(dir string) (*Lab, error) {
	raw, err := os.ReadFile(filepath.Join(dir, "lab.json"))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("no clusters in %s: run `kubelab up`", dir)
	}
	if err != nil {
		return nil, fmt.Errorf("read lab: %w", err)
	}
	l := &Lab{}
	if err := json.Unmarshal(raw, l); err != nil {
		return nil, fmt.Errorf("read lab: %w", err)
	}
	return l, nil
}

func (l *Lab) save() error {
	raw, err := json.MarshalIndent(l, "", "  ")
	if err != nil {
		return fmt.Errorf("write lab: %w", err)
	}
	return atomicfile.Write(l.path("lab.json"), raw, 0o600)
}

func (l *Lab) path(parts ...string) string {
	return filepath.Join(append([]string{l.Dir}, parts...)...)
}

// kubeconfig returns the path of the kubeconfig. It has a context for each cluster, through a
// loopback port.
func (l *Lab) kubeconfig() string { return l.path("kubeconfig") }

// netnsPath returns the path of the file that pins a machine's network namespace.
func (l *Lab) netnsPath(name string) string { return l.path("net", name) }

// plan returns the machines of new clusters.
func (l *Lab) plan() []Node {
	var control, nodes []Node
	for i, c := range l.Clusters {
		control = append(control, l.newNode(c, i+1, 0))
		for n := range l.Nodes {
			nodes = append(nodes, l.newNode(c, i+1, n+1))
		}
	}
	return append(control, nodes...)
}

func (l *Lab) newNode(cluster string, index, number int) Node {
	name := cluster + "n" + strconv.Itoa(number)
	if number == 0 {
		name = cluster + "cp"
	}
	return Node{Name: name, Cluster: cluster, Index: index, Number: number, As: name, Addrs: l.plannedAddrs(index, number)}
}

// controlNode returns the control plane of a cluster.
func (l *Lab) controlNode(index int) Node { return l.Machines[index-1] }

func (l *Lab) machine(name string) (Node, error) {
	var names []string
	for _, n := range l.Machines {
		if n.Name == name {
			return n, nil
		}
		names = append(names, n.Name)
	}
	return Node{}, fmt.Errorf("no machine %q: there are %s", name, strings.Join(names, ", "))
}
