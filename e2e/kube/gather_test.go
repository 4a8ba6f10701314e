//go:build kube

package kube

import (
	"encoding/json"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"hawser.dev/hawser/nodeagent/kernel/inventory"
)

// TestGather tests that one command writes the state of both clusters, without secrets. It includes
// each node's kernel state, which the agent reads without nft and ip.
func TestGather(t *testing.T) {
	s := needClusterset(t, samePrefixes)
	dir := t.TempDir()
	file := filepath.Join(dir, "all.tar.gz")
	out := s.eventually(t, contains("Not collected:\n  nothing\n"), "sh", "-c", "rm -f "+file+"; hawser gather --cluster c1,c2 --out "+file)
	for _, want := range []string{"c1 Kubernetes v1.", "c2 Kubernetes v1.", "agents answered, versions: ", "written to " + file} {
		if !strings.Contains(out, want) {
			t.Errorf("the summary lacks %q:\n%s", want, out)
		}
	}
	files := unpacked(t, s, file, filepath.Join(dir, "all"))
	for _, c := range s.clusters {
		gateway := s.agentOn(t, c, c+"n1")
		for name, want := range map[string]string{
			"version.json": "gitVersion", "fabric.json": `"clusters"`,
			"objects/pods.yaml": gateway, "objects/daemonsets.yaml": "name: hawser-gateway", "objects/hawsernodes.yaml": "kind: HawserNode",
			"objects/nodes.yaml": "kubeletVersion", "objects/configmaps.yaml": "name: hawser-identity", "objects/dns.yaml": "Corefile",
			"objects/serviceimports.yaml": "whereami-cs", "objects/endpointslices.yaml": "hawser.dev",
			"status/" + gateway + ".json": `"cluster": "` + c + `"`, "plan/" + gateway + ".txt": "", "metrics/" + gateway + ".txt": "hawser_link_up",
			"logs/" + gateway + ".log": "level=",
		} {
			text, there := files["clusters/"+c+"/"+name]
			if !there || !strings.Contains(text, want) {
				t.Errorf("%s of %s lacks %q:\n%.2000s", name, c, want, text)
			}
		}
		checkKernel(t, files["clusters/"+c+"/kernel/"+gateway+".json"])
	}
	all := strings.Builder{}
	for _, text := range files {
		all.WriteString(text)
	}
	for what, secret := range secretsOf(t, s) {
		if strings.Contains(all.String(), secret) {
			t.Errorf("%s is in the file", what)
		}
	}
	if strings.Contains(all.String(), "managedFields:") || strings.Contains(all.String(), "kind: Secret\n") {
		t.Error("managedFields or a Secret are in the file")
	}
}

func checkKernel(t *testing.T, text string) {
	t.Helper()
	var k inventory.Kernel
	if err := json.Unmarshal([]byte(text), &k); err != nil {
		t.Fatalf("%v in %.500s", err, text)
	}
	links, tables := " ", " "
	for _, l := range k.Links {
		links += l.IfName + " "
	}
	sets := 0
	for _, o := range k.NFTables {
		switch {
		case o.Table != nil:
			tables += o.Table.Family + "/" + o.Table.Name + " "
		case o.Set != nil && len(o.Set.Elem) > 0:
			sets++
		}
	}
	if len(k.Errors) > 0 || !strings.Contains(links, " hw-vx0 ") || !strings.Contains(tables, " inet/hawser ") ||
		len(k.Wireguard) == 0 || len(k.Wireguard[0].Peers) == 0 || len(k.Routes) == 0 || sets == 0 || k.Sysctls["net/ipv4/ip_forward"] != "1" {
		t.Errorf("the kernel lacks something:\n%s", text)
	}
}

// unpacked returns the files of an archive by name.
func unpacked(t *testing.T, s *clusterset, file, dir string) map[string]string {
	t.Helper()
	s.must(t, "", "sh", "-ec", `mkdir "$2"; tar -xzf "$1" -C "$2" --strip-components=1`, "sh", file, dir)
	out := map[string]string{}
	err := filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		name, err := filepath.Rel(dir, path)
		if err != nil {
			return err
		}
		text, err := os.ReadFile(path)
		out[name] = string(text)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// secretsOf returns the secrets of the clusters by their names.
func secretsOf(t *testing.T, s *clusterset) map[string]string {
	t.Helper()
	out := map[string]string{}
	root, err := os.ReadFile(s.path("root.key"))
	if err != nil {
		t.Fatal(err)
	}
	out["the root key"] = strings.TrimSpace(string(root))
	for _, c := range s.clusters {
		identity, err := os.ReadFile(s.path(c + ".identity"))
		if err != nil {
			t.Fatal(err)
		}
		at := strings.Index(string(identity), "AGE-SECRET-KEY-")
		if at < 0 {
			t.Fatalf("no identity in %s", s.path(c+".identity"))
		}
		out["the identity of "+c] = strings.TrimSpace(string(identity)[at:])
		sealed := s.kubectl(t, c, "-n", "hawser-system", "get", "secret", "hawser-keys", "-o", `jsonpath={.data.keys\.age}`)
		if len(sealed) < 100 {
			t.Fatalf("the sealed keys of %s are %q", c, sealed)
		}
		out["the sealed keys of "+c] = sealed
	}
	return out
}
