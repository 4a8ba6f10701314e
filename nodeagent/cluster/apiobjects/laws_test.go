package apiobjects

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	mcsv1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"hawser.dev/hawser/nodeagent/cluster/apiobjects/corefile"
	"hawser.dev/hawser/nodeagent/converge"
	"hawser.dev/hawser/nodeagent/converge/convergetest"
	"hawser.dev/hawser/nodeagent/mcs"
	"hawser.dev/hawser/nodeagent/model"
	"hawser.dev/hawser/schema/fabric"
)

func addr(text string) netip.Addr { return netip.MustParseAddr(text) }

func sampleImport() mcs.Import {
	return mcs.Import{
		Namespace: "sample", Name: "web", Type: fabric.ClusterSetIP, IPs: []netip.Addr{addr("fd24::7"), addr("243.0.0.7")}, Families: []int{6, 4},
		Ports:    []mcs.Port{{Name: "http", Protocol: "TCP", Port: 80, AppProtocol: "kubernetes.io/h2c"}, {Name: "stcp", Protocol: "SCTP", Port: 142}},
		Affinity: "ClientIP", AffinitySeconds: 10, InternalTrafficPolicy: "Cluster", TrafficDistribution: "PreferClose",
		Labels: map[string]string{"tier": "front", "bad label": "x"}, Annotations: map[string]string{"a/b": "c=d, e"},
		Clusters: []string{"g1", "g2"}, Conditions: []mcs.Condition{{Type: "Ready", Status: "True", Reason: "Ready", Message: "exported from g1, g2"}},
	}
}

// unchanged returns a function that returns an error if an object has changed since the call of
// unchanged.
func unchanged(s *apiServer, keys ...string) func() error {
	before := map[string]any{}
	for _, key := range keys {
		before[key] = s.get(key).Object
	}
	return func() error {
		for key, want := range before {
			have := s.get(key)
			if have == nil {
				return fmt.Errorf("%s is gone", key)
			}
			if diff := cmp.Diff(want, any(have.Object)); diff != "" {
				return fmt.Errorf("%s changed (-want +have)\n%s", key, diff)
			}
		}
		return nil
	}
}

func newWorld(t *testing.T) *apiServer {
	s := newAPIServer(t)
	s.put("namespaces", `{"metadata":{"name":"","namespace":"sample"}}`)
	s.objects["namespaces /sample"] = s.objects["namespaces sample/"]
	return s
}

func TestImportLaws(t *testing.T) {
	t.Parallel()
	s := newWorld(t)
	newKind := func(t *testing.T) converge.Kind[Import] {
		return newImports(&writeContext{peersSynced: true}, newResourceCache(s.client(t), serviceImports, "ServiceImport", listing[*mcsv1.ServiceImport](s, "serviceimports")))
	}
	headless := mcs.Import{Namespace: "sample", Name: "db", Type: fabric.Headless, Families: []int{4}}
	convergetest.Laws(t, newKind, convergetest.Samples[Import]{
		Want: []Import{desiredImport(sampleImport()), desiredImport(headless)},
		Vary: func(i Import) []Import {
			vary := func(change func(*Import)) Import {
				other := i
				change(&other)
				return other
			}
			return slices.DeleteFunc([]Import{
				vary(func(i *Import) { i.Type = "Headless"; i.IPs = nil; i.Affinity = "None"; i.AffinitySeconds = 0 }),
				vary(func(i *Import) { i.Ports = []mcs.Port{{Protocol: "UDP", Port: 53}} }),
				vary(func(i *Import) { i.Labels = nil; i.Annotations = []string{"x=y"} }),
				vary(func(i *Import) { i.InternalTrafficPolicy, i.TrafficDistribution = "Local", "" }),
				vary(func(i *Import) { i.Clusters = []string{"g3"} }),
				vary(func(i *Import) { i.Conditions = []mcs.Condition{{Type: "Ready", Status: "False", Reason: "Pending"}} }),
				vary(func(i *Import) { i.Families = []string{"IPv4", "IPv6"} }),
			}, func(v Import) bool { return slices.Equal(v.Fields(), i.Fields()) })
		},
		Tamper: map[string]func(*testing.T){
			"spec":    func(*testing.T) { s.edit("serviceimports sample/web", set("Headless", "spec", "type")) },
			"status":  func(*testing.T) { s.edit("serviceimports sample/web", set([]any{}, "status", "clusters")) },
			"label":   func(*testing.T) { s.edit("serviceimports sample/web", set("back", "metadata", "labels", "tier")) },
			"deleted": func(*testing.T) { s.lose("serviceimports sample/web") },
			"record": func(*testing.T) {
				s.edit("serviceimports sample/web", func(o *unstructured.Unstructured) { o.SetAnnotations(nil) })
			},
		},
		Foreign: func(*testing.T) func() error {
			s.put("serviceimports", `{"metadata":{"name":"other","namespace":"sample"},"spec":{"type":"ClusterSetIP"}}`)
			return unchanged(s, "serviceimports sample/other")
		},
		Conflict: func(*testing.T) (Import, func() error) {
			s.put("serviceimports", `{"metadata":{"name":"taken","namespace":"sample"},"spec":{"type":"ClusterSetIP"}}`)
			want := desiredImport(sampleImport())
			want.Name = "taken"
			return want, unchanged(s, "serviceimports sample/taken")
		},
	})
}

