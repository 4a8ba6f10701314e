package feed

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"

	"hawser.dev/hawser/nodeagent/mcs"
	"hawser.dev/hawser/nodeagent/project"
)

// maxState bounds what one feed may make its receiver remember, in bytes of JSON.
const maxState = 64 << 20

// inbox turns the frames of one connection into what was heard. It trusts the
// other end only with what it may speak of.
type inbox struct {
	peer  Peer
	own   string       // this agent's cluster
	warn  func(string) // told of what was refused, by a fixed reason
	heard map[string]Heard

	begun    bool // a snapshot came
	complete bool // and its last frame: heard is the whole truth
	staged   map[string]staged
	size     int
	dirty    map[string]bool
}

// staged is a cluster while the frames of one change come in. Its map is
// never shared.
type staged struct {
	stale   bool
	exports map[string]sized
	shape   string
	passing *project.Passing
}

type sized struct {
	export project.LiveExport
	size   int
}

// apply takes a frame. It reports whether heard changed; an error means that
// the connection is of no more use.
func (b *inbox) apply(f frame) (bool, error) {
	switch {
	case f.Kind == kindHeartbeat:
		return false, nil
	case f.Kind == kindSnapshot:
		b.begun, b.size = true, 0
		b.staged, b.dirty = map[string]staged{}, map[string]bool{}
		for cluster := range b.heard {
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
		if err := b.update(u); err != nil {
			return false, err
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
func (b *inbox) mayPublish(cluster string) bool {
	if b.peer.Device != "" {
		return cluster != b.own && cluster != ""
	}
	return cluster == b.peer.Cluster
}

func (b *inbox) update(u update) error {
	b.dirty[u.Cluster] = true
	have, known := b.staged[u.Cluster]
	if u.Gone {
		for _, e := range have.exports {
			b.size -= e.size
		}
		delete(b.staged, u.Cluster)
		return nil
	}
	if !known {
		have.exports = map[string]sized{}
		b.size += len(u.Cluster)
	}
	passing, err := decodePassing(u)
	if err != nil {
		return fmt.Errorf("links of %s: %w", u.Cluster, err)
	}
	have.stale, have.shape, have.passing = u.Stale, u.Shape, passing
	b.staged[u.Cluster] = have
	for _, key := range u.Removed {
		b.size -= have.exports[key].size
		delete(have.exports, key)
	}
	for _, raw := range u.Exports {
		export, err := b.decode(raw)
		if err != nil {
			return fmt.Errorf("live state of %s: %w", u.Cluster, err)
		}
		key := export.Namespace + "/" + export.Name
		b.size += len(raw) - have.exports[key].size
		have.exports[key] = sized{export: export, size: len(raw)}
	}
	if b.size > maxState {
		return fmt.Errorf("live state holds more than %d bytes", maxState)
	}
	return nil
}

// decodePassing reads what a cluster says of its links. One update holds no more
// than a frame, so its size needs no other bound.
func decodePassing(u update) (*project.Passing, error) {
	if len(u.Shape) > 63 {
		return nil, errors.New("decode shape: more than 63 bytes")
	}
	if len(u.Passing) == 0 {
		return nil, nil
	}
	var passing *project.Passing
	if err := json.Unmarshal(u.Passing, &passing); err != nil {
		return nil, fmt.Errorf("decode passing: %w", err)
	}
	return passing, nil
}

// decode reads an export and leaves out the hosts that the peer may not announce.
func (b *inbox) decode(raw json.RawMessage) (project.LiveExport, error) {
	var export project.LiveExport
	if err := json.Unmarshal(raw, &export); err != nil {
		return export, fmt.Errorf("decode export: %w", err)
	}
	if export.Namespace == "" || export.Name == "" || len(export.Namespace) > 63 || len(export.Name) > 63 {
		return export, errors.New("decode export: a namespace and a name are DNS labels")
	}
	hosts := export.Hosts[:0]
	for _, host := range export.Hosts {
		if b.acceptable(host) {
			hosts = append(hosts, host)
		} else {
			b.warn("announces a host outside its blocks")
		}
	}
	export.Hosts = slices.Clip(hosts)
	if len(hosts) == 0 {
		export.Hosts = nil
	}
	if !b.acceptableOffer(export.Offer) {
		export.Offer = nil
	}
	return export, nil
}

// acceptableOffer: no larger than a service makes it, and at addresses of the peer.
func (b *inbox) acceptableOffer(offer *mcs.Offer) bool {
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

// maxHostPorts bounds the ports of one host.
const maxHostPorts = 256

func (b *inbox) acceptable(host project.LiveHost) bool {
	if len(host.Name) > 63 || len(host.Label) > 63 || len(host.IPs) == 0 || len(host.Ports) > maxHostPorts {
		return false
	}
	for _, port := range host.Ports {
		if port < 1 || port > 65535 {
			return false
		}
	}
	return b.within(host.IPs)
}

// within reports whether the peer may speak of addresses.
func (b *inbox) within(addrs []netip.Addr) bool {
	return !slices.ContainsFunc(addrs, func(addr netip.Addr) bool {
		if !addr.IsValid() || addr.Zone() != "" || addr.Is4In6() {
			return true
		}
		return b.peer.Device == "" && len(b.peer.Blocks) > 0 &&
			!slices.ContainsFunc(b.peer.Blocks, func(block netip.Prefix) bool { return block.Contains(addr) })
	})
}

// commit makes what the frames said true, at once for all clusters.
func (b *inbox) commit() {
	next := maps.Clone(b.heard)
	if next == nil {
		next = map[string]Heard{}
	}
	for cluster := range b.dirty {
		have, known := b.staged[cluster]
		if !known {
			delete(next, cluster)
			continue
		}
		live := project.Live{
			Cluster: cluster, Exports: make([]project.LiveExport, 0, len(have.exports)), Shape: have.shape, Passing: have.passing,
		}
		for _, e := range have.exports {
			live.Exports = append(live.Exports, e.export)
		}
		slices.SortFunc(live.Exports, func(a, b project.LiveExport) int {
			return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
		})
		next[cluster] = Heard{Live: live, Stale: have.stale}
	}
	b.heard = next
	b.dirty = map[string]bool{}
}
