//go:build kube

package kube

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"hawser.dev/hawser/e2e/kube/api"
	"hawser.dev/hawser/e2e/kube/gitops"
	"hawser.dev/hawser/lab/netnsexec"
	"hawser.dev/hawser/render"
)

// Services outside of the clusters, on the router between them.
const (
	mirrorAt = "172.31.1.1:5000" // registry, by HTTP
	forgeAt  = "172.31.1.1:8443" // git, by HTTPS and with a token
	gitToken = "s3cret"
)

const (
	installPage   = "../../docs/install.md"
	uninstallPage = "../../docs/uninstall.md"
)

// TestReleaseInstalled runs the commands of docs/install.md and docs/uninstall.md on two clusters. It
// pushes the images of the archive to a mirror, from which the nodes pull them. The chart installs the
// reconciler and Hawser in c1, and later the kustomize base in c2. The git server has a token and its own
// certificate authority. The installed objects equal the output of hawser render. An upgrade takes effect in the
// data path, and an uninstall restores the nodes.
func TestReleaseInstalled(t *testing.T) {
	rel := needRelease(t)
	pair := needClusters(t, samePrefixes)
	if pair.installed != nil {
		pair.installed.uninstall(t)
	}
	pair.workloads(t)
	before := pair.snapshots(t)
	u := newUserShell(t, pair, rel, nil)
	u.bin += ":" + api.Programs(t, "setup-release.sh", "helm", "crane") + ":" + built.kube + ":/usr/bin:/bin"
	in := releaseInstall{clusterPair: pair, userShell: u, mirror: mirrorAt + "/hawser", work: filepath.Join(u.home, "work")}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute)
		defer cancel()
		if _, err := u.try(ctx, "", "", "hawser uninstall c1 c2 --yes --force"); err != nil {
			t.Error(err)
		}
		for _, c := range pair.clusters {
			_, _ = u.try(ctx, "", "", "kubectl --context "+c+" delete namespace hawser-reconciler --ignore-not-found; kubectl --context "+c+" delete secret -l owner=helm")
		}
	})
	// Helm and kubectl have no --context in the page's commands.
	for _, c := range pair.clusters {
		pair.must(t, "", "sh", "-ec", "cp "+u.kubeconfig+" "+u.kubeconfig+"."+c+" && kubectl --kubeconfig "+u.kubeconfig+"."+c+" config use-context "+c)
	}
	// The archive's files are in the same directory as the files that the commands create. No
	// command changes them, so links suffice.
	pair.must(t, "", "cp", "-rl", rel.site, in.work)
	in.serveGit(t)
	in.serveRegistry(t)
	for _, step := range []struct {
		name string
		do   func(*testing.T, *releaseInstall)
	}{
		{"mirror", mirrored}, {"reconciler by the chart", reconcilerByChart}, {"clusters", clustersInstalled},
		{"same as rendered", sameAsRendered}, {"reconciler by the base", reconcilerByBase},
		{"upgrade", clustersUpgraded}, {"uninstall", chartsUninstalled},
	} {
		start := time.Now()
		if !t.Run(step.name, func(t *testing.T) { step.do(t, &in) }) {
			t.FailNow() // each step depends on the previous one
		}
		t.Logf("figure: %s: %.0f s", step.name, time.Since(start).Seconds())
	}
	pair.workloads(t)
	if text := differences(before, pair.snapshots(t)); text != "" {
		t.Errorf("not as before:\n%s", text)
	}
}

// releaseInstall is the installation of a release from a mirror.
type releaseInstall struct {
	*clusterPair
	userShell
	mirror string // registry and directory
	work   string // directory of the archive's files, where commands run
	net    string // work tree of the topology
}

// onCluster runs command lines in the directory of the archive, with a cluster as the context.
func (in *releaseInstall) onCluster(t *testing.T, cluster, lines string) string {
	t.Helper()
	u := in.userShell
	u.kubeconfig += "." + cluster
	return u.run(t, in.work, "", lines)
}

// pageCommands returns a block of commands of a page with this installation's values.
func (in *releaseInstall) pageCommands(t *testing.T, page, text string, more ...string) string {
	t.Helper()
	return strings.NewReplacer(append(more, "mirror.example.org/hawser", in.mirror, "v0.2.0", in.version, "0.2.0", strings.TrimPrefix(in.version, "v"),
		"https://git.example.org/net/clusterset.git", "https://"+forgeAt+"/hub.git", "token=...", "token="+gitToken)...).
		Replace(gitops.Documented(t, page, text))
}

