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

	"hawser.dev/hawser/nodeagent/model"
)

// encoded is the state of one cluster, ready to send. It is never changed.
type encoded struct {
	heard   RemoteState // what it was made from
	exports []piece
	transit json.RawMessage // nil = none
	places  json.RawMessage // nil = none
}

// piece is one export. Those of a cluster are sorted by namespace and name.
type piece struct {
	export model.ExportState
	raw    json.RawMessage
}

func (p *piece) key() string { return p.export.Namespace + "/" + p.export.Name }

func (p *piece) compare(other *piece) int { return compareExports(p.export, other.export) }

func compareExports(a, b model.ExportState) int {
	return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
}

// encode makes what is sent of a cluster. What is as it was before (nil = nothing
// was) is not encoded again; when all is, it gives what was before. What cannot be
// sent is left out, and the error names it.
func encode(before *encoded, heard RemoteState) (*encoded, error) {
	last := before
	if last == nil {
		last = &encoded{}
	} else if sameState(last.heard, heard) {
		return before, nil
	}
	out := &encoded{heard: heard, transit: last.transit, places: last.places}
	var wrong, links, places error
	out.exports, wrong = encodeExports(last.exports, heard.Live.Exports)
	if !reflect.DeepEqual(last.heard.Live.Transit, heard.Live.Transit) {
		out.transit, links = encodeSmall("links", heard.Live.Transit, checkTransit)
	}
	if !reflect.DeepEqual(last.heard.Live.Endpoints, heard.Live.Endpoints) {
		out.places, places = encodeSmall("places", heard.Live.Endpoints, checkPlaces)
	}
	wrong = errors.Join(wrong, links, places)
	if before != nil && wrong == nil && out.equal(before) {
		return before, nil
	}
	return out, wrong
}

// sameState reports whether two states are one, which share their exports. Others
// may still be equal.
func sameState(a, b RemoteState) bool {
	as, bs := a.Live.Exports, b.Live.Exports
	return a.Stale == b.Stale && a.Live.Shape == b.Live.Shape && reflect.DeepEqual(a.Live.Transit, b.Live.Transit) &&
		reflect.DeepEqual(a.Live.Endpoints, b.Live.Endpoints) && len(as) == len(bs) && (len(as) == 0 || &as[0] == &bs[0])
}

// sameExport compares what is told of an export. Offers are mostly shared with the
// state before.
func sameExport(a, b *model.ExportState) bool {
	return a.Namespace == b.Namespace && a.Name == b.Name && a.Ready == b.Ready && a.Terminating == b.Terminating && slices.Equal(a.Families, b.Families) &&
		slices.EqualFunc(a.Hosts, b.Hosts, sameHost) && (a.Offer == b.Offer || reflect.DeepEqual(a.Offer, b.Offer))
}

func sameHost(a, b model.ExportHost) bool {
	return a.Name == b.Name && a.Label == b.Label && slices.Equal(a.IPs, b.IPs) && maps.Equal(a.Ports, b.Ports)
}

// equal reports whether a subscriber is told the same.
func (e *encoded) equal(other *encoded) bool {
	return e.heard.Stale == other.heard.Stale && e.heard.Live.Shape == other.heard.Live.Shape && bytes.Equal(e.transit, other.transit) &&
		bytes.Equal(e.places, other.places) && slices.EqualFunc(e.exports, other.exports, func(a, b piece) bool { return a.compare(&b) == 0 && bytes.Equal(a.raw, b.raw) })
}

// update is what every update of the cluster says.
func (e *encoded) update(cluster string) update {
	return update{Cluster: cluster, Stale: e.heard.Stale, Shape: e.heard.Live.Shape, Transit: e.transit, Places: e.places}
}

// changes calls gone for each export of before that is not here, and then fresh for
// each that is not the same there.
func (e *encoded) changes(before *encoded, gone, fresh func(*piece)) {
	was := before.exports
	walk(was, e.exports, func(had, has *piece) {
		if has == nil {
			gone(had)
		}
	})
	walk(was, e.exports, func(had, has *piece) {
		if has != nil && (had == nil || !bytes.Equal(had.raw, has.raw)) {
			fresh(has)
		}
	})
}

// walk goes through two sorted lists side by side; who has no counterpart meets nil.
func walk(as, bs []piece, each func(a, b *piece)) {
	for len(as) > 0 || len(bs) > 0 {
		order := 0
		switch {
		case len(as) == 0:
			order = 1
		case len(bs) == 0:
			order = -1
		default:
			order = as[0].compare(&bs[0])
		}
		var a, b *piece
		if order <= 0 {
			a, as = &as[0], as[1:]
		}
		if order >= 0 {
			b, bs = &bs[0], bs[1:]
		}
		each(a, b)
	}
}

// encodeSmall makes what is told beside exports; nil = none.
func encodeSmall[T any](what string, said *T, check func(*T) error) (json.RawMessage, error) {
	if said == nil {
		return nil, nil
	}
	err := check(said)
	if err == nil {
		var raw json.RawMessage
		if raw, err = json.Marshal(said); err == nil && len(raw) <= maxSmall {
			return raw, nil
		}
	}
	if err == nil {
		err = fmt.Errorf("more than %d bytes", maxSmall)
	}
	return nil, fmt.Errorf("%s: %w", what, err)
}

// encodeExports takes over what is the same in before, and leaves out what cannot be
// sent.
func encodeExports(before []piece, exports []model.ExportState) ([]piece, error) {
	out := make([]piece, len(exports))
	for i, e := range exports {
		out[i].export = e
	}
	if !slices.IsSortedFunc(out, func(a, b piece) int { return a.compare(&b) }) {
		slices.SortStableFunc(out, func(a, b piece) int { return a.compare(&b) })
	}
	var wrong []error
	walk(before, out, func(had, has *piece) {
		switch {
		case has == nil:
		case had != nil && sameExport(&had.export, &has.export):
			has.raw = had.raw
		default:
			var err error
			if has.raw, err = encodeExport(has.export); err != nil {
				wrong = append(wrong, err)
			}
		}
	})
	out = slices.DeleteFunc(out, func(p piece) bool { return p.raw == nil })
	return out, errors.Join(wrong...)
}

func encodeExport(e model.ExportState) (json.RawMessage, error) {
	raw, err := json.Marshal(e)
	if err == nil && len(raw) > maxExport {
		err = fmt.Errorf("%d bytes are more than %d", len(raw), maxExport)
	}
	if err != nil {
		return nil, fmt.Errorf("export %s/%s: %w", e.Namespace, e.Name, err)
	}
	return raw, nil
}
