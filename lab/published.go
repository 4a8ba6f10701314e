package lab

import (
	"errors"
	"fmt"
	"maps"
	"path"
	"strings"

	"github.com/go-git/go-git/v5"
	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/filemode"
	"github.com/go-git/go-git/v5/plumbing/object"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/kustomize/api/types"
	kyaml "sigs.k8s.io/yaml"

	"hawser.dev/hawser/reconciler"
	"hawser.dev/hawser/render"
	"hawser.dev/hawser/render/kustomize"
)

// published is the content of the publish branch.
type published struct {
	commit   string
	source   string // commit of the topology
	digest   string // digest of the fabric
	clusters map[string]*delivery
}

// delivery has the files of one cluster's nodes, as the kubelet would mount them.
type delivery struct {
	fabric map[string][]byte // files of the ConfigMaps hawser-fabric*
	keys   map[string][]byte // files of the Secret hawser-keys
}

// reader reads published trees. It reuses the results of directories with unchanged git hashes. It
// is not safe for concurrent use.
type reader struct {
	base     plumbing.Hash // hash of the directory that shared was built from
	shared   *delivery
	clusters map[string]known
}

// known is the delivery of a cluster with the hashes of its source directories.
type known struct {
	base, dir plumbing.Hash
	built     *delivery
}

// read builds every cluster's directory, and reads the topology from which the commit was made.
func (r *reader) read(repo *git.Repository, hash plumbing.Hash) (published, topology, error) {
	fail := func(err error) (published, topology, error) {
		return published{}, topology{}, fmt.Errorf("commit %.7s of %s: %w", hash, publishBranch, err)
	}
	commit, err := repo.CommitObject(hash)
	if err != nil {
		return fail(err)
	}
	out := published{
		commit: hash.String(), source: trailer(commit.Message, reconciler.TrailerSource),
		digest: trailer(commit.Message, reconciler.TrailerDigest), clusters: map[string]*delivery{},
	}
	t, err := topologyAt(repo, out.source)
	if err != nil {
		return fail(err)
	}
	tree, err := commit.Tree()
	if err != nil {
		return fail(err)
	}
	next := map[string]known{}
	for _, c := range t.clusters {
		k, err := r.cluster(tree, c.name)
		if err != nil {
			return fail(err)
		}
		next[c.name], out.clusters[c.name] = k, k.built
	}
	r.clusters = next
	return out, t, nil
}

// cluster builds a directory, unless its sources are unchanged.
func (r *reader) cluster(tree *object.Tree, name string) (known, error) {
	dir := path.Join("clusters", name)
	k := known{base: dirHash(tree, "base"), dir: dirHash(tree, dir)}
	if have := r.clusters[name]; have.built != nil && have.base == k.base && have.dir == k.dir {
		return have, nil
	}
	objects, err := plainDir(tree, dir)
	if err != nil {
		return k, fmt.Errorf("read %s: %w", dir, err)
	}
	if objects == nil { // for example with patches of users
		k.built, err = build(tree, dir)
		return k, err
	}
	if r.shared == nil || r.base != k.base {
		if r.shared, err = build(tree, "base"); err != nil {
			return k, err
		}
		r.base = k.base
	}
	k.built = &delivery{fabric: maps.Clone(r.shared.fabric), keys: maps.Clone(r.shared.keys)}
	for _, raw := range objects {
		if err := k.built.add(raw); err != nil {
			return k, fmt.Errorf("read %s: %w", dir, err)
		}
	}
	return k, nil
}

// dirHash returns the hash of a directory, or zero if it does not exist.
func dirHash(tree *object.Tree, dir string) plumbing.Hash {
	entry, err := tree.FindEntry(dir)
	if err != nil || entry.Mode != filemode.Dir {
		return plumbing.ZeroHash
	}
	return entry.Hash
}

