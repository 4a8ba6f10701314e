//go:build kube

package gitops

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"hawser.dev/hawser/e2e/kube/api"
)

// FluxNamespace is the namespace of Flux's objects.
const FluxNamespace = "flux-system"

// StartFlux starts Flux's kustomize-controller on a cluster, and a source for the GitRepository
// hawser, until the test ends. The cluster must have Flux's definitions. Except for a shorter
// interval of polling dependencies, the controller runs with defaults.
func StartFlux(t testing.TB, kubeconfig string) {
	t.Helper()
	cmd := exec.Command(filepath.Join(api.Programs(t, "setup-gitops.sh", "flux"), "kustomize-controller"),
		"--metrics-addr=0", "--health-addr=0", "--requeue-dependency=2s")
	cmd.Env = append(os.Environ(), "KUBECONFIG="+kubeconfig, "RUNTIME_NAMESPACE="+FluxNamespace, "TMPDIR="+t.TempDir())
	api.Run(t, cmd)
	startSource(t, kubeconfig, "hawser")
}
