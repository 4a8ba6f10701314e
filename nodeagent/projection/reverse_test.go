package projection_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"hawser.dev/hawser/nodeagent/desired"
	"hawser.dev/hawser/nodeagent/projection"
	"hawser.dev/hawser/schema/fabric"
)

// TestServerFirst checks the source address of a backend of g2 that sends through a gateway that
// does not know the connection.
func TestServerFirst(t *testing.T) {
	t.Parallel()
	const backend = "10.7.1.21 . tcp . 8080"
	tests := []struct {
		name   string
		change func(in *projection.Input)
		want   []string // elements of the backend
	}{
		{"one export", func(*projection.Input) {}, []string{"reverse4 " + backend + " : 242.2.0.32 . 80"}},
		{"two exports", func(in *projection.Input) { again(in, 0, "242.2.0.33") }, []string{"ambiguous4 " + backend}},
		{"the same export twice", func(in *projection.Input) { again(in, 0, "242.2.0.32") }, []string{"reverse4 " + backend + " : 242.2.0.32 . 80"}},
		{"two ports of one export", func(in *projection.Input) {
			in.Fabric.Exports[0].Ports = append(in.Fabric.Exports[0].Ports, fabric.Port{Protocol: "TCP", Port: 81})
			for i := range in.Facts.Services[0].Endpoints {
				in.Facts.Services[0].Endpoints[i].Ports["TCP/81"] = 8080
			}
		}, []string{"ambiguous4 " + backend}},
		{"another port of the pod", func(in *projection.Input) {
			again(in, 0, "242.2.0.33")
			endpoints := in.Facts.Services[len(in.Facts.Services)-1].Endpoints
			for i := range endpoints {
				endpoints[i].Ports = map[string]int{"TCP/80": 9090}
			}
		}, []string{"reverse4 10.7.1.21 . tcp . 9090 : 242.2.0.33 . 80", "reverse4 " + backend + " : 242.2.0.32 . 80"}},
		{"headless too, by its mapped address", func(in *projection.Input) {
			headlessToo(in)
			in.Fabric.Exports[1].Clusters[0].Hosts = nil
		}, []string{"reverse4 " + backend + " : 242.2.0.32 . 80"}},
		{"headless too, with a fixed address", headlessToo, []string{"ambiguous4 " + backend}},
		{"flat", func(in *projection.Input) { in.Fabric.Clusters[1].Globalnet = false }, []string{"reverse4 " + backend + " : 242.2.0.32 . 80"}},
		{"UDP", overUDP, []string{"reverse4 10.7.1.21 . udp . 8080 : 242.2.0.32 . 80"}},
		{"UDP, flat", func(in *projection.Input) {
			overUDP(in)
			in.Fabric.Clusters[1].Globalnet = false
		}, nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			w, _ := readWorld(t, "testdata/globalnet.txtar")
			in := w.inputs["g2/g2-a"]
			tt.change(&in)
			state, _ := projection.Desired(in)
			var have []string
			for _, e := range state.Elements {
				if (e.Set == desired.SetReverse || e.Set == desired.SetAmbiguous) && strings.HasPrefix(e.ID, "10.7.1.21 ") {
					have = append(have, strings.TrimSuffix(e.Key()+" : "+e.Value, " : "))
				}
			}
			slices.Sort(have)
			slices.Sort(tt.want)
			if diff := cmp.Diff(tt.want, have); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// again exports a service of g2 under a second name.
func again(in *projection.Input, index int, ip string) {
	e := in.Fabric.Exports[index]
	e.Name += "-again"
	e.Clusters = []fabric.ExportCluster{{Name: "g2", IPs: addrs(ip)}}
	in.Fabric.Exports = append(in.Fabric.Exports, e)
	s := in.Facts.Services[index]
	s.Name += "-again"
	s.Endpoints = slices.Clone(s.Endpoints)
	in.Facts.Services = append(in.Facts.Services, s)
}

// headlessToo adds a backend of the export to the headless export.
func headlessToo(in *projection.Input) {
	in.Facts.Services[1].Endpoints[0].Addrs = addrs("10.7.1.21")
	in.Fabric.Clusters[1].EgressMode = fabric.EgressMapped
	in.Fabric.Clusters[1].Mappings = []fabric.Mapping{{Pods: prefixes("10.7.0.0/16")[0], Global: prefixes("242.3.0.0/16")[0]}}
}

func overUDP(in *projection.Input) {
	in.Fabric.Exports[0].Ports[0].Protocol = "UDP"
	in.Facts.Services[0].Ports[0].Protocol = "UDP"
	for i := range in.Facts.Services[0].Endpoints {
		in.Facts.Services[0].Endpoints[i].Ports = map[string]int{"UDP/80": 8080}
	}
}
