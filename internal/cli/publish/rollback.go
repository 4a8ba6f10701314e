package publish

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/go-git/go-git/v5/plumbing"
	"github.com/spf13/cobra"

	"hawser.dev/hawser/internal/checkout"
	"hawser.dev/hawser/internal/cli"
	"hawser.dev/hawser/internal/cli/baseline"
	"hawser.dev/hawser/internal/cli/planview"
	"hawser.dev/hawser/internal/cli/topofile"
	"hawser.dev/hawser/reconciler"
	"hawser.dev/hawser/reconciler/gitrepo"
	"hawser.dev/hawser/render"
)

type rollbackFlags struct {
	file, branch, output string
	signers              string
	image                string
	dryRun, yes          bool
}

func NewRollbackCommand(env *cli.Env) *cobra.Command {
	var f rollbackFlags
	cmd := &cobra.Command{
		Use:   "rollback [COMMIT]",
		Short: "Commit the topology of an earlier publication",
		Long: `Commit the topology and patches of an earlier publication: the one before the newest, or
COMMIT as hawser history prints it. The command prints the plan first. On a terminal it
asks; elsewhere --yes is required.

The new commit is on top of the checked-out branch; push it afterwards. Published
addresses do not change. If the earlier topology has no agent.image, agents keep their
image; --image or agent.image selects another. If a remote of the clone has a newer
publish branch, that branch counts.

Exit codes: 0 done, or nothing to restore; 1 refused, or with --dry-run: there are
changes; 2 error.`,
		Example: `  hawser rollback --dry-run
  hawser rollback 3f2a91c`,
		ValidArgsFunction: cli.FirstArgument(cli.Complete(baseline.PublishedCommits)),
		Args:              cobra.MaximumNArgs(1),
		RunE:              func(cmd *cobra.Command, args []string) error { return runRollback(cmd.Context(), env, args, f) },
	}
	topofile.AddFileFlag(cmd, false, &f.file, "topology: a file or a directory")
	flags := cmd.Flags()
	flags.StringVar(&f.signers, "signers", "", baseline.SignersHelp)
	flags.StringVar(&f.branch, "branch", reconciler.DefaultPublishBranch, "publish branch")
	flags.StringVar(&f.image, "image", "", topofile.ImageHelp)
	flags.BoolVar(&f.dryRun, "dry-run", false, "change nothing, print the plan")
	flags.BoolVar(&f.yes, "yes", false, "skip the confirmation prompt")
	cli.OutputFlag(cmd, false, &f.output, "text", "json", "yaml")
	return cmd
}

