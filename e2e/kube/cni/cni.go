// Package cni contains the networks for kubelab's clusters. Each is a script, node.sh. A node's first
// process sources it before the kubelet starts. It starts the network's programs on the node, and
// writes a configuration to /run/cni.
//
// The script has these variables of the node: MACHINE, NODE (its name in the cluster), ADDRESS,
// ROUTER, CLUSTER, PODS and SERVICES (the cluster's prefixes), NODE_PODS, DIR (its directory) and
// pki; PROXY, the implementation of Services; CGROUP, the name of a version 2 cgroup that it may
// create, which is removed with the node; CNI_BIN, the directory of hack/setup-cni.sh's programs;
// and the settings of the network. It may call the functions keep and family of
// e2e/kube/lab/node.sh.
package cni

import (
	"embed"
	"fmt"
	"maps"
	"slices"
	"strings"
)

//go:embed */node.sh
var scripts embed.FS

// Recipe describes how a node starts the network of its cluster.
type Recipe struct {
	Dir      string            // directory of node.sh
	Settings map[string]string // the script's settings with their defaults
	PodCIDRs bool              // Node objects have the node's prefixes
	Routed   bool              // the lab routes the pods of a node to it
	IPv6     bool              // supports IPv6
	Policies bool              // enforces NetworkPolicies
	Services bool              // can replace kube-proxy (PROXY=network)
	Setup    bool              // needs the programs of hack/setup-cni.sh
}

func recipes() map[string]Recipe {
	return map[string]Recipe{
		"bridge":      {Dir: "bridge", PodCIDRs: true, Routed: true, IPv6: true},
		"no-podcidrs": {Dir: "bridge", Routed: true, IPv6: true},
		"calico-like": {Dir: "calico-like", Routed: true, Setup: true, Settings: map[string]string{"RP_FILTER": "0"}},
		"flannel":     {Dir: "flannel", PodCIDRs: true, IPv6: true, Setup: true, Settings: map[string]string{"BACKEND": "vxlan", "NFTABLES": "false"}},
		"kube-ovn":    {Dir: "kube-ovn", PodCIDRs: true, Policies: true, Setup: true, Settings: map[string]string{"LB": "true"}},
		"cilium": {Dir: "cilium", PodCIDRs: true, Policies: true, Services: true, Setup: true,
			Settings: map[string]string{"IPAM": "cluster-pool", "ROUTING": "tunnel", "MASQUERADE": "iptables", "DEVICES": "", "MORE": ""}},
	}
}

// Names returns the names of all networks.
func Names() []string { return slices.Sorted(maps.Keys(recipes())) }

// Find returns the network with a name.
func Find(name string) (Recipe, error) {
	r, ok := recipes()[name]
	if !ok {
		return Recipe{}, fmt.Errorf("no network %q: one of %s, or a file with a slash in its path", name, strings.Join(Names(), ", "))
	}
	return r, nil
}

// Script returns the text of node.sh.
func (r Recipe) Script() ([]byte, error) {
	text, err := scripts.ReadFile(r.Dir + "/node.sh")
	if err != nil {
		return nil, fmt.Errorf("read script of a network: %w", err)
	}
	return text, nil
}

// With returns the settings with some changes (NAME=VALUE).
func (r Recipe) With(changed []string) (map[string]string, error) {
	out := maps.Clone(r.Settings)
	for _, one := range changed {
		name, value, _ := strings.Cut(one, "=")
		if _, ok := out[name]; !ok {
			return nil, fmt.Errorf("no setting %q: there are %v", one, slices.Sorted(maps.Keys(out)))
		}
		out[name] = value
	}
	return out, nil
}
