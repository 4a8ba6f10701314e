package apiobjects

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"hawser.dev/hawser/nodeagent/converge"
)

// TestCustomFilesArePreferred: a Corefile that imports files is not written, whoever keeps
// it; one that does not, or not any more, gets the block.
func TestCustomFilesArePreferred(t *testing.T) {
	t.Parallel()
	s, want := populated(t)
	want.PreferCustom = true
	value := func(name, key string) string {
		o := s.get("configmaps kube-system/" + name)
		if o == nil {
			return ""
		}
		text, _, _ := unstructured.NestedString(o.Object, "data", key)
		return text
	}
	plain := value("coredns", "Corefile")
	managed := plain + "import custom/*.server\n"
	const theirs = `{"metadata":{"name":"coredns-custom","namespace":"kube-system"},` +
		`"data":{"their.server":"example.org {\n}\n"}}`
	s.edit("configmaps kube-system/coredns", set(managed, "data", "Corefile"))
	s.put("configmaps", escaped(theirs))
	s.wrote()
	g := newGateway(t, s, want)
	custom := func() bool { return strings.Contains(value("coredns-custom", "hawser.server"), "clusterset.local") }
	settles(t, "there is no file of ours", custom)
	g.report(t, "it does not settle", clean)
	if text := value("coredns", "Corefile"); text != managed {
		t.Errorf("the Corefile was changed:\n%s", text)
	}
	for _, write := range s.wrote() {
		if strings.Contains(write, "kube-system/coredns") && !strings.Contains(write, "kube-system/coredns-custom") {
			t.Errorf("the Corefile was written: %s", write)
		}
	}

	// Nothing is imported any more: a block, and no file.
	s.edit("configmaps kube-system/coredns", set(plain, "data", "Corefile"))
	settles(t, "there is no block", func() bool {
		return strings.HasSuffix(value("coredns", "Corefile"), plain) && value("coredns", "Corefile") != plain
	})
	settles(t, "the file is still there", func() bool { return !custom() })
	g.report(t, "it does not settle", func(r converge.Report) bool {
		if r.Drift[KindDNS] > 0 {
			t.Errorf("what was decided anew is told as drift: %v", r.Changed)
		}
		return r.Clean()
	})

	// It is imported again, and the file takes the block's place.
	block := value("coredns", "Corefile")
	s.edit("configmaps kube-system/coredns", set(block+"import custom/*.server\n", "data", "Corefile"))
	settles(t, "there is no file of ours", custom)
	settles(t, "the block is still there", func() bool { return value("coredns", "Corefile") == managed })
	g.report(t, "it does not settle", clean)

	// The topology says that the block is to be written, whatever is imported.
	g.wants(func(w *Want) { w.PreferCustom = false })
	settles(t, "there is no block", func() bool {
		return value("coredns", "Corefile") == block+"import custom/*.server\n"
	})
	settles(t, "the file is still there", func() bool { return !custom() })
}