func set(value any, path ...string) func(*unstructured.Unstructured) {
	return func(o *unstructured.Unstructured) { _ = unstructured.SetNestedField(o.Object, value, path...) }
}

func TestSliceLaws(t *testing.T) {
	t.Parallel()
	s := newWorld(t)
	imports := newResourceCache(s.client(t), serviceImports, "ServiceImport", listing[*mcsv1.ServiceImport](s, "serviceimports"))
	s.put("serviceimports", `{"metadata":{"name":"web","namespace":"sample","labels":{"app.kubernetes.io/managed-by":"hawser"}}}`)
	newKind := func(t *testing.T) converge.Kind[Slice] {
		return &sliceKind{writeContext: &writeContext{peersSynced: true}, imports: imports, table: newResourceCache(s.client(t), endpointSlices, "EndpointSlice", listing[*discoveryv1.EndpointSlice](s, "endpointslices"))}
	}
	four := mcs.Slice{
		Namespace: "sample", Name: "web-hw-1", Import: "web", Cluster: "g2", Family: 4,
		Ports:     []mcs.Port{{Protocol: "TCP", Port: 80}, {Name: "dns", Protocol: "UDP", Port: 53, AppProtocol: "x"}},
		Endpoints: []mcs.Endpoint{{Addr: addr("242.2.0.7"), Hostname: "web-0"}, {Addr: addr("242.2.0.8")}},
	}
	six := mcs.Slice{Namespace: "sample", Name: "web-hw-2", Import: "web", Cluster: "g1", Family: 6, Endpoints: []mcs.Endpoint{{Addr: addr("fd24::7")}}}
	convergetest.Laws(t, newKind, convergetest.Samples[Slice]{
		Want: []Slice{desiredSlice(four), desiredSlice(six)},
		Vary: func(w Slice) []Slice {
			other, ports, kind := w, w, w
			other.Endpoints = []string{"242.9.9.9 x"}
			ports.Ports = []mcs.Port{{Name: "y", Protocol: "TCP", Port: 81}}
			kind.Type, kind.Cluster = map[string]string{"IPv4": "IPv6", "IPv6": "IPv4"}[w.Type], "g3"
			return []Slice{other, ports, kind}
		},
		Tamper: map[string]func(*testing.T){
			"endpoints": func(*testing.T) { s.edit("endpointslices sample/web-hw-1", set([]any{}, "endpoints")) },
			"label": func(*testing.T) {
				s.edit("endpointslices sample/web-hw-1", set("x", "metadata", "labels", mcsv1.LabelServiceName))
			},
			"owner": func(*testing.T) {
				s.edit("endpointslices sample/web-hw-1", set([]any{}, "metadata", "ownerReferences"))
			},
			"deleted": func(*testing.T) { s.lose("endpointslices sample/web-hw-2") },
		},
		Foreign: func(*testing.T) func() error {
			s.put("endpointslices", `{"metadata":{"name":"other","namespace":"sample","labels":{"endpointslice.kubernetes.io/managed-by":"x"}}}`)
			return unchanged(s, "endpointslices sample/other")
		},
	})
}

