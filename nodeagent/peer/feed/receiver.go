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

// receiver turns the updates of one connection into the states of clusters. It accepts only the
// clusters and addresses that the peer may publish.
type receiver struct {
	peer      Peer
	own       string // this agent's cluster
	warn      func(reason string)
	firstSeen *firstSeen // nil: exports are as old as the peer claims

	// states are from the last complete update; before the first one, from the previous connection.
	// The map and its lists are never changed in place.
	states  map[string]RemoteState
	version uint64 // of the last complete update; 0: none yet

	// Of an update that may have more frames.
	trusted  bool // accept ages as claimed
	clusters map[string]*receivedCluster
	changed  map[string]bool
	refused  map[string]bool // clusters of a relay that exceed bounds, until the relay removes them
	size     int             // of clusters, bytes of memory
}

// receivedCluster is the state of a cluster while frames arrive.
type receivedCluster struct {
	info     clusterInfo
	infoSize int                       // bytes of memory
	exports  map[string]receivedExport // by namespace/name
	size     int                       // of info and exports, bytes of memory
}

type receivedExport struct {
	export model.ExportState
	size   int
	shared bool // is part of states, with the age that counts
}

// newReceiver returns the receiver for a new connection. The states are from the previous
// connection.
func newReceiver(peer Peer, own string, states map[string]RemoteState, seen *firstSeen, warn func(reason string)) *receiver {
	return &receiver{
		peer: peer, own: own, warn: warn, firstSeen: seen, states: states,
		// A gateway of this cluster reports the ages that it has stored. Of a cluster that is new to
		// this agent, no age is known.
		trusted:  peer.Device != "" || seen != nil && !seen.knows(peer.Cluster),
		clusters: map[string]*receivedCluster{}, changed: map[string]bool{}, refused: map[string]bool{},
	}
}

// apply applies a frame of an update, and reports whether states changed. After an error the
// connection must end.
func (r *receiver) apply(u update) (changed bool, err error) {
	if u.Version == 0 {
		return false, errors.New("update without a version")
	}
	for _, c := range u.Changes {
		if !r.mayPublish(c.Cluster) {
			r.warn("publishes another cluster")
			continue
		}
		if err := r.change(c); err != nil {
			// A relay reports many clusters: a cluster that exceeds bounds must not hide the others.
			if r.peer.Device == "" || len(r.refused) >= maxRefused {
				return false, err
			}
			r.remove(c.Cluster)
			r.refused[c.Cluster] = true
			r.warn(err.Error())
		}
	}
	if u.More {
		return false, nil
	}
	first := r.version == 0
	r.version = u.Version
	if !first && len(r.changed) == 0 {
		return false, nil
	}
	r.commit(first)
	return true, nil
}

// mayPublish reports whether the peer may publish a cluster. A gateway of another cluster may
// publish its own cluster, and one of this cluster all others.
func (r *receiver) mayPublish(cluster string) bool {
	if r.peer.Device != "" {
		return cluster != r.own && fabric.IsLabel(cluster)
	}
	return cluster == r.peer.Cluster
}

func (r *receiver) change(c change) error {
	cluster := r.clusters[c.Cluster]
	switch {
	case c.Export == "" && c.State == nil:
		r.remove(c.Cluster)
		delete(r.refused, c.Cluster)
		return nil
	case r.refused[c.Cluster]:
		return nil
	case cluster == nil && c.Export != "":
		return fmt.Errorf("export of cluster %s, which was not published", c.Cluster)
	case cluster == nil:
		cluster = &receivedCluster{exports: map[string]receivedExport{}}
		r.clusters[c.Cluster] = cluster
	}
	r.changed[c.Cluster] = true
	before := cluster.size
	err := r.changeCluster(c, cluster)
	r.size += cluster.size - before
	switch {
	case err != nil:
		return fmt.Errorf("state of %s: %w", c.Cluster, err)
	case cluster.size > maxCluster:
		return fmt.Errorf("state of %s takes more than %d bytes", c.Cluster, maxCluster)
	case r.size > maxRelayed:
		return fmt.Errorf("state of all clusters takes more than %d bytes with %s", maxRelayed, c.Cluster)
	}
	return nil
}

// changeCluster sets the cluster's info, or sets or removes one of its exports.
func (r *receiver) changeCluster(c change, cluster *receivedCluster) error {
	if c.Export == "" {
		info, err := r.decodeInfo(c.State)
		cluster.size += infoSize(&info) - cluster.infoSize
		cluster.info, cluster.infoSize = info, infoSize(&info)
		return err
	}
	cluster.size -= cluster.exports[c.Export].size
	delete(cluster.exports, c.Export)
	if c.State == nil {
		return nil
	}
	export, err := r.decodeExport(c.State)
	switch {
	case err != nil:
		return err
	case exportKey(&export) != c.Export:
		return fmt.Errorf("export %q has another name", clip(c.Export))
	}
	if err := checkExport(&export); err != nil {
		r.warn(err.Error())
		return nil
	}
	size := exportSize(&export)
	cluster.exports[c.Export] = receivedExport{export: export, size: size}
	cluster.size += size
	return nil
}

