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

// Firewall lists the changes for firewalls in front of gateways: ports to open before the change is
// published, and ports to close after all agents apply it.
type Firewall struct {
	Open  []Ports `json:"open"`
	Close []Ports `json:"close"`
}

// Ports are ports at the endpoints of some gateways, for the gateways of some clusters.
type Ports struct {
	Protocol string      `json:"protocol"`        // udp | esp
	Ports    []int       `json:"ports,omitempty"` // at the endpoints, ascending; none for esp
	At       []GatewayAt `json:"at"`
	// From names the clusters whose gateways connect, sorted; empty if All is set.
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

// firewallOf compares the ports that must be open.
func firewallOf(want, have *fabric.Fabric) Firewall {
	out := Firewall{Open: []Ports{}, Close: []Ports{}}
	changed, everything := newLinks(want, have)
	if !everything && len(changed) == 0 {
		return out
	}
	w, h := firewall.New(want), firewall.New(have)
	open := portFold{clusters: len(want.Clusters), of: map[string]*Ports{}}
	shut := portFold{clusters: len(have.Clusters), of: map[string]*Ports{}}
	for _, cluster := range clusterNames(want, have) {
		// What a cluster that did not change needs for others that did not is the same.
		var only func(string) bool
		if !everything && !changed[cluster] {
			only = func(other string) bool { return changed[other] }
		}
		is, isOrder := gatewayPorts(w, cluster, only)
		was, wasOrder := gatewayPorts(h, cluster, only)
		for _, d := range isOrder {
			open.add(d, without(is[d], was[d]))
		}
		for _, d := range wasOrder {
			shut.add(d, without(was[d], is[d]))
		}
	}
	out.Open, out.Close = open.list(), shut.list()
	return out
}

// newLinks returns the clusters with changed gateways or links, on which ports depend; everything
// means that all may have changed.
func newLinks(a, b *fabric.Fabric) (changed map[string]bool, everything bool) {
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

// gatewayPorts returns the ports of a cluster's gateways, each with the clusters that connect to it.
func gatewayPorts(s *firewall.Calculator, cluster string, only func(string) bool) (from map[openPort][]string, order []openPort) {
	from = map[openPort][]string{}
	for _, o := range s.Links(cluster, only) {
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

// without returns the names of a sorted list that are not in other. It may return the list itself.
func without(list, other []string) []string {
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

// portFold joins ports of one endpoint for the same clusters, and then endpoints with the same
// ports for the same clusters.
type portFold struct {
	clusters int
	of       map[string]*Ports
	order    []*Ports
}

func (f *portFold) add(d openPort, from []string) {
	if len(from) == 0 {
		return
	}
	p := &Ports{Protocol: d.protocol, From: from, At: []GatewayAt{{d.gateway, d.host}}}
	if len(from) == f.clusters-1 && f.clusters > 2 {
		p.From, p.All = nil, true
	}
	key := d.gateway + " " + d.host + " " + d.protocol + " " + p.subjects()
	if have := f.of[key]; have != nil {
		have.Ports = append(have.Ports, d.port)
		return
	}
	if d.port != 0 {
		p.Ports = []int{d.port}
	}
	f.of[key] = p
	f.order = append(f.order, p)
}

func (f *portFold) list() []Ports {
	out := []Ports{}
	at := map[string]int{}
	for _, p := range f.order {
		slices.Sort(p.Ports)
		key := fmt.Sprint(p.Protocol, p.Ports) + p.subjects()
		if i, found := at[key]; found {
			out[i].At = append(out[i].At, p.At...)
			continue
		}
		at[key] = len(out)
		out = append(out, *p)
	}
	return out
}

// subjects returns a key that is equal for equal clusters.
func (p *Ports) subjects() string {
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
	at := make([]string, 0, maxResources)
	for i, a := range p.At {
		if i == maxResources {
			at = append(at, fmt.Sprintf("%d more", len(p.At)-i))
			break
		}
		at = append(at, a.Host+" ("+a.Gateway+")")
	}
	who := names(p.From)
	if p.All {
		who = "all other clusters"
	}
	return text + " at " + strings.Join(at, ", ") + " from " + who
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

func (o *printer) ports(verb string, list []Ports) {
	for i := range list {
		if i == maxChanges {
			o.text("  %s %d more (-o json lists all)\n", verb, len(list)-i)
			return
		}
		o.text("  %s %s\n", verb, list[i].Text())
	}
}

// clusterNames returns the names of all clusters of two fabrics, sorted.
func clusterNames(a, b *fabric.Fabric) []string {
	return slices.Compact(slices.Sorted(slices.Values(slices.Concat(a.ClusterNames(), b.ClusterNames()))))
}
