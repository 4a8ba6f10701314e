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
)

// DefaultDir is where the clusters live unless --dir or HAWSER_KUBE_LAB says otherwise.
const DefaultDir = "/var/tmp/hawser-kube"

// DirEnv is the environment variable that names the folder.
const DirEnv = "HAWSER_KUBE_LAB"

// Lab is what `up` was asked for; the other commands read it from the folder.
type Lab struct {
	Dir      string   // everything of the lab
	Bin      string   // hack/setup-kube.sh built it
	Clusters []string // names; contexts of the kubeconfig
	Nodes    int      // in each cluster at first: <cluster>n1, ...
	Machines []Node   // control planes first
	Flat     bool     // each cluster has prefixes of its own
	Proxy    string   // of Services: nftables, iptables or none
	Images   []string // archives that every node has
}

// Node is one machine of the lab: a control plane (Number 0) or a node.
type Node struct {
	Name    string
	Cluster string
	Index   int // of the cluster, from 1
	Number  int
	As      string     // the name that the node has in its cluster
	Addr    netip.Addr // in the cluster's network
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
	if err := os.WriteFile(l.path("lab.json"), raw, 0o600); err != nil {
		return fmt.Errorf("write lab: %w", err)
	}
	return nil
}

func (l *Lab) path(parts ...string) string {
	return filepath.Join(append([]string{l.Dir}, parts...)...)
}

// kubeconfig has a context for each cluster, reached through a port of the loopback.
func (l *Lab) kubeconfig() string { return l.path("kubeconfig") }

// space pins a machine's network namespace.
func (l *Lab) space(name string) string { return l.path("net", name) }

// plan gives the machines of new clusters.
func (l *Lab) plan() []Node {
	var control, nodes []Node
	for i, c := range l.Clusters {
		control = append(control, newNode(c, i+1, 0))
		for n := range l.Nodes {
			nodes = append(nodes, newNode(c, i+1, n+1))
		}
	}
	return append(control, nodes...)
}

func newNode(cluster string, index, number int) Node {
	name := cluster + "n" + strconv.Itoa(number)
	if number == 0 {
		name = cluster + "cp"
	}
	return Node{Name: name, Cluster: cluster, Index: index, Number: number, As: name, Addr: planned(index, number)}
}

// control gives the control plane of a cluster.
func (l *Lab) control(index int) Node { return l.Machines[index-1] }

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

// Addresses. Each cluster's machines are in a network of their own behind the
// internet; pods and Services have the same prefixes everywhere unless flat.

func planned(index, number int) netip.Addr {
	return netip.AddrFrom4([4]byte{172, 31, byte(index), byte(10 + number)})
}

func router(index int) netip.Addr { return netip.AddrFrom4([4]byte{172, 31, byte(index), 1}) }

func (l *Lab) pods(index int) netip.Prefix {
	second := byte(7)
	if l.Flat {
		second = byte(10 + index)
	}
	return netip.PrefixFrom(netip.AddrFrom4([4]byte{10, second, 0, 0}), 16)
}

func (l *Lab) services(index int) netip.Prefix {
	second := byte(77)
	if l.Flat {
		second = byte(100 + index)
	}
	return netip.PrefixFrom(netip.AddrFrom4([4]byte{10, second, 0, 0}), 16)
}

// nodePods is the part of the cluster's pods that a node has.
func (l *Lab) nodePods(n Node) netip.Prefix {
	a := l.pods(n.Index).Addr().As4()
	a[2] = byte(n.Number)
	return netip.PrefixFrom(netip.AddrFrom4(a), 24)
}

// apiAddr is the Service kubernetes.default, the first address of the prefix.
func (l *Lab) apiAddr(index int) netip.Addr { return l.services(index).Addr().Next() }

// dnsAddr is the Service of the cluster's DNS.
func (l *Lab) dnsAddr(index int) netip.Addr {
	a := l.services(index).Addr().As4()
	a[3] = 10
	return netip.AddrFrom4(a)
}
