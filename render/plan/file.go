package plan

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"

	"hawser.dev/hawser/internal/diff"
	"hawser.dev/hawser/render"
)

// fileChanges returns the changed files that no entry explains. Their cause is another version of
// Hawser or a patch of a user. topologyChanged means that the topologies differ: the entries of the
// topology describe that.
func fileChanges(want, have render.Tree, entries []Entry, topologyChanged bool) ([]diff.Change[item], error) {
	c := newExplanations(want, have, entries)
	c.topology, c.fabricExplained = topologyChanged, c.fabricExplained || topologyChanged
	var w, h []item
	for name, raw := range want {
		if before, ok := have[name]; (!ok || !bytes.Equal(before, raw)) && !c.explains(name) {
			w = append(w, fileItem(name, raw))
		}
	}
	for name, raw := range have {
		if after, ok := want[name]; (!ok || !bytes.Equal(after, raw)) && !c.explains(name) {
			h = append(h, fileItem(name, raw))
		}
	}
	changes, err := diff.Compute(w, h)
	if err != nil {
		return nil, fmt.Errorf("compare files: %w", err)
	}
	return changes, nil
}

func fileItem(name string, raw []byte) item {
	sum := sha256.Sum256(raw)
	displayName := name
	if sanitize(name) != name { // users choose the names of patches
		displayName = strconv.Quote(name)
	}
	return item{kind: kindFile, name: displayName, cluster: clusterOf(name), fields: []diff.Field{
		field("lines", strconv.Itoa(bytes.Count(raw, []byte("\n")))),
		field("sha256", hex.EncodeToString(sum[:6])),
	}}
}

// clusterOf returns the cluster of a file.
func clusterOf(name string) string {
	if rest, ok := strings.CutPrefix(name, "clusters/"); ok {
		cluster, _, _ := strings.Cut(rest, "/")
		return cluster
	}
	return ""
}

// explanations records which changed files the entries of a plan explain.
type explanations struct {
	clusters        map[string]bool // added and removed clusters
	exports         map[string]bool // clusters with added or removed exports
	keys            map[string]bool // clusters whose keys change
	nodes           map[string]bool // clusters whose gateways have other nodes
	rbac            bool            // the rules of agents change, for dynamic exports or egress rules
	dirs            map[string]bool // directories with added or removed files
	agents          bool            // the agents' DaemonSets change
	fabricFile      bool            // base/fabric.yaml changes
	topology        bool            // the topology changes
	fabricExplained bool            // an entry explains base/fabric*.yaml
}

func newExplanations(want, have render.Tree, entries []Entry) explanations {
	c := explanations{clusters: map[string]bool{}, exports: map[string]bool{}, keys: map[string]bool{},
		nodes: map[string]bool{}, dirs: map[string]bool{}}
	for _, e := range entries {
		addedOrRemoved := e.Op == diff.Create || e.Op == diff.Delete
		switch {
		case e.Kind == kindCluster && addedOrRemoved:
			c.clusters[e.Cluster] = true
		case e.Kind == kindClusterExport && addedOrRemoved:
			c.exports[e.Cluster] = true
		case e.Kind == kindKeys:
			c.keys[e.Cluster] = true
		case e.Kind == kindGateway && (addedOrRemoved || e.changes("node")):
			c.nodes[e.Cluster] = true
		case e.Kind == kindEgress && addedOrRemoved, e.Kind == kindClusterset && e.changes("dynamicExports.namespaces"):
			c.rbac = true
		case e.Kind == kindAgents:
			c.agents = true
		}
	}
	c.fabricFile = !sameFile(want, have, "base/fabric.yaml")
	// If the content is equal, the fabric was only compressed or signed again. That needs no
	// entry.
	c.fabricExplained = len(entries) > 0 || sameFile(want, have, render.FabricText)
	_, published := have["base/rbac.yaml"]
	c.rbac = c.rbac && published
	for _, pair := range [2][2]render.Tree{{want, have}, {have, want}} {
		for name := range pair[0] {
			if _, common := pair[1][name]; !common && path.Base(name) != "kustomization.yaml" {
				c.dirs[kustomizationDir(name)] = true
			}
		}
	}
	return c
}

// changes reports whether the entry changes a field.
func (e *Entry) changes(field string) bool {
	return slices.ContainsFunc(e.Fields, func(f Field) bool { return f.Name == field })
}

// kustomizationDir returns the directory with the kustomization.yaml that lists a file.
func kustomizationDir(name string) string {
	if cluster := clusterOf(name); cluster != "" {
		return render.ClusterDir(cluster)
	}
	first, _, _ := strings.Cut(name, "/")
	return first
}

// explains reports whether an entry of the plan explains the change of a file.
func (c explanations) explains(name string) bool {
	cluster, base := clusterOf(name), path.Base(name)
	switch {
	case strings.HasPrefix(name, "base/fabric"):
		return c.fabricExplained // by all other entries
	case name == lockFile:
		return true
	case name == render.FabricText, name == render.MapPicture, name == render.MapText:
		return c.fabricFile
	case name == render.TopologyText:
		return c.topology
	case cluster != "" && name == path.Join(render.ClusterDir(cluster), render.UIFile):
		return true // pageItems lists its changes
	case name == render.AgentFile, name == render.GatewayFile:
		return c.agents
	case cluster != "" && strings.Contains(name, "/patches/"):
		return false
	case cluster != "" && c.clusters[cluster]:
		return true
	case cluster != "" && base == "keys.yaml":
		return c.keys[cluster]
	case cluster != "" && base == "exports.yaml":
		return c.exports[cluster]
	case cluster != "" && strings.Contains(name, "/placement/"):
		return c.nodes[cluster]
	case name == "base/rbac.yaml":
		return c.rbac
	case base == "kustomization.yaml":
		return c.dirs[kustomizationDir(name)] || c.clusters[cluster]
	case strings.HasPrefix(name, "flux/"):
		cluster := path.Base(path.Dir(name))
		return c.clusters[cluster] || base == "exports.yaml" && c.exports[cluster]
	case name == "argocd/applicationset.yaml":
		return len(c.clusters)+len(c.exports) > 0
	}
	return false
}

// lockFile is the copy of the lock that a publisher can write next to the tree.
const lockFile = "clusterset.lock.yaml"
