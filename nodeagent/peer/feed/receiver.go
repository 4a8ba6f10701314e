package feed

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"

	"hawser.dev/hawser/nodeagent/mcs"
	"hawser.dev/hawser/nodeagent/model"
	"hawser.dev/hawser/schema/fabric"
)

// receiver turns the frames of one connection into what was heard. It trusts the
// other end only with what it may speak of.
type receiver struct {
	peer   Peer
	own    string       // this agent's cluster
	warn   func(string) // told of what was refused
	states map[string]RemoteState
	ages   *firstSeen // nil = exports are as old as they say

	trust    bool // exports are as old as they say, as nothing else is known
	begun    bool // a snapshot came
	complete bool // and its last frame: heard is the whole truth
	staged   map[string]staged
	broken   map[string]bool // clusters that cannot be followed before they begin anew
	size     int             // of all that is staged, bytes of memory
	dirty    map[string]bool
}

// staged is a cluster while the frames of one change come in. Its map is
// never shared.
type staged struct {
	stale   bool
	exports map[string]sized
	shape   string
	transit *model.TransitAdvert
	places  *model.EndpointAdvert
	size    int // bytes of memory
}

type sized struct {
	export model.ExportState
	size   int
}

// apply takes a frame. It reports whether heard changed; an error means that
// the connection is of no more use.
func (b *receiver) apply(f frame) (bool, error) {
	switch {
	case f.Kind == kindHeartbeat:
		return false, nil
	case f.Kind == kindSnapshot:
		b.begun, b.size = true, 0
		// Gateways of this cluster tell what they remember.
		b.trust = b.peer.Device != "" || b.ages != nil && !b.ages.knows(b.peer.Cluster)
		b.staged, b.broken, b.dirty = map[string]staged{}, map[string]bool{}, map[string]bool{}
		for cluster := range b.states {
			b.dirty[cluster] = true
		}
	case f.Kind != kindDelta:
		return false, fmt.Errorf("frame of unknown kind %q", f.Kind)
	case !b.begun:
		return false, errors.New("delta before a snapshot")
	}
	for _, u := range f.Clusters {
		if !b.mayPublish(u.Cluster) {
			b.warn("speaks for another cluster")
			continue
		}
		err := b.update(u)
		if err != nil && b.peer.Device == "" {
			return false, err
		}
		if err != nil {
			// Who relays speaks for many: the others are not to blame.
			b.forget(u.Cluster)
			b.broken[u.Cluster] = true
			b.warn(err.Error())
		}
	}
	if f.More {
		return false, nil
	}
	b.complete = true
	if len(b.dirty) == 0 {
		return false, nil
	}
	b.commit()
	return true, nil
}

// mayPublish: a gateway of another cluster speaks for its own cluster only; one
// of this cluster for all others.
func (b *receiver) mayPublish(cluster string) bool {
	if b.peer.Device != "" {
		return cluster != b.own && fabric.IsLabel(cluster)
	}
	return cluster == b.peer.Cluster
}

func (b *receiver) update(u update) error {
	b.dirty[u.Cluster] = true
	if u.Gone {
		b.forget(u.Cluster)
		delete(b.broken, u.Cluster)
		return nil
	}
	if b.broken[u.Cluster] {
		return nil
	}
	if u.Shape != "" && !fabric.IsLabelText(u.Shape) {
		return fmt.Errorf("shape of %s is none", u.Cluster)
	}
	have, known := b.staged[u.Cluster]
	if !known {
		have.exports = map[string]sized{}
	}
	transit, err := decodeSmall(b, u.Transit, checkTransit)
	if err != nil {
		return fmt.Errorf("links of %s: %w", u.Cluster, err)
	}
	places, err := decodeSmall(b, u.Places, checkPlaces)
	if err != nil {
		return fmt.Errorf("places of %s: %w", u.Cluster, err)
	}
	have.stale, have.shape, have.transit, have.places = u.Stale, u.Shape, transit, places
	before := have.size
	for _, key := range u.Removed {
		have.remove(key)
	}
	for _, raw := range u.Exports {
		if err := b.export(u.Cluster, &have, raw); err != nil {
			return fmt.Errorf("live state of %s: %w", u.Cluster, err)
		}
	}
	b.size += have.size - before
	b.staged[u.Cluster] = have
	if have.size > maxCluster {
		return fmt.Errorf("live state of %s takes more than %d bytes", u.Cluster, maxCluster)
	}
	if b.size > maxRelayed {
		return fmt.Errorf("live state of all clusters takes more than %d bytes with that of %s", maxRelayed, u.Cluster)
	}
	return nil
}

