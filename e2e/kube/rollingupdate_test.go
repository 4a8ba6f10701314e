//go:build kube

package kube

import (
	"context"
	"encoding/json"
	"strings"
	"testing"
)

// TestRollingUpdate replaces all agents of both clusters, one after the other, with two gateways in
// c1, under connections and datagrams from c1 to c2. Every connection survives; the test logs the
// number of lost datagrams.
func TestRollingUpdate(t *testing.T) {
	s := needClusterset(t, samePrefixes)
	t.Cleanup(func() { s.reset(t) })
	s.change(t, "      endpoints: [172.31.1.11]\n", `      endpoints: [172.31.1.11]
    - name: c1-b
      node: c1n2
      endpoints: [172.31.1.12]
`)
	s.eventually(t, contains("c1-b"), "sh", "-c", "kubectl --context c1 -n hawser-system get pods -o name; "+
		"kubectl --context c2 -n hawser-system exec ds/hawser-gateway -- /hawser-agent status | grep 'c1-b.*connected'")
	s.awaitReady(t)
	target := s.awaitAddresses(t, "c1", "near", "traffic.sample.svc.clusterset.local", 1)[0] + ":7000"
	tcp := s.startFlow(t, "tcp", "--count", "40", "--patience", "60s", "--open", "60s", target)
	udp := s.startFlow(t, "udp", "--rate", "200", "--grace", "5s", target)
	for _, c := range []string{"c1", "c2"} {
		for name := range strings.FieldsSeq(s.kubectl(t, c, "-n", "hawser-system", "get", "daemonsets", "-o", "name")) {
			s.kubectl(t, c, "-n", "hawser-system", "rollout", "restart", name)
			s.kubectl(t, c, "-n", "hawser-system", "rollout", "status", name, "--timeout="+conditionTimeout.String())
		}
		if c == "c1" {
			s.kubectl(t, "c1", "exec", "near", "--", "touch", "/tmp/until-udp")
			report := (<-udp).read(t)
			t.Logf("figure: two gateways replaced in turn: %d of %d datagrams lost at 200 a second, longest silence %.0f ms",
				report.Lost, report.Sent, report.Silence.Long)
		}
	}
	s.kubectl(t, "c1", "exec", "near", "--", "touch", "/tmp/until-tcp")
	if report := (<-tcp).read(t); report.Survivors != report.Connections || report.Connections != 40 {
		t.Errorf("%d of %d connections live: %d resets, %d timeouts", report.Survivors, report.Connections, report.Resets, report.Timeouts)
	}
}

// trafficReport is hawser-traffic's report.
type trafficReport struct {
	Connections, Survivors, Resets, Timeouts int
	Sent, Lost                               int
	Silence                                  struct{ Long float64 }
	Kinds                                    map[string]struct {
		Stall struct{ Max float64 } // milliseconds
	}
}

type trafficOutput struct {
	out string
	err error
}

func (o trafficOutput) read(t *testing.T) trafficReport {
	t.Helper()
	var r trafficReport
	from := strings.Index(o.out, "{")
	if o.err != nil || from < 0 {
		t.Fatalf("%v\n%s", o.err, o.out)
	}
	if err := json.Unmarshal([]byte(o.out[from:]), &r); err != nil {
		t.Fatalf("%v\n%s", err, o.out)
	}
	return r
}

// startFlow starts traffic in the pod near of c1, which is on the gateway, and returns when it flows. The
// traffic ends when the pod has the file /tmp/until-KIND.
func (s *clusterset) startFlow(t *testing.T, kind string, args ...string) <-chan trafficOutput {
	t.Helper()
	s.kubectl(t, "c1", "exec", "near", "--", "rm", "-f", "/tmp/until-"+kind, "/tmp/ready-"+kind)
	argv := append([]string{"hawser-traffic", kind, "--until", "/tmp/until-" + kind, "--ready", "/tmp/ready-" + kind}, args...)
	done := make(chan trafficOutput, 1)
	go func() {
		out, err := s.try(context.Background(), "", "", inPod("c1", "near", argv...)...)
		done <- trafficOutput{out, err}
	}()
	s.eventually(t, contains("ready-"+kind), inPod("c1", "near", "ls", "/tmp")...)
	return done
}
