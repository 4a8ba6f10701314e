package reconciler

import (
	"bytes"
	"fmt"
	"maps"
	"os"
	"time"

	"filippo.io/age"

	"hawser.dev/hawser/internal/checkout"
	"hawser.dev/hawser/internal/diag"
	"hawser.dev/hawser/render"
	"hawser.dev/hawser/render/keys"
	"hawser.dev/hawser/schema"
	"hawser.dev/hawser/schema/document"
	"hawser.dev/hawser/schema/fabric"
	"hawser.dev/hawser/schema/load"
	"hawser.dev/hawser/schema/lockfile"
)

// BuildInput contains everything that determines the published tree of a commit.
type BuildInput struct {
	File      string // name of the topology file for messages
	Topology  []byte
	LockFile  string // name of the lock for messages
	Lock      []byte // committed lock; nil if absent
	Patches   render.Tree
	Published render.Tree // currently published tree
	Root      *keys.Root
	// AllowOtherRoot lets Root replace the root key of the published keys.
	AllowOtherRoot bool
	Preview        bool   // without a root key: show new keys as unknown; the result must not be published
	Image          string // of the agent if the topology has none; empty = the published image
	Version        string // of Hawser, for the image of a first publication
	Now            time.Time

	RootFile string // name of the root key for messages
}

// Built is the tree to publish for a commit.
type Built struct {
	Set    *schema.ClusterSet
	Source *document.Source
	Fabric *fabric.Fabric
	Digest string // of the fabric
	Tree   render.Tree
	Lock   []byte // lock of the tree; also in Tree
	// Stale lists why the committed lock differs from Lock; empty if they are equal.
	Stale    diag.List
	Warnings diag.List
}

// Build returns the tree to publish for a topology. It is pure, except for the randomness of new
// ciphertexts. The result is nil if the list has errors.
func Build(in BuildInput) (*Built, diag.List) {
	set, src, list := load.Topology(in.File, in.Topology)
	if list.HasErrors() {
		return nil, list
	}
	b := &Built{Set: set, Source: src, Warnings: list}
	lock, list := Allocate(AllocateInput{Set: set, File: in.LockFile, Committed: in.Lock, Published: in.Published[LockFile]})
	if list.HasErrors() {
		return nil, WithPositions(list, src)
	}
	b.Stale, b.Warnings = lock.Stale, append(b.Warnings, WithPositions(lock.Warnings, src)...)
	previous := maps.Clone(in.Published)
	delete(previous, LockFile)
	patches := render.Tree{} // with LF, so that CRLF in a work tree has no effect
	for name, raw := range in.Patches {
		patches[name] = checkout.Text(raw)
	}
	tree, list := render.Render(render.Input{
		Topology: set, Lock: lock.Lock, Root: in.Root, AllowOtherRoot: in.AllowOtherRoot, Previous: previous, Patches: patches, Image: in.Image,
		Version: in.Version, Preview: in.Preview, Now: in.Now.Unix(),
	})
	if list.HasErrors() {
		// Some findings are not about the topology: a wrong root key, and a missing key of
		// a default epoch. They name the file of the key.
		for i := range list {
			d := &list[i]
			written := src.Has(d.Path)
			if d.Code != "root-break" && (d.Code != "no-root-key" || written) {
				continue
			}
			if written {
				d.Related = append(d.Related, diag.Related{Path: d.Path})
			}
			d.Path, d.Pos = "", diag.Pos{File: in.RootFile}
		}
		return nil, WithPositions(list, src)
	}
	b.Tree, b.Warnings = tree, append(b.Warnings, WithPositions(list, src)...)
	if err := b.complete(lock.Lock); err != nil {
		return nil, diag.List{{Severity: diag.Error, Code: "render", Summary: err.Error(),
			Hint: "this is a fault of hawser: please report it with the topology"}}
	}
	return b, nil
}

// complete adds the lock to the tree, and reads the fabric back from the tree. This proves that the
// tree is readable.
func (b *Built) complete(lock *lockfile.Lock) error {
	var err error
	if b.Lock, err = lock.Marshal(); err != nil {
		return fmt.Errorf("write lock: %w", err)
	}
	b.Tree[LockFile] = b.Lock
	if b.Fabric, err = render.FabricOf(b.Tree); err != nil {
		return fmt.Errorf("read the fabric back: %w", err)
	}
	b.Digest, err = render.FabricDigest(b.Tree)
	return err
}

// WithPositions returns the findings, sorted. It adds the position in the topology to each finding
// that has only a path.
func WithPositions(list diag.List, src *document.Source) diag.List {
	out := make(diag.List, 0, len(list))
	for _, d := range list {
		if d.Path != "" && !d.Pos.IsValid() {
			d.Pos = src.Pos(d.Path)
		}
		related := make([]diag.Related, 0, len(d.Related))
		for _, r := range d.Related {
			if r.Path != "" && !r.Pos.IsValid() {
				r.Pos = src.Pos(r.Path)
			}
			related = append(related, r)
		}
		d.Related = related
		out = append(out, d)
	}
	out.Sort()
	return src.ClipValues(out)
}

// ReadRootKey reads a root key file. identityFile contains the age identities that decrypt it; it
// may be empty for a plain file. Errors never quote a key.
func ReadRootKey(file, identityFile string) (*keys.Root, error) {
	raw, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("read root key: %w (hawser keys root FILE makes one)", err)
	}
	var identities []age.Identity
	if identityFile != "" {
		text, err := os.ReadFile(identityFile)
		if err != nil {
			return nil, fmt.Errorf("read root identity: %w", err)
		}
		if identities, err = age.ParseIdentities(bytes.NewReader(text)); err != nil {
			return nil, fmt.Errorf("read root identity %s: not a file of age identities", identityFile)
		}
	}
	root, err := keys.ReadRoot(raw, identities...)
	if err != nil {
		return nil, fmt.Errorf("read root key %s: %w", file, err)
	}
	return root, nil
}
