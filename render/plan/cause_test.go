package plan_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"

	"hawser.dev/hawser/internal/diff"
	"hawser.dev/hawser/internal/randtest"
	"hawser.dev/hawser/render/plan"
	"hawser.dev/hawser/schema/load"
)

// wide returns a topology with one value per line. Some clusters have equal CIDRs, and others are
// flat. Some have their own ports, drivers and rules.
func wide(clusters, exports int) []string {
	var out []string
	add := func(format string, args ...any) {
		out = append(out, strings.Split(fmt.Sprintf(format, args...), "\n")...)
	}
	add(`apiVersion: hawser.dev/v1alpha1
kind: ClusterSet
metadata:
  name: demo
spec:
  domain: clusterset.local
  globalnet:
    clusterPrefix: 20
    egress: shared
    egressIPs: 8
  tunnel:
    driver: wireguard
    port: 51820
    mtu: 1400
    keepalive: 25s
    ipsec:
      rekey: 1h
  health:
    interval: 250ms
    misses: 3
  dns:
    clusterNames: true
    ttl: 5s
  metrics:
    port: 8474
  agent:
    image: example.org/agent:v1
    limits:
      memory: 512Mi
  dynamicExports:
  - namespaces:
    - shop
    - web
  links:
  - between:
    - c0
    - c1
    driver: ipsec
  clusters:`)
	for i := range clusters {
		pods, services := 7, 77
		if i%3 == 0 {
			pods, services = 100+i, 180+i
		}
		add(`  - name: c%d
    podCIDRs:
    - 10.%d.0.0/16
    serviceCIDRs:
    - 10.%d.0.0/16
    recipient: age1n4s70tp2m67uhryhg8ax4fzrt32nvcy5undwsrsvmcu2t0p7tvyqtjxy2n
    dns: coredns
    crds: install
    tunnel:
      keepalive: %ds
    egress:
    - name: db
      namespace: shop
      ips: 1
      podSelector:
        matchLabels:
          role: db
    gateways:
    - name: a
      node: n1
      endpoints:
      - 203.0.%d.1
    - name: b
      node: n2
      port: %d
      endpoints:
      - 203.0.%d.2`, i, pods, services, 10+i%5, i, 52000+i*64, i)
	}
	add("  exports:")
	for i := range exports {
		add(`  - name: e%d
    namespace: ns
    clusters:
    - c%d
    - c%d
    allow:
      clusters:
      - c%d
    labels:
      team: a%d
    ports:
    - name: http
      port: 80
    - name: https
      port: 443`, i, i%clusters, (i+1)%clusters, (i+2)%clusters, i)
	}
	return out
}

// single is one edit of a topology. lines contains the added or changed lines, from 1.
type single struct {
	what  string
	text  []string
	lines []int
}

// change returns an edit of a random line that begins with key after its indentation.
func change(r *rand.Rand, text []string, key string, value func(old string) string) single {
	var at []int
	for i, line := range text {
		if strings.HasPrefix(strings.TrimLeft(line, " "), key) {
			at = append(at, i)
		}
	}
	i := at[r.IntN(len(at))]
	out := slices.Clone(text)
	old := text[i][strings.Index(text[i], key)+len(key):]
	out[i] = strings.TrimSuffix(text[i], old) + value(old)
	return single{what: fmt.Sprintf("line %d: %q -> %q", i+1, text[i], out[i]), text: out, lines: []int{i + 1}}
}

// insert returns an edit that adds lines after a random line that begins with behind, with its
// indentation.
func insert(r *rand.Rand, text []string, behind string, lines ...string) single {
	var at []int
	for i, line := range text {
		if line == behind || strings.HasPrefix(strings.TrimLeft(line, " "), behind) {
			at = append(at, i)
		}
	}
	i := at[r.IntN(len(at))]
	indent := text[i][:len(text[i])-len(strings.TrimLeft(text[i], " "))]
	s := single{what: fmt.Sprintf("behind line %d (%q): %q", i+1, text[i], lines)}
	out := slices.Clone(text[:i+1])
	for j, line := range lines {
		out = append(out, indent+line)
		s.lines = append(s.lines, i+2+j)
	}
	s.text = append(out, text[i+1:]...)
	return s
}

