// Package plan tells what changes between two rendered trees: for people as
// text, for tools as JSON. It reads the trees alone, so that whatever would be
// published can be compared with whatever is.
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

// FormatVersion is the version of the JSON form. Within one version fields are
// only added.
const FormatVersion = "1"

// Plan is everything that changes, grouped by the cluster that it changes.
type Plan struct {
	FormatVersion string         `json:"format_version"`
	Name          string         `json:"clusterset"`
	Entries       []Entry        `json:"changes"` // clusterset first, then by cluster, kind and key
	Summary       Summary        `json:"summary"`
	Access        access.Changes `json:"access"`
	Firewall      Firewall       `json:"firewall"`
	Impact        Impact         `json:"impact"`
	// Baseline is what it was compared with; nil when the caller did not say.
	Baseline *Baseline `json:"baseline,omitempty"`
	// Rejected says why a reconciler would not publish this; empty when it would.
	Rejected string `json:"refused,omitempty"`
}

// Baseline says what a plan was compared with.
type Baseline struct {
	Name   string `json:"name"`             // a branch, a tag, a commit, a folder, or none
	Commit string `json:"commit,omitempty"` // empty: no commit, as nothing is published or it is a folder
	// Time is when the commit was published, RFC 3339 in UTC; empty without a commit.
	Time string `json:"time,omitempty"`
	// Revision is the one that the commit's signature covers; 0 = not verified.
	Revision int64 `json:"revision,omitempty"`
	// Verified reports that a signer of the clusterset signed the commit as published.
	Verified bool `json:"verified"`
	// Skipped are newer commits of the branch that do not count, newest first.
	Skipped []Skipped `json:"skipped,omitempty"`
}

// Skipped is a commit of the publish branch that no signer signed as published.
type Skipped struct {
	Commit string `json:"commit"`
	Why    string `json:"why"`
}

// Summary counts the entries. A replacement counts as one to add and one to destroy, an entry
// that stands for many pairs of clusters as these.
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

	stays bool // of what is deleted: the path is that of an edit that is still in the file
	// ends is what of Disruptive ends open connections; with may not at once, as Effect.May says.
	ends string
	may  bool
}

// Field is one attribute that changes.
type Field struct {
	Name   string `json:"name"`
	Have   string `json:"have"`
	Want   string `json:"want"`
	Forces bool   `json:"forces_replacement,omitempty"`
	// Path and Source are those of the field, where they are not the entry's.
	Path   string `json:"path,omitempty"`
	Source string `json:"source,omitempty"`
}

// Compute gives what turns the tree have into want. An empty tree is one where
// nothing was published yet.
func Compute(want, have render.Tree) (*Plan, error) {
	var w, h *snapshot
	var made []edit
	var known bool
	var reading errgroup.Group
	reading.Go(func() (err error) { w, err = readSide("the new tree", want); return err })
	reading.Go(func() (err error) { made, known = edits(want, have); return nil })
	h, err := readSide("the published tree", have)
	if err := errors.Join(reading.Wait(), err); err != nil {
		return nil, err
	}
	addKeys(w, h, want, have)
	addKeys(h, w, have, want)
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
	files, err := fileChanges(want, have, p.Entries, len(made) > 0 || !known && len(have) == 0)
	if err != nil {
		return nil, err
	}
	for _, c := range files {
		p.add(c)
	}
	slices.SortFunc(p.Entries, compareEntries)
	if known {
		p.assignCauses(made, sameManifests(want, have))
		slices.SortFunc(p.Entries, compareEntries)
	}
	p.markDisruptions(w, h, lostPaths(lost))
	var asking sync.WaitGroup
	asking.Go(func() {
		p.Access = access.Diff(access.New(h.fabric, access.Options{}), access.New(w.fabric, access.Options{}))
	})
	p.Firewall = firewallOf(w.fabric, h.fabric)
	asking.Wait()
	p.Impact = p.impactOf(w.fabric, h.fabric)
	return p, nil
}

// Empty reports whether nothing changes.
func (p *Plan) Empty() bool { return len(p.Entries) == 0 }

// Locate fills in where the paths of entries and their fields stand in the new topology;
// what is deleted stands nowhere.
func (p *Plan) Locate(source func(path string) string) {
	for i := range p.Entries {
		e := &p.Entries[i]
		if e.Path == "" || e.Op == diff.Delete && !e.stays {
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

// sameManifests reports whether two trees hold the same for clusters.
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

// snapshot is one tree, read.
type snapshot struct {
	fabric *fabric.Fabric
	items  []item
	pairs  []item          // of clusters
	paired map[string]bool // names of pairs
}

func readSide(name string, tree render.Tree) (*snapshot, error) {
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

// addKeys adds the sealed keys of a side's clusters, but for those that the other side
// has, too.
func addKeys(s, other *snapshot, tree, there render.Tree) {
	known := clustersOf(other.fabric)
	for i := range s.fabric.Clusters {
		name := s.fabric.Clusters[i].Name
		if known[name] && sameFile(tree, there, path.Join(render.ClusterDir(name), "keys.yaml")) {
			continue
		}
		if it, ok := keysItem(tree, name); ok {
			s.items = append(s.items, it)
		}
	}
}
