//go:build kube

package gitops

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"hawser.dev/hawser/e2e/kube/api"
)

// FluxNamespace is where Flux's objects are.
const FluxNamespace = "flux-system"

// StartFlux starts Flux's controller of Kustomizations on a cluster, and what fetches
// the GitRepository hawser, until the test ends. Its definitions must be there. It
// has its defaults, but looks more often for what a Kustomization waits for.
func StartFlux(t testing.TB, kubeconfig string) {
	t.Helper()
	cmd := exec.Command(filepath.Join(api.Programs(t, "setup-gitops.sh", "flux"), "kustomize-controller"),
		"--metrics-addr=0", "--health-addr=0", "--requeue-dependency=2s")
	cmd.Env = append(os.Environ(), "KUBECONFIG="+kubeconfig, "RUNTIME_NAMESPACE="+FluxNamespace, "TMPDIR="+t.TempDir())
	api.Run(t, cmd)
	startSource(t, kubeconfig, "hawser")
}