// plainDir returns the objects of a cluster's directory if kustomize would only append them to
// the objects of base. The reconciler writes such directories unless the user has patches. It
// returns nil if the directory requires kustomize.
func plainDir(tree *object.Tree, dir string) ([][]byte, error) {
	sub, err := tree.Tree(dir)
	if err != nil {
		return nil, nil // kustomize reports the problem
	}
	var k types.Kustomization
	raw, err := contents(sub, "kustomization.yaml")
	if err != nil || kyaml.UnmarshalStrict(raw, &k) != nil {
		return nil, nil
	}
	hasBase := false
	var files []string
	for _, name := range k.Resources {
		switch {
		case name == "../../base":
			hasBase = true
		case path.Base(name) == name:
			files = append(files, name)
		default:
			return nil, nil
		}
	}
	k.TypeMeta, k.Resources = types.TypeMeta{}, nil
	if remaining, err := kyaml.Marshal(k); !hasBase || err != nil || strings.TrimSpace(string(remaining)) != "{}" {
		return nil, nil
	}
	out := [][]byte{}
	for _, name := range files {
		raw, err := contents(sub, name)
		if err != nil {
			return nil, err
		}
		for part := range strings.SplitSeq("\n"+string(raw), "\n---") {
			out = append(out, []byte(part))
		}
	}
	return out, nil
}

func contents(tree *object.Tree, name string) ([]byte, error) {
	file, err := tree.File(name)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", name, err)
	}
	text, err := file.Contents()
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", name, err)
	}
	return []byte(text), nil
}

// build runs kustomize on a directory and returns the objects for the agents.
func build(tree *object.Tree, dir string) (*delivery, error) {
	part, root := tree, dir
	if dir == "base" { // base refers to no other directory; do not copy the many clusters
		var err error
		if part, err = tree.Tree(dir); err != nil {
			return nil, fmt.Errorf("read %s: %w", dir, err)
		}
		root = ""
	}
	files, err := readFiles(part)
	if err != nil {
		return nil, err
	}
	resources, err := kustomize.Build(files, root)
	if err != nil {
		return nil, err
	}
	out := &delivery{fabric: map[string][]byte{}, keys: map[string][]byte{}}
	for _, r := range resources.Resources() {
		if !forAgents(r.GetKind(), r.GetName()) {
			continue
		}
		raw, err := r.AsYAML()
		if err == nil {
			err = out.add(raw)
		}
		if err != nil {
			return nil, fmt.Errorf("read %s of %s: %w", r.GetName(), dir, err)
		}
	}
	if len(out.fabric) == 0 {
		return nil, fmt.Errorf("%s holds no ConfigMap hawser-fabric", dir)
	}
	return out, nil
}

// readFiles reads the sources of clusters' directories into memory.
func readFiles(tree *object.Tree) (map[string][]byte, error) {
	out := map[string][]byte{}
	files := tree.Files()
	defer files.Close()
	err := files.ForEach(func(file *object.File) error {
		raw, err := file.Contents()
		if err != nil {
			return err
		}
		out[file.Name] = []byte(raw)
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("read files: %w", err)
	}
	return out, nil
}

// forAgents reports whether an object is mounted into agents.
func forAgents(kind, name string) bool {
	return kind == "ConfigMap" && strings.HasPrefix(name, render.FabricConfigMap) || kind == "Secret" && strings.HasPrefix(name, render.KeysSecret)
}

// add adds an object if it is for the agents.
func (d *delivery) add(raw []byte) error {
	var m metav1.PartialObjectMetadata
	if kyaml.Unmarshal(raw, &m) != nil {
		return errors.New("not a Kubernetes object") // do not wrap the cause, which may quote a Secret
	}
	switch {
	case !forAgents(m.Kind, m.Name):
		return nil
	case m.Kind == "Secret":
		var s corev1.Secret
		if kyaml.Unmarshal(raw, &s) != nil {
			return errors.New("not a Secret") // do not wrap the cause, which may quote it
		}
		maps.Copy(d.keys, s.Data)
		for name, text := range s.StringData {
			d.keys[name] = []byte(text)
		}
		return nil
	}
	var config corev1.ConfigMap
	if err := kyaml.Unmarshal(raw, &config); err != nil {
		return err
	}
	maps.Copy(d.fabric, config.BinaryData)
	for name, text := range config.Data {
		d.fabric[name] = []byte(text)
	}
	return nil
}