// onAllNodes runs a shell's lines on every node.
func (in *releaseInstall) onAllNodes(t *testing.T, lines string) (out []string) {
	t.Helper()
	for _, node := range []string{"c1n1", "c1n2", "c2n1", "c2n2"} {
		out = append(out, in.clusterPair.must(t, "", "kubelab", "--dir", in.dir, "node", node, "sh", "-ec", lines))
	}
	return out
}

// ctr is the command of containerd's client, for the images of the kubelet.
const ctr = "ctr -a /run/containerd/containerd.sock -n k8s.io "

// serveGit serves the repository hub.git outside of the clusters, by HTTPS and to clients with
// the token. The authority of its certificate is ca.crt in the directory of the archive.
func (in *releaseInstall) serveGit(t *testing.T) {
	t.Helper()
	in.run(t, "", "", "git init -q --bare hub.git && git -C hub.git config http.receivepack true && git clone -q hub.git net")
	in.net = filepath.Join(in.home, "net")
	backend := gitops.Forge(t, filepath.Join(in.home, "hub.git"))
	server := &http.Server{ReadHeaderTimeout: conditionTimeout, Handler: http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		if _, password, _ := q.BasicAuth(); password != gitToken {
			w.Header().Set("WWW-Authenticate", "Basic realm=git")
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		backend.ServeHTTP(w, q)
	})}
	certificate, err := selfSigned(net.ParseIP("172.31.1.1"))
	if err == nil {
		ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: certificate.Certificate[0]})
		err = os.WriteFile(filepath.Join(in.work, "ca.crt"), ca, 0o600)
	}
	if err == nil {
		server.TLSConfig = &tls.Config{Certificates: []tls.Certificate{certificate}}
		err = netnsexec.Do(filepath.Join(in.dir, "net", "internet"), func() error {
			l, err := net.Listen("tcp", forgeAt)
			if err == nil {
				go func() { _ = server.ServeTLS(l, "", "") }() // until Close
			}
			return err
		})
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = server.Close() })
}

// selfSigned returns a self-signed certificate for an address.
func selfSigned(address net.IP) (tls.Certificate, error) {
	public, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return tls.Certificate{}, fmt.Errorf("generate a key: %w", err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "git"}, IPAddresses: []net.IP{address},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
		BasicConstraintsValid: true, IsCA: true, KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
	}
	raw, err := x509.CreateCertificate(rand.Reader, template, template, public, private)
	if err != nil {
		return tls.Certificate{}, fmt.Errorf("sign the certificate: %w", err)
	}
	return tls.Certificate{Certificate: [][]byte{raw}, PrivateKey: private}, nil
}

// serveRegistry serves images outside of the clusters, and writes requests.log.
func (in *releaseInstall) serveRegistry(t *testing.T) {
	t.Helper()
	log, err := os.Create(filepath.Join(in.home, "requests.log"))
	if err != nil {
		t.Fatal(err)
	}
	serve := exec.Command("kubelab", "--dir", in.dir, "net", "internet", "crane", "registry", "serve", "--address", mirrorAt)
	serve.Env = append(os.Environ(), "PATH="+os.Getenv("PATH")+":"+in.bin)
	serve.Stdout, serve.Stderr = log, log
	if err := serve.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = serve.Process.Signal(syscall.SIGTERM)
		_ = serve.Wait() // ended by a signal
		_ = log.Close()
	})
	in.runOutside(t, "until curl -sf http://"+mirrorAt+"/v2/; do sleep 0.2; done")
}

// runOutside runs lines in the network between the clusters, in the directory of the archive.
func (in *releaseInstall) runOutside(t *testing.T, lines string) string {
	t.Helper()
	return in.clusterPair.must(t, "", "kubelab", "--dir", in.dir, "net", "internet", "env", "HOME="+in.home, "PATH="+in.bin, "sh", "-ec", lines)
}

// mirrored pushes the archive's images to a registry, with the page's commands.
func mirrored(t *testing.T, in *releaseInstall) {
	in.runOutside(t, "cd "+in.work+"\n"+in.pageCommands(t, installPage, "crane push"))
	for _, name := range []string{"hawser", "hawser-agent"} {
		out := in.runOutside(t, "crane digest "+in.mirror+"/"+name+":"+in.version)
		if digest := in.digest(t, name); strings.TrimSpace(out) != digest {
			t.Errorf("the mirror has %s as %s, want %s of images.txt", name, out, digest)
		}
	}
	// The nodes use the mirror over HTTP, and have no image of the release yet.
	in.onAllNodes(t, `mkdir -p /etc/containerd/certs.d/`+mirrorAt+`
printf 'server = "http://`+mirrorAt+`"\n[host."http://`+mirrorAt+`"]\n  capabilities = ["pull", "resolve"]\n' >/etc/containerd/certs.d/`+mirrorAt+`/hosts.toml
for image in $(`+ctr+`images ls | awk '/`+mirrorAt+`|`+in.digest(t, "hawser")+`|`+in.digest(t, "hawser-agent")+`/ { print $1 }'); do `+ctr+`images rm --sync $image; done`)
}

