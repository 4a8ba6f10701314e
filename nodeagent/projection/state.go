package projection

import (
	"slices"
	"strings"

	"hawser.dev/hawser/internal/diff"
	"hawser.dev/hawser/nodeagent/desired"
	"hawser.dev/hawser/nodeagent/model"
	"hawser.dev/hawser/nodeagent/status"
)

// Desired returns the desired state of the node. Equal inputs have equal results, regardless of the
// order of their lists. Problems do not stop the projection.
func Desired(in Input) (desired.State, []Problem) {
	state, problems, _ := DesiredAndAnnounced(in)
	return state, problems
}

// DesiredAndAnnounced returns the results of Desired and ClusterState. It indexes the input once.
func DesiredAndAnnounced(in Input) (desired.State, []Problem, model.ClusterState) {
	if in.Memo != nil {
		in.Memo.rotate()
	}
	v := newBuilder(in)
	if v == nil {
		return desired.State{}, []Problem{{
			Path: clusterPath(in.Cluster), Code: status.ClusterUnknown, Text: "the fabric does not hold this cluster",
		}}, model.ClusterState{Cluster: in.Cluster}
	}
	v.addLongNames()
	announced := v.clusterState()
	if v.node == nil {
		v.problem(clusterPath(in.Cluster), status.NodeUnknown, "node "+in.Node+" is not among the nodes of the cluster")
	}
	v.addSysctls()
	v.addNodeDevice()
	v.addTunnels()
	v.addTransit()
	v.addTable()
	v.addRules()
	v.addFeedRules()
	v.addDirect()
	v.addReturnPaths()
	v.addRoutes()
	v.addCommonSets()
	v.addExports()
	v.reportPodsOutside()
	v.reportForeignRules()
	v.reportNetworkConflicts()
	v.addReplySources()
	if v.gateway != nil {
		v.addEgress()
		v.addFilter()
	}
	v.addEntries()
	v.addDNS()
	v.reportInvalidExports()
	v.reportRefusedExports()
	v.reportForeignImports()
	s := &v.state
	s.Sysctls = unique(s.Sysctls)
	s.Devices = unique(s.Devices)
	s.Wireguards = unique(s.Wireguards)
	s.Peers = unique(s.Peers)
	s.IPsecs = unique(s.IPsecs)
	s.Addresses = unique(s.Addresses)
	s.Neighbors = unique(s.Neighbors)
	s.Forwards = unique(s.Forwards)
	s.Rules = unique(s.Rules)
	s.Routes = unique(s.Routes)
	s.Services = unique(s.Services)
	s.Zones = unique(s.Zones)
	s.Elements = v.elements.all()
	return *s, v.sortedProblems(), announced
}

// Routes returns only the routes of Desired, in a fraction of the time. If the active link changes,
// no other object must change at once.
func Routes(in Input) []desired.Route {
	v := newBuilder(in)
	if v == nil {
		return nil
	}
	v.addNodeDevice()
	v.addTunnels()
	v.addTransit()
	v.addRoutes()
	return unique(v.state.Routes)
}

// unique sorts specs by key and retains the first spec of each key. A duplicate key would block all
// changes of that kind of object.
func unique[S diff.Spec](list []S) []S {
	type keyed struct {
		key  string
		spec S
	}
	all := make([]keyed, len(list))
	for i, s := range list {
		all[i] = keyed{s.Key(), s}
	}
	slices.SortStableFunc(all, func(a, b keyed) int { return strings.Compare(a.key, b.key) })
	all = slices.CompactFunc(all, func(a, b keyed) bool { return a.key == b.key })
	for i := range all {
		list[i] = all[i].spec
	}
	return list[:len(all)]
}