func runRollback(ctx context.Context, env *cli.Env, args []string, f rollbackFlags) error {
	if f.output != "text" && !f.dryRun && !f.yes {
		return fmt.Errorf("-o %s: it is for --dry-run or --yes, which ask nothing", f.output)
	}
	t, err := topofile.Open(cmp.Or(f.file, reconciler.TopologyFile))
	if err != nil {
		return err
	}
	dir := filepath.Dir(t.Path)
	store, err := baseline.OpenRepo(ctx, gitrepo.Config{URL: dir}, f.branch)
	if err != nil {
		return err
	}
	w, found, err := store.WorkTree()
	if err != nil {
		return err
	}
	if !found {
		return fmt.Errorf("%s is a bare repository: rollback commits in a work tree, so run it in a clone", store.Name())
	}
	rel, err := topofile.RelativeToTop(w.Top, dir)
	if err != nil {
		return err
	}
	verify, err := baseline.Verifiers(f.signers, t.Path, topofile.BuildFlags{})
	if err != nil {
		return err
	}
	done := env.Progress("reading branch " + f.branch)
	have, err := baseline.Read(ctx, env, baseline.Options{File: t.Path, Branch: f.branch, Flag: "--branch", UserSet: true, History: true, Verify: verify, Notice: true})
	done()
	if err != nil {
		return err
	}
	to, err := findPublication(store, have, args, verify)
	if err != nil {
		return err
	}
	if source, err := have.Store.Trailer(plumbing.NewHash(have.Commit), reconciler.TrailerSource); err != nil {
		return err
	} else if _, err := store.Resolve(source); err != nil {
		_, _ = fmt.Fprintf(env.Err, "note: commit %.12s, the source of the newest publication, is not in this clone: git pull --rebase before git push\n", source)
	}
	before, err := readSourceFiles(store, to.source, rel)
	if err != nil {
		return err
	}
	now, err := readSourceFiles(store, w.Head, rel)
	if err != nil {
		return err
	}
	paths := maps.Clone(before)
	maps.Copy(paths, now)
	paths[path.Join(rel, reconciler.LockFile)] = nil
	names := slices.Sorted(maps.Keys(paths))
	changed, err := store.Uncommitted(w, w.Head, names...)
	if err != nil {
		return err
	}
	if len(changed) > 0 {
		return cli.ExitError{Msg: fmt.Sprintf("error: %s has uncommitted changes: commit or stash them first (git stash)", strings.Join(changed, ", "))}
	}

	after := t
	after.Raw = before[path.Join(rel, filepath.Base(t.Path))]
	set, _, err := topofile.Load(env, after)
	if err != nil {
		return err
	}
	if after.Lock, err = baseline.NewLock(env, after, set, baseline.PublishedLock{Raw: have.Tree[reconciler.LockFile], Known: have.Tree != nil}, baseline.LockOptions{}); err != nil {
		return err
	}
	before[path.Join(rel, reconciler.LockFile)] = after.Lock
	now[path.Join(rel, reconciler.LockFile)] = t.Lock
	names = slices.DeleteFunc(names, func(name string) bool { return bytes.Equal(before[name], now[name]) })
	if len(names) == 0 {
		_, err := fmt.Fprintf(env.Err, "%s has not changed since commit %.12s: there is nothing to restore\n", t.Path, to.source)
		return err
	}
	in := reconciler.BuildInput{File: t.Path, Topology: after.Raw, LockFile: t.LockPath, Lock: after.Lock, Patches: render.Tree{},
		Published: have.Tree, Image: f.image, Version: env.Version, Now: time.Now(), Preview: true}
	for name, raw := range before {
		if patch, ok := strings.CutPrefix(name, path.Join(rel, render.PatchesDir)+"/"); ok {
			in.Patches[patch] = raw
		}
	}
	built, list := reconciler.Build(in)
	if list.HasErrors() {
		return cli.FindingsError{List: list, Files: after.Texts()}
	}
	_, _ = fmt.Fprintf(env.Err, "back to publication %.12s of commit %.12s: %s\n", to.published, to.source, to.subject)
	if image := render.ImageOf(have.Tree); f.image == "" && set.Spec.Agent.Image == "" && image != "" {
		_, _ = fmt.Fprintf(env.Err, "note: agents keep the image %s, because that topology has no agent.image (--image selects another image)\n", image)
	}
	err = planview.Print(env, planview.Input{Want: built.Tree, Have: have.Tree, Source: built.Source, Output: f.output, FailOn: []string{planview.FailAny}, Baseline: &have.Baseline})
	if f.dryRun || err != nil && !errors.Is(err, cli.ExitError{}) {
		return err
	}
	if !f.yes {
		if !cli.IsTerminal(env.In) {
			return errors.New("no terminal to ask on: run with --yes, or with --dry-run to see the plan")
		}
		if !env.Confirm(ctx, "Commit this?") {
			return cli.ExitError{Msg: "nothing was changed"}
		}
	}
	for _, name := range names {
		file := filepath.Join(w.Top, filepath.FromSlash(name))
		raw, exists := before[name]
		if !exists {
			if err := checkout.CheckWrite(file); err != nil {
				return fmt.Errorf("restore %s: %w", name, err)
			}
			if err := os.Remove(file); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return fmt.Errorf("restore %s: %w", name, err)
			}
			continue
		}
		if err := checkout.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			return fmt.Errorf("restore %s: %w", name, err)
		}
		if cli.IsMissing(file) {
			if err := cli.WriteNew(file, raw, 0o644); err != nil {
				return err
			}
		} else if err := checkout.Rewrite(file, raw); err != nil {
			return err
		}
	}
	message := fmt.Sprintf("roll back to %.12s\n\n%s\n\nPublished in %s.\n", to.source, to.subject, to.published)
	if _, err := gitIn(ctx, w.Top, append([]string{"add", "-A", "--"}, names...)...); err != nil {
		return err
	}
	if _, err := gitIn(ctx, w.Top, append([]string{"commit", "-q", "-m", message, "--"}, names...)...); err != nil {
		return err
	}
	_, err = fmt.Fprintf(env.Err, "committed %s\nnext: git push, then hawser status --wait; before it, run hawser bootstrap without a reconciler, else hawser apply --repo URL without Flux or Argo CD\n", strings.Join(names, ", "))
	return err
}

