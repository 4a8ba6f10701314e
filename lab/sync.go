package lab

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/fsnotify/fsnotify"
	"github.com/go-git/go-git/v5"
	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/object"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"
	kyaml "sigs.k8s.io/yaml"

	"hawser.dev/hawser/reconciler"
)

// publishBranch is where the lab's reconciler publishes.
const publishBranch = reconciler.DefaultPublishBranch

// published is what the sync has read from the publish branch.
type published struct {
	commit   string
	source   string // the topology's commit
	digest   string // of the fabric
	clusters map[string]*delivery
}

// delivery is what one cluster's nodes get, as a kubelet would mount it.
type delivery struct {
	fabric map[string][]byte // files of the ConfigMaps hawser-fabric*
	keys   map[string][]byte // files of the Secret hawser-keys
}

// follow plays Flux: it looks at the publish branch whenever a ref changes, and
// now and then in case a notification was lost.
func (d *daemon) follow(ctx context.Context) {
	watcher, err := fsnotify.NewWatcher()
	if err == nil {
		defer watcher.Close()
		_ = watcher.Add(filepath.Join(d.layout.Repo(), ".git")) // packed-refs
		_ = watcher.Add(filepath.Join(d.layout.Repo(), ".git", "refs", "heads"))
	} else {
		watcher = &fsnotify.Watcher{} // nil channels: only the ticks remain
	}
	tick := time.NewTicker(500 * time.Millisecond)
	defer tick.Stop()
	var failed string
	for {
		if err := d.syncOnce(); err != nil && err.Error() != failed {
			failed = err.Error()
			d.log.Error("published tree cannot be used", "err", err)
			d.events.add("the published tree cannot be used: %v", err)
		}
		select {
		case <-ctx.Done():
			return
		case <-watcher.Events:
		case <-watcher.Errors:
		case <-tick.C:
		}
	}
}

// syncOnce reads the publish branch and, when it moved, carries it to the nodes.
func (d *daemon) syncOnce() error {
	repo, err := git.PlainOpen(d.layout.Repo())
	if err != nil {
		return fmt.Errorf("open repository of the lab: %w", err)
	}
	ref, err := repo.Reference(plumbing.NewBranchReferenceName(publishBranch), true)
	if errors.Is(err, plumbing.ErrReferenceNotFound) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("read branch %s: %w", publishBranch, err)
	}
	d.mu.Lock()
	have := d.published.commit
	d.mu.Unlock()
	if have == ref.Hash().String() {
		return nil
	}
	next, t, err := readPublished(repo, ref.Hash())
	if err != nil {
		return err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.events.add("published %.7s (fabric %s) for commit %.7s", next.commit, next.digest, next.source)
	d.published, d.topology = next, t
	d.converge()
	return nil
}

// readPublished builds every cluster's folder and reads the topology that the
// commit was made from.
func readPublished(repo *git.Repository, hash plumbing.Hash) (published, topology, error) {
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
	tree, err := checkout(commit)
	if err != nil {
		return fail(err)
	}
	for _, c := range t.clusters {
		built, err := build(tree, path.Join("clusters", c.name))
		if err != nil {
			return fail(err)
		}
		out.clusters[c.name] = built
	}
	return out, t, nil
}

func trailer(message, name string) string {
	for line := range strings.Lines(message) {
		if value, ok := strings.CutPrefix(line, name+":"); ok {
			return strings.TrimSpace(value)
		}
	}
	return ""
}

func topologyAt(repo *git.Repository, source string) (topology, error) {
	commit, err := repo.CommitObject(plumbing.NewHash(source))
	if err != nil {
		return topology{}, fmt.Errorf("find source commit %q: %w", source, err)
	}
	file, err := commit.File(topologyFile)
	if err != nil {
		return topology{}, fmt.Errorf("read %s of source commit %.7s: %w", topologyFile, source, err)
	}
	raw, err := file.Contents()
	if err != nil {
		return topology{}, fmt.Errorf("read %s of source commit %.7s: %w", topologyFile, source, err)
	}
	return parseTopology([]byte(raw))
}

// checkout reads a whole commit into memory.
func checkout(commit *object.Commit) (filesys.FileSystem, error) {
	files, err := commit.Files()
	if err != nil {
		return nil, fmt.Errorf("list files: %w", err)
	}
	out := filesys.MakeFsInMemory()
	err = files.ForEach(func(file *object.File) error {
		raw, err := file.Contents()
		if err != nil {
			return err
		}
		return out.WriteFile("/"+file.Name, []byte(raw))
	})
	if err != nil {
		return nil, fmt.Errorf("read files: %w", err)
	}
	return out, nil
}

// build runs kustomize on a folder and keeps what is for the agents.
func build(tree filesys.FileSystem, dir string) (*delivery, error) {
	resources, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(tree, "/"+dir)
	if err != nil {
		return nil, fmt.Errorf("kustomize build %s: %w", dir, err)
	}
	out := &delivery{fabric: map[string][]byte{}, keys: map[string][]byte{}}
	for _, r := range resources.Resources() {
		fabric := r.GetKind() == "ConfigMap" && strings.HasPrefix(r.GetName(), "hawser-fabric")
		keys := r.GetKind() == "Secret" && strings.HasPrefix(r.GetName(), "hawser-keys")
		if !fabric && !keys {
			continue
		}
		raw, err := r.AsYAML()
		if err != nil {
			return nil, fmt.Errorf("read %s of %s: %w", r.GetName(), dir, err)
		}
		if fabric {
			err = addConfigMap(raw, out.fabric)
		} else {
			err = addSecret(raw, out.keys)
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

func addConfigMap(raw []byte, into map[string][]byte) error {
	var m corev1.ConfigMap
	if err := kyaml.Unmarshal(raw, &m); err != nil {
		return err
	}
	maps.Copy(into, m.BinaryData)
	for name, text := range m.Data {
		into[name] = []byte(text)
	}
	return nil
}

func addSecret(raw []byte, into map[string][]byte) error {
	var s corev1.Secret
	if kyaml.Unmarshal(raw, &s) != nil {
		return errors.New("not a Secret") // the cause may quote it
	}
	maps.Copy(into, s.Data)
	for name, text := range s.StringData {
		into[name] = []byte(text)
	}
	return nil
}

// deliver writes what was published to every node of the clusters whose sync is
// not stopped; keys go to gateways only.
func (d *daemon) deliver(w *world) error {
	var errs []error
	for i := range w.nodes {
		n := &w.nodes[i]
		content := d.published.clusters[n.cluster]
		if content == nil || d.state.NoSync[n.cluster] {
			continue
		}
		errs = append(errs, mirror(filepath.Join(d.nodeDir(n), "fabric"), content.fabric, 0o644))
		keys := content.keys
		if !n.gateway {
			keys = nil
		}
		errs = append(errs, mirror(filepath.Join(d.nodeDir(n), "keys"), keys, 0o600))
	}
	return errors.Join(errs...)
}

// mirror makes a folder hold exactly the given files.
func mirror(dir string, files map[string][]byte, mode os.FileMode) error {
	var errs []error
	for _, name := range slices.Sorted(maps.Keys(files)) {
		_, err := writeFile(filepath.Join(dir, name), files[name], mode)
		errs = append(errs, err)
	}
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		errs = append(errs, fmt.Errorf("list %s: %w", dir, err))
	}
	for _, entry := range entries {
		if _, wanted := files[entry.Name()]; !wanted {
			errs = append(errs, os.RemoveAll(filepath.Join(dir, entry.Name())))
		}
	}
	return errors.Join(errs...)
}
