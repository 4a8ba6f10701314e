package feed

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"hawser.dev/hawser/nodeagent/model"
	"hawser.dev/hawser/nodeagent/peer/health"
	"hawser.dev/hawser/schema/fabric"
)

// Bounds of the state that one cluster can make other clusters store. Valid clusters stay below
// them. A few hostile clusters together do not exhaust the memory of a node.
const (
	// maxClusterMemory bounds the state of one cluster, in bytes of memory.
	maxClusterMemory = 32 << 20
	// maxRelayMemory bounds the state of all clusters on one feed, in bytes of memory.
	maxRelayMemory = 16 * maxClusterMemory
	// maxRefusedClusters bounds the clusters of a relay that are refused because they exceed
	// bounds. One more ends the feed.
	maxRefusedClusters = 1024
	// maxEdges bounds the links that a cluster reports.
	maxEdges = 1024
	// maxInfoPart bounds the links of a cluster in bytes of JSON, and likewise its endpoints.
	// Links, endpoints and one export must fit in a frame.
	maxInfoPart = 128 << 10
	// maxDiscovered bounds the endpoints that a cluster reports for one gateway. maxObserved
	// bounds the gateways of other clusters that it observes.
	maxDiscovered = 16
	maxObserved   = 4096
	// maxHostPorts and maxHostAddrs bound the ports and addresses of one host.
	maxHostPorts = 256
	maxHostAddrs = 8
)

// Lower bounds of memory sizes, in bytes. They include the surrounding maps and lists.
const (
	clusterCost = 1024
	exportCost  = 512
	hostCost    = 160
	offerCost   = 512
	mapCost     = 320
	entryCost   = 96
	addrCost    = 24
	portCost    = 80
)

// exportSize estimates the memory of an export, in bytes.
func exportSize(e *model.ExportState) int {
	sum := exportCost + len(e.Namespace) + len(e.Name)
	for i := range e.Hosts {
		h := &e.Hosts[i]
		sum += hostCost + len(h.Name) + len(h.Label) + addrCost*len(h.IPs)
		if len(h.Ports) > 0 {
			sum += mapCost + entryCost*len(h.Ports)
		}
	}
	if o := e.Offer; o != nil {
		sum += offerCost + addrCost*len(o.Addrs)
		for _, p := range o.Ports {
			sum += portCost + len(p.Name) + len(p.AppProtocol)
		}
		for _, labels := range []map[string]string{o.Labels, o.Annotations} {
			sum += mapCost
			for key, value := range labels {
				sum += entryCost + len(key) + len(value)
			}
		}
	}
	return sum
}

// infoSize estimates the memory of the state of a cluster except its exports, in bytes.
func infoSize(i *clusterInfo) int {
	sum := clusterCost
	if i.Transit != nil {
		sum += entryCost * len(i.Transit.Edges)
	}
	if i.Endpoints != nil {
		sum += 2*mapCost + 2*entryCost*len(i.Endpoints.Observed)
		for _, endpoints := range i.Endpoints.Discovered {
			sum += entryCost * (1 + len(endpoints))
		}
	}
	return sum
}

// maxEscapedLength is the maximum length of one byte of text in JSON, in bytes.
const maxEscapedLength = 6

// canRelay reports whether a received export can be sent again. Its new encoding may be longer than
// the received one. canRelay encodes only exports that may be too long.
func canRelay(e *model.ExportState) bool {
	if maxEscapedLength*exportSize(e) <= maxExport {
		return true
	}
	_, err := encodeExport(e)
	return err == nil
}

// checkExport returns an error for an export that is invalid or cannot be relayed. It does not
// check hosts and offer.
func checkExport(e *model.ExportState) error {
	if !fabric.IsLabel(e.Namespace) || !fabric.IsLabel(e.Name) {
		return errors.New("publishes an export whose namespace or name is no DNS label")
	}
	for i, family := range e.Families {
		if family != 4 && family != 6 || slices.Contains(e.Families[:i], family) {
			return errors.New("publishes an export with an invalid family")
		}
	}
	if !canRelay(e) {
		return errors.New("publishes an export that is too large to relay")
	}
	return nil
}

// checkHost returns an error for an invalid host.
func checkHost(h *model.ExportHost) error {
	switch {
	case h.Name != "" && !fabric.IsLabel(h.Name), h.Label != "" && !fabric.IsLabel(h.Label):
		return errors.New("publishes a host whose name is no DNS label")
	case len(h.IPs) == 0 || len(h.IPs) > maxHostAddrs:
		return errors.New("publishes a host with no address or too many")
	case len(h.Ports) > maxHostPorts:
		return errors.New("publishes a host with too many ports")
	}
	for key, port := range h.Ports {
		protocol, number, _ := strings.Cut(key, "/")
		servicePort, err := strconv.Atoi(number)
		if protocol != "TCP" && protocol != "UDP" && protocol != "SCTP" || err != nil || !isValidPort(servicePort) || !isValidPort(port) ||
			strconv.Itoa(servicePort) != number {
			return errors.New("publishes a host with an invalid port")
		}
	}
	return nil
}

func isValidPort(n int) bool { return n >= 1 && n <= 65535 }

// removeInvalid removes the parts that are invalid or too large to relay. It returns the reasons.
func (i *clusterInfo) removeInvalid() (errs []error) {
	if err := checkInfoPart(i.Transit, checkTransit); err != nil {
		i.Transit, errs = nil, append(errs, err)
	}
	if err := checkInfoPart(i.Endpoints, checkEndpoints); err != nil {
		i.Endpoints, errs = nil, append(errs, err)
	}
	return errs
}

func checkInfoPart[T any](part *T, check func(*T) error) error {
	if part == nil {
		return nil
	}
	if err := check(part); err != nil {
		return err
	}
	raw, err := json.Marshal(part)
	if err == nil && len(raw) > maxInfoPart {
		err = errors.New("reports more than a cluster has")
	}
	return err
}

// checkTransit returns an error for invalid or too many links.
func checkTransit(t *model.TransitAdvert) error {
	if len(t.Edges) > maxEdges {
		return fmt.Errorf("reports %d links, the limit is %d", len(t.Edges), maxEdges)
	}
	for _, e := range t.Edges {
		if !fabric.IsLabel(e.Cluster) || e.Rank < 0 || e.Rank > int(health.Good) || e.MTU < 0 || e.MTU > 65535 {
			return errors.New("reports an invalid link")
		}
	}
	return nil
}

// checkEndpoints returns an error for invalid or too many endpoints. Package endpoint decides which
// endpoints count.
func checkEndpoints(e *model.EndpointAdvert) error {
	if len(e.Discovered) > fabric.MaxGateways || len(e.Observed) > maxObserved {
		return errors.New("reports endpoints of too many gateways")
	}
	for gateway, endpoints := range e.Discovered {
		if !fabric.IsLabel(gateway) || len(endpoints) > maxDiscovered {
			return errors.New("reports an invalid gateway, or too many endpoints of one")
		}
		for _, d := range endpoints {
			if !fabric.IsEndpointSource(d.Source) || d.Port < 0 || d.Port > 65535 {
				return errors.New("reports an invalid endpoint")
			}
		}
	}
	for name := range e.Observed {
		cluster, gateway, _ := strings.Cut(name, "/")
		if !fabric.IsLabel(cluster) || !fabric.IsLabel(gateway) {
			return errors.New("observes an invalid gateway")
		}
	}
	return nil
}