func (b *receiver) forget(cluster string) {
	b.size -= b.staged[cluster].size
	delete(b.staged, cluster)
}

func (s *staged) remove(key string) {
	s.size -= s.exports[key].size
	delete(s.exports, key)
}

// export takes an export over. One that no cluster can have is left out.
func (b *receiver) export(cluster string, into *staged, raw json.RawMessage) error {
	export, err := b.decode(raw)
	if err != nil {
		return err
	}
	key := export.Namespace + "/" + export.Name
	into.remove(key)
	if err := checkExport(&export); err != nil {
		b.warn(err.Error())
		return nil
	}
	if !passable(&export) {
		b.warn("announces an export that is too large to be passed on")
		return nil
	}
	if export.Offer != nil && b.ages != nil {
		export.Offer.Created = b.ages.of(cluster, key, export.Offer.Created, b.trust)
	}
	size := cost(&export)
	into.exports[key] = sized{export: export, size: size}
	into.size += size
	return nil
}

// decodeSmall reads what a cluster says beside its exports. What no cluster says is as if
// nothing was said.
func decodeSmall[T any](b *receiver, raw json.RawMessage, check func(*T) error) (*T, error) {
	if len(raw) == 0 {
		return nil, nil
	}
	var said *T
	if err := json.Unmarshal(raw, &said); err != nil {
		return nil, fmt.Errorf("decode: %w", err)
	}
	if said == nil {
		return nil, nil
	}
	err := check(said)
	if err == nil && len(raw) > maxSmall {
		err = errors.New("reports more than a cluster has")
	}
	if err != nil {
		b.warn(err.Error())
		return nil, nil
	}
	return said, nil
}

// decode reads an export and leaves out the hosts that the peer may not announce.
func (b *receiver) decode(raw json.RawMessage) (model.ExportState, error) {
	var export model.ExportState
	if err := json.Unmarshal(raw, &export); err != nil {
		return export, fmt.Errorf("decode export: %w", err)
	}
	hosts := export.Hosts[:0]
	for _, host := range export.Hosts {
		err := checkHost(&host)
		if err == nil && !b.within(host.IPs) {
			err = errOutside
		}
		if err == nil {
			hosts = append(hosts, host)
		} else {
			b.warn(err.Error())
		}
	}
	if len(hosts) == 0 {
		hosts = nil
	}
	export.Hosts = slices.Clone(hosts) // not the memory of those that are left out
	if !b.acceptableOffer(export.Offer) {
		export.Offer = nil
	}
	return export, nil
}

var errOutside = errors.New("announces a host outside its blocks")

// acceptableOffer: no larger than a service makes it, and at addresses of the peer.
func (b *receiver) acceptableOffer(offer *mcs.Offer) bool {
	if offer == nil {
		return true
	}
	if err := offer.Check(); err != nil {
		b.warn("offers what no service is")
		return false
	}
	if !b.within(offer.Addrs) {
		b.warn("offers an address outside its blocks")
		return false
	}
	return true
}

// within reports whether the peer may speak of addresses.
func (b *receiver) within(addrs []netip.Addr) bool {
	return !slices.ContainsFunc(addrs, func(addr netip.Addr) bool {
		if !addr.IsValid() || addr.Zone() != "" || addr.Is4In6() {
			return true
		}
		return b.peer.Device == "" && len(b.peer.AllowedPrefixes) > 0 &&
			!slices.ContainsFunc(b.peer.AllowedPrefixes, func(block netip.Prefix) bool { return block.Contains(addr) })
	})
}

// commit makes what the frames said true, at once for all clusters.
func (b *receiver) commit() {
	next := maps.Clone(b.states)
	if next == nil {
		next = map[string]RemoteState{}
	}
	for cluster := range b.dirty {
		have, known := b.staged[cluster]
		if !known {
			delete(next, cluster)
			continue
		}
		live := model.ClusterState{
			Cluster: cluster, Exports: make([]model.ExportState, 0, len(have.exports)), Shape: have.shape, Transit: have.transit,
			Endpoints: have.places,
		}
		for _, e := range have.exports {
			live.Exports = append(live.Exports, e.export)
		}
		slices.SortFunc(live.Exports, compareExports)
		next[cluster] = RemoteState{Live: live, Stale: have.stale}
		if b.ages != nil {
			b.ages.heard(cluster, have.exports)
		}
	}
	b.trust = b.peer.Device != ""
	b.states = next
	b.dirty = map[string]bool{}
}
