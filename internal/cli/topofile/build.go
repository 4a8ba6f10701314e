package topofile

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"hawser.dev/hawser/internal/checkout"
	"hawser.dev/hawser/internal/cli"
	"hawser.dev/hawser/internal/diag"
	"hawser.dev/hawser/reconciler"
	"hawser.dev/hawser/render"
	"hawser.dev/hawser/render/keys"
	"hawser.dev/hawser/schema"
	"hawser.dev/hawser/schema/fabric/trust"
)

// ErrNoRootKey returns the error of a command that requires the flag --root-key.
func ErrNoRootKey() error {
	return errors.New("no root key: name it with --root-key or HAWSER_ROOT_KEY (hawser keys root FILE makes one)")
}

// Signers returns the public keys that sign for a clusterset; nil without a root key.
func Signers(set *schema.ClusterSet, f BuildFlags) ([]string, error) {
	root, err := f.RootKey()
	if err != nil || root == nil {
		return nil, err
	}
	signers, _, err := root.Signers(set.Metadata.Name, set.Spec.Keys.Epochs)
	if err != nil {
		return nil, err
	}
	out := []string{}
	for _, s := range signers {
		out = append(out, trust.Line(s.PublicKey()))
	}
	return out, nil
}

// BuildFlags are the inputs of a build apart from the topology.
type BuildFlags struct {
	Root, Identity, Image string
	AllowRootKeyChange    bool
}

// Common help texts of flags.
const (
	RootKeyHelp        = "file of the root key, plain or encrypted with age"
	ImageHelp          = "agent image if spec.agent.image is empty (default: the published image)"
	WriteLockHelp      = "allocate missing addresses; false refuses such a commit"
	MassDeleteHelp     = "allow a commit to remove more than half of the clusters"
	AllowOtherRootHelp = "replace the root key; links are down until both ends have the new keys"
)

// Add adds the flags to a command.
func (f *BuildFlags) Add(cmd *cobra.Command) {
	cmd.Flags().StringVar(&f.Root, "root-key", os.Getenv("HAWSER_ROOT_KEY"), RootKeyHelp)
	cmd.Flags().StringVar(&f.Identity, "root-identity", "", "age identity that opens an encrypted root key")
	cmd.Flags().BoolVar(&f.AllowRootKeyChange, "allow-other-root", false, AllowOtherRootHelp)
	cmd.Flags().StringVar(&f.Image, "image", "", ImageHelp)
}

// RootKey returns the root key; nil if the flags name none.
func (f *BuildFlags) RootKey() (*keys.Root, error) {
	if f.Root == "" {
		return nil, nil
	}
	return reconciler.ReadRootKey(f.Root, f.Identity)
}

// Build renders a topology on top of the published tree. Findings with severity error are an error.
func Build(env *cli.Env, t File, published render.Tree, f BuildFlags) (*reconciler.Built, error) {
	in, err := BuildInput(env, t, published, f)
	if err != nil {
		return nil, err
	}
	built, list := reconciler.Build(in)
	if list.HasErrors() {
		return nil, cli.FindingsError{List: list, Files: t.Texts()}
	}
	env.Findings(built.Warnings, t.Texts())
	// This run allocated addresses that the lock lacks.
	var staleFindings diag.List
	for _, d := range built.Stale {
		d.Severity = diag.Warning
		staleFindings = append(staleFindings, d)
	}
	env.Findings(staleFindings, t.Texts())
	return built, nil
}

// BuildInput returns the input for a build of a topology on top of a published tree.
func BuildInput(env *cli.Env, t File, published render.Tree, f BuildFlags) (reconciler.BuildInput, error) {
	root, err := f.RootKey()
	if err != nil {
		return reconciler.BuildInput{}, err
	}
	patches := render.Tree{}
	if t.LockPath != "" {
		if err := readInto(patches, filepath.Join(filepath.Dir(t.Path), render.PatchesDir), "", checkout.Patches()); err != nil {
			return reconciler.BuildInput{}, err
		}
	}
	return reconciler.BuildInput{
		File: t.Path, Topology: t.Raw, LockFile: t.LockPath, Lock: t.Lock,
		Patches: patches, Published: published, Root: root, RootFile: f.Root, AllowOtherRoot: f.AllowRootKeyChange,
		Image: f.Image, Version: env.Version, Now: time.Now(),
	}, nil
}

// readInto adds all files below dir, by slash-separated path under prefix. A missing directory is
// empty.
func readInto(tree render.Tree, dir, prefix string, limits checkout.Limits) error {
	files, err := checkout.ReadTree(dir, limits)
	if err != nil {
		return fmt.Errorf("read directory: %w", err)
	}
	for name, raw := range files {
		tree[prefix+name] = raw
	}
	return nil
}
