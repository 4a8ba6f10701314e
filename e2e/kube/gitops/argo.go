//go:build kube

package gitops

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"hawser.dev/hawser/e2e/kube/api"
)

// ArgoNamespace is the namespace of Argo CD's objects.
const ArgoNamespace = "argocd"

// StartArgo starts Argo CD without its server, like its core installation, until the test ends. It
// starts the controllers of Applications and ApplicationSets, the repository server, and a store in
// memory, with their defaults. The cluster must have Argo CD's definitions and settings.
func StartArgo(t testing.TB, kubeconfig string) {
	t.Helper()
	bin, dir, ports := api.Programs(t, "setup-gitops.sh", "argo"), t.TempDir(), api.FreePorts(t, 7)
	start := func(name string, args ...string) {
		cmd := exec.Command(filepath.Join(bin, name), args...)
		cmd.Dir = dir
		cmd.Env = append(os.Environ(), "KUBECONFIG="+kubeconfig, "TMPDIR="+dir, "HOME="+dir, "PATH="+bin+":"+os.Getenv("PATH"),
			"ARGOCD_FAKE_IN_CLUSTER=true", // https://kubernetes.default.svc is the cluster of KUBECONFIG
			"ARGOCD_GPG_ENABLED=false", "ARGOCD_ASK_PASS_SOCK="+filepath.Join(dir, "ask.sock"))
		api.Run(t, cmd)
	}
	local := func(i int) string { return "127.0.0.1:" + ports[i] }
	start("redis", "-address="+local(0))
	start("argocd-repo-server", "--redis="+local(0), "--address=127.0.0.1", "--port="+ports[1], "--metrics-address=127.0.0.1", "--metrics-port="+ports[2],
		"--disable-tls", "--logformat=text", "--loglevel=warn")
	start("argocd-application-controller", "--namespace="+ArgoNamespace, "--redis="+local(0), "--repo-server="+local(1), "--repo-server-plaintext",
		"--metrics-port="+ports[3], "--logformat=text", "--loglevel=warn")
	start("argocd-applicationset-controller", "--namespace="+ArgoNamespace, "--argocd-repo-server="+local(1), "--repo-server-plaintext",
		"--metrics-addr="+local(4), "--probe-addr="+local(5), "--webhook-addr="+local(6), "--logformat=text", "--loglevel=warn")
}

// ArgoSettings returns the objects in the namespace of an Argo CD installation, with lines of
// argocd-cm.
func ArgoSettings(lines string) string {
	return `apiVersion: v1
kind: ConfigMap
metadata: {name: argocd-cm, namespace: argocd, labels: {app.kubernetes.io/part-of: argocd}}
` + lines + `---
apiVersion: v1
kind: Secret
metadata: {name: argocd-secret, namespace: argocd, labels: {app.kubernetes.io/part-of: argocd}}
stringData: {server.secretkey: test}
---
apiVersion: argoproj.io/v1alpha1
kind: AppProject
metadata: {name: default, namespace: argocd}
spec:
  sourceRepos: ['*']
  destinations: [{server: '*', namespace: '*'}]
  clusterResourceWhitelist: [{group: '*', kind: '*'}]
`
}

// ArgoCluster returns the Secret that registers a cluster with Argo CD.
func ArgoCluster(name, server, token string) string {
	return fmt.Sprintf(`apiVersion: v1
kind: Secret
metadata: {name: cluster-%[1]s, namespace: argocd, labels: {argocd.argoproj.io/secret-type: cluster}}
stringData:
  name: %[1]s
  server: %[2]s
  config: '{"bearerToken": %[3]q, "tlsClientConfig": {"insecure": true}}'
`, name, server, token)
}