func TestGatewaySliceLaws(t *testing.T) {
	t.Parallel()
	s := newWorld(t)
	s.objects["namespaces /hawser-system"] = s.objects["namespaces /sample"]
	newKind := func(t *testing.T) converge.Kind[GatewaySlice] {
		return newGatewaySlices(&writeContext{peersSynced: true}, newResourceCache(s.client(t), endpointSlices, "EndpointSlice", only(listing[*discoveryv1.EndpointSlice](s, "endpointslices"), isGatewaySlice)))
	}
	ports := []mcs.Port{{Name: "udp-51820", Protocol: "UDP", Port: 51820}, {Name: "udp-51883", Protocol: "UDP", Port: 51883}}
	four := GatewaySlice{Service: "hawser-gateway-a", Type: "IPv4", Node: "n1", Address: "172.18.0.2", Ports: ports}
	six := GatewaySlice{Service: "hawser-gateway-a", Type: "IPv6", Node: "n1", Address: "fd00::2", Ports: ports}
	convergetest.Laws(t, newKind, convergetest.Samples[GatewaySlice]{
		Want: []GatewaySlice{four, six},
		Vary: func(f GatewaySlice) []GatewaySlice {
			node, address, other := f, f, f
			node.Node = "n2"
			address.Address = map[string]string{"IPv4": "172.18.0.9", "IPv6": "fd00::9"}[f.Type]
			other.Ports = ports[:1]
			return []GatewaySlice{node, address, other}
		},
		Tamper: map[string]func(*testing.T){
			"endpoints": func(*testing.T) {
				s.edit("endpointslices hawser-system/hawser-gateway-a-4", set([]any{}, "endpoints"))
			},
			"service": func(*testing.T) {
				s.edit("endpointslices hawser-system/hawser-gateway-a-4", set("hawser-gateway-b", "metadata", "labels", "kubernetes.io/service-name"))
			},
			"deleted": func(*testing.T) { s.lose("endpointslices hawser-system/hawser-gateway-a-6") },
		},
		Foreign: func(*testing.T) func() error {
			s.put("endpointslices", `{"metadata":{"name":"other","namespace":"hawser-system","labels":{"kubernetes.io/service-name":"other"}}}`)
			s.put("endpointslices", `{"metadata":{"name":"web-hw-1","namespace":"sample","labels":{"endpointslice.kubernetes.io/managed-by":"hawser.dev"}}}`)
			return unchanged(s, "endpointslices hawser-system/other", "endpointslices sample/web-hw-1")
		},
	})
}

// TestGatewaySlicesOf checks that the Service of a gateway points to its current node once both are
// known. No other Service has a GatewaySlice.
func TestGatewaySlicesOf(t *testing.T) {
	t.Parallel()
	node := func(name string, addrs ...string) model.Node {
		n := model.Node{Name: name}
		for _, a := range addrs {
			n.Addrs = append(n.Addrs, addr(a))
		}
		return n
	}
	own := &fabric.Cluster{Gateways: []fabric.Gateway{
		{Name: "a", Node: "n1", Endpoints: []string{fabric.SourceLoadBalancer}},
		{Name: "b", Node: "n2", Endpoints: []string{fabric.SourceNodePort}},
		{Name: "c", Node: "n3", Endpoints: []string{"192.0.2.1", fabric.SourceObserved}},
		{Name: "d", Endpoints: []string{fabric.SourceLoadBalancer}},
	}}
	serviceIn := func(namespace, name string) model.Service {
		return model.Service{Namespace: namespace, Name: name, Ports: []model.ServicePort{{Name: "udp-51820", Protocol: "UDP", Port: 51820}}}
	}
	facts := model.Facts{
		Nodes: []model.Node{node("n1", "172.18.0.2", "fd00::2"), node("n2", "172.18.0.3"), node("n3", "172.18.0.4")},
		Services: []model.Service{
			serviceIn("hawser-system", "hawser-gateway-a"), serviceIn("shop", "hawser-gateway-b"),
			serviceIn("hawser-system", "hawser-gateway-c"), serviceIn("hawser-system", "hawser-gateway-d"),
		},
	}
	ports := []mcs.Port{{Name: "udp-51820", Protocol: "UDP", Port: 51820}}
	want := []GatewaySlice{
		{Service: "hawser-gateway-a", Type: "IPv4", Node: "n1", Address: "172.18.0.2", Ports: ports},
		{Service: "hawser-gateway-a", Type: "IPv6", Node: "n1", Address: "fd00::2", Ports: ports},
	}
	if diff := cmp.Diff(want, GatewaySlicesOf(own, facts)); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}

