//go:build kube

package gitops

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"
)

// applications are those that are there.
func (r argoRig) applications(t testing.TB) []string { return r.names(t, "applications") }

// have waits until there are these applications and no others.
func (r argoRig) have(t testing.TB, want ...string) {
	t.Helper()
	eventually(t, fmt.Sprintf("there are the Applications %v", want), func() (string, bool) {
		r.look(t, "hawser")
		got := r.applications(t)
		return fmt.Sprint(got), slices.Equal(got, want)
	})
}

// syncs tells when every application was synced last.
func (r argoRig) syncs(t testing.TB) string {
	t.Helper()
	var out []string
	for name, o := range r.list(t, "applications") {
		out = append(out, name+" "+text(o, "status", "operationState", "finishedAt"))
	}
	slices.Sort(out)
	return strings.Join(out, ", ")
}

const refreshAnnotation = "argocd.argoproj.io/refresh"

// refresh has Argo CD compare an application with its cluster at once, as argocd app
// get --refresh does, and waits until it did.
func (r argoRig) refresh(t testing.TB, app, how string) {
	t.Helper()
	r.K(t, "-n", ArgoNamespace, "annotate", "application", app, "--overwrite", refreshAnnotation+"="+how)
	eventually(t, app+" is looked at", func() (string, bool) {
		o := r.get(t, ArgoNamespace, "application", app)
		return "the annotation is there", o != nil && o.GetAnnotations()[refreshAnnotation] == ""
	})
}

// look has Argo CD read the branch when an application does not know its newest
// commit: by itself it looks every two or three minutes.
func (r argoRig) look(t testing.TB, app string) (state, revision string) {
	t.Helper()
	o := r.get(t, ArgoNamespace, "application", app)
	if o == nil {
		return "not there", ""
	}
	revision = text(o, "status", "sync", "revision")
	if revision != mustGit(t, r.repo, "rev-parse", "rendered") && o.GetAnnotations()[refreshAnnotation] == "" {
		_, _ = r.Try("-n", ArgoNamespace, "annotate", "application", app, "--overwrite", refreshAnnotation+"=normal")
	}
	return text(o, "status", "sync", "status") + " " + text(o, "status", "health", "status"), revision
}

// wait waits until an application is at the commit that is published, in a state. Of
// health that changes with a definition's status alone Argo CD learns at its next
// look, so it is asked to look now and then.
func (r argoRig) wait(t testing.TB, app, sync, health string) {
	t.Helper()
	want, asked := mustGit(t, r.repo, "rev-parse", "rendered"), time.Now()
	eventually(t, app+" is "+sync+" and "+health, func() (string, bool) {
		state, revision := r.look(t, app)
		if time.Since(asked) > 10*time.Second {
			_, _ = r.Try("-n", ArgoNamespace, "annotate", "application", app, "--overwrite", refreshAnnotation+"=normal")
			asked = time.Now()
		}
		return state + " at " + revision, state == sync+" "+health && revision == want
	})
}

// fails waits until a sync of an application has failed at the commit that is
// published.
func (r argoRig) fails(t testing.TB, app, message string) {
	t.Helper()
	want := mustGit(t, r.repo, "rev-parse", "rendered")
	eventually(t, app+" fails: "+message, func() (string, bool) {
		r.look(t, "hawser")
		r.look(t, app)
		o := r.get(t, ArgoNamespace, "application", app)
		if o == nil {
			return "it is not there", false
		}
		state, _, _ := unstructured.NestedMap(o.Object, "status", "operationState")
		have := fmt.Sprint(state)
		return have, strings.Contains(have, message) && text(o, "status", "operationState", "syncResult", "revision") == want
	})
}

// arrives waits for an export and has the agents take it.
func (r argoRig) arrives(t *testing.T, namespace, name string) {
	t.Helper()
	eventually(t, namespace+"/"+name+" is made", func() (string, bool) {
		for _, app := range r.applications(t) {
			r.look(t, app)
		}
		return "", r.get(t, namespace, "serviceexport", name) != nil
	})
	r.judge(t, namespace, name, true, "exported")
}

// good waits until all applications are as they should be.
func (r argoRig) good(t testing.TB) {
	t.Helper()
	for _, app := range r.applications(t) {
		r.wait(t, app, "Synced", "Healthy")
	}
}

// tell tells of everything that Argo CD says.
func (r argoRig) tell(t testing.TB) {
	t.Helper()
	for name, o := range r.list(t, "applications,applicationsets") {
		status, _ := o.Object["status"].(map[string]any)
		t.Logf("%s: %v\n%v\n%v", name, status["sync"], status["conditions"], status["operationState"])
	}
}

// built gives the objects of the folder of g1 as the branch has them.
func (r argoRig) built(t testing.TB) map[string]string {
	t.Helper()
	clone := filepath.Join(t.TempDir(), "clone")
	mustGit(t, filepath.Dir(clone), "clone", "-q", "-b", "rendered", r.repo, clone)
	defer func() { _ = os.RemoveAll(clone) }()
	out := map[string]string{}
	for _, piece := range strings.Split(r.K(t, "kustomize", filepath.Join(clone, "clusters", "g1")), "\n---\n") {
		object := &unstructured.Unstructured{}
		if err := yaml.Unmarshal([]byte(piece), &object.Object); err != nil {
			t.Fatalf("%s: %v", piece, err)
		}
		out[strings.TrimPrefix(object.GetNamespace()+"/"+object.GetKind()+"/"+object.GetName(), "/")] = piece
	}
	return out
}
