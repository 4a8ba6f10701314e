package install

import (
	"regexp"
	"testing"

	"hawser.dev/hawser/nodeagent/benchmark"
	"hawser.dev/hawser/schema/fabric"
)

func TestExportableNamespace(t *testing.T) {
	t.Parallel()
	const none = "^$"
	for _, c := range []struct {
		name string
		of   *fabric.DynamicExports
		want string
	}{
		{"none", nil, none},
		{"any", &fabric.DynamicExports{Namespaces: []string{"*"}}, `^hawser-benchmark-[a-z2-7]{8}$`},
		{"the first that can be new", &fabric.DynamicExports{Namespaces: []string{"shop", "team-*"}}, `^team-hawser-benchmark-[a-z2-7]{8}$`},
		{"two stars", &fabric.DynamicExports{Namespaces: []string{"*-x-*"}}, `^hawser-benchmark-[a-z2-7]{8}-x-$`},
		{"others' alone", &fabric.DynamicExports{Namespaces: []string{"*"}, Restrictions: []fabric.DynamicRestriction{{Namespaces: []string{"*"}, Clusters: []string{"c1"}}}}, none},
		{"fixed", &fabric.DynamicExports{Namespaces: []string{"shop"}}, none},
	} {
		got, err := exportableNamespace(&fabric.Fabric{DynamicExports: c.of}, "c2")
		if !regexp.MustCompile(c.want).MatchString(got) || (got == "") != (err != nil) {
			t.Errorf("%s: %q, %v", c.name, got, err)
		}
	}
}

func TestBenchmarkText(t *testing.T) {
	t.Parallel()
	pods := benchmark.Result{Throughput: 874e6, Connections: 2310, RTT: 820.4, RTT99: 2100}
	nodes := benchmark.Result{Throughput: 1.748e9, Connections: 6120, RTT: 310, RTT99: 790}
	for _, c := range []struct {
		of   benchmarked
		want string
	}{
		{benchmarked{From: "fra", To: "ams", Pods: pods, Underlay: &nodes}, `From fra to ams
BETWEEN                        THROUGHPUT   CONNECTIONS  RTT (HALF)  RTT (99 %)
pods, through Hawser           874 Mbit/s   2310/s       820µs       2.1ms
gateway nodes, without Hawser  1748 Mbit/s  6120/s       310µs       790µs
ratio                          0.50         0.38         2.65        2.66
`},
		{benchmarked{From: "fra", To: "ams", Pods: benchmark.Result{Throughput: 1e6, Connections: 9, Failed: 3, RTT: 1000, RTT99: 1000}, Skipped: "connect: refused"},
			`From fra to ams
BETWEEN               THROUGHPUT  CONNECTIONS    RTT (HALF)  RTT (99 %)
pods, through Hawser  1 Mbit/s    9/s, 3 failed  1ms         1ms
The underlay was not measured: connect: refused
`},
		{benchmarked{From: "fra", To: "ams", Pods: benchmark.Result{Error: "no answer within 1m0s: connect: refused"}},
			"from a pod of fra to a pod of ams: no answer within 1m0s: connect: refused\n"},
	} {
		if got := c.of.text(); got != c.want {
			t.Errorf("got:\n%s\nwant:\n%s", got, c.want)
		}
	}
}
