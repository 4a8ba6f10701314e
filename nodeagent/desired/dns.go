package desired

import (
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"hawser.dev/hawser/internal/diff"
	"hawser.dev/hawser/internal/humanize"
	"hawser.dev/hawser/schema/fabric"
)

// Zone describes one domain of the DNS server.
type Zone struct {
	Domain       string // clusterset.local
	ClusterNames bool
	TTL          fabric.Duration
	Serial       uint32 // of the SOA record; follows from the content
	Extra        bool   // one of the extra domains: reverse lookups do not return its names
	Origin       string
}

// Key is the domain.
func (z Zone) Key() string { return z.Domain }

// Fields returns the settings.
func (z Zone) Fields() []diff.Field {
	return []diff.Field{
		{Name: "clusterNames", Value: strconv.FormatBool(z.ClusterNames)},
		{Name: "ttl", Value: strconv.FormatInt(int64(z.TTL), 10)},
		{Name: "serial", Value: strconv.FormatUint(uint64(z.Serial), 10)},
		{Name: "extra", Value: strconv.FormatBool(z.Extra)},
	}
}

// Service is the DNS data of one exported Service.
type Service struct {
	Namespace string
	Name      string
	Headless  bool
	VIPs      []netip.Addr // ClusterSetIP: the answer to <svc>.<ns>.svc
	Ports     []ServicePort
	Clusters  []ServiceCluster // sorted by name; reachable clusters that export it
	Origin    string
}

// ServicePort is one port, for SRV records.
type ServicePort struct {
	Name     string
	Protocol string // TCP | UDP
	Port     int
}

// ServiceCluster is one cluster's part of a service.
type ServiceCluster struct {
	Name  string
	IPs   []netip.Addr  // ClusterSetIP: the answer to <cluster>.<svc>.<ns>.svc
	Hosts []ServiceHost // Headless: the ready endpoints
}

// ServiceHost is one ready endpoint of a headless Service.
type ServiceHost struct {
	Name string // hostname; may be empty
	IPs  []netip.Addr
	// Ports are the endpoint's port numbers that differ from the Service's ports, by protocol
	// and Service port, as in TCP/80.
	Ports map[string]int
}

// Key is namespace/name.
func (s Service) Key() string { return s.Namespace + "/" + s.Name }

// Equal compares two services without building their text.
func (s Service) Equal(other Service) bool {
	return s.Namespace == other.Namespace && s.Name == other.Name && s.Headless == other.Headless &&
		slices.Equal(s.VIPs, other.VIPs) && slices.Equal(s.Ports, other.Ports) &&
		slices.EqualFunc(s.Clusters, other.Clusters, sameCluster)
}

func sameCluster(a, b ServiceCluster) bool {
	return a.Name == b.Name && slices.Equal(a.IPs, b.IPs) && slices.EqualFunc(a.Hosts, b.Hosts, sameHost)
}

func sameHost(a, b ServiceHost) bool {
	return a.Name == b.Name && slices.Equal(a.IPs, b.IPs) && maps.Equal(a.Ports, b.Ports)
}

// Fields returns the content as text.
func (s Service) Fields() []diff.Field {
	var ports, clusters strings.Builder
	for _, p := range s.Ports {
		ports.WriteString(p.Name + "/" + p.Protocol + "/" + strconv.Itoa(p.Port) + " ")
	}
	for _, c := range s.Clusters {
		clusters.WriteString(c.Name + "[" + humanize.Join(c.IPs, ","))
		for _, h := range c.Hosts {
			clusters.WriteString(" " + h.Name + "=" + humanize.Join(h.IPs, ","))
			for _, port := range slices.Sorted(maps.Keys(h.Ports)) {
				clusters.WriteString(":" + port + "=" + strconv.Itoa(h.Ports[port]))
			}
		}
		clusters.WriteString("] ")
	}
	return []diff.Field{
		{Name: "headless", Value: strconv.FormatBool(s.Headless)},
		{Name: "vips", Value: humanize.Join(s.VIPs, ",")},
		{Name: "ports", Value: strings.TrimSuffix(ports.String(), " ")},
		{Name: "clusters", Value: strings.TrimSuffix(clusters.String(), " ")},
	}
}
