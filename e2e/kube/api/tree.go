//go:build kube

package api

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"hawser.dev/hawser/render"
	"hawser.dev/hawser/render/keys"
	"hawser.dev/hawser/schema/allocate"
	"hawser.dev/hawser/schema/load"
)

// Install renders a topology and applies the directory of cluster c1, with strict validation of all
// fields. It returns the directory with the rendered tree.
func (s *Server) Install(t testing.TB, topology string) string {
	t.Helper()
	dir := Tree(t, topology)
	s.K(t, "apply", "--server-side", "--force-conflicts", "--validate=strict", "-k", filepath.Join(dir, "clusters", "c1"))
	s.Defined(t)
	return dir
}

// Tree renders a topology and returns the directory with the rendered tree.
func Tree(t testing.TB, topology string) string {
	t.Helper()
	top, _, list := load.Topology("clusterset.yaml", []byte(topology))
	if err := list.Err(); err != nil {
		t.Fatal(err)
	}
	lock, list := allocate.Allocate(top, nil)
	if err := list.Err(); err != nil {
		t.Fatal(err)
	}
	root, err := keys.ReadRoot(bytes.Repeat([]byte{7}, keys.RootSize))
	if err != nil {
		t.Fatal(err)
	}
	files, list := render.Render(render.Input{Topology: top, Lock: lock, Root: root})
	if err := list.Err(); err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	for name, raw := range files {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, raw, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// As returns a kubeconfig with the account of an agent on a node.
func (s *Server) As(t testing.TB, account, node string) string {
	t.Helper()
	raw, err := os.ReadFile(s.Kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	user := fmt.Sprintf("user: {token: %s, as: \"system:serviceaccount:hawser-system:%s\", "+
		"as-groups: [\"system:serviceaccounts\", \"system:authenticated\"], as-user-extra: {authentication.kubernetes.io/node-name: [%s]}}", token, account, node)
	file := filepath.Join(t.TempDir(), "kubeconfig")
	write(t, file, strings.Replace(string(raw), "user: {token: "+token+"}", user, 1))
	return file
}
