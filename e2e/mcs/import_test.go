//go:build kube

package mcs

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	difference "github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

// differs gives an error when two values are not the same.
func differs(what string, want, have any) error {
	if d := difference.Diff(want, have, cmpopts.EquateEmpty()); d != "" {
		return fmt.Errorf("%s (-want +have):\n%s", what, d)
	}
	return nil
}

// importLives is spec 2.
func importLives(b *bed) {
	first, second := b.two()
	b.exportBoth(first, second, hello(), hello(), exporting{}, exporting{})
	there := func() error { _, err := b.find(first); return err }
	b.condition(second, "Valid", metav1.ConditionTrue)
	b.steadily("the import stays after the second export", there)
	b.unexport(first)
	b.steadily("the import stays after the first export went", there)
	b.unexport(second)
	b.importGone(first)
}

// typeClusterSetIP is spec 3.
func typeClusterSetIP(b *bed) { b.typeOf(hello(), "ClusterSetIP") }

// typeHeadless is spec 11.
func typeHeadless(b *bed) { b.typeOf(headless(hello()), "Headless") }

func (b *bed) typeOf(service *corev1.Service, want string) {
	b.deploy(b.clusters[0], service, 1)
	b.export(b.clusters[0], exporting{})
	b.condition(b.clusters[0], "Valid", metav1.ConditionTrue)
	for _, c := range b.clusters {
		b.imported(c, func(i serviceImport) error { return differs("type", want, i.Spec.Type) })
	}
	b.unexport(b.clusters[0])
	for _, c := range b.clusters {
		b.importGone(c)
	}
}

// one exports the service from the first cluster and checks the import there.
func (b *bed) one(service *corev1.Service, e exporting, check func(serviceImport) error) {
	b.Helper()
	b.deploy(b.clusters[0], service, 1)
	b.export(b.clusters[0], e)
	b.imported(b.clusters[0], check)
}

// sessionAffinity is spec 4.
func sessionAffinity(b *bed) {
	want := hello().Spec
	b.one(hello(), exporting{}, func(i serviceImport) error {
		if err := differs("affinity", want.SessionAffinity, i.Spec.SessionAffinity); err != nil {
			return err
		}
		return differs("its settings", want.SessionAffinityConfig, i.Spec.SessionAffinityConfig)
	})
}

// internalTrafficPolicy is spec 5.
func internalTrafficPolicy(b *bed) {
	want := "Cluster"
	service := hello()
	policy := corev1.ServiceInternalTrafficPolicyCluster
	service.Spec.InternalTrafficPolicy = &policy
	b.one(service, exporting{}, func(i serviceImport) error { return differs("policy", &want, i.Spec.InternalTrafficPolicy) })
}

// trafficDistribution is spec 6.
func trafficDistribution(b *bed) {
	want := corev1.ServiceTrafficDistributionPreferClose
	service := hello()
	service.Spec.TrafficDistribution = &want
	b.one(service, exporting{}, func(i serviceImport) error { return differs("distribution", &want, i.Spec.TrafficDistribution) })
}

// addressPerFamily is spec 7.
func addressPerFamily(b *bed) {
	b.one(hello(), exporting{}, func(i serviceImport) error {
		if len(i.Spec.IPs) == 0 || len(i.Spec.IPs) != len(i.Spec.IPFamilies) {
			return fmt.Errorf("addresses %v of families %v", i.Spec.IPs, i.Spec.IPFamilies)
		}
		for n, text := range i.Spec.IPs {
			addr, err := netip.ParseAddr(text)
			if err != nil {
				return err
			}
			if addr.Is4() != (i.Spec.IPFamilies[n] == corev1.IPv4Protocol) {
				return fmt.Errorf("%s is not %s", text, i.Spec.IPFamilies[n])
			}
		}
		return nil
	})
}

// portsOf gives the ports of services as an import has them.
func portsOf(services ...*corev1.Service) []importPort {
	var out []importPort
	for _, s := range services {
		for _, p := range s.Spec.Ports {
			q := importPort{Name: p.Name, Protocol: string(cmp.Or(p.Protocol, corev1.ProtocolTCP)), Port: p.Port}
			if p.AppProtocol != nil {
				q.AppProtocol = *p.AppProtocol
			}
			if !slices.Contains(out, q) {
				out = append(out, q)
			}
		}
	}
	return ordered(out)
}

func ordered(ports []importPort) []importPort {
	out := slices.Clone(ports)
	slices.SortFunc(out, func(a, b importPort) int {
		return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.Protocol, b.Protocol), cmp.Compare(a.Port, b.Port))
	})
	return out
}

