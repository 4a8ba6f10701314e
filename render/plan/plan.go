// Package plan computes the changes between two rendered trees, as text for readers and as JSON for
// tools. It reads only the trees, so it can compare any two states.
package plan

import (
	"cmp"
	"errors"
	"fmt"
	"path"
	"slices"
	"sync"

	"golang.org/x/sync/errgroup"

	"hawser.dev/hawser/access"
	"hawser.dev/hawser/internal/diff"
	"hawser.dev/hawser/render"
	"hawser.dev/hawser/schema/fabric"
)

// FormatVersion is the version of the JSON form. Within one version fields can only be added.
const FormatVersion = "1"

// Plan contains all changes, grouped by cluster.
type Plan struct {
	FormatVersion string         `json:"format_version"`
	Name          string         `json:"clusterset"`
	Entries       []Entry        `json:"changes"` // clusterset first, then by cluster, kind and key
	Summary       Summary        `json:"summary"`
	Access        access.Changes `json:"access"`
	Firewall      Firewall       `json:"firewall"`
	Impact        Impact         `json:"impact"`
	// Baseline is the base of the comparison; nil if the caller did not set it.
	Baseline *Baseline `json:"baseline,omitempty"`
	// Rejected is the reason why a reconciler would not publish the change; empty if it would.
	Rejected string `json:"refused,omitempty"`
}

// Baseline describes the base of a plan.
type Baseline struct {
	Name   string `json:"name"`             // a branch, a tag, a commit, a directory, or none
	Commit string `json:"commit,omitempty"` // empty if nothing is published or the base is a directory
	// Time is the time of the commit, RFC 3339 in UTC; empty without a commit.
	Time string `json:"time,omitempty"`
	// Revision is the revision in the commit's signature; 0 = not verified.
	Revision int64 `json:"revision,omitempty"`
	// Verified reports whether a signer of the clusterset signed the commit as published.
	Verified bool `json:"verified"`
	// Skipped contains newer commits of the branch that are not valid, newest first.
	Skipped []Skipped `json:"skipped,omitempty"`
}

// Skipped is a commit of the publish branch that no signer signed as published.
type Skipped struct {
	Commit string `json:"commit"`
	Reason string `json:"reason"`
}

// Summary contains the numbers of changes. A replacement counts as one to add and one to destroy.
// An entry for many pairs of clusters counts each pair.
type Summary struct {
	Add        int `json:"add"`
	Change     int `json:"change"`
	Destroy    int `json:"destroy"`
	Disruptive int `json:"disruptive"`
}

// Entry is one change.
type Entry struct {
	Op      diff.Op `json:"op"`
	Kind    string  `json:"kind"`
	Key     string  `json:"key"`
	Cluster string  `json:"cluster,omitempty"` // changed cluster; empty = the whole clusterset
	Fields  []Field `json:"fields,omitempty"`
	// Path is the topology path of the cause, such as exports[sample/whereami-cs].clusters[g2].
	// It is empty for a file.
	Path string `json:"path,omitempty"`
	// Source is the position of Path as file:line. Locate sets it.
	Source string `json:"source,omitempty"`
	// Disruptive describes the disruption and its clusters; empty = no disruption.
	Disruptive string `json:"disruptive,omitempty"`
	// Remark explains why a change does not break connections.
	Remark string `json:"note,omitempty"`

	pathRemains bool // for deletions: Path is an edit that the new topology still contains
	// breaks is the part of Disruptive that breaks open connections. With mayContinue they do
	// not break at once, see Effect.Uncertain.
	breaks      string
	mayContinue bool
}

// Field is one attribute that changes.
type Field struct {
	Name   string `json:"name"`
	Have   string `json:"have"`
	Want   string `json:"want"`
	Forces bool   `json:"forces_replacement,omitempty"`
	// Path and Source are of the field; empty if they equal the entry's.
	Path   string `json:"path,omitempty"`
	Source string `json:"source,omitempty"`
}

