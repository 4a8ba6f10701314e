package hack

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/yaml"
)

// TestReconcilerPolicy: the manifests of the reconciler have a NetworkPolicy that selects its pods and
// admits selected peers alone to its port. The chart writes the same objects (make verify-release).
func TestReconcilerPolicy(t *testing.T) {
	t.Parallel()
	f, err := os.Open("../deploy/kustomize/reconciler/reconciler.yaml")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var policies []networkingv1.NetworkPolicy
	var deployments []appsv1.Deployment
	for documents := yaml.NewDocumentDecoder(f); ; {
		raw := make([]byte, 1<<20)
		n, err := documents.Read(raw)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		var kind metav1.TypeMeta
		var policy networkingv1.NetworkPolicy
		var deployment appsv1.Deployment
		for _, into := range []any{&kind, &policy, &deployment} {
			if err := yaml.Unmarshal(raw[:n], into); err != nil {
				t.Fatal(err)
			}
		}
		switch kind.Kind {
		case "NetworkPolicy":
			policies = append(policies, policy)
		case "Deployment":
			deployments = append(deployments, deployment)
		}
	}
	if len(policies) != 1 || len(deployments) != 1 {
		t.Fatalf("%d policies and %d deployments, want one each", len(policies), len(deployments))
	}
	p, pod := policies[0], deployments[0].Spec.Template
	selector, err := metav1.LabelSelectorAsSelector(&p.Spec.PodSelector)
	if err != nil {
		t.Fatal(err)
	}
	if !selector.Matches(labels.Set(pod.Labels)) || p.Namespace != deployments[0].Namespace || len(p.Spec.PolicyTypes) != 1 || p.Spec.PolicyTypes[0] != networkingv1.PolicyTypeIngress {
		t.Errorf("the policy does not restrict the reconciler's pods: %+v", p)
	}
	if len(p.Spec.Ingress) != 1 || len(p.Spec.Ingress[0].Ports) != 1 || p.Spec.Ingress[0].Ports[0].Port.StrVal != pod.Spec.Containers[0].Ports[0].Name {
		t.Fatalf("the policy does not name the port: %+v", p.Spec.Ingress)
	}
	peers := p.Spec.Ingress[0].From
	if len(peers) != 1 || peers[0].IPBlock != nil || peers[0].NamespaceSelector == nil || len(peers[0].NamespaceSelector.MatchLabels) == 0 {
		t.Errorf("peers without a selector are admitted: %+v", peers)
	}
}

// TestActionsArePinned: examples name actions of others by commit, as a tag can be moved.
func TestActionsArePinned(t *testing.T) {
	t.Parallel()
	uses := regexp.MustCompile(`uses: +([\w.-]+/[\w./-]+@\S+)`)
	pinned := regexp.MustCompile(`@[0-9a-f]{40}$`)
	found := 0
	for _, dir := range []string{"../examples", "../docs", "../README.md"} {
		err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() {
				return err
			}
			raw, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			for _, m := range uses.FindAllSubmatch(raw, -1) {
				found++
				if !pinned.Match(m[1]) {
					t.Errorf("%s: %s is not pinned", path, m[1])
				}
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if found == 0 {
		t.Error("no action found")
	}
}