// singles returns a function for each kind of edit.
func singles(clusters int) []func(r *rand.Rand, text []string) single {
	set := func(key string, values ...string) func(*rand.Rand, []string) single {
		return func(r *rand.Rand, text []string) single {
			return change(r, text, key, func(string) string { return values[r.IntN(len(values))] })
		}
	}
	add := func(behind string, lines ...string) func(*rand.Rand, []string) single {
		return func(r *rand.Rand, text []string) single { return insert(r, text, behind, lines...) }
	}
	return []func(*rand.Rand, []string) single{
		set("domain: ", "mesh.example"), set("egressIPs: ", "4", "9"), set("egress: ", "auto"), set("port: 51820", "3"),
		set("mtu: ", "1380"), set("keepalive: 25s", "0"), set("interval: ", "500ms"), set("misses: ", "5"),
		set("clusterNames: ", "false"), set("ttl: ", "7s"), set("port: 8474", "1"), set("image: ", "example.org/agent:v2"),
		set("memory: ", "600Mi"), set("rekey: ", "2h"), set("- shop", "ping", "s"), set("- web", "site"),
		set("driver: ", "wireguard", "vxlan"),
		set("- 10.7.", "0.0/17", "64.0/18"), set("- 10.1", "9.0.0/16"), set("- 10.77.", "0.0/17"),
		set("recipient: ", "age1c4qh3aws6qp9yjn53gugn2gpfurpcw2rj65zquuj0jmj87zmwcjs3mhndp"),
		set("dns: ", "none", "node-local"), set("crds: ", "keep"), set("keepalive: 1", "s", "9s"),
		set("namespace: shop", "2"), set("ips: ", "2", "3"), set("role: ", "cache"), set("node: ", "n8", "n9"),
		set("port: 52", "001"), set("- 203.0.", "113.7", "113.9"), set("port: 80", "80"), set("port: 443", "1"),
		set("team: ", "b", "c"), set("- name: http", "x"),
		func(r *rand.Rand, text []string) single { // the clusters of an export, or its allowed clusters
			from := slices.Index(text, "  exports:")
			tail := change(r, text[from:], "- c", func(string) string { return strconv.Itoa(r.IntN(clusters)) })
			for i := range tail.lines {
				tail.lines[i] += from
			}
			tail.text = append(slices.Clone(text[:from]), tail.text...)
			return tail
		},
		add("dns: coredns", "globalnet: always"), add("crds: install", "globalCIDR: 242.200.0.0/20"),
		add("node: n1", "port: 61000"), add("tunnel:", "  port: 60000"),
		add("domain:", "connectivity:", "  mode: hub", "  hubs:", "  - c1"), add("domain:", "decommission: true"), add("domain:", "limits:", "  connections: 1000"),
		add("domain:", "extraDomains:", "- mesh.example"), add("domain:", "keys:", "  epochs:", "  - 1", "  - 2"),
		add("role: db", "tier: gold"), add("port: 443", "appProtocol: tls"), add("namespace: ns", "sessionAffinity: ClientIP"),
		add("namespace: ns", "balance:", "  policy: spread"), add("namespace: ns", "annotations:", "  example.org/a: b"),
		add("- 10.7.0.0/16", "- 10.8.0.0/16"), add("  clusters:", "- name: zz", "  podCIDRs:", "  - 10.7.0.0/16", "  serviceCIDRs:", "  - 10.78.0.0/16",
			"  recipient: age1n4s70tp2m67uhryhg8ax4fzrt32nvcy5undwsrsvmcu2t0p7tvyqtjxy2n", "  gateways:", "  - name: a", "    node: n1",
			"    endpoints:", "    - 198.51.100.1"),
		add("  exports:", "- name: zz", "  namespace: ns", "  clusters:", "  - c1", "  ports:", "  - port: 80"),
	}
}