// portsOfImport is spec 8.
func portsOfImport(b *bed) {
	service := hello()
	protocol := "kubernetes.io/h2c"
	service.Spec.Ports[0].AppProtocol = &protocol
	b.one(service, exporting{}, func(i serviceImport) error { return differs("ports", portsOf(service), ordered(i.Spec.Ports)) })
}

// portUnion is spec 9.
func portUnion(b *bed) {
	first, second := b.two()
	other := hello()
	other.Spec.Ports = []corev1.ServicePort{other.Spec.Ports[0], {Name: "stcp", Port: 142, Protocol: corev1.ProtocolSCTP}}
	b.exportBoth(first, second, hello(), other, exporting{}, exporting{})
	b.conflict()
	b.imported(first, func(i serviceImport) error { return differs("ports", portsOf(hello(), other), ordered(i.Spec.Ports)) })
}

// portConflict is spec 10.
func portConflict(b *bed) {
	first, second := b.two()
	other := hello()
	other.Spec.Ports = []corev1.ServicePort{{Name: "tcp", Port: 43, Protocol: corev1.ProtocolTCP}, other.Spec.Ports[1]}
	b.exportBoth(first, second, hello(), other, exporting{}, exporting{})
	b.conflict()
	b.imported(first, func(i serviceImport) error { return differs("ports", portsOf(hello()), ordered(i.Spec.Ports)) })
}

// conflict waits until both exports say that there is one.
func (b *bed) conflict() {
	b.Helper()
	for _, c := range b.clusters[:2] {
		b.condition(c, "Conflict", metav1.ConditionTrue)
	}
}

// headlessNoAddress is spec 12.
func headlessNoAddress(b *bed) {
	b.one(headless(hello()), exporting{}, func(serviceImport) error { return nil })
	b.steadily("a headless import has no address", func() error {
		i, err := b.find(b.clusters[0])
		if err == nil && len(i.Spec.IPs) > 0 {
			err = fmt.Errorf("it has %v", i.Spec.IPs)
		}
		return err
	})
}

// externalName is spec 13.
func externalName(b *bed) {
	c := b.clusters[0]
	b.serve(c, &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: "hello"},
		Spec:       corev1.ServiceSpec{Type: corev1.ServiceTypeExternalName, ExternalName: "example.com"},
	})
	b.export(c, exporting{})
	b.condition(c, "Valid", metav1.ConditionFalse)
	b.steadily("nothing is imported", func() error {
		if i, err := b.find(c); err == nil {
			return fmt.Errorf("there is an import %v", i.Spec)
		}
		return nil
	})
}

// headlessConflict is spec 14.
func headlessConflict(b *bed) {
	first, second := b.two()
	b.exportBoth(first, second, hello(), headless(hello()), exporting{}, exporting{})
	b.conflict()
	for _, c := range b.clusters {
		b.imported(c, func(i serviceImport) error { return differs("type", "ClusterSetIP", i.Spec.Type) })
	}
}

// exportedLabels is spec 15.
func exportedLabels(b *bed) {
	e := exporting{labels: map[string]string{"exported": "label"}, annotations: map[string]string{"exported": "annotation"}}
	b.one(hello(), e, func(i serviceImport) error { return carries(i, e) })
}

// carries checks that an import has what was exported and nothing else of service or export.
func carries(i serviceImport, e exporting) error {
	for _, pair := range []struct{ want, have map[string]string }{{e.labels, i.Metadata.Labels}, {e.annotations, i.Metadata.Annotations}} {
		for key, value := range pair.want {
			if pair.have[key] != value {
				return fmt.Errorf("%s is %q, not %q", key, pair.have[key], value)
			}
		}
		for _, foreign := range []string{"dummy-svc", "dummy-svcexport"} {
			if _, there := pair.have[foreign]; there {
				return fmt.Errorf("%s of the metadata was copied", foreign)
			}
		}
	}
	return nil
}

// labelsConflict is spec 16.
func labelsConflict(b *bed) {
	first, second := b.two()
	e := exporting{labels: map[string]string{"one": "1"}, annotations: map[string]string{"one": "1"}}
	f := exporting{labels: map[string]string{"two": "2"}, annotations: map[string]string{"two": "2"}}
	b.exportBoth(first, second, hello(), hello(), e, f)
	b.conflict()
	b.imported(first, func(i serviceImport) error {
		if i.Metadata.Labels["two"] != "" || i.Metadata.Annotations["two"] != "" {
			return fmt.Errorf("it has the younger one's: %v %v", i.Metadata.Labels, i.Metadata.Annotations)
		}
		return carries(i, e)
	})
}
