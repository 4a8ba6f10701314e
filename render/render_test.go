package render

import (
	"strings"
	"testing"

	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"

	"hawser.dev/hawser/render/keys"
	"hawser.dev/hawser/schema"
)

const topology = `apiVersion: hawser.dev/v1alpha1
kind: ClusterSet
metadata: {name: demo}
spec:
  clusters:
  - name: g1
    podCIDRs: [10.7.0.0/16]
    serviceCIDRs: [10.77.0.0/16]
    globalCIDR: 242.1.0.0/24
    recipient: age1n4s70tp2m67uhryhg8ax4fzrt32nvcy5undwsrsvmcu2t0p7tvyqtjxy2n
    gateways:
    - {name: g1-a, node: g1-gw, endpoints: [203.0.113.11]}
    egress:
    - {name: db, namespace: ns1, podSelector: {matchLabels: {role: db}}, ips: 2}
  - name: g3
    podCIDRs: [10.7.0.0/16]
    serviceCIDRs: [10.77.0.0/16]
    recipient: age1n4s70tp2m67uhryhg8ax4fzrt32nvcy5undwsrsvmcu2t0p7tvyqtjxy2n
    gateways:
    - {name: g3-a, node: g3-gw, endpoints: [203.0.113.13]}
  exports:
  - name: whereami-cs
    namespace: sample
    clusters: [g3, g1]
    ports: [{name: http, port: 80}]
  - name: whereami-ss
    namespace: sample
    type: Headless
    clusters: [g1]
    hostnames: 8
    ports: [{name: http, port: 80}]
`

func TestSmoke(t *testing.T) {
	top, _, list := schema.Load("clusterset.yaml", []byte(topology))
	for _, d := range list {
		t.Log(d)
	}
	lock, list := schema.Allocate(top, nil)
	t.Log(list)
	raw, _ := lock.Marshal()
	t.Log(string(raw))
	lock, list = schema.ReadLock("l", raw)
	t.Log(list, schema.CheckLock(top, lock))
	root, _ := keys.NewRoot()
	tree, list := Render(Input{Topology: top, Lock: lock, Root: root})
	t.Log(list)
	fs := filesys.MakeFsInMemory()
	for _, p := range tree.Paths() {
		t.Log(p)
		fs.WriteFile("/"+p, tree[p])
		if !strings.HasSuffix(p, "base/crds.yaml") {
			t.Log(string(tree[p]))
		}
	}
	m, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(fs, "/clusters/g1")
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range m.Resources() {
		t.Log(r.GetKind(), r.GetName())
	}
}
