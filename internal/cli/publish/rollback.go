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
		Long: `Make a commit that brings back the topology, and the patches beside it, from which an
earlier commit of the published branch was made: the one before the newest, or COMMIT as
hawser history shows it. The plan is printed first, and asked about on a terminal; elsewhere
it takes --yes.

Nothing is rewritten: the commit is made on top of what is checked out, and has to be pushed.
The lock only grows, so no address that was given out since goes to anybody else.

Exit codes: 0 done, or there is nothing to bring back, 1 refused, or with --dry-run: this
would change; 2 error.`,
		Example: `  hawser rollback --dry-run
  hawser rollback 3f2a91c`,
		ValidArgsFunction: cli.FirstArgument(cli.Complete(baseline.PublishedCommits)),
		Args:              cobra.MaximumNArgs(1),
		RunE:              func(cmd *cobra.Command, args []string) error { return runRollback(cmd.Context(), env, args, f) },
	}
	topofile.AddFileFlag(cmd, false, &f.file, "topology: a file or a folder")
	flags := cmd.Flags()
	flags.StringVar(&f.signers, "signers", "", baseline.SignersHelp)
	flags.StringVar(&f.branch, "branch", reconciler.DefaultPublishBranch, "branch that is published")
	flags.StringVar(&f.image, "image", "", topofile.ImageHelp)
	flags.BoolVar(&f.dryRun, "dry-run", false, "change nothing, print the plan")
	flags.BoolVar(&f.yes, "yes", false, "do not ask")
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
	w, here, err := store.WorkTree()
	if err != nil {
		return err
	}
	if !here {
		return fmt.Errorf("%s has no work tree, in which a commit could be made", store.Name())
	}
	below, err := topofile.RelativeToTop(w.Top, dir)
	if err != nil {
		return err
	}
	verify, err := baseline.Verifiers(f.signers, t.Path, topofile.BuildFlags{})
	if err != nil {
		return err
	}
	to, err := findPublication(store, f.branch, args, verify)
	if err != nil {
		return err
	}
	before, err := readSourceFiles(store, to.source, below)
	if err != nil {
		return err
	}
	now, err := readSourceFiles(store, w.Head, below)
	if err != nil {
		return err
	}
	either := maps.Clone(before)
	maps.Copy(either, now)
	either[path.Join(below, reconciler.LockFile)] = nil
	names := slices.Sorted(maps.Keys(either))
	changed, err := store.Uncommitted(w, w.Head, names...)
	if err != nil {
		return err
	}
	if len(changed) > 0 {
		return cli.ExitError{Msg: fmt.Sprintf("error: %s is not committed: commit it or put it away first (git stash)", strings.Join(changed, ", "))}
	}

	after := t
	after.Raw = before[path.Join(below, filepath.Base(t.Path))]
	set, _, err := topofile.Load(env, after)
	if err != nil {
		return err
	}
	done := env.Progress("reading branch " + f.branch)
	have, err := baseline.Read(ctx, env, baseline.Options{File: t.Path, Branch: f.branch, Flag: "--branch", Verify: verify, Notice: true})
	done()
	if err != nil {
		return err
	}
	if after.Lock, err = baseline.NewLock(env, after, set, baseline.PublishedLock{Raw: have.Tree[reconciler.LockFile], Known: have.Tree != nil}, baseline.LockOptions{}); err != nil {
		return err
	}
	before[path.Join(below, reconciler.LockFile)] = after.Lock
	now[path.Join(below, reconciler.LockFile)] = t.Lock
	names = slices.DeleteFunc(names, func(name string) bool { return bytes.Equal(before[name], now[name]) })
	if len(names) == 0 {
		_, err := fmt.Fprintf(env.Err, "%s is as it was at %.12s: there is nothing to bring back\n", t.Path, to.source)
		return err
	}
	in := reconciler.BuildInput{File: t.Path, Topology: after.Raw, LockFile: t.LockPath, Lock: after.Lock, Patches: render.Tree{},
		Published: have.Tree, Image: f.image, Version: env.Version, Now: time.Now(), Preview: true}
	for name, raw := range before {
		if inside, ok := strings.CutPrefix(name, path.Join(below, render.PatchesDir)+"/"); ok {
			in.Patches[inside] = raw
		}
	}
	built, list := reconciler.Build(in)
	if list.HasErrors() {
		return cli.FindingsError{List: list, Files: after.Texts()}
	}
	_, _ = fmt.Fprintf(env.Err, "back to what %.12s published: commit %.12s, %s\n", to.published, to.source, to.subject)
	err = planview.Print(env, planview.Input{Want: built.Tree, Have: have.Tree, Source: built.Source, Output: f.output, FailOn: []string{planview.FailAny}, Baseline: &have.Baseline})
	if f.dryRun || err != nil && !errors.Is(err, cli.ExitError{}) {
		return err
	}
	if !f.yes {
		if !cli.IsTerminal(env.In) {
			return errors.New("there is no terminal to ask on: --yes does what --dry-run shows")
		}
		if !env.Confirm(ctx, "Commit this?") {
			return cli.ExitError{Msg: "nothing was changed"}
		}
	}
	for _, name := range names {
		file := filepath.Join(w.Top, filepath.FromSlash(name))
		raw, there := before[name]
		if !there {
			if err := checkout.CheckWrite(file); err != nil {
				return fmt.Errorf("bring back: %w", err)
			}
			if err := os.Remove(file); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return fmt.Errorf("bring back: %w", err)
			}
			continue
		}
		if err := checkout.MakeFolder(filepath.Dir(file), 0o755); err != nil {
			return fmt.Errorf("bring back: %w", err)
		}
		if cli.IsMissing(file) {
			if err := cli.WriteNew(file, raw, 0o644); err != nil {
				return err
			}
		} else if err := checkout.Rewrite(file, raw); err != nil {
			return err
		}
	}
	message := fmt.Sprintf("bring back %.12s\n\n%s\n\nAs published in %s.\n", to.source, to.subject, to.published)
	if _, err := gitIn(ctx, w.Top, append([]string{"add", "-A", "--"}, names...)...); err != nil {
		return err
	}
	if _, err := gitIn(ctx, w.Top, append([]string{"commit", "-q", "-m", message, "--"}, names...)...); err != nil {
		return err
	}
	_, err = fmt.Fprintf(env.Err, "committed, with %s: git push, then hawser status --wait\n", strings.Join(names, ", "))
	return err
}