func TestExportLaws(t *testing.T) {
	t.Parallel()
	s := newWorld(t)
	for _, name := range []string{"web", "db", "other"} {
		s.put("serviceexports", `{"metadata":{"name":"`+name+`","namespace":"sample","annotations":{"theirs":"x"}},"spec":{}}`)
	}
	uid := func(name string) string { return string(s.get("serviceexports sample/" + name).GetUID()) }
	newKind := func(t *testing.T) converge.Kind[Export] {
		return &exportKind{writeContext: &writeContext{peersSynced: true}, table: newResourceCache(s.client(t), serviceExports, "ServiceExport", listing[*mcsv1.ServiceExport](s, "serviceexports"))}
	}
	valid := mcs.Condition{Type: "Valid", Status: "True", Reason: "Valid"}
	web := mcs.Status{Namespace: "sample", Name: "web", UID: uid("web"), Generation: 3, Addrs: []netip.Addr{addr("242.1.0.7"), addr("fd24::7")},
		Conditions: []mcs.Condition{valid, {Type: "Conflict", Status: "False", Reason: "NoConflicts", Message: "m"}}}
	db := mcs.Status{Namespace: "sample", Name: "db", UID: uid("db"), Generation: 1, Conditions: []mcs.Condition{valid}}
	unharmed := unchanged(s, "serviceexports sample/other")
	convergetest.Laws(t, newKind, convergetest.Samples[Export]{
		Want: []Export{desiredExport(web), desiredExport(db)},
		Vary: func(e Export) []Export {
			address, generation, conditions := e, e, e
			address.Addresses += "242.1.0.9"
			generation.Generation++
			conditions.Conditions = []mcs.Condition{{Type: "Valid", Status: "False", Reason: "NoService"}}
			return []Export{address, generation, conditions}
		},
		Tamper: map[string]func(*testing.T){
			"address": func(*testing.T) {
				s.edit("serviceexports sample/web", set("9.9.9.9", "metadata", "annotations", mcs.AddressesAnnotation))
			},
			"condition": func(*testing.T) { s.edit("serviceexports sample/web", set([]any{}, "status", "conditions")) },
			"an unexpected address": func(*testing.T) {
				s.edit("serviceexports sample/db", set("9.9.9.9", "metadata", "annotations", mcs.AddressesAnnotation))
			},
		},
		Foreign: func(*testing.T) func() error { return unharmed },
		Silent:  []string{"UID"},
	})
	if have := s.get("serviceexports sample/web").GetAnnotations(); !maps.Equal(have, map[string]string{"theirs": "x"}) {
		t.Errorf("annotations left: %v", have)
	}
}

func TestPropertyLaws(t *testing.T) {
	t.Parallel()
	s := newWorld(t)
	newKind := func(t *testing.T) converge.Kind[Property] {
		return newProperties(&writeContext{peersSynced: true}, newResourceCache(s.client(t), clusterProperties, "ClusterProperty", listing[*clusterProperty](s, "clusterproperties")))
	}
	convergetest.Laws(t, newKind, convergetest.Samples[Property]{
		Want: desiredProperties(map[string]string{"cluster.clusterset.k8s.io": "g1", "clusterset.k8s.io": "demo"}),
		Vary: func(p Property) []Property { return []Property{{Name: p.Name, Value: "other"}} },
		Tamper: map[string]func(*testing.T){
			"value":   func(*testing.T) { s.edit("clusterproperties /clusterset.k8s.io", set("x", "spec", "value")) },
			"deleted": func(*testing.T) { s.lose("clusterproperties /clusterset.k8s.io") },
		},
		Conflict: func(*testing.T) (Property, func() error) {
			s.put("clusterproperties", `{"metadata":{"name":"taken"},"spec":{"value":"theirs"}}`)
			return Property{Name: "taken", Value: "ours"}, unchanged(s, "clusterproperties /taken")
		},
	})
}

