//go:build kube

package mcs

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// ask is a question to the exported service, which answers with its pod's address.
func (b *bed) ask(c *cluster, family corev1.IPFamily, port int) string {
	b.Helper()
	flag := "-4"
	if family == corev1.IPv6Protocol {
		flag = "-6"
	}
	return b.exec(c, fmt.Sprintf("echo hi | nc %s -w 2 %s %d", flag, b.name(), port))
}

// familiesOf are those of the service, as its cluster gave them.
func (b *bed) familiesOf(c *cluster) []corev1.IPFamily {
	b.Helper()
	var out []corev1.IPFamily
	for _, f := range b.families(c) {
		out = append(out, corev1.IPFamily(f))
	}
	return out
}

// notExported is spec 1.
func notExported(b *bed) {
	b.requesters()
	b.deploy(b.clusters[0], hello(), 1)
	b.podIP(b.clusters[0])
	for _, c := range b.clusters {
		for _, family := range b.familiesOf(b.clusters[0]) {
			for range 20 {
				if out := b.ask(c, family, 42); strings.Contains(out, "pod ip") {
					b.Fatalf("%s: what is not exported answers: %s", c.name, out)
				}
			}
		}
	}
}

// reached waits until the service at a port answers, so often in a row, with the
// address of the one pod of a cluster.
func (b *bed) reached(from *cluster, port, times int, in *cluster) {
	b.Helper()
	pod := b.podIP(in) + " of " + in.name
	for _, family := range b.familiesOf(b.clusters[0]) {
		b.repeatedly(answerTime*2, times, fmt.Sprintf("%s reaches port %d", from.name, port), func() error {
			if out := b.ask(from, family, port); !strings.Contains(out, "pod ip "+pod) {
				return fmt.Errorf("it got %q", out)
			}
			return nil
		})
	}
}

// reachedByName is spec 21.
func reachedByName(b *bed) {
	b.requesters()
	b.deploy(b.clusters[0], hello(), 1)
	b.export(b.clusters[0], exporting{})
	for _, c := range b.clusters {
		b.reached(c, 42, 1, b.clusters[0])
	}
}

// onlyExporting is spec 22.
func onlyExporting(b *bed) {
	first, second := b.two()
	b.requesters()
	b.deploy(first, hello(), 1)
	b.deploy(second, hello(), 1)
	b.podIP(second)
	b.export(first, exporting{})
	for _, c := range b.clusters {
		b.reached(c, 42, 10, first)
	}
}

// sameNameOtherNumber is spec 23.
func sameNameOtherNumber(b *bed) {
	first, second := b.two()
	b.requesters()
	b.exportBoth(first, second, hello(), moved("tcp"), exporting{}, exporting{})
	b.conflict()
	for _, c := range b.clusters {
		b.reached(c, 42, 10, first)
	}
}

// otherNameEach is spec 24.
func otherNameEach(b *bed) {
	first, second := b.two()
	b.requesters()
	b.exportBoth(first, second, hello(), moved("other"), exporting{}, exporting{})
	b.conflict()
	for _, c := range b.clusters {
		b.reached(c, 42, 10, first)
		b.reached(c, 4242, 10, second)
	}
}

// moved is the service with one port, at another number.
func moved(name string) *corev1.Service {
	s := hello()
	s.Spec.Ports = []corev1.ServicePort{{Name: name, Port: 4242, Protocol: corev1.ProtocolTCP}}
	s.Spec.Ports[0].TargetPort.IntVal = 42
	return s
}