// rollbackTarget is a publication to go back to.
type rollbackTarget struct {
	published, source gitrepo.Hash
	subject           string // of source
}

// findPublication returns the publication COMMIT, or the one before the newest. Commits that a
// verifier refuses are no publications.
func findPublication(store *gitrepo.Store, branch string, args []string, verify []baseline.Verifier) (rollbackTarget, error) {
	var to rollbackTarget
	head, err := store.Resolve(branch)
	if err != nil {
		return to, fmt.Errorf("read published branch: %w (git fetch brings it here)", err)
	}
	newestCommit, _, err := baseline.NewestVerified(store, verify, head.Commit)
	if err != nil {
		return to, fmt.Errorf("read branch %s: %w", branch, err)
	}
	head.Commit = newestCommit.Commit
	to.published = head.Commit
	var newest string
	if newest, err = store.Trailer(head.Commit, reconciler.TrailerSource); err != nil {
		return to, err
	}
	var seen []string
	for at, first := head.Commit, true; ; first = false {
		source, err := store.Trailer(at, reconciler.TrailerSource)
		if err != nil {
			return to, err
		}
		var refused string
		for _, v := range verify {
			if refused, err = v.Why(store, at); err != nil {
				return to, err
			}
		}
		if refused != "" {
			source = ""
		}
		wanted := len(args) == 1 && (strings.HasPrefix(at.String(), args[0]) || source != "" && strings.HasPrefix(source, args[0]))
		if wanted || len(args) == 0 && !first && source != "" && source != newest {
			if refused != "" {
				return to, fmt.Errorf("commit %.12s of branch %s is not a published commit: %s", at, branch, refused)
			}
			to.published = at
			found, err := store.Resolve(source)
			if source == "" || err != nil {
				return to, fmt.Errorf("what commit %.12s was published from, %.12s, is not in this clone: git fetch --unshallow", to.published, source)
			}
			to.source = found.Commit
			to.subject, err = store.Subject(to.source)
			return to, err
		}
		seen = append(seen, at.String()[:12])
		_, _, parent, err := store.Signature(at)
		if err != nil {
			return to, err
		}
		if parent.IsZero() {
			break
		}
		at = parent
	}
	if len(args) == 0 {
		return to, fmt.Errorf("branch %s has one publication alone: there is nothing before it", branch)
	}
	return to, fmt.Errorf("%s is no commit of branch %s, and none that one is from (%s; hawser history shows them)", args[0], branch, baseline.Listed(seen, "there are", "there is none"))
}

// readSourceFiles gives the topology and the patches of a commit, by their paths in the repository.
func readSourceFiles(store *gitrepo.Store, commit gitrepo.Hash, dir string) (map[string][]byte, error) {
	name := path.Join(dir, reconciler.TopologyFile)
	raw, err := store.File(commit, name)
	if err != nil {
		return nil, err
	}
	out := map[string][]byte{name: raw}
	patches, err := store.Folder(commit, path.Join(dir, render.PatchesDir))
	if err != nil {
		return nil, err
	}
	for inside, raw := range patches {
		out[path.Join(dir, render.PatchesDir, inside)] = raw
	}
	return out, nil
}

// gitIn runs git in a folder and returns its output without the last line end.
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
