//go:build kube

package mcs

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// endpointSlices is spec 17.
func endpointSlices(b *bed) {
	exporter := b.clusters[0]
	b.deploy(exporter, hello(), 1)
	b.export(exporter, exporting{})
	var found []discoveryv1.EndpointSlice
	for _, c := range b.clusters {
		for _, family := range b.families(exporter) {
			found = append(found, b.sliced(c, family, proper))
		}
	}
	b.unexport(exporter)
	for i, c := range b.clusters {
		name := found[i*len(found)/len(b.clusters)].Name
		b.eventually(importTime, "the slice "+name+" of "+c.name+" goes", func() error {
			if _, err := c.kube.DiscoveryV1().EndpointSlices(b.ns).Get(b.ctx, name, metav1.GetOptions{}); !apierrors.IsNotFound(err) {
				return fmt.Errorf("it is there (%v)", err)
			}
			return nil
		})
	}
}

func proper(s discoveryv1.EndpointSlice) error {
	switch by := s.Labels[discoveryv1.LabelManagedBy]; {
	case s.Labels[labelService] != "hello":
		return fmt.Errorf("label %s is %q", labelService, s.Labels[labelService])
	case s.Labels[labelSource] == "":
		return fmt.Errorf("no label %s", labelSource)
	case by == "" || by == "endpointslice-controller.k8s.io":
		return fmt.Errorf("managed by %q", by)
	case len(s.Endpoints) == 0:
		return fmt.Errorf("no endpoints")
	}
	return nil
}

func (b *bed) name() string { return "hello." + b.ns + ".svc." + *domain + "." }

func lookup(kind, name string) string { return fmt.Sprintf("nslookup -type=%s %s", kind, name) }

var answers = regexp.MustCompile(`(?m)^Name:.*\n+Address:\s*(\S+)`)

// resolved gives the addresses of an answer, sorted.
func resolved(output string) []string {
	var out []string
	for _, match := range answers.FindAllStringSubmatch(output, -1) {
		out = append(out, match[1])
	}
	slices.Sort(out)
	return out
}

func recordOf(family discoveryv1.AddressType) string {
	if family == discoveryv1.AddressTypeIPv6 {
		return "AAAA"
	}
	return "A"
}

// nameOfClusterIP is spec 18.
func nameOfClusterIP(b *bed) {
	b.requesters()
	b.deploy(b.clusters[0], hello(), 1)
	b.export(b.clusters[0], exporting{})
	for _, c := range b.clusters {
		found := b.imported(c, func(i serviceImport) error {
			if len(i.Spec.IPs) == 0 || len(i.Spec.IPs) != len(i.Spec.IPFamilies) {
				return fmt.Errorf("addresses %v of families %v", i.Spec.IPs, i.Spec.IPFamilies)
			}
			return nil
		})
		for n, ip := range found.Spec.IPs {
			b.answers(c, lookup(recordOf(discoveryv1.AddressType(found.Spec.IPFamilies[n])), b.name()), []string{ip})
		}
	}
}

// answers waits until a lookup gives exactly these addresses.
func (b *bed) answers(c *cluster, command string, want []string) {
	b.Helper()
	want = slices.Sorted(slices.Values(want))
	b.eventually(answerTime, c.name+": "+command, func() error {
		out := b.exec(c, command)
		if err := differs("addresses", want, resolved(out)); err != nil {
			return fmt.Errorf("%w\n%s", err, out)
		}
		return nil
	})
}

type service struct {
	port   int
	target string
}

var services = regexp.MustCompile(`service = \d+ \d+ (\d+) (\S+)`)

// srv waits for so many SRV records of a name.
func (b *bed) srv(c *cluster, name string, count int) []service {
	b.Helper()
	var out []service
	command := lookup("SRV", name)
	b.eventually(answerTime, c.name+": "+command, func() error {
		printed := b.exec(c, command)
		out = nil
		for _, match := range services.FindAllStringSubmatch(printed, -1) {
			port, err := strconv.Atoi(match[1])
			if err != nil {
				return err
			}
			out = append(out, service{port, match[2]})
		}
		if len(out) != count {
			return fmt.Errorf("%d records, not %d:\n%s", len(out), count, printed)
		}
		return nil
	})
	return out
}

