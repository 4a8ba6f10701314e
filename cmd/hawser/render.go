package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"hawser.dev/hawser/internal/checkout"
	"hawser.dev/hawser/internal/diag"
	"hawser.dev/hawser/reconciler"
	"hawser.dev/hawser/render"
	"hawser.dev/hawser/render/keys"
)

// buildFlags is what decides a rendering besides the topology.
type buildFlags struct {
	root, identity, image string
	allowRootKeyChange    bool
}

// What flags of several commands say.
const (
	rootKeyHelp    = "file of the root key, plain or encrypted with age"
	imageHelp      = "image of the agent where spec.agent.image names none (default: the published one)"
	writeLockHelp  = "allocate missing addresses and keep them, instead of refusing the commit"
	massDeleteHelp = "let a commit remove more than half of the clusters"
	allowOtherRoot = "let another root key replace the one that made the published keys: links end until both ends have the new keys"
)

func (f *buildFlags) add(cmd *cobra.Command) {
	cmd.Flags().StringVar(&f.root, "root-key", os.Getenv("HAWSER_ROOT_KEY"), rootKeyHelp)
	cmd.Flags().StringVar(&f.identity, "root-identity", "", "age identity that opens an encrypted root key")
	cmd.Flags().BoolVar(&f.allowRootKeyChange, "allow-other-root", false, allowOtherRoot)
	cmd.Flags().StringVar(&f.image, "image", "", imageHelp)
}

// rootKey gives nil when no root key was named.
func (f *buildFlags) rootKey() (*keys.Root, error) {
	if f.root == "" {
		return nil, nil
	}
	return reconciler.ReadRootKey(f.root, f.identity)
}

func newRenderCommand(a *app) *cobra.Command {
	var f buildFlags
	var out string
	cmd := &cobra.Command{
		Use:   "render [FILE|DIR] --out DIR",
		Short: "Write the manifests that the reconciler would publish",
		Long: `Write the tree that the reconciler would publish for this topology: base/,
clusters/<name>/, flux/ and argocd/. Files of an earlier rendering that are no
longer part of it are removed; files that hawser did not write are kept, and
patches are those of the folder patches beside the topology.

Without a root key the keys of an earlier rendering in the folder stay.

Exit codes: 0 written, 1 errors in the topology, 2 error.`,
		Example: `  hawser render --out rendered/ --root-key root.key`,
		Args:    cobra.MaximumNArgs(1),
		RunE:    func(_ *cobra.Command, args []string) error { return a.render(args, out, f) },
	}
	a.topologyFlag(cmd)
	f.add(cmd)
	cmd.Flags().StringVar(&out, "out", "", "folder to write to")
	return cmd
}

func (a *app) render(args []string, out string, f buildFlags) error {
	if out == "" {
		return errors.New("say where to write to: hawser render --out DIR")
	}
	t, err := a.readTopology(args)
	if err != nil {
		return err
	}
	dir, err := readRendered(out)
	if err != nil {
		return err
	}
	defer a.progress("rendering " + t.file)()
	built, err := a.build(t, dir.tree, f)
	if err != nil {
		return err
	}
	changes, err := dir.write(built.Tree)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(a.err, "%s: %d files, %d written, %d removed; fabric %s\n",
		out, len(built.Tree), changes.written, changes.removed, built.Digest)
	return err
}

// build renders a topology on top of what is published; findings end the command.
func (a *app) build(t topology, published render.Tree, f buildFlags) (*reconciler.Built, error) {
	in, err := buildInput(t, published, f)
	if err != nil {
		return nil, err
	}
	built, list := reconciler.Build(in)
	if list.HasErrors() {
		return nil, found{list: list, sources: t.files()}
	}
	a.printFindings(built.Warnings, t.files())
	// What the lock lacks was allocated, but only for this run.
	var stale diag.List
	for _, d := range built.Stale {
		d.Severity = diag.Warning
		stale = append(stale, d)
	}
	a.printFindings(stale, t.files())
	return built, nil
}

func buildInput(t topology, published render.Tree, f buildFlags) (reconciler.BuildInput, error) {
	root, err := f.rootKey()
	if err != nil {
		return reconciler.BuildInput{}, err
	}
	patches := render.Tree{}
	if t.lockFile != "" {
		if err := readInto(patches, filepath.Join(filepath.Dir(t.file), render.PatchesDir), "", checkout.Patches()); err != nil {
			return reconciler.BuildInput{}, err
		}
	}
	return reconciler.BuildInput{
		File: t.file, Topology: t.raw, LockFile: t.lockFile, Lock: t.lock,
		Patches: patches, Published: published, Root: root, RootFile: f.root, AllowOtherRoot: f.allowRootKeyChange,
		Image: f.image, Version: version, Now: time.Now(),
	}, nil
}

// readInto adds all files below dir, by slash-separated path under prefix. A folder that does
// not exist is empty.
func readInto(tree render.Tree, dir, prefix string, limits checkout.Limits) error {
	files, err := checkout.ReadFolder(dir, limits)
	if err != nil {
		return fmt.Errorf("read folder: %w", err)
	}
	for name, raw := range files {
		tree[prefix+name] = raw
	}
	return nil
}
