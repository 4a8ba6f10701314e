// Package plan tells what changes between two rendered trees: for people as
// text, for tools as JSON. It reads the trees alone, so that whatever would be
// published can be compared with whatever is.
package plan

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"hawser.dev/hawser/internal/diff"
	"hawser.dev/hawser/render"
	"hawser.dev/hawser/schema/fabric"
)

// FormatVersion is the version of the JSON form. Within one version fields are
// only added.
const FormatVersion = "1"

// Plan is everything that changes, grouped by the cluster that it changes.
type Plan struct {
	FormatVersion string   `json:"format_version"`
	Name          string   `json:"clusterset"`
	Entries       []Entry  `json:"changes"` // clusterset first, then by cluster, kind and key
	Summary       Summary  `json:"summary"`
	Reach         Reach    `json:"reach"`
	Firewall      Firewall `json:"firewall"`
	Impact        Impact   `json:"impact"`
}

// Summary counts the entries. A replacement counts as one to add and one to destroy.
type Summary struct {
	Add        int `json:"add"`
	Change     int `json:"change"`
	Destroy    int `json:"destroy"`
	Disruptive int `json:"disruptive"`
}

// Entry is one thing that changes.
type Entry struct {
	Op      diff.Op `json:"op"`
	Kind    string  `json:"kind"`
	Key     string  `json:"key"`
	Cluster string  `json:"cluster,omitempty"` // whom it changes; empty is the clusterset as a whole
	Fields  []Field `json:"fields,omitempty"`
	// Path is the topology path that causes it, such as
	// exports[sample/whereami-cs].clusters[g2]; of a file it is empty.
	Path string `json:"path,omitempty"`
	// Source is where the path stands, as file:line; filled by Locate.
	Source string `json:"source,omitempty"`
	// Disruptive says what breaks, and for whom; empty when nothing does.
	Disruptive string `json:"disruptive,omitempty"`
	// Note says why nothing breaks where one might think so.
	Note string `json:"note,omitempty"`
}

// Field is one attribute that changes.
type Field struct {
	Name   string `json:"name"`
	Have   string `json:"have"`
	Want   string `json:"want"`
	Forces bool   `json:"forces_replacement,omitempty"`
}

// Compute gives what turns the tree have into want. An empty tree is one where
// nothing was published yet.
func Compute(want, have render.Tree) (*Plan, error) {
	w, err := readSide("the new tree", want)
	if err != nil {
		return nil, err
	}
	h, err := readSide("the published tree", have)
	if err != nil {
		return nil, err
	}
	links(w, h)
	lost := clusterPairs(w, h)
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
	files, err := fileChanges(want, have, p.Entries)
	if err != nil {
		return nil, err
	}
	for _, c := range files {
		p.add(c)
	}
	slices.SortFunc(p.Entries, compareEntries)
	p.disrupt(lostWays(lost))
	p.Reach = reachOf(w.fabric, h.fabric)
	p.Firewall = firewallOf(w.fabric, h.fabric)
	p.Impact = p.impactOf(w.fabric, h.fabric)
	return p, nil
}

// Empty reports whether nothing changes.
func (p *Plan) Empty() bool { return len(p.Entries) == 0 }

// Locate fills in where each entry's path stands in the new topology; what is
// deleted stands nowhere.
func (p *Plan) Locate(source func(path string) string) {
	for i := range p.Entries {
		if p.Entries[i].Path != "" && p.Entries[i].Op != diff.Delete {
			p.Entries[i].Source = source(p.Entries[i].Path)
		}
	}
	p.Reach.locate(source)
	p.Impact.locate(source)
}

// Disruptions gives the entries that break something.
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
		Note: subject.note, Disruptive: subject.broken}
	for _, d := range c.Deltas() {
		e.Fields = append(e.Fields, Field{Name: d.Name, Have: d.Have, Want: d.Want, Forces: d.Forces})
	}
	if subject.kind == kindClusterset && c.Op == diff.Update {
		e.Path = e.Fields[0].Name
	}
	switch c.Op {
	case diff.Create:
		p.Summary.Add++
	case diff.Update:
		p.Summary.Change++
	case diff.Delete:
		p.Summary.Destroy++
	case diff.Replace:
		p.Summary.Add++
		p.Summary.Destroy++
	}
	p.Entries = append(p.Entries, e)
}

func compareEntries(a, b Entry) int {
	return cmp.Or(cmp.Compare(a.Cluster, b.Cluster), cmp.Compare(kindOrder(a.Kind), kindOrder(b.Kind)), cmp.Compare(a.Key, b.Key))
}

// side is one tree, read.
type side struct {
	fabric *fabric.Fabric
	items  []item
	pairs  []item          // of clusters
	paired map[string]bool // names of pairs
}

func readSide(name string, tree render.Tree) (*side, error) {
	f, err := render.FabricOf(tree)
	if errors.Is(err, render.ErrNoFabric) {
		return &side{fabric: &fabric.Fabric{}}, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", name, err)
	}
	s := &side{fabric: f, items: flatten(f)}
	for i := range f.Clusters {
		if it, ok := keysItem(tree, f.Clusters[i].Name); ok {
			s.items = append(s.items, it)
		}
	}
	return s, nil
}
