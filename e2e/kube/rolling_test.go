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
	s := needSet(t, same)
	t.Cleanup(func() { s.reset(t) })
	s.change(t, "      endpoints: [172.31.1.11]\n", `      endpoints: [172.31.1.11]
    - name: c1-b
      node: c1n2
      endpoints: [172.31.1.12]
`)
	s.eventually(t, has("c1-b"), "sh", "-c", "kubectl --context c1 -n hawser-system get pods -o name; "+
		"kubectl --context c2 -n hawser-system exec ds/hawser-gateway -- /hawser-agent status | grep 'c1-b.*connected'")
	s.ready(t)
	target := s.dig(t, "c1", "near", "traffic.sample.svc.clusterset.local", 1)[0] + ":7000"
	tcp := s.flow(t, "tcp", "--count", "40", "--patience", "60s", "--open", "60s", target)
	udp := s.flow(t, "udp", "--rate", "200", "--grace", "5s", target)
	for _, c := range []string{"c1", "c2"} {
		for name := range strings.FieldsSeq(s.kubectl(t, c, "-n", "hawser-system", "get", "daemonsets", "-o", "name")) {
			s.kubectl(t, c, "-n", "hawser-system", "rollout", "restart", name)
			s.kubectl(t, c, "-n", "hawser-system", "rollout", "status", name, "--timeout="+limit.String())
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

// report is hawser-traffic's report.
type report struct {
	Connections, Survivors, Resets, Timeouts int
	Sent, Lost                               int
	Silence                                  struct{ Long float64 }
	Kinds                                    map[string]struct {
		Stall struct{ Max float64 } // milliseconds
	}
}

type outcome struct {
	out string
	err error
}

func (o outcome) read(t *testing.T) report {
	t.Helper()
	var r report
	from := strings.Index(o.out, "{")
	if o.err != nil || from < 0 {
		t.Fatalf("%v\n%s", o.err, o.out)
	}
	if err := json.Unmarshal([]byte(o.out[from:]), &r); err != nil {
		t.Fatalf("%v\n%s", err, o.out)
	}
	return r
}

// flow begins traffic in the pod near of c1, which is on the gateway, and returns when
// it flows. It ends when the pod has the file /tmp/until-KIND.
func (s *set) flow(t *testing.T, kind string, args ...string) <-chan outcome {
	t.Helper()
	s.kubectl(t, "c1", "exec", "near", "--", "rm", "-f", "/tmp/until-"+kind, "/tmp/ready-"+kind)
	argv := append([]string{"hawser-traffic", kind, "--until", "/tmp/until-" + kind, "--ready", "/tmp/ready-" + kind}, args...)
	done := make(chan outcome, 1)
	go func() {
		out, err := s.try(context.Background(), "", "", within("c1", "near", argv...)...)
		done <- outcome{out, err}
	}()
	s.eventually(t, has("ready-"+kind), within("c1", "near", "ls", "/tmp")...)
	return done
}
