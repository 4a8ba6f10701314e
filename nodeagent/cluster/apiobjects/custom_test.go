package apiobjects

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"hawser.dev/hawser/nodeagent/converge"
)

// TestCustomFilesArePreferred checks that Hawser writes a separate file, and no Corefile, if the
// Corefile imports files. In a Corefile without imports Hawser writes its block.
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
	eventually(t, "the file is not written", custom)
	g.report(t, "it does not converge", clean)
	if text := value("coredns", "Corefile"); text != managed {
		t.Errorf("the Corefile was changed:\n%s", text)
	}
	for _, write := range s.wrote() {
		if strings.Contains(write, "kube-system/coredns") && !strings.Contains(write, "kube-system/coredns-custom") {
			t.Errorf("the Corefile was written: %s", write)
		}
	}

	// Without the import: a block, and no file.
	s.edit("configmaps kube-system/coredns", set(plain, "data", "Corefile"))
	eventually(t, "the block is not written", func() bool {
		return strings.HasSuffix(value("coredns", "Corefile"), plain) && value("coredns", "Corefile") != plain
	})
	eventually(t, "the file is not removed", func() bool { return !custom() })
	g.report(t, "it does not converge", func(r converge.Report) bool {
		if r.Drift[KindDNS] > 0 {
			t.Errorf("the new block is reported as drift: %v", r.Changed)
		}
		return r.Clean()
	})

	// With the import again, the file replaces the block.
	block := value("coredns", "Corefile")
	s.edit("configmaps kube-system/coredns", set(block+"import custom/*.server\n", "data", "Corefile"))
	eventually(t, "the file is not written", custom)
	eventually(t, "the block is not removed", func() bool { return value("coredns", "Corefile") == managed })
	g.report(t, "it does not converge", clean)

	// The topology demands the block despite the import.
	g.wants(func(w *Desired) { w.PreferCustom = false })
	eventually(t, "the block is not written", func() bool {
		return value("coredns", "Corefile") == block+"import custom/*.server\n"
	})
	eventually(t, "the file is not removed", func() bool { return !custom() })
}
