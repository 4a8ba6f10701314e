package feed

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
)

// topic is what one sort of subscriber gets. It keeps the current version only:
// a subscriber that is behind gets the difference to what it has, so nothing
// queues up.
type topic struct {
	mu      sync.Mutex
	current *version
	changed chan struct{} // closed at the next edition
}

// version is one immutable state of a topic.
type version struct {
	clusters map[string]*encoded
	snapshot func() ([][]byte, error)
	// Most subscribers have the edition before: its difference is packed once.
	// Only its number is kept, or every edition would keep all before it.
	number uint64
	delta  func() ([][]byte, error)
}

func newTopic() *topic {
	t := &topic{changed: make(chan struct{})}
	t.current = newEdition(nil)
	return t
}

func newEdition(clusters map[string]*encoded) *version {
	e := &version{clusters: clusters}
	e.snapshot = sync.OnceValues(func() ([][]byte, error) { return frames(kindSnapshot, nil, clusters) })
	return e
}

// load gives the current edition and a channel that closes with the next one.
func (t *topic) load() (*version, <-chan struct{}) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.current, t.changed
}

// publish makes a new edition when the content differs. The exports of a view stay
// as they are: a view that shares them with the one before is known to be the same.
// What cannot be sent of a cluster is left out, and the error names it.
func (t *topic) publish(view map[string]RemoteState) error {
	before, _ := t.load()
	clusters := make(map[string]*encoded, len(view))
	var wrong []error
	for _, cluster := range slices.Sorted(maps.Keys(view)) {
		var err error
		if clusters[cluster], err = encode(before.clusters[cluster], view[cluster]); err != nil {
			wrong = append(wrong, fmt.Errorf("publish live state of %s: %w", cluster, err))
		}
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if maps.Equal(t.current.clusters, clusters) {
		return errors.Join(wrong...)
	}
	have, next := t.current.clusters, newEdition(clusters)
	next.number = t.current.number + 1
	next.delta = sync.OnceValues(func() ([][]byte, error) { return frames(kindDelta, have, clusters) })
	t.current = next
	close(t.changed)
	t.changed = make(chan struct{})
	return errors.Join(wrong...)
}

// framesSince gives what a subscriber lacks that has an earlier edition, or none.
func (e *version) framesSince(sent *version) ([][]byte, error) {
	switch {
	case sent == nil:
		return e.snapshot()
	case sent == e:
		return nil, nil
	case sent.number+1 == e.number:
		return e.delta()
	}
	return frames(kindDelta, sent.clusters, e.clusters)
}

// frames packs the difference of two states. It is always at least one frame.
func frames(kind string, have, want map[string]*encoded) ([][]byte, error) {
	p := packer{kind: kind}
	for _, cluster := range slices.Sorted(maps.Keys(have)) {
		if _, stays := want[cluster]; !stays {
			p.add(update{Cluster: cluster, Gone: true}, 0)
		}
	}
	for _, cluster := range slices.Sorted(maps.Keys(want)) {
		before := have[cluster]
		switch {
		case before == want[cluster]:
			continue
		case before == nil:
			before = &encoded{}
		case before.equal(want[cluster]):
			continue
		}
		p.cluster(cluster, before, want[cluster])
	}
	p.flush(false)
	return p.out, p.wrong
}

// packer fills frames up to fullFrame.
type packer struct {
	kind  string
	now   frame
	size  int
	out   [][]byte
	wrong error
}

func (p *packer) cluster(name string, have, want *encoded) {
	p.add(want.update(name), len(want.transit)+len(want.places))
	want.changes(have, func(gone *piece) {
		u := p.last(name, want)
		u.Removed = append(u.Removed, gone.key())
		p.size += len(gone.key()) + 3
	}, func(fresh *piece) {
		u := p.last(name, want)
		u.Exports = append(u.Exports, fresh.raw)
		p.size += len(fresh.raw) + 1
	})
}

// last gives the update that the cluster's next entry goes into; after a full
// frame that is a new one.
func (p *packer) last(name string, want *encoded) *update {
	if p.size >= fullFrame {
		p.flush(true)
		p.add(want.update(name), len(want.transit)+len(want.places))
	}
	return &p.now.Clusters[len(p.now.Clusters)-1]
}

// updateSize is what an update has besides its cluster, shape, links and entries as
// JSON, in bytes.
const updateSize = 128

func (p *packer) add(u update, size int) {
	if p.size >= fullFrame {
		p.flush(true)
	}
	p.now.Clusters = append(p.now.Clusters, u)
	p.size += size + len(u.Cluster) + len(u.Shape) + updateSize
}

func (p *packer) flush(more bool) {
	p.now.Kind, p.now.More = p.kind, more
	raw, err := pack(p.now)
	if err != nil && p.wrong == nil {
		p.wrong = err
	}
	p.out = append(p.out, raw)
	p.kind, p.now, p.size = kindDelta, frame{}, 0
}
