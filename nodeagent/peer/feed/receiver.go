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

// receiver applies the updates of one connection to the states of clusters. It accepts only the
// clusters and addresses that the peer may publish.
type receiver struct {
	peer         Peer
	localCluster string // this agent's cluster
	warn         func(reason string)
	firstSeen    *firstSeen // nil: exports are as old as the peer claims

	// states are from the last complete update. The map and its lists are never changed in
	// place.
	states  map[string]RemoteState
	version uint64 // of the last complete update; 0: none yet

	// State of an update whose frames may not have all arrived.
	trustAges bool // accept ages as claimed
	clusters  map[string]*receivedCluster
	changed   map[string]bool
	refused   map[string]bool // clusters of a relay that exceeded bounds, until the relay removes them
	size      int             // of clusters, bytes of memory
}

// receivedCluster is the received state of a cluster.
type receivedCluster struct {
	info     clusterInfo
	infoSize int                       // bytes of memory
	exports  map[string]receivedExport // by namespace/name
	size     int                       // of info and exports, bytes of memory
}

type receivedExport struct {
	export    model.ExportState
	size      int
	committed bool // part of states, with the effective creation time
}

// newReceiver returns the receiver for a new connection.
func newReceiver(peer Peer, localCluster string, seen *firstSeen, warn func(reason string)) *receiver {
	return &receiver{
		peer: peer, localCluster: localCluster, warn: warn, firstSeen: seen,
		// A gateway of this cluster reports the ages that it has stored. No ages are known
		// for a cluster that is new to this agent.
		trustAges: peer.Device != "" || seen != nil && !seen.hasCluster(peer.Cluster),
		clusters:  map[string]*receivedCluster{}, changed: map[string]bool{}, refused: map[string]bool{},
	}
}

// apply applies a frame of an update. It reports whether states changed. After an error the
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
		if err := r.applyChange(c); err != nil {
			// A cluster of a relay that exceeds bounds must not affect the other
			// clusters.
			if r.peer.Device == "" || len(r.refused) >= maxRefusedClusters {
				return false, err
			}
			r.removeCluster(c.Cluster)
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
	r.commit()
	return true, nil
}

// mayPublish reports whether the peer may publish a cluster. A gateway of another cluster may
// publish its own cluster. A gateway of this cluster may publish all other clusters.
func (r *receiver) mayPublish(cluster string) bool {
	if r.peer.Device != "" {
		return cluster != r.localCluster && fabric.IsLabel(cluster)
	}
	return cluster == r.peer.Cluster
}

func (r *receiver) applyChange(c change) error {
	cluster := r.clusters[c.Cluster]
	switch {
	case c.Export == "" && c.State == nil:
		r.removeCluster(c.Cluster)
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
	err := r.changeClusterState(c, cluster)
	r.size += cluster.size - before
	switch {
	case err != nil:
		return fmt.Errorf("state of %s: %w", c.Cluster, err)
	case cluster.size > maxClusterMemory:
		return fmt.Errorf("state of %s takes more than %d bytes",
			c.Cluster, maxClusterMemory)
	case r.size > maxRelayMemory:
		return fmt.Errorf("state of all clusters takes more than %d bytes with %s",
			maxRelayMemory, c.Cluster)
	}
	return nil
}

// changeClusterState sets the cluster's info, or sets or removes one of its exports.
func (r *receiver) changeClusterState(c change, cluster *receivedCluster) error {
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
		return fmt.Errorf("export %q has another name", truncate(c.Export))
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

// removeCluster removes a cluster.
func (r *receiver) removeCluster(cluster string) {
	if received := r.clusters[cluster]; received != nil {
		r.size -= received.size
		delete(r.clusters, cluster)
	}
	// changed must not grow: an update may add and remove any number of clusters.
	if _, exists := r.states[cluster]; exists {
		r.changed[cluster] = true
	} else {
		delete(r.changed, cluster)
	}
}

// decodeInfo decodes the state of a cluster except its exports. It omits invalid parts.
func (r *receiver) decodeInfo(raw json.RawMessage) (clusterInfo, error) {
	var info clusterInfo
	if err := json.Unmarshal(raw, &info); err != nil {
		return info, fmt.Errorf("decode: %w", err)
	}
	if info.Shape != "" && !fabric.IsLabelText(info.Shape) {
		return info, errors.New("invalid shape")
	}
	for _, err := range info.removeInvalid() {
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
		if err == nil && !r.mayPublishAddrs(host.IPs) {
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
	export.Hosts = slices.Clone(hosts) // releases the memory of omitted hosts
	if err := r.checkOffer(export.Offer); err != nil {
		r.warn(err.Error())
		export.Offer = nil
	}
	return export, nil
}

// checkOffer returns an error if the offer is invalid or has addresses that the peer may not
// publish.
func (r *receiver) checkOffer(offer *mcs.Offer) error {
	switch {
	case offer == nil:
		return nil
	case offer.Check() != nil:
		return errors.New("publishes an invalid offer")
	case !r.mayPublishAddrs(offer.Addrs):
		return errors.New("publishes an offer outside its prefixes")
	}
	return nil
}

// mayPublishAddrs reports whether the peer may publish addresses.
func (r *receiver) mayPublishAddrs(addrs []netip.Addr) bool {
	return !slices.ContainsFunc(addrs, func(addr netip.Addr) bool {
		if !addr.IsValid() || addr.Zone() != "" || addr.Is4In6() {
			return true
		}
		return r.peer.Device == "" && len(r.peer.AllowedPrefixes) > 0 &&
			!slices.ContainsFunc(r.peer.AllowedPrefixes, func(p netip.Prefix) bool { return p.Contains(addr) })
	})
}

// commit applies the changes of a complete update to states.
func (r *receiver) commit() {
	states := map[string]RemoteState{}
	maps.Copy(states, r.states)
	for cluster := range r.changed {
		received := r.clusters[cluster]
		if received == nil {
			delete(states, cluster)
			continue
		}
		exports := make([]model.ExportState, 0, len(received.exports))
		for key, e := range received.exports {
			if !e.committed {
				// An update may set and remove any number of exports, so creation
				// times are recorded only for a complete update.
				if o := e.export.Offer; o != nil && r.firstSeen != nil {
					o.Created = r.firstSeen.creationTime(cluster, key, o.Created, r.trustAges)
				}
				e.committed = true
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
	r.trustAges = r.peer.Device != ""
	r.states = states
	r.changed = map[string]bool{}
}
