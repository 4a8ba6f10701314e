package feed

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestHostilePlaces: what a cluster says of places is no more than a cluster has; other
// things are as if nothing was said, are told, and end no feed. What is taken is passed on.
func TestHostilePlaces(t *testing.T) {
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
		places, told string
	}{
		"one of each": {`{"found":{` + found("a", one) + `},"seen":{"g1/a":"198.51.100.1:4000"}}`, ""},
		"as many as there are": {`{"found":{` + many(32, func(i int) string {
			return found(fmt.Sprintf("g%d", i), many(16, func(int) string { return one }))
		}) + `}}`, ""},
		"too many gateways": {`{"found":{` + many(33, func(i int) string { return found(fmt.Sprintf("g%d", i), one) }) + `}}`,
			"reports endpoints of more gateways than there are"},
		"too many of one": {`{"found":{` + found("a", many(17, func(int) string { return one })) + `}}`,
			"reports an invalid gateway, or too many endpoints of one"},
		"no gateway":    {`{"found":{` + found("<", one) + `}}`, "reports an invalid gateway, or too many endpoints of one"},
		"no source":     {`{"found":{` + found("a", `{"source":"told","addr":"203.0.113.1"}`) + `}}`, "reports an invalid endpoint"},
		"no port":       {`{"found":{` + found("a", `{"source":"seen","addr":"203.0.113.1","port":65536}`) + `}}`, "reports an invalid endpoint"},
		"sees nobody":   {`{"seen":{"g1":"198.51.100.1:4000"}}`, "sees a gateway that is none"},
		"sees too many": {`{"seen":{` + many(5000, func(i int) string { return fmt.Sprintf(`"g%d/a":"198.51.100.1:4000"`, i) }) + `}}`, "reports endpoints of more gateways than there are"},
		"too long": {`{"seen":{` + many(4096, func(i int) string {
			return fmt.Sprintf(`"%s/g%d":"198.51.100.1:4000"`, strings.Repeat("c", 60), i)
		}) + `}}`, "reports more than a cluster has"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var told []string
			box := &receiver{peer: Peer{Cluster: "b"}, warn: func(why string) { told = append(told, why) }}
			u := update{Cluster: "b", Places: json.RawMessage(tt.places)}
			if _, err := box.apply(frame{Kind: kindSnapshot, Clusters: []update{u}}); err != nil {
				t.Fatal(err)
			}
			if have := box.states["b"].Live.Endpoints; (have != nil) != (tt.told == "") || strings.Join(told, ", ") != tt.told {
				t.Errorf("told %q, taken %.200v", told, have)
			}
			if d := cmp.Diff(box.states, passOn(t, box.states), byValue); d != "" {
				t.Errorf("(-gateway +node):\n%.2000s", d)
			}
		})
	}
	box := &receiver{peer: Peer{Cluster: "b"}, warn: func(string) {}}
	u := update{Cluster: "b", Places: json.RawMessage(`{"seen":{"g1/a":"everywhere"}}`)}
	if _, err := box.apply(frame{Kind: kindSnapshot, Clusters: []update{u}}); err == nil {
		t.Error("what cannot be read was taken")
	}
}