// TestCause checks that every item of a plan cites the edited line, also for indirect effects. With
// two edits in one change, each item cites its own cause.
func TestCause(t *testing.T) {
	t.Parallel()
	seed, set := randtest.Seed(t)
	if !set {
		seed = 1
	}
	t.Logf("SEED=%d", seed)
	const clusters = 12
	rounds := randtest.Rounds(t, 80)
	text := wide(clusters, 20)
	before := next(t, stage{}, strings.Join(text, "\n")+"\n")
	kinds, done, cited := singles(clusters), 0, 0
	var lines []oneLine
	for i := 0; done < rounds && i < 5*rounds; i++ {
		r := rand.New(rand.NewPCG(seed, uint64(i)))
		s := kinds[i%len(kinds)](r, text)
		topology := strings.Join(s.text, "\n") + "\n"
		if _, _, list := load.Topology("clusterset.yaml", []byte(topology)); list.HasErrors() || slices.Equal(s.text, text) {
			continue // the random edit is invalid or changes nothing
		}
		done++
		p := compute(t, next(t, before, topology), before)
		if p.Empty() {
			t.Errorf("%s: the plan is empty", s.what)
		}
		for _, e := range p.Entries {
			if e.Op == diff.Delete && e.Source == "" {
				continue // a deleted item has no line
			}
			cited++
			if !citesOne(&e, s.lines) {
				t.Errorf("SEED=%d %s\n\t%s %s %s cites %q (%s) %+v", seed, s.what, e.Op, e.Kind, e.Key, e.Source, e.Path, e.Fields)
			}
		}
		if len(s.text) == len(text) {
			lines = append(lines, oneLine{s, sources(p)})
		}
	}
	if done < rounds || cited < 2*done {
		t.Errorf("%d edits, %d items", done, cited)
	}
	two := 0
	for i := range len(lines) - 1 {
		a, b := lines[i], lines[i+1]
		at := b.lines[0] - 1
		if i%3 != 0 || a.lines[0] == b.lines[0] {
			continue
		}
		both := slices.Clone(a.text)
		both[at] = b.text[at]
		topology := strings.Join(both, "\n") + "\n"
		if _, _, list := load.Topology("clusterset.yaml", []byte(topology)); list.HasErrors() {
			continue
		}
		for key, source := range sources(compute(t, next(t, before, topology), before)) {
			first, isFirst := a.changes[key]
			second, isSecond := b.changes[key]
			if isFirst == isSecond {
				continue // both edits cause it, or only both together
			}
			two++
			if want := first + second; source != want {
				t.Errorf("SEED=%d %s and %s\n\t%s cites %q, by itself %q", seed, a.what, b.what, key, source, want)
			}
		}
	}
	if two < rounds/2 {
		t.Errorf("%d items of two edits", two)
	}
}

// oneLine is an edit of one line with the changes in its plan.
type oneLine struct {
	single
	changes map[string]string
}

// sources returns the cited lines of the items of a plan, by the rest of their text.
func sources(p *plan.Plan) map[string]string {
	out := map[string]string{}
	for _, e := range p.Entries {
		var fields []string
		for _, f := range e.Fields {
			fields = append(fields, f.Name+": "+f.Have+" -> "+f.Want)
		}
		out[fmt.Sprint(e.Op, e.Kind, e.Key, fields)] = e.Source
	}
	return out
}

// citesOne reports whether an entry cites one of the lines. Each field with its own position must
// cite one, too.
func citesOne(e *plan.Entry, lines []int) bool {
	sources := []string{e.Source}
	for _, f := range e.Fields {
		if f.Source != "" {
			sources = append(sources, f.Source)
		}
	}
	return !slices.ContainsFunc(sources, func(source string) bool {
		_, line, _ := strings.Cut(source, ":")
		n, err := strconv.Atoi(line)
		return err != nil || !slices.Contains(lines, n)
	})
}