// Compute returns the changes from the tree have to want. An empty tree represents a clusterset
// before its first publication.
func Compute(want, have render.Tree) (*Plan, error) {
	var w, h *snapshot
	var topologyEdits []edit
	var known bool
	var readers errgroup.Group
	readers.Go(func() (err error) { w, err = newSnapshot("the new tree", want); return err })
	readers.Go(func() (err error) { topologyEdits, known = edits(want, have); return nil })
	h, err := newSnapshot("the published tree", have)
	if err := errors.Join(readers.Wait(), err); err != nil {
		return nil, err
	}
	addKeys(w, h, want, have)
	addKeys(h, w, have, want)
	addNewLinks(w, h)
	lost := addPairs(w, h)
	p := &Plan{FormatVersion: FormatVersion, Entries: []Entry{}}
	changes, err := diff.Compute(append(w.items, w.pairs...), append(h.items, h.pairs...))
	if err != nil {
		return nil, fmt.Errorf("compare trees: %w", err)
	}
	for _, f := range []*fabric.Fabric{h.fabric, w.fabric} {
		p.Name = cmp.Or(f.Name, p.Name)
	}
	for _, c := range changes {
		p.add(c)
	}
	edited := len(topologyEdits) > 0 || !known && len(have) == 0
	files, err := fileChanges(want, have, p.Entries, edited)
	if err != nil {
		return nil, err
	}
	for _, c := range files {
		p.add(c)
	}
	slices.SortFunc(p.Entries, compareEntries)
	if known {
		p.assignCauses(topologyEdits, sameManifests(want, have))
		slices.SortFunc(p.Entries, compareEntries)
	}
	p.markDisruptions(w, h, lostPaths(lost))
	var accessDiff sync.WaitGroup
	accessDiff.Go(func() {
		p.Access = access.Diff(access.New(h.fabric, access.Options{}), access.New(w.fabric, access.Options{}))
	})
	p.Firewall = firewallChanges(w.fabric, h.fabric)
	accessDiff.Wait()
	p.Impact = p.computeImpact(w.fabric, h.fabric)
	return p, nil
}

// Empty reports whether nothing changes.
func (p *Plan) Empty() bool { return len(p.Entries) == 0 }

// Locate sets the positions of entries and their fields in the new topology. Deleted paths have no
// position.
func (p *Plan) Locate(source func(path string) string) {
	for i := range p.Entries {
		e := &p.Entries[i]
		if e.Path == "" || e.Op == diff.Delete && !e.pathRemains {
			continue
		}
		e.Source = source(e.Path)
		for j := range e.Fields {
			if f := &e.Fields[j]; f.Path != "" {
				f.Source = source(f.Path)
			}
		}
	}
	locateAccess(&p.Access, source)
	p.Impact.locate(source)
}

// Disruptions returns the disruptive entries.
func (p *Plan) Disruptions() []Entry {
	var out []Entry
	for _, e := range p.Entries {
		if e.Disruptive != "" {
			out = append(out, e)
		}
	}
	return out
}

func (p *Plan) add(c diff.Change[item]) {
	subject := c.Want
	if c.Op == diff.Delete {
		subject = c.Have
	}
	e := Entry{Op: c.Op, Kind: subject.kind, Key: subject.name, Cluster: subject.cluster, Path: subject.path,
		Remark: subject.remark, Disruptive: subject.disruptive}
	for _, d := range c.Deltas() {
		e.Fields = append(e.Fields, Field{Name: d.Name, Have: d.Have, Want: d.Want, Forces: d.ForcesReplace})
	}
	if subject.kind == kindClusterset && c.Op == diff.Update {
		e.Path = e.Fields[0].Name
	}
	n := max(subject.count, 1)
	switch c.Op {
	case diff.Create:
		p.Summary.Add += n
	case diff.Update:
		p.Summary.Change += n
	case diff.Delete:
		p.Summary.Destroy += n
	case diff.Replace:
		p.Summary.Add += n
		p.Summary.Destroy += n
	}
	p.Entries = append(p.Entries, e)
}

// sameManifests reports whether two trees have equal files for the clusters.
func sameManifests(want, have render.Tree) bool {
	for _, tree := range []render.Tree{want, have} {
		for name := range tree {
			if !slices.Contains([]string{render.TopologyText, render.MapPicture, render.MapText, lockFile}, name) && !sameFile(want, have, name) {
				return false
			}
		}
	}
	return true
}

func compareEntries(a, b Entry) int {
	return cmp.Or(cmp.Compare(a.Cluster, b.Cluster), cmp.Compare(kindOrder(a.Kind), kindOrder(b.Kind)), cmp.Compare(a.Key, b.Key))
}

// snapshot is one parsed tree.
type snapshot struct {
	fabric    *fabric.Fabric
	items     []item
	pairs     []item          // of clusters
	pairNames map[string]bool // names of pairs
}

func newSnapshot(name string, tree render.Tree) (*snapshot, error) {
	f, err := render.FabricOf(tree)
	if errors.Is(err, render.ErrNoFabric) {
		return &snapshot{fabric: &fabric.Fabric{}}, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", name, err)
	}
	s := &snapshot{fabric: f, items: flatten(f)}
	if it, ok := agentsItem(tree); ok {
		s.items = append(s.items, it)
	}
	s.items = append(s.items, pageItems(tree)...)
	return s, nil
}

// addKeys adds the sealed keys of clusters in tree that differ from the keys in otherTree.
func addKeys(s, other *snapshot, tree, otherTree render.Tree) {
	clusters := clusterSet(other.fabric)
	for i := range s.fabric.Clusters {
		name := s.fabric.Clusters[i].Name
		if clusters[name] && sameFile(tree, otherTree, path.Join(render.ClusterDir(name), "keys.yaml")) {
			continue
		}
		if it, ok := keysItem(tree, name); ok {
			s.items = append(s.items, it)
		}
	}
}