// remove removes a cluster.
func (r *receiver) remove(cluster string) {
	if received := r.clusters[cluster]; received != nil {
		r.size -= received.size
		delete(r.clusters, cluster)
	}
	// An update may add and remove any number of clusters.
	if _, exists := r.states[cluster]; exists {
		r.changed[cluster] = true
	} else {
		delete(r.changed, cluster)
	}
}

// decodeInfo decodes the state of a cluster except its exports. It omits parts that no cluster has.
func (r *receiver) decodeInfo(raw json.RawMessage) (clusterInfo, error) {
	var info clusterInfo
	if err := json.Unmarshal(raw, &info); err != nil {
		return info, fmt.Errorf("decode: %w", err)
	}
	if info.Shape != "" && !fabric.IsLabelText(info.Shape) {
		return info, errors.New("invalid shape")
	}
	for _, err := range info.limit() {
		r.warn(err.Error())
	}
	return info, nil
}

// decodeExport decodes an export. It omits hosts and an offer that the peer may not publish.
func (r *receiver) decodeExport(raw json.RawMessage) (model.ExportState, error) {
	var export model.ExportState
	if err := json.Unmarshal(raw, &export); err != nil {
		return export, fmt.Errorf("decode export: %w", err)
	}
	hosts := export.Hosts[:0]
	for _, host := range export.Hosts {
		err := checkHost(&host)
		if err == nil && !r.mayUse(host.IPs) {
			err = errors.New("publishes a host outside its prefixes")
		}
		if err == nil {
			hosts = append(hosts, host)
		} else {
			r.warn(err.Error())
		}
	}
	if len(hosts) == 0 {
		hosts = nil
	}
	export.Hosts = slices.Clone(hosts) // without the memory of omitted hosts
	if err := r.checkOffer(export.Offer); err != nil {
		r.warn(err.Error())
		export.Offer = nil
	}
	return export, nil
}

// checkOffer returns an error unless a service can have the offer, at addresses of the peer.
func (r *receiver) checkOffer(offer *mcs.Offer) error {
	switch {
	case offer == nil:
		return nil
	case offer.Check() != nil:
		return errors.New("publishes an invalid offer")
	case !r.mayUse(offer.Addrs):
		return errors.New("publishes an offer outside its prefixes")
	}
	return nil
}

// mayUse reports whether the peer may publish addresses.
func (r *receiver) mayUse(addrs []netip.Addr) bool {
	return !slices.ContainsFunc(addrs, func(addr netip.Addr) bool {
		if !addr.IsValid() || addr.Zone() != "" || addr.Is4In6() {
			return true
		}
		return r.peer.Device == "" && len(r.peer.AllowedPrefixes) > 0 &&
			!slices.ContainsFunc(r.peer.AllowedPrefixes, func(p netip.Prefix) bool { return p.Contains(addr) })
	})
}

// commit makes the changes of a complete update visible, all at once. After the first update of a
// connection, nothing remains of the connection before.
func (r *receiver) commit(first bool) {
	states := map[string]RemoteState{}
	if !first {
		maps.Copy(states, r.states)
	}
	for cluster := range r.changed {
		received := r.clusters[cluster]
		if received == nil {
			delete(states, cluster)
			continue
		}
		exports := make([]model.ExportState, 0, len(received.exports))
		for key, e := range received.exports {
			if !e.shared {
				// Not before the update is complete: it may set and remove any number of exports.
				if o := e.export.Offer; o != nil && r.firstSeen != nil {
					o.Created = r.firstSeen.created(cluster, key, o.Created, r.trusted)
				}
				e.shared = true
				received.exports[key] = e
			}
			exports = append(exports, e.export)
		}
		slices.SortFunc(exports, func(a, b model.ExportState) int { return compareExports(&a, &b) })
		info := &received.info
		states[cluster] = RemoteState{Stale: info.Stale, State: model.ClusterState{
			Cluster: cluster, Exports: exports, Shape: info.Shape, Transit: info.Transit, Endpoints: info.Endpoints,
		}}
		if r.firstSeen != nil {
			r.firstSeen.retain(cluster, received.exports)
		}
	}
	r.trusted = r.peer.Device != ""
	r.states = states
	r.changed = map[string]bool{}
}