// digest returns the digest of an image in images.txt.
func (in *releaseInstall) digest(t *testing.T, name string) string {
	t.Helper()
	_, digest, _ := strings.Cut(in.image(t, name), "@")
	return digest
}

// checkPulled checks the number of nodes with an image of the mirror and the digest of images.txt.
// The mirror's log must have requests for the image's blobs.
func (in *releaseInstall) checkPulled(t *testing.T, name string, nodes int) {
	t.Helper()
	have := 0
	for _, list := range in.onAllNodes(t, ctr+"images ls") {
		for line := range strings.Lines(list) {
			if strings.HasPrefix(line, in.mirror+"/"+name) && strings.Contains(line, in.digest(t, name)) {
				have++
				break
			}
		}
	}
	log, err := os.ReadFile(filepath.Join(in.home, "requests.log"))
	if err != nil {
		t.Fatal(err)
	}
	asked := regexp.MustCompile(`GET /v2/hawser/`+name+`/blobs/sha256:`).FindAllString(string(log), -1)
	if have != nodes || len(asked) == 0 {
		t.Errorf("%d nodes have %s of the mirror, want %d; the mirror was asked for %d of its parts:\n%s", have, name, nodes, len(asked), log)
	}
}

// reconcilerByChart installs the reconciler in c1, which publishes pushed commits.
func reconcilerByChart(t *testing.T, in *releaseInstall) {
	in.run(t, in.net, "", "hawser init --context c1 --context c2")
	// For agents, only the topology names the mirror.
	in.editTopology(t, "spec:\n", "spec:\n  agent: {image: \""+in.mirror+"/hawser-agent:"+in.version+"@"+in.digest(t, "hawser-agent")+"\"}\n")
	in.run(t, in.net, "", "hawser allocate && git add -A && git commit -q -m 'the clusterset' && git push -q")
	in.run(t, in.work, "", "cp ../net/keys/root.key .")
	in.createVolume(t, "c1")
	in.onCluster(t, "c1", strings.TrimSpace(in.pageCommands(t, installPage, "helm install hawser hawser-reconciler"))+" --set gitCA.configMap=hawser-git-ca --set registry="+in.mirror+" --set interval=5s")
	in.onCluster(t, "c1", in.pageCommands(t, installPage, "create configmap hawser-git-ca"))
	in.onCluster(t, "c1", "kubectl -n hawser-reconciler rollout status deploy/hawser-reconciler --timeout="+conditionTimeout.String()+
		" || { kubectl -n hawser-reconciler describe pods; kubectl -n hawser-reconciler logs deploy/hawser-reconciler; exit 1; }")
	in.awaitPublished(t, "clusterset")
	in.checkPulled(t, "hawser", 1)
	// The chart's notes contain the command that forwards the port.
	notes := in.onCluster(t, "c1", "helm get notes hawser -n hawser-reconciler")
	forward := regexp.MustCompile(`kubectl .* port-forward [^#\n]*`).FindString(notes)
	out := in.status(t, "c1", forward)
	if !strings.Contains(out, strings.TrimSpace(in.run(t, in.home, "", "git -C hub.git rev-parse main"))) {
		t.Errorf("the status lacks the commit: %s", out)
	}
}

// status returns the status of the reconciler in a cluster, by a command that forwards its port.
func (in *releaseInstall) status(t *testing.T, cluster, forward string) string {
	t.Helper()
	return in.onCluster(t, cluster, forward+` >/dev/null &
trap "kill $!" EXIT
curl -sS --retry 30 --retry-delay 1 --retry-connrefused http://localhost:8473/status`)
}

// createVolume creates a volume for the claim of a reconciler's state, like a storage class.
func (in *releaseInstall) createVolume(t *testing.T, cluster string) {
	t.Helper()
	const stateDir = "/var/lib/hawser-reconciler-state"
	in.onAllNodes(t, "mkdir -p "+stateDir+" && chmod 777 "+stateDir)
	in.onCluster(t, cluster, `kubectl apply -f - <<'END'
apiVersion: v1
kind: PersistentVolume
metadata: {name: reconciler-state}
spec:
  capacity: {storage: 64Mi}
  accessModes: [ReadWriteOnce]
  hostPath: {path: `+stateDir+`}
END`)
}

