package discover

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestRemove removes a cluster from hand-written topologies.
func TestRemove(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct{ have, want, removed, err string }{
		"all that names it": {
			have: `# the set
spec:
  connectivity: {mode: links, links: [[a, b], [b, c], [a, c]]}
  links:
  # a to b is slow
  - between: [a, b]
    mtu: 1300
  - between: [a, c]   # another
  clusters:

  # the first
  - name: a   # in Frankfurt
    gateways:
    - {name: x}

  # the second
  - name: b
    # its gateways
    gateways:
    - name: y

  # the third
  - name: c

  exports:
  - name: web
    namespace: shop
    clusters: [a, b]   # both
    allow: {clusters: ["b", 'c']}
    balance:
      order: [b, a]
      weights: {a: 1, b: 2}
  # of b alone
  - {name: api, namespace: shop, clusters: [b]}
  - name: db
    namespace: shop
    clusters:
    # here
    - b
    - c
    balance:
      weights:
        b: 3
        c: 4
`,
			want: `# the set
spec:
  connectivity: {mode: links, links: [[a, c]]}
  links:
  - between: [a, c]   # another
  clusters:

  # the first
  - name: a   # in Frankfurt
    gateways:
    - {name: x}

  # the third
  - name: c

  exports:
  - name: web
    namespace: shop
    clusters: [a]   # both
    allow: {clusters: ['c']}
    balance:
      order: [a]
      weights: {a: 1}
  - name: db
    namespace: shop
    clusters:
    - c
    balance:
      weights:
        c: 4
`,
			removed: "links[a,b] connectivity.links[a,b] connectivity.links[b,c] exports[shop/web].clusters[b] exports[shop/web].allow.clusters[b] " +
				"exports[shop/web].balance.order[b] exports[shop/web].balance.weights[b] exports[shop/db].clusters[b] exports[shop/db].balance.weights[b] " +
				"exports[shop/api] clusters[b]",
		},
		"the last": {
			have:    "spec:\n  clusters:\n  - name: a\n  -\n    name: b\n    gateways: []",
			want:    "spec:\n  clusters:\n  - name: a\n",
			removed: "clusters[b]",
		},
		"a hub": {
			have:    "spec:\n  connectivity:\n    hubs: [b, a]\n  clusters:\n  - name: b\n  - name: a\n",
			want:    "spec:\n  connectivity:\n    hubs: [a]\n  clusters:\n  - name: a\n",
			removed: "connectivity.hubs[b] clusters[b]",
		},
		"who may": {
			have: "spec:\n  clusters:\n  - name: b\n  exports:\n  - name: x\n    namespace: n\n    clusters: [a]\n    allow: {clusters: [b]}\n",
			err:  "line 8: exports[n/x].allow.clusters lists only b, and without the list all clusters would be allowed: list other clusters first",
		},
		"who may export": {
			have: "spec:\n  clusters:\n  - name: b\n  dynamicExports: {namespaces: [x], clusters: [b]}\n",
			err:  "line 4: dynamicExports[0].clusters lists only b, and without the list all clusters would be allowed: list other clusters first",
		},
		"several lines in brackets": {
			have: "spec:\n  clusters:\n  - name: b\n  exports:\n  - name: x\n    clusters: [a,\n      b]\n",
			err:  "line 6: the list in brackets is on several lines: write it on one line, or with hyphens",
		},
		"no clusters": {have: "spec: {}\n", err: "there is no clusters in it"},
		"no topology": {have: "a: [\n", err: "read topology: yaml: line 1: did not find expected node content"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, gone, err := Remove([]byte(test.have), "b")
			if err != nil || test.err != "" {
				if err == nil || err.Error() != test.err {
					t.Fatalf("%v, want %s", err, test.err)
				}
				return
			}
			if diff := cmp.Diff(test.want, string(got)); diff != "" {
				t.Errorf("(-want +got)\n%s", diff)
			}
			if got := strings.Join(gone, " "); got != test.removed {
				t.Errorf("removed: %s", got)
			}
			if windows, _, err := Remove([]byte(strings.ReplaceAll(test.have, "\n", "\r\n")), "b"); err != nil ||
				string(windows) != strings.ReplaceAll(test.want, "\n", "\r\n") {
				t.Errorf("with other ends of lines: %v\n%s", err, windows)
			}
		})
	}
}
