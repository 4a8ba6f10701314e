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

// applications returns the names of all Applications.
func (r argoCluster) applications(t testing.TB) []string { return r.names(t, "applications") }

// awaitApplications waits until exactly these Applications exist.
func (r argoCluster) awaitApplications(t testing.TB, want ...string) {
	t.Helper()
	eventually(t, fmt.Sprintf("there are the Applications %v", want), func() (string, bool) {
		r.state(t, "hawser")
		got := r.applications(t)
		return fmt.Sprint(got), slices.Equal(got, want)
	})
}

// syncs returns the time of every Application's last sync.
func (r argoCluster) syncs(t testing.TB) string {
	t.Helper()
	var out []string
	for name, o := range r.list(t, "applications") {
		out = append(out, name+" "+fieldText(o, "status", "operationState", "finishedAt"))
	}
	slices.Sort(out)
	return strings.Join(out, ", ")
}

const refreshAnnotation = "argocd.argoproj.io/refresh"

// refresh makes Argo CD compare an Application with its cluster at once, as argocd app get --refresh
// does, and waits for the result.
func (r argoCluster) refresh(t testing.TB, app, how string) {
	t.Helper()
	r.K(t, "-n", ArgoNamespace, "annotate", "application", app, "--overwrite", refreshAnnotation+"="+how)
	eventually(t, app+" is looked at", func() (string, bool) {
		o := r.get(t, ArgoNamespace, "application", app)
		return "the annotation is there", o != nil && o.GetAnnotations()[refreshAnnotation] == ""
	})
}

// state returns the state and the revision of an Application. It makes Argo CD read the branch if the
// revision is not the newest commit: Argo CD polls only every two or three minutes.
func (r argoCluster) state(t testing.TB, app string) (state, revision string) {
	t.Helper()
	o := r.get(t, ArgoNamespace, "application", app)
	if o == nil {
		return "not there", ""
	}
	revision = fieldText(o, "status", "sync", "revision")
	if revision != mustGit(t, r.repo, "rev-parse", "rendered") && o.GetAnnotations()[refreshAnnotation] == "" {
		_, _ = r.Try("-n", ArgoNamespace, "annotate", "application", app, "--overwrite", refreshAnnotation+"=normal")
	}
	return fieldText(o, "status", "sync", "status") + " " + fieldText(o, "status", "health", "status"), revision
}

// awaitState waits until an Application has the published commit and a state. Argo CD notices changes of
// health in a definition's status only at its next poll, so wait refreshes it from time to time.
func (r argoCluster) awaitState(t testing.TB, app, sync, health string) {
	t.Helper()
	want, asked := mustGit(t, r.repo, "rev-parse", "rendered"), time.Now()
	eventually(t, app+" is "+sync+" and "+health, func() (string, bool) {
		state, revision := r.state(t, app)
		if time.Since(asked) > 10*time.Second {
			_, _ = r.Try("-n", ArgoNamespace, "annotate", "application", app, "--overwrite", refreshAnnotation+"=normal")
			asked = time.Now()
		}
		return state + " at " + revision, state == sync+" "+health && revision == want
	})
}

// awaitSyncFailure waits until a sync of an Application failed at the published commit.
func (r argoCluster) awaitSyncFailure(t testing.TB, app, message string) {
	t.Helper()
	want := mustGit(t, r.repo, "rev-parse", "rendered")
	eventually(t, app+" fails: "+message, func() (string, bool) {
		r.state(t, "hawser")
		r.state(t, app)
		o := r.get(t, ArgoNamespace, "application", app)
		if o == nil {
			return "it is not there", false
		}
		state, _, _ := unstructured.NestedMap(o.Object, "status", "operationState")
		have := fmt.Sprint(state)
		return have, strings.Contains(have, message) && fieldText(o, "status", "operationState", "syncResult", "revision") == want
	})
}

// awaitExport waits for an export, and accepts it as an agent.
func (r argoCluster) awaitExport(t *testing.T, namespace, name string) {
	t.Helper()
	eventually(t, namespace+"/"+name+" is made", func() (string, bool) {
		for _, app := range r.applications(t) {
			r.state(t, app)
		}
		return "", r.get(t, namespace, "serviceexport", name) != nil
	})
	r.writeExportStatus(t, namespace, name, true, "exported")
}

// awaitHealthy waits until all Applications are synced and healthy.
func (r argoCluster) awaitHealthy(t testing.TB) {
	t.Helper()
	for _, app := range r.applications(t) {
		r.awaitState(t, app, "Synced", "Healthy")
	}
}

// logState logs the state of all Argo CD objects.
func (r argoCluster) logState(t testing.TB) {
	t.Helper()
	for name, o := range r.list(t, "applications,applicationsets") {
		status, _ := o.Object["status"].(map[string]any)
		t.Logf("%s: %v\n%v\n%v", name, status["sync"], status["conditions"], status["operationState"])
	}
}

// renderedObjects returns the objects of g1's directory on the publish branch.
func (r argoCluster) renderedObjects(t testing.TB) map[string]string {
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