// srvOfClusterIP is spec 19.
func srvOfClusterIP(b *bed) {
	b.requesters()
	b.deploy(b.clusters[0], hello(), 1)
	b.export(b.clusters[0], exporting{})
	for _, c := range b.clusters {
		have := b.srv(c, b.name(), 1)
		b.must(differs("record", service{42, b.name()}.String(), have[0].String()))
	}
}

func (s service) String() string { return fmt.Sprintf("%s:%d", s.target, s.port) }

// clusterLocal is spec 20.
func clusterLocal(b *bed) {
	b.requesters()
	c := b.clusters[0]
	b.deploy(c, hello(), 1)
	b.export(c, exporting{})
	b.imported(c, func(serviceImport) error { return nil })
	made, err := c.kube.CoreV1().Services(b.ns).Get(b.ctx, "hello", metav1.GetOptions{})
	b.must(err)
	for n, ip := range made.Spec.ClusterIPs {
		b.answers(c, lookup(recordOf(discoveryv1.AddressType(made.Spec.IPFamilies[n])), "hello."+b.ns+".svc.cluster.local."), []string{ip})
	}
}

// headlessName is spec 25.
func headlessName(b *bed) {
	b.requesters()
	exporter := b.clusters[0]
	b.deploy(exporter, headless(hello()), 2)
	b.export(exporter, exporting{})
	for _, family := range b.families(exporter) {
		var want []string
		for _, e := range b.endpoints(exporter, family, 2) {
			want = append(want, e.addr)
		}
		for _, c := range b.clusters {
			b.answers(c, lookup(recordOf(family), b.name()), want)
		}
	}
}

// headlessHostname is spec 26.
func headlessHostname(b *bed) {
	b.requesters()
	exporter := b.clusters[0]
	replicas := int32(2)
	b.serve(exporter, headless(hello()))
	_, err := exporter.kube.AppsV1().StatefulSets(b.ns).Create(b.ctx, &appsv1.StatefulSet{
		ObjectMeta: metav1.ObjectMeta{Name: "hello-ss"},
		Spec: appsv1.StatefulSetSpec{
			Replicas: &replicas, ServiceName: "hello", Template: pods(exporter),
			Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "hello"}},
		},
	}, metav1.CreateOptions{})
	b.must(err)
	b.export(exporter, exporting{})
	for _, c := range b.clusters {
		for _, family := range b.families(exporter) {
			slice := b.sliced(c, family, named)
			for _, e := range slice.Endpoints {
				name := *e.Hostname + "." + slice.Labels[labelSource] + "." + b.name()
				b.answers(c, lookup(recordOf(family), name), e.Addresses)
			}
		}
	}
}

func named(s discoveryv1.EndpointSlice) error {
	if len(s.Endpoints) != 2 {
		return fmt.Errorf("%d of 2 endpoints", len(s.Endpoints))
	}
	for _, e := range s.Endpoints {
		if e.Hostname == nil || *e.Hostname == "" || e.Conditions.Ready != nil && !*e.Conditions.Ready {
			return fmt.Errorf("%v has no hostname, or is not ready", e.Addresses)
		}
	}
	return nil
}

// headlessSRV is spec 27.
func headlessSRV(b *bed) {
	b.requesters()
	exporter := b.clusters[0]
	b.deploy(exporter, headless(hello()), 2)
	b.export(exporter, exporting{})
	var want []podEndpoint
	for _, family := range b.families(exporter) {
		want = append(want, b.endpoints(exporter, family, 2)...)
	}
	for _, c := range b.clusters {
		have := b.srv(c, b.name(), len(want))
		for _, e := range want {
			if !slices.ContainsFunc(have, func(s service) bool { return strings.HasPrefix(s.target, e.host) && s.port == 42 }) {
				b.Errorf("%s: no record of %s, only %v", c.name, e.host, have)
			}
		}
	}
}
