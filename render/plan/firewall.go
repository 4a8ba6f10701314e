package plan

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"hawser.dev/hawser/schema/fabric"
	"hawser.dev/hawser/schema/fabric/firewall"
)

// Firewall lists the changes for firewalls in front of gateways. Open contains the ports to open
// before the change is merged. Close contains the ports to close after all agents have applied it.
type Firewall struct {
	Open  []Ports `json:"open"`
	Close []Ports `json:"close"`
}

// Ports lists destination ports at endpoints of gateways, and the clusters whose gateways connect
// to them.
type Ports struct {
	Protocol string      `json:"protocol"`        // udp | esp
	Ports    []int       `json:"ports,omitempty"` // at the endpoints, ascending; none for esp
	At       []GatewayAt `json:"at"`
	// From contains the clusters whose gateways connect, sorted; empty if All is set.
	From []string `json:"from,omitempty"`
	All  bool     `json:"all,omitempty"`
}

// GatewayAt is an endpoint of a gateway.
type GatewayAt struct {
	Gateway string `json:"gateway"` // cluster/gateway
	Host    string `json:"host"`    // an address or a name
}

// openPort is one port at one endpoint.
type openPort struct {
	gateway, host, protocol string
	port                    int
}

// firewallChanges returns the difference of the required open ports.
func firewallChanges(want, have *fabric.Fabric) Firewall {
	out := Firewall{Open: []Ports{}, Close: []Ports{}}
	changed, everything := changedClusters(want, have)
	if !everything && len(changed) == 0 {
		return out
	}
	w, h := firewall.New(want), firewall.New(have)
	open := portGrouper{clusters: len(want.Clusters), byKey: map[string]*Ports{}}
	closed := portGrouper{clusters: len(have.Clusters), byKey: map[string]*Ports{}}
	for _, cluster := range clusterNames(want, have) {
		// Ports between two unchanged clusters do not change.
		var filter func(string) bool
		if !everything && !changed[cluster] {
			filter = func(other string) bool { return changed[other] }
		}
		portsAfter, orderAfter := gatewayPorts(w, cluster, filter)
		portsBefore, orderBefore := gatewayPorts(h, cluster, filter)
		for _, d := range orderAfter {
			open.add(d, difference(portsAfter[d], portsBefore[d]))
		}
		for _, d := range orderBefore {
			closed.add(d, difference(portsBefore[d], portsAfter[d]))
		}
	}
	out.Open, out.Close = open.list(), closed.list()
	return out
}

// changedClusters returns the clusters with changes of gateways or links on which ports depend.
// everything means that all clusters may have changed.
func changedClusters(a, b *fabric.Fabric) (changed map[string]bool, everything bool) {
	everything = !slices.Equal(a.Epochs, b.Epochs) || a.Tunnel.Driver != b.Tunnel.Driver || shape(a) != shape(b) ||
		a.Tunnel.IPsec.IKEPort != b.Tunnel.IPsec.IKEPort || a.Tunnel.IPsec.NATPort != b.Tunnel.IPsec.NATPort ||
		a.Tunnel.IPsec.Encapsulation != b.Tunnel.IPsec.Encapsulation
	changed = map[string]bool{}
	links := map[fabric.LinkSettings]int{}
	for _, l := range a.Links {
		links[l]++
	}
	for _, l := range b.Links {
		links[l]--
	}
	gateways := map[string][]fabric.Gateway{}
	for i := range b.Clusters {
		gateways[b.Clusters[i].Name] = b.Clusters[i].Gateways
		changed[b.Clusters[i].Name] = true
	}
	for i := range a.Clusters {
		c := &a.Clusters[i]
		old, found := gateways[c.Name]
		changed[c.Name] = !found || !slices.EqualFunc(c.Gateways, old, func(g, o fabric.Gateway) bool {
			return g.Name == o.Name && g.Port == o.Port && g.Ordinal == o.Ordinal && slices.Equal(g.Endpoints, o.Endpoints)
		})
	}
	maps.DeleteFunc(changed, func(_ string, is bool) bool { return !is })
	for l, n := range links {
		if n != 0 {
			changed[l.Between[0]], changed[l.Between[1]] = true, true
		}
	}
	return changed, everything
}

