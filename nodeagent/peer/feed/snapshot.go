package feed

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"sync"

	"hawser.dev/hawser/nodeagent/model"
)

// snapshot is one version of a publication. It is immutable.
type snapshot struct {
	version  uint64 // 1 is the first
	clusters map[string]*encodedCluster
	// full returns the frames for a new subscriber, and delta the frames for a subscriber of
	// the previous version. Both encode once for all subscribers.
	full, delta func() ([][]byte, error)
}

// newSnapshot returns a version; changes are the difference to the previous version.
func newSnapshot(version uint64, clusters map[string]*encodedCluster, changes []change) *snapshot {
	return &snapshot{
		version: version, clusters: clusters,
		full:  sync.OnceValues(func() ([][]byte, error) { return encodeUpdate(version, changesBetween(nil, clusters)) }),
		delta: sync.OnceValues(func() ([][]byte, error) { return encodeUpdate(version, changes) }),
	}
}

// updateFrom returns the frames for a subscriber that has version base; nil: no version. If base is
// this version, the update has no changes.
func (s *snapshot) updateFrom(base *snapshot) ([][]byte, error) {
	switch {
	case base == nil:
		return s.full()
	case base == s:
		return encodeUpdate(s.version, nil)
	case base.version+1 == s.version:
		return s.delta()
	}
	return encodeUpdate(s.version, changesBetween(base.clusters, s.clusters))
}

// encodeUpdate returns an update as one frame or more.
func encodeUpdate(version uint64, changes []change) ([][]byte, error) {
	var frames [][]byte
	for more := true; more; {
		size, n := 0, 0
		for n < len(changes) && size < fullFrame {
			size += changes[n].size()
			n++
		}
		more = n < len(changes)
		raw, err := encodeFrame(update{Version: version, Changes: changes[:n], More: more})
		if err != nil {
			return nil, err
		}
		frames, changes = append(frames, raw), changes[n:]
	}
	return frames, nil
}

// size estimates the size of the change as JSON, in bytes. It is not less than the real size.
func (c *change) size() int { return 64 + len(c.Cluster) + len(c.Export) + len(c.State) }

// changesBetween returns the changes that lead from one state of all clusters to another. The
// change of a cluster precedes the changes of its exports.
func changesBetween(from, to map[string]*encodedCluster) []change {
	var changes []change
	for _, cluster := range slices.Sorted(maps.Keys(from)) {
		if to[cluster] == nil {
			changes = append(changes, change{Cluster: cluster})
		}
	}
	for _, cluster := range slices.Sorted(maps.Keys(to)) {
		before, after := from[cluster], to[cluster]
		if before == after {
			continue
		}
		if before == nil {
			before = &encodedCluster{}
		}
		if !bytes.Equal(before.info, after.info) {
			changes = append(changes, change{Cluster: cluster, State: after.info})
		}
		mergeExports(before.exports, after.exports, func(before, after *encodedExport) {
			switch {
			case after == nil:
				changes = append(changes, change{Cluster: cluster, Export: exportKey(&before.source)})
			case before == nil || !bytes.Equal(before.raw, after.raw):
				changes = append(changes, change{Cluster: cluster, Export: exportKey(&after.source), State: after.raw})
			}
		})
	}
	return changes
}

// encodedCluster is the state of one cluster, encoded. It is immutable.
type encodedCluster struct {
	source  RemoteState
	info    json.RawMessage
	exports []encodedExport // sorted by namespace and name
}

type encodedExport struct {
	source model.ExportState
	raw    json.RawMessage
}

func exportKey(e *model.ExportState) string { return e.Namespace + "/" + e.Name }

func compareExports(a, b *model.ExportState) int {
	return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
}

// encodeCluster encodes the state of a cluster. It reuses equal parts of the previous encoding,
// which may be nil. It omits parts that exceed the bounds of other agents; the error names them.
func encodeCluster(previous *encodedCluster, state RemoteState) (*encodedCluster, error) {
	if previous == nil {
		previous = &encodedCluster{}
	} else if isSameState(previous.source, state) {
		return previous, nil
	}
	live := &state.State
	info := clusterInfo{Stale: state.Stale, Shape: live.Shape, Transit: live.Transit, Endpoints: live.Endpoints}
	errs := info.removeInvalid()
	raw, err := json.Marshal(info)
	exports, exportsErr := encodeExports(previous.exports, live.Exports)
	return &encodedCluster{source: state, info: raw, exports: exports}, errors.Join(append(errs, err, exportsErr)...)
}

// isSameState reports whether two states are equal and share one list of exports. It avoids a
// comparison of the thousands of exports of a relay.
func isSameState(a, b RemoteState) bool {
	as, bs := a.State.Exports, b.State.Exports
	if len(as) != len(bs) || len(as) > 0 && &as[0] != &bs[0] {
		return false
	}
	a.State.Exports, b.State.Exports = nil, nil
	return reflect.DeepEqual(a, b)
}

// encodeExports encodes the exports of a cluster. It omits exports that cannot be sent.
func encodeExports(previous []encodedExport, exports []model.ExportState) ([]encodedExport, error) {
	out := make([]encodedExport, len(exports))
	for i := range exports {
		out[i].source = exports[i]
	}
	slices.SortStableFunc(out, func(a, b encodedExport) int { return compareExports(&a.source, &b.source) })
	var errs []error
	mergeExports(previous, out, func(before, after *encodedExport) {
		switch {
		case after == nil:
		case before != nil && reflect.DeepEqual(&before.source, &after.source):
			after.raw = before.raw
		default:
			var err error
			if after.raw, err = encodeExport(&after.source); err != nil {
				errs = append(errs, err)
			}
		}
	})
	out = slices.DeleteFunc(out, func(e encodedExport) bool { return e.raw == nil })
	return out, errors.Join(errs...)
}

func encodeExport(e *model.ExportState) (json.RawMessage, error) {
	raw, err := json.Marshal(e)
	if err == nil && len(raw) > maxExport {
		err = fmt.Errorf("%d bytes, the limit is %d", len(raw), maxExport)
	}
	if err != nil {
		return nil, fmt.Errorf("export %s: %w", exportKey(e), err)
	}
	return raw, nil
}

// mergeExports calls each for every export of two sorted lists. An argument is nil if the export is
// not in its list.
func mergeExports(before, after []encodedExport, each func(before, after *encodedExport)) {
	for len(before) > 0 || len(after) > 0 {
		order := 0
		switch {
		case len(before) == 0:
			order = 1
		case len(after) == 0:
			order = -1
		default:
			order = compareExports(&before[0].source, &after[0].source)
		}
		var b, a *encodedExport
		if order <= 0 {
			b, before = &before[0], before[1:]
		}
		if order >= 0 {
			a, after = &after[0], after[1:]
		}
		each(b, a)
	}
}
