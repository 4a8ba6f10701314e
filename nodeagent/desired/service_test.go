package desired

import (
	"net/netip"
	"testing"
)

// TestServiceEqual changes each field of a service in turn; Equal must report every change.
func TestServiceEqual(t *testing.T) {
	t.Parallel()
	sample := func() Service {
		return Service{
			Namespace: "n", Name: "s", Headless: true, VIPs: []netip.Addr{netip.MustParseAddr("243.0.0.1")},
			Ports: []ServicePort{{Name: "http", Protocol: "TCP", Port: 80}},
			Clusters: []ServiceCluster{{Name: "g1", IPs: []netip.Addr{netip.MustParseAddr("242.1.0.1")},
				Hosts: []ServiceHost{{Name: "h", IPs: []netip.Addr{netip.MustParseAddr("242.1.0.2")}}}}},
		}
	}
	other := netip.MustParseAddr("242.9.9.9")
	tests := map[string]func(*Service){
		"namespace":  func(s *Service) { s.Namespace = "x" },
		"name":       func(s *Service) { s.Name = "x" },
		"headless":   func(s *Service) { s.Headless = false },
		"vip":        func(s *Service) { s.VIPs[0] = other },
		"no vip":     func(s *Service) { s.VIPs = nil },
		"port name":  func(s *Service) { s.Ports[0].Name = "x" },
		"protocol":   func(s *Service) { s.Ports[0].Protocol = "UDP" },
		"port":       func(s *Service) { s.Ports[0].Port = 81 },
		"two ports":  func(s *Service) { s.Ports = append(s.Ports, s.Ports[0]) },
		"cluster":    func(s *Service) { s.Clusters[0].Name = "x" },
		"no cluster": func(s *Service) { s.Clusters = nil },
		"cluster IP": func(s *Service) { s.Clusters[0].IPs[0] = other },
		"host":       func(s *Service) { s.Clusters[0].Hosts[0].Name = "x" },
		"host IP":    func(s *Service) { s.Clusters[0].Hosts[0].IPs[0] = other },
		"no host":    func(s *Service) { s.Clusters[0].Hosts = nil },
	}
	if s := sample(); !s.Equal(sample()) {
		t.Error("a service does not equal its copy")
	}
	for name, change := range tests {
		s := sample()
		change(&s)
		if s.Equal(sample()) || sample().Equal(s) {
			t.Errorf("%s: Equal reports no difference", name)
		}
	}
}