// gatewayPorts returns the ports of a cluster's gateways. For each port it returns the clusters
// that connect to the port.
func gatewayPorts(s *firewall.Calculator, cluster string, filter func(string) bool) (from map[openPort][]string, order []openPort) {
	from = map[openPort][]string{}
	for _, o := range s.Links(cluster, filter) {
		if o.Purpose != firewall.PurposeLinks {
			continue
		}
		for _, at := range o.Destinations {
			d := openPort{o.Cluster + "/" + o.Gateway, at.Host, o.Protocol, o.First}
			if at.First != 0 {
				d.port = at.First
			}
			if from[d] == nil {
				order = append(order, d)
				from[d] = o.From
				continue
			}
			from[d] = slices.Compact(slices.Sorted(slices.Values(slices.Concat(from[d], o.From))))
		}
	}
	return from, order
}

// difference returns the names of a sorted list that other lacks. The result can be the list
// itself.
func difference(list, other []string) []string {
	switch {
	case len(other) == 0:
		return list
	case slices.Equal(list, other):
		return nil
	}
	return slices.DeleteFunc(slices.Clone(list), func(n string) bool {
		_, found := slices.BinarySearch(other, n)
		return found
	})
}

// portGrouper joins the ports of one endpoint that have the same clusters. Then it joins endpoints
// with the same ports and clusters.
type portGrouper struct {
	clusters int
	byKey    map[string]*Ports
	order    []*Ports
}

func (f *portGrouper) add(d openPort, from []string) {
	if len(from) == 0 {
		return
	}
	p := &Ports{Protocol: d.protocol, From: from, At: []GatewayAt{{d.gateway, d.host}}}
	if len(from) == f.clusters-1 && f.clusters > 2 {
		p.From, p.All = nil, true
	}
	key := d.gateway + " " + d.host + " " + d.protocol + " " + p.clusterKey()
	if existing := f.byKey[key]; existing != nil {
		existing.Ports = append(existing.Ports, d.port)
		return
	}
	if d.port != 0 {
		p.Ports = []int{d.port}
	}
	f.byKey[key] = p
	f.order = append(f.order, p)
}

func (f *portGrouper) list() []Ports {
	out := []Ports{}
	index := map[string]int{}
	for _, p := range f.order {
		slices.Sort(p.Ports)
		key := fmt.Sprint(p.Protocol, p.Ports) + p.clusterKey()
		if i, found := index[key]; found {
			out[i].At = append(out[i].At, p.At...)
			continue
		}
		index[key] = len(out)
		out = append(out, *p)
	}
	return out
}

// clusterKey returns a key of From and All.
func (p *Ports) clusterKey() string {
	if p.All {
		return "*"
	}
	return strings.Join(p.From, " ")
}

// Text describes the ports to open, as in
//
//	UDP 51822 and 51823 at 203.0.113.11 (fra/a) from ams, sin
func (p *Ports) Text() string {
	text := "ESP (IP protocol 50)"
	if p.Protocol == firewall.UDP {
		text = "UDP " + portList(p.Ports)
	}
	at := make([]string, 0, maxLineItems)
	for i, a := range p.At {
		if i == maxLineItems {
			at = append(at, fmt.Sprintf("%d more", len(p.At)-i))
			break
		}
		at = append(at, a.Host+" ("+a.Gateway+")")
	}
	clusters := names(p.From)
	if p.All {
		clusters = "all other clusters"
	}
	return text + " at " + strings.Join(at, ", ") + " from " + clusters
}

func portList(ports []int) string {
	var texts []string
	for i := 0; i < len(ports); {
		j := i
		for j+1 < len(ports) && ports[j+1] == ports[j]+1 {
			j++
		}
		switch text := strconv.Itoa(ports[i]); {
		case j > i+1:
			texts = append(texts, text+"-"+strconv.Itoa(ports[j]))
		case j > i:
			texts = append(texts, text, strconv.Itoa(ports[j]))
		default:
			texts = append(texts, text)
		}
		i = j + 1
	}
	if last := len(texts) - 1; last > 0 {
		return strings.Join(texts[:last], ", ") + " and " + texts[last]
	}
	return strings.Join(texts, "")
}

func (o *printer) firewall(f *Firewall) {
	if len(f.Open)+len(f.Close) == 0 {
		return
	}
	o.text("\n%s\n", o.paint(bold, "Firewall changes:"))
	o.ports("open before merge:  ", f.Open)
	o.ports("close after rollout:", f.Close)
}

func (o *printer) ports(label string, list []Ports) {
	for i := range list {
		if i == maxListed {
			o.text("  %s %d more (-o json lists all)\n", label, len(list)-i)
			return
		}
		o.text("  %s %s\n", label, list[i].Text())
	}
}

// clusterNames returns the names of all clusters of two fabrics, sorted.
func clusterNames(a, b *fabric.Fabric) []string {
	return slices.Compact(slices.Sorted(slices.Values(slices.Concat(a.ClusterNames(), b.ClusterNames()))))
}
