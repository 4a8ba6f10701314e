package main

import (
	"context"
	"encoding/gob"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"filippo.io/age"

	"hawser.dev/hawser/internal/diag"
	"hawser.dev/hawser/reconciler"
	"hawser.dev/hawser/render"
	"hawser.dev/hawser/render/keys"
	"hawser.dev/hawser/render/plan"
	"hawser.dev/hawser/schema/load"
)

const (
	topologyClusters = 1000
	topologyExports  = 10_000
	topologyRounds   = 5
	topologyTime     = 3 * time.Second
	topologyMemory   = 500 << 20 // bytes
)

// writeTopology writes a clusterset of so many clusters with the same prefixes,
// two gateways each, and so many exports from two clusters each; hub says that three of
// them are hubs, and not all linked to each other.
func writeTopology(clusters, exports int, recipients []string, hub bool) []byte {
	var b strings.Builder
	b.WriteString("apiVersion: hawser.dev/v1alpha1\nkind: ClusterSet\nmetadata: {name: large}\nspec:\n")
	if hub {
		b.WriteString("  connectivity: {mode: hub, hubs: [c0, c1, c2]}\n")
	}
	b.WriteString("  clusters:\n")
	for i := range clusters {
		fmt.Fprintf(&b, "  - name: c%d\n    podCIDRs: [10.7.0.0/20]\n    serviceCIDRs: [10.77.0.0/20]\n", i)
		fmt.Fprintf(&b, "    recipient: %s\n    gateways:\n", recipients[i])
		for g := range 2 {
			fmt.Fprintf(&b, "    - {name: g%d, node: node-%d, endpoints: [198.18.%d.%d], port: %d}\n", g, g, i/250, i%250+1, 51820+66*g)
		}
	}
	b.WriteString("  exports:\n")
	for i := range exports {
		fmt.Fprintf(&b, "  - name: s%d\n    namespace: ns%d\n    clusters: [c%d, c%d]\n", i, i%100, i%clusters, (i+1)%clusters)
		b.WriteString("    ports: [{name: http, port: 80, protocol: TCP}, {name: metrics, port: 9090}]\n")
	}
	return []byte(b.String())
}

// steps is what one run of the whole pure path took.
type steps struct {
	Validate, Allocate, Render, Diff time.Duration
	Changes                          int
}

func (s steps) total() time.Duration { return s.Validate + s.Allocate + s.Render + s.Diff }

// stepsIn reads topology, lock, root key and published tree from a folder, runs
// the pure path on them and writes lock and tree for the next run. It is a
// process of its own, so that the memory it needs can be told.
func stepsIn(dir string) error {
	raw, err := os.ReadFile(filepath.Join(dir, reconciler.TopologyFile))
	if err != nil {
		return err
	}
	lock, err := os.ReadFile(filepath.Join(dir, reconciler.LockFile))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	root, err := reconciler.ReadRootKey(filepath.Join(dir, "root.key"), "")
	if err != nil {
		return err
	}
	published, err := readTree(dir)
	if err != nil {
		return err
	}
	s, out, err := walk(raw, lock, published, root)
	if err != nil {
		return err
	}
	peak, err := peakMemory()
	if err != nil {
		return err
	}
	if err := json.NewEncoder(os.Stdout).Encode(told{Steps: s, Peak: peak}); err != nil {
		return err
	}
	return writeTree(dir, out)
}

func walk(raw, committed []byte, published render.Tree, root *keys.Root) (s steps, out render.Tree, err error) {
	begin := time.Now()
	lap := func(d *time.Duration) { *d, begin = time.Since(begin), time.Now() }
	set, source, list := load.Topology(reconciler.TopologyFile, raw)
	if list.HasErrors() {
		return s, nil, firstOf(list)
	}
	lap(&s.Validate)
	lock, list := reconciler.Allocate(reconciler.LockInput{Set: set, File: reconciler.LockFile, Committed: committed})
	if list.HasErrors() {
		return s, nil, firstOf(list)
	}
	lap(&s.Allocate)
	out, list = render.Render(render.Input{Topology: set, Lock: lock.Lock, Root: root, Previous: published})
	if list.HasErrors() {
		return s, nil, firstOf(list)
	}
	lap(&s.Render)
	p, err := plan.Compute(out, published)
	if err != nil {
		return s, nil, err
	}
	p.Locate(func(path string) string { return source.Pos(path).File })
	if err := p.Print(io.Discard, false); err != nil {
		return s, nil, err
	}
	lap(&s.Diff)
	s.Changes = len(p.Entries)
	if out[reconciler.LockFile], err = lock.Lock.Marshal(); err != nil {
		return s, nil, err
	}
	return s, out, nil
}

