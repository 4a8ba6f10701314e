//go:build kube

package gitops

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/tools/clientcmd"
)

var gitRepositories = schema.GroupVersionResource{Group: "source.toolkit.fluxcd.io", Version: "v1", Resource: "gitrepositories"}

// source replaces Flux's source-controller, which cannot be built completely from the Go module
// proxy. It fetches the branch of a GitRepository, serves it as an archive, and reports it in the
// object's status.
type source struct {
	client dynamic.ResourceInterface
	dir    string // a bare repository, and archives
	url    string // URL of the archives
}

func startSource(t testing.TB, kubeconfig, name string) {
	t.Helper()
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	s := &source{client: client.Resource(gitRepositories).Namespace(FluxNamespace), dir: t.TempDir()}
	if _, err := s.git(t.Context(), "init", "-q", "--bare", s.dir); err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(http.FileServer(http.Dir(s.dir)))
	s.url = server.URL
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	var last error
	var wait sync.WaitGroup
	wait.Go(func() {
		for ctx.Err() == nil {
			if err := s.fetch(ctx, name); err != nil && ctx.Err() == nil {
				last = err
			}
			select {
			case <-ctx.Done():
			case <-time.After(500 * time.Millisecond):
			}
		}
	})
	t.Cleanup(func() {
		cancel()
		wait.Wait()
		server.Close()
		if t.Failed() && last != nil {
			t.Logf("GitRepository %s: the last error was: %v", name, last)
		}
	})
}

func (s *source) git(ctx context.Context, args ...string) (string, error) {
	out, err := exec.CommandContext(ctx, "git", append([]string{"-C", s.dir}, args...)...).Output()
	if err != nil {
		var exit *exec.ExitError
		if errors.As(err, &exit) {
			err = fmt.Errorf("%w: %s", err, exit.Stderr)
		}
		return "", fmt.Errorf("git %s: %w", strings.Join(args, " "), err)
	}
	return strings.TrimSpace(string(out)), nil
}

// fetch fetches the branch if its commit differs from the status.
func (s *source) fetch(ctx context.Context, name string) error {
	object, err := s.client.Get(ctx, name, meta.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("read GitRepository %s: %w", name, err)
	}
	url, _, _ := unstructured.NestedString(object.Object, "spec", "url")
	branch, _, _ := unstructured.NestedString(object.Object, "spec", "ref", "branch")
	have, _, _ := unstructured.NestedString(object.Object, "status", "artifact", "revision")
	heads, err := s.git(ctx, "ls-remote", url, "refs/heads/"+branch)
	if err != nil {
		return err
	}
	commit, _, _ := strings.Cut(heads, "\t")
	if revision(branch, commit) == have {
		return nil
	}
	file := commit + ".tar.gz"
	if _, err := s.git(ctx, "fetch", "-q", "--force", url, branch+":refs/heads/"+branch); err != nil {
		return err
	}
	if _, err := s.git(ctx, "archive", "--format=tar.gz", "-o", file, commit); err != nil {
		return err
	}
	raw, err := os.ReadFile(filepath.Join(s.dir, file))
	if err != nil {
		return fmt.Errorf("read the archive: %w", err)
	}
	return s.writeStatus(ctx, object, file, revision(branch, commit), raw)
}

// revision returns Flux's name of a commit.
func revision(branch, commit string) string { return branch + "@sha1:" + commit }

func (s *source) writeStatus(ctx context.Context, object *unstructured.Unstructured, file, revision string, raw []byte) error {
	now := time.Now().UTC().Format(time.RFC3339)
	patch, err := json.Marshal(map[string]any{"status": map[string]any{
		"observedGeneration": object.GetGeneration(),
		"artifact": map[string]any{"digest": fmt.Sprintf("sha256:%x", sha256.Sum256(raw)), "lastUpdateTime": now, "path": file,
			"revision": revision, "size": len(raw), "url": s.url + "/" + file},
		"conditions": []any{map[string]any{"type": "Ready", "status": "True", "reason": "Succeeded", "message": "stored " + revision,
			"lastTransitionTime": now, "observedGeneration": object.GetGeneration()}},
	}})
	if err != nil {
		return fmt.Errorf("encode a status: %w", err)
	}
	if _, err := s.client.Patch(ctx, object.GetName(), types.MergePatchType, patch, meta.PatchOptions{}, "status"); err != nil {
		return fmt.Errorf("write the status of GitRepository %s: %w", object.GetName(), err)
	}
	return nil
}
