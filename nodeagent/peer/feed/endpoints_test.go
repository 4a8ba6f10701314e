package feed

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestHostileEndpoints checks that a cluster reports at most the endpoints that a cluster can have.
// Otherwise all its endpoints are omitted and logged, and the feed continues. Accepted ones are
// relayed.
func TestHostileEndpoints(t *testing.T) {
	t.Parallel()
	one := `{"source":"seen","addr":"203.0.113.1","port":6000}`
	many := func(n int, of func(i int) string) string {
		all := make([]string, n)
		for i := range all {
			all[i] = of(i)
		}
		return strings.Join(all, ",")
	}
	found := func(gateway string, all string) string { return fmt.Sprintf(`"%s":[%s]`, gateway, all) }
	tests := map[string]struct {
		endpoints, warning string
	}{
		"one of each": {`{"discovered":{` + found("a", one) + `},"observed":{"g1/a":"198.51.100.1:4000"}}`, ""},
		"as many as there are": {`{"discovered":{` + many(32, func(i int) string {
			return found(fmt.Sprintf("g%d", i), many(16, func(int) string { return one }))
		}) + `}}`, ""},
		"too many gateways": {`{"discovered":{` + many(33, func(i int) string { return found(fmt.Sprintf("g%d", i), one) }) + `}}`,
			"reports endpoints of too many gateways"},
		"too many of one": {`{"discovered":{` + found("a", many(17, func(int) string { return one })) + `}}`,
			"reports an invalid gateway, or too many endpoints of one"},
		"no gateway":          {`{"discovered":{` + found("<", one) + `}}`, "reports an invalid gateway, or too many endpoints of one"},
		"no source":           {`{"discovered":{` + found("a", `{"source":"unknown","addr":"203.0.113.1"}`) + `}}`, "reports an invalid endpoint"},
		"no port":             {`{"discovered":{` + found("a", `{"source":"seen","addr":"203.0.113.1","port":65536}`) + `}}`, "reports an invalid endpoint"},
		"observes no gateway": {`{"observed":{"g1":"198.51.100.1:4000"}}`, "observes an invalid gateway"},
		"sees too many":       {`{"observed":{` + many(5000, func(i int) string { return fmt.Sprintf(`"g%d/a":"198.51.100.1:4000"`, i) }) + `}}`, "reports endpoints of too many gateways"},
		"too long": {`{"observed":{` + many(4096, func(i int) string {
			return fmt.Sprintf(`"%s/g%d":"198.51.100.1:4000"`, strings.Repeat("c", 60), i)
		}) + `}}`, "reports more than a cluster has"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var warned []string
			r := receiverOf(Peer{Cluster: "b"}, func(reason string) { warned = append(warned, reason) })
			mustApply(t, r, clusterChange("b", `{"endpoints":`+tt.endpoints+`}`))
			if have := r.states["b"].State.Endpoints; (have != nil) != (tt.warning == "") || strings.Join(warned, ", ") != tt.warning {
				t.Errorf("warned %q, accepted %.200v", warned, have)
			}
			if d := cmp.Diff(r.states, relayed(t, r.states), byValue); d != "" {
				t.Errorf("(-gateway +node):\n%.2000s", d)
			}
		})
	}
	r := receiverOf(Peer{Cluster: "b"}, ignore)
	if _, err := r.apply(update{Version: 1, Changes: []change{clusterChange("b", `{"endpoints":{"observed":{"g1/a":"everywhere"}}}`)}}); err == nil {
		t.Error("an invalid address was accepted")
	}
}