// rollbackTarget is the publication to restore.
type rollbackTarget struct {
	published, source gitrepo.Hash
	subject           string // subject of source
}

// findPublication returns the publication COMMIT, or the publication before the newest one. Commits
// that a verifier refuses do not count. The source commits are in clone.
func findPublication(clone *gitrepo.Store, have baseline.Published, args []string, verify []baseline.Verifier) (rollbackTarget, error) {
	var to rollbackTarget
	store, branch, head := have.Store, have.Name, plumbing.NewHash(have.Commit)
	newest, err := store.Trailer(head, reconciler.TrailerSource)
	if err != nil {
		return to, err
	}
	var commits []string
	for at := head; !at.IsZero(); {
		source, err := store.Trailer(at, reconciler.TrailerSource)
		if err != nil {
			return to, err
		}
		var refused string
		for _, v := range verify {
			if refused, err = v.RefusalReason(store, at); err != nil {
				return to, err
			}
		}
		if refused != "" {
			source = ""
		}
		named := len(args) == 1 && (strings.HasPrefix(at.String(), args[0]) || source != "" && strings.HasPrefix(source, args[0]))
		if named || len(args) == 0 && source != "" && source != newest {
			if refused != "" {
				return to, fmt.Errorf("commit %.12s of branch %s is not a published commit: %s", at, branch, refused)
			}
			found, err := clone.Resolve(source)
			if source == "" || err != nil {
				return to, fmt.Errorf("commit %.12s, the source of publication %.12s, is not in this clone: git pull (git fetch --unshallow in a shallow clone)", source, at)
			}
			to.published, to.source = at, found.Commit
			to.subject, err = clone.Subject(to.source)
			return to, err
		}
		commits = append(commits, at.String()[:12])
		if _, _, at, err = store.Signature(at); err != nil {
			return to, err
		}
	}
	if len(args) == 0 {
		return to, fmt.Errorf("branch %s has only one publication: there is nothing to go back to", branch)
	}
	return to, fmt.Errorf("%s is neither a commit of branch %s nor the source of one (%s; see hawser history)", args[0], branch, baseline.Listed(commits, "commits are", "it has no commits"))
}

// readSourceFiles returns the topology and the patches of a commit by their paths in the
// repository.
func readSourceFiles(store *gitrepo.Store, commit gitrepo.Hash, dir string) (map[string][]byte, error) {
	name := path.Join(dir, reconciler.TopologyFile)
	raw, err := store.File(commit, name)
	if err != nil {
		return nil, err
	}
	out := map[string][]byte{name: raw}
	patches, err := store.DirFiles(commit, path.Join(dir, render.PatchesDir))
	if err != nil {
		return nil, err
	}
	for patch, raw := range patches {
		out[path.Join(dir, render.PatchesDir, patch)] = raw
	}
	return out, nil
}

// gitIn runs git in a directory and returns its output without the trailing newline.
func gitIn(ctx context.Context, dir string, args ...string) (string, error) {
	var stderr bytes.Buffer
	cmd := exec.CommandContext(ctx, "git", append([]string{"-C", dir}, args...)...)
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if text := strings.TrimSpace(stderr.String()); err != nil && text != "" {
		err = fmt.Errorf("git: %w: %s", err, text)
	}
	return strings.TrimRight(string(out), "\n"), err
}
