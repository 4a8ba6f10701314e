package feed

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"hawser.dev/hawser/nodeagent/model"
	"hawser.dev/hawser/nodeagent/peer/health"
	"hawser.dev/hawser/schema/fabric"
)

// Bounds of what one cluster can make others remember: above what a cluster has, and
// low enough that one, or a few together, fill nobody's memory.
const (
	// maxCluster bounds the state of one cluster, in bytes of memory.
	maxCluster = 32 << 20
	// maxRelayed bounds what one feed reports about all clusters together, in the same.
	maxRelayed = 16 * maxCluster
	// maxEdges bounds the links of which a cluster tells.
	maxEdges = 1024
	// maxSmall bounds the same as JSON, and what it says of places, in bytes. Both with
	// one export must fit in a frame.
	maxSmall = 128 << 10
	// maxFound bounds the endpoints of one gateway that a cluster reports, and maxSeen the
	// gateways of others that it sees.
	maxFound = 16
	maxSeen  = 4096
	// maxHostPorts and maxHostAddrs are those of one host.
	maxHostPorts = 256
	maxHostAddrs = 8
)

// What things take in memory at least, bytes: a little more than their types and the
// maps and lists around them.
const (
	exportCost = 512
	hostCost   = 160
	offerCost  = 512
	mapCost    = 320
	entryCost  = 96
	addrCost   = 24
	portCost   = 80
)

// cost is about how much memory an export takes, in bytes.
func cost(e *model.ExportState) int {
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
		for _, all := range []map[string]string{o.Labels, o.Annotations} {
			sum += mapCost
			for key, value := range all {
				sum += entryCost + len(key) + len(value)
			}
		}
	}
	return sum
}

// escaped is how many bytes one byte of a text can become in JSON.
const escaped = 6

// passable reports whether an export that came in can be passed on: encoded anew it
// may be longer than it was. It is encoded for that only if it may be too long.
func passable(e *model.ExportState) bool {
	if escaped*cost(e) <= maxExport {
		return true
	}
	_, err := encodeExport(*e)
	return err == nil
}

// checkExport reports what no export of a cluster has. Hosts and offers are checked
// apart.
func checkExport(e *model.ExportState) error {
	if !fabric.IsLabel(e.Namespace) || !fabric.IsLabel(e.Name) {
		return errors.New("announces an export whose namespace or name is no DNS label")
	}
	for i, fam := range e.Families {
		if fam != 4 && fam != 6 || slices.Contains(e.Families[:i], fam) {
			return errors.New("announces an export with a family that is none")
		}
	}
	return nil
}

// checkHost reports what no endpoint of a cluster has.
func checkHost(h *model.ExportHost) error {
	switch {
	case h.Name != "" && !fabric.IsLabel(h.Name), h.Label != "" && !fabric.IsLabel(h.Label):
		return errors.New("announces a host whose name is no DNS label")
	case len(h.IPs) == 0 || len(h.IPs) > maxHostAddrs:
		return errors.New("announces a host with no address or too many")
	case len(h.Ports) > maxHostPorts:
		return errors.New("announces a host with too many ports")
	}
	for key, port := range h.Ports {
		protocol, number, _ := strings.Cut(key, "/")
		of, err := strconv.Atoi(number)
		if protocol != "TCP" && protocol != "UDP" && protocol != "SCTP" || err != nil || !isPort(of) || !isPort(port) ||
			strconv.Itoa(of) != number {
			return errors.New("announces a host with a port that is none")
		}
	}
	return nil
}

func isPort(n int) bool { return n >= 1 && n <= 65535 }

// checkTransit reports what no cluster says of its links.
func checkTransit(p *model.TransitAdvert) error {
	if len(p.Edges) > maxEdges {
		return fmt.Errorf("reports %d links, more than %d", len(p.Edges), maxEdges)
	}
	for _, e := range p.Edges {
		if !fabric.IsLabel(e.Cluster) || e.Rank < 0 || e.Rank > int(health.Good) || e.MTU < 0 || e.MTU > 65535 {
			return errors.New("reports an invalid link")
		}
	}
	return nil
}

// checkPlaces reports what no cluster says of places. Which of them count is for package found.
func checkPlaces(p *model.EndpointAdvert) error {
	if len(p.Discovered) > fabric.MaxGateways || len(p.Observed) > maxSeen {
		return errors.New("reports endpoints of more gateways than there are")
	}
	for gateway, all := range p.Discovered {
		if !fabric.IsLabel(gateway) || len(all) > maxFound {
			return errors.New("reports an invalid gateway, or too many endpoints of one")
		}
		for _, f := range all {
			if !fabric.IsEndpointSource(f.Source) || f.Port < 0 || f.Port > 65535 {
				return errors.New("reports an invalid endpoint")
			}
		}
	}
	for name := range p.Observed {
		cluster, gateway, _ := strings.Cut(name, "/")
		if !fabric.IsLabel(cluster) || !fabric.IsLabel(gateway) {
			return errors.New("sees a gateway that is none")
		}
	}
	return nil
}