const kubeadm = ".:53 {\\n    errors\\n    forward . /etc/resolv.conf\\n    reload\\n}\\n"

func TestDomainLaws(t *testing.T) {
	t.Parallel()
	s := newWorld(t)
	texts := []string{
		`{"metadata":{"name":"coredns","namespace":"kube-system"},"data":{"Corefile":"` + kubeadm + `","other":"x"}}`,
		`{"metadata":{"name":"coredns-custom","namespace":"kube-system"},"data":{"their.server":"example.org {\n}\n"}}`,
		`{"metadata":{"name":"node-local-dns","namespace":"kube-system"},"data":{"Corefile":".:53 {\n    bind __PILLAR__LOCAL__DNS__\n    forward . __PILLAR__UPSTREAM__SERVERS__\n}\n"}}`,
		`{"metadata":{"name":"kube-dns","namespace":"kube-system"},"data":{"stubDomains":"{ \"a\": [\"1.2.3.4\"] }\n"}}`,
	}
	s.put("namespaces", `{"metadata":{"name":"","namespace":"kube-system"}}`)
	for _, text := range texts {
		s.put("configmaps", escaped(text))
	}
	before := map[string]any{}
	for _, name := range slices.Sorted(maps.Values(configMapOfDNS)) {
		before[name] = s.get("configmaps kube-system/" + name).Object["data"]
	}
	f := corefile.Forward{Zones: []string{"clusterset.local"}, Servers: []netip.Addr{addr("169.254.73.53")}}
	newKind := func(t *testing.T) converge.Kind[DNSForwarding] {
		return &dnsKind{writeContext: &writeContext{peersSynced: true, forward: f}, reverts: map[string]*revertHistory{}, table: newResourceCache(s.client(t), configMaps, "ConfigMap", listing[*corev1.ConfigMap](s, "configmaps"))}
	}
	var want []DNSForwarding
	for _, integration := range []string{fabric.DNSNodeLocal, fabric.DNSImport, fabric.DNSStubZone} {
		want = append(want, desiredForwarding(integration, f)...)
	}
	convergetest.Laws(t, newKind, convergetest.Samples[DNSForwarding]{
		Want: want,
		Tamper: map[string]func(*testing.T){
			"block removed":              func(*testing.T) { s.put("configmaps", escaped(texts[0])) },
			"block of the cache removed": func(*testing.T) { s.put("configmaps", escaped(texts[2])) },
			"file emptied":               func(*testing.T) { s.edit("configmaps kube-system/coredns-custom", set("", "data", "hawser.server")) },
			"stub removed":               func(*testing.T) { s.put("configmaps", escaped(texts[3])) },
		},
		Foreign: func(*testing.T) func() error {
			s.put("configmaps", `{"metadata":{"name":"kube-proxy","namespace":"kube-system"},"data":{"Corefile":"# hawser: begin"}}`)
			return unchanged(s, "configmaps kube-system/kube-proxy")
		},
		Silent: []string{"Forward", "FullText", "OtherFiles"},
	})
	for _, name := range slices.Sorted(maps.Values(configMapOfDNS)) {
		if diff := cmp.Diff(before[name], s.get("configmaps kube-system/" + name).Object["data"]); diff != "" {
			t.Errorf("%s changed (-want +have)\n%s", name, diff)
		}
	}
}

// escaped returns a text with escaped line ends, for JSON texts in Go source.
func escaped(text string) string {
	out := ""
	for _, r := range text {
		if r == '\n' {
			out += `\n`
			continue
		}
		out += string(r)
	}
	return out
}