// editTopology changes the topology in one place.
func (in *releaseInstall) editTopology(t *testing.T, from, to string) {
	t.Helper()
	file := filepath.Join(in.net, "clusterset.yaml")
	raw, err := os.ReadFile(file)
	if err == nil && strings.Count(string(raw), from) != 1 {
		err = errors.New("not once in the file: " + from + "\n" + string(raw))
	}
	if err == nil {
		err = os.WriteFile(file, []byte(strings.Replace(string(raw), from, to, 1)), 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// awaitPublished waits until the reconciler has published the newest commit with a text.
func (in *releaseInstall) awaitPublished(t *testing.T, text string) {
	t.Helper()
	commit := strings.TrimSpace(in.run(t, in.home, "", "git -C hub.git rev-parse main"))
	in.eventually(t, func(out string) bool { return strings.Contains(out, commit) && strings.Contains(out, text) },
		"sh", "-c", "git -C "+in.home+"/hub.git log -1 --format=%B rendered; git -C "+in.home+"/hub.git show rendered:topology.json")
}

// clustersInstalled applies the rendered objects in c1 with the chart, and in c2 with kustomize.
func clustersInstalled(t *testing.T, in *releaseInstall) {
	in.run(t, in.work, "", "cp ../net/clusterset.yaml ../net/clusterset.lock.yaml . && cp ../net/keys/c1.identity . && mkdir kustomize && tar -xf hawser-kustomize_"+
		in.version+".tar.gz -C kustomize && cp ../net/keys/c2.identity kustomize/cluster/identity.txt && sed -i 's#clusters/fra#clusters/c2#' kustomize/cluster/kustomization.yaml")
	in.onCluster(t, "c1", in.pageCommands(t, installPage, "kubectl kustomize rendered/clusters/fra", "fra", "c1"))
	in.applyBase(t)
	in.onCluster(t, "c2", "hawser keys signers --root-key root.key --cluster c2 -o secret | kubectl apply -f -")
	in.checkConnected(t)
	in.checkPulled(t, "hawser-agent", 4)
}

// applyBase applies the rendered objects in c2, as the base's comment describes. It applies twice,
// because the API server needs a moment to serve new definitions.
func (in *releaseInstall) applyBase(t *testing.T) {
	t.Helper()
	in.run(t, in.work, "", "rm -rf kustomize/cluster/rendered && cp -r rendered kustomize/cluster/")
	in.eventually(t, contains(""), "kubectl", "--kubeconfig", in.userShell.kubeconfig, "--context", "c2", "apply", "-k", in.work+"/kustomize/cluster", "--server-side")
}

func (in *releaseInstall) checkConnected(t *testing.T) {
	t.Helper()
	in.run(t, in.work, "", "hawser status --wait")
	out := in.run(t, in.work, "", "hawser verify || [ $? -eq 2 ]")
	for _, node := range []string{"c1/c1n1", "c1/c1n2", "c2/c2n1", "c2/c2n2"} {
		if !strings.Contains(out, node+": ") {
			t.Errorf("verify does not list %s:\n%s", node, out)
		}
	}
}

// sameAsRendered checks the objects that the chart and the base created. hawser apply would add
// only its annotation to them, and floors to the pins.
func sameAsRendered(t *testing.T, in *releaseInstall) {
	out := in.run(t, in.work, "", "hawser apply --tree rendered --dry-run -o json || [ $? -eq 1 ]")
	var result struct {
		Clusters []struct {
			Changes []struct {
				Op, Kind, Name string
				Fields         []struct{ Path string }
			}
		}
	}
	if err := json.Unmarshal([]byte(out[max(strings.Index(out, "{"), 0):]), &result); err != nil { // stderr precedes it
		t.Fatalf("%v\n%s", err, out)
	}
	objects := 0
	for _, c := range result.Clusters {
		for _, change := range c.Changes {
			objects++
			if change.Kind == "Secret" && change.Name == render.TrustSecret && change.Op == "~" {
				continue
			}
			if change.Op != "~" || len(change.Fields) != 1 || change.Fields[0].Path != `metadata.annotations["hawser.dev/applied-for"]` {
				t.Errorf("hawser apply would change %+v", change)
			}
		}
	}
	if objects < 40 {
		t.Errorf("hawser apply would change %d objects:\n%s", objects, out)
	}
}

// reconcilerByBase moves the reconciler to c2, with the kustomize base and the overlay in the
// base's comment. Afterwards this reconciler publishes.
func reconcilerByBase(t *testing.T, in *releaseInstall) {
	in.onCluster(t, "c1", "kubectl -n hawser-reconciler scale deploy/hawser-reconciler --replicas=0 && kubectl -n hawser-reconciler wait --for=delete pod --all --timeout="+conditionTimeout.String())
	base, err := os.ReadFile(filepath.Join(in.work, "kustomize/reconciler/kustomization.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	var overlay strings.Builder
	for line := range strings.Lines(string(base)) {
		if inside, found := strings.CutPrefix(line, "#   "); found {
			overlay.WriteString(inside)
		}
	}
	text := strings.NewReplacer("https://git.example.org/net/clusterset.git", "https://"+forgeAt+"/hub.git", "registry.example.org", in.mirror).Replace(overlay.String())
	if err := errors.Join(os.Mkdir(filepath.Join(in.work, "kustomize/here"), 0o755),
		os.WriteFile(filepath.Join(in.work, "kustomize/here/kustomization.yaml"), []byte(text), 0o600)); err != nil {
		t.Fatal(err)
	}
	in.onCluster(t, "c2", "kubectl create namespace hawser-reconciler && kubectl -n hawser-reconciler create secret generic hawser-root-key --from-file=root.key"+
		" && kubectl -n hawser-reconciler create secret generic hawser-git --from-literal=token="+gitToken)
	in.onCluster(t, "c2", in.pageCommands(t, installPage, "create configmap hawser-git-ca"))
	in.createVolume(t, "c2")
	in.onCluster(t, "c2", "kubectl apply --server-side -k kustomize/here && kubectl -n hawser-reconciler rollout status deploy/hawser-reconciler --timeout="+conditionTimeout.String()+
		" || { kubectl -n hawser-reconciler describe pods; kubectl -n hawser-reconciler logs deploy/hawser-reconciler; exit 1; }")
	// A node of each cluster now has the image of the mirror.
	in.checkPulled(t, "hawser", 2)
	status := in.status(t, "c2", "kubectl -n hawser-reconciler port-forward deploy/hawser-reconciler 8473")
	if commit := strings.TrimSpace(in.run(t, in.home, "", "git -C hub.git rev-parse main")); !strings.Contains(status, commit) {
		t.Errorf("the status lacks the commit %s: %s", commit, status)
	}
}

// clustersUpgraded commits an export. The reconciler publishes it, and the chart and the base apply it.
func clustersUpgraded(t *testing.T, in *releaseInstall) {
	file := filepath.Join(in.net, "clusterset.yaml")
	raw, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	raw = append(raw, "  exports:\n  - name: whereami-cs\n    namespace: sample\n    clusters: [c2]\n    ports: [{name: http, port: 80}]\n"...)
	if err := os.WriteFile(file, raw, 0o600); err != nil {
		t.Fatal(err)
	}
	in.run(t, in.net, "", "hawser allocate && git commit -q -a -m 'an export' && git push -q")
	in.awaitPublished(t, "whereami-cs")
	in.run(t, in.work, "", "cp ../net/clusterset.yaml ../net/clusterset.lock.yaml .")
	upgrade := slices.DeleteFunc(strings.Split(in.pageCommands(t, installPage, "kubectl kustomize rendered/clusters/fra", "fra", "c1", "helm install", "helm upgrade"), "\n"),
		func(line string) bool {
			return !strings.HasPrefix(line, "hawser render") && !strings.Contains(line, "fra.yaml") && !strings.Contains(line, "c1.yaml")
		})
	in.onCluster(t, "c1", strings.Join(upgrade, "\n"))
	in.applyBase(t)
	(&clusterset{clusterPair: in.clusterPair}).awaitAnswer(t, "c1", "client", serviceName, fromCluster("c2"))
	in.checkConnected(t)
}

// chartsUninstalled uninstalls everything with the page's commands.
func chartsUninstalled(t *testing.T, in *releaseInstall) {
	in.onCluster(t, "c1", in.pageCommands(t, uninstallPage, "helm uninstall", "fra", "c1"))
	in.run(t, in.work, "", "hawser uninstall c2 --yes")
	in.onCluster(t, "c2", "kubectl delete namespace hawser-reconciler")
	// Shared definitions stay, as their deletion would delete foreign exports.
	in.onCluster(t, "c1", "kubectl get crds serviceexports.multicluster.x-k8s.io serviceimports.multicluster.x-k8s.io clusterproperties.about.k8s.io")
	if out := in.onCluster(t, "c1", "{ helm list -A -q; kubectl get namespaces,crds,clusterroles,clusterrolebindings,validatingadmissionpolicies -o name; } | grep hawser || true"); out != "" {
		t.Errorf("this is left in c1:\n%s", out)
	}
}