func firstOf(list diag.List) error {
	return fmt.Errorf("%d findings, the first: %s", len(list), list[0].Summary)
}

func readTree(dir string) (render.Tree, error) {
	tree := render.Tree{}
	f, err := os.Open(filepath.Join(dir, "tree.gob"))
	if errors.Is(err, os.ErrNotExist) {
		return tree, nil
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return tree, gob.NewDecoder(f).Decode(&tree)
}

func writeTree(dir string, tree render.Tree) error {
	if err := os.WriteFile(filepath.Join(dir, reconciler.LockFile), tree[reconciler.LockFile], 0o600); err != nil {
		return err
	}
	delete(tree, reconciler.LockFile)
	f, err := os.Create(filepath.Join(dir, "tree.gob"))
	if err != nil {
		return err
	}
	return errors.Join(gob.NewEncoder(f).Encode(tree), f.Close())
}

// trial is one size, with the published state kept in a folder.
type trial struct {
	dir               string
	clusters, exports int
	recipients        []string
	first, more, hub  []measured
}

type measured struct {
	steps
	memory int64 // peak resident set, bytes
}

func newTrial(dir string, clusters, exports int) (*trial, error) {
	t := &trial{dir: dir, clusters: clusters, exports: exports}
	for range clusters {
		identity, err := age.GenerateX25519Identity()
		if err != nil {
			return nil, err
		}
		t.recipients = append(t.recipients, identity.Recipient().String())
	}
	root, err := keys.NewRoot()
	if err != nil {
		return nil, err
	}
	return t, errors.Join(os.MkdirAll(dir, 0o700), os.WriteFile(filepath.Join(dir, "root.key"), root.Encode(), 0o600))
}

// round publishes from nothing, then once more with one more export, and then with hubs
// in place of a mesh.
func (t *trial) round(ctx context.Context) error {
	for _, name := range []string{"tree.gob", reconciler.LockFile} {
		if err := os.Remove(filepath.Join(t.dir, name)); err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
	}
	for _, run := range []struct {
		exports int
		hub     bool
		into    *[]measured
	}{{t.exports - 1, false, &t.first}, {t.exports, false, &t.more}, {t.exports, true, &t.hub}} {
		raw := writeTopology(t.clusters, run.exports, t.recipients, run.hub)
		if err := os.WriteFile(filepath.Join(t.dir, reconciler.TopologyFile), raw, 0o600); err != nil {
			return err
		}
		m, err := t.child(ctx)
		if err != nil {
			return err
		}
		*run.into = append(*run.into, m)
	}
	return nil
}

func (t *trial) child(ctx context.Context) (m measured, err error) {
	self, err := os.Executable()
	if err != nil {
		return m, err
	}
	cmd := exec.CommandContext(ctx, self, "topology-steps", t.dir)
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return m, fmt.Errorf("pure path of %d clusters: %w", t.clusters, err)
	}
	var answer told
	if err := json.Unmarshal(out, &answer); err != nil {
		return m, err
	}
	return measured{steps: answer.Steps, memory: answer.Peak}, nil
}

// told is what a child answers.
type told struct {
	Steps steps
	Peak  int64 // bytes
}

// peakMemory reads this process's largest resident set. The figure that the
// kernel gives to a parent (ru_maxrss) also counts what the parent itself had
// when it started the child: execve(2) keeps the larger of the two.
func peakMemory() (int64, error) {
	raw, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(raw)) {
		if rest, found := strings.CutPrefix(line, "VmHWM:"); found {
			var kib int64
			if _, err := fmt.Sscan(rest, &kib); err != nil {
				return 0, fmt.Errorf("read peak memory: %w", err)
			}
			return kib << 10, nil
		}
	}
	return 0, errors.New("this system does not tell the memory of a process")
}
