package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"hawser.dev/hawser/reconciler/repo"
	"hawser.dev/hawser/render"
	"hawser.dev/hawser/render/plan"
)

// againstNone compares with nothing.
const againstNone = "none"

// remotePatience is how long a remote repository may take to say where its branch is,
// when there is something to compare with already.
const remotePatience = 10 * time.Second

// baseline is what a topology is compared with.
type baseline struct {
	tree render.Tree
	plan.Baseline
	says []string // what the reader has to know of it
}

// baselineInput is what decides the baseline.
type baselineInput struct {
	file, address string // the topology; the repository, empty for the one that holds it
	against       string
	asked         bool // somebody named against
}

// readBaseline reads what is published. Only a repository that was never published to is
// compared with nothing by itself; a name that stands for nothing is an error.
func readBaseline(ctx context.Context, in baselineInput) (baseline, error) {
	if in.against == againstNone {
		return baseline{Baseline: plan.Baseline{Name: againstNone}, says: []string{"compared with nothing (--against none): everything is new"}}, nil
	}
	if _, err := os.Stat(filepath.Join(in.against, "base")); err == nil {
		dir, err := readRendered(in.against)
		if err != nil {
			return baseline{}, err
		}
		b := baseline{tree: dir.tree, Baseline: plan.Baseline{Name: in.against}, says: []string{"compared with the folder " + in.against}}
		return b, b.check()
	}
	if in.address == "" {
		in.address = filepath.Dir(in.file)
	}
	store, err := repo.Open(repo.Config{URL: in.address, Auth: gitAuth()})
	if err != nil {
		return baseline{}, err
	}
	if err := store.Sync(ctx, in.against); err != nil {
		return baseline{}, fmt.Errorf("%w (hawser diff --against DIR compares with a folder)", err)
	}
	found, err := store.Resolve(in.against)
	if err == nil {
		return current(ctx, store, in, found)
	}
	if !errors.Is(err, repo.ErrNoBranch) {
		return baseline{}, fmt.Errorf("read published branch: %w", err)
	}
	return elsewhere(ctx, store, in, err)
}

// current reads the branch that was found, or what its remote has by now.
func current(ctx context.Context, store *repo.Store, in baselineInput, found repo.Found) (baseline, error) {
	b, err := readCommit(store, in.against, found.Commit)
	if err != nil {
		return b, err
	}
	remotes, err := store.Remotes()
	if err != nil {
		return b, err
	}
	for _, r := range remotes {
		branch, tracked := strings.CutPrefix(found.Ref, "refs/remotes/"+r.Name+"/")
		if !tracked {
			// A branch of this repository that the remote has, too, is often a copy that somebody
			// forgot.
			if branch = strings.TrimPrefix(found.Ref, "refs/heads/"); branch == found.Ref {
				continue
			}
			if _, err := store.Resolve(r.Name + "/" + branch); err != nil {
				continue
			}
		}
		newer, err := moved(ctx, r, branch, found.Commit)
		name := r.Name + "/" + branch
		switch {
		case err != nil:
			b.says = append(b.says, fmt.Sprintf("warning: %s could not be asked whether %s is still there (%v): this is as of the last git fetch", r.Name, branch, err))
		case newer == nil:
		case tracked:
			if b, err = readCommit(newer.store, name, newer.commit); err != nil {
				return b, err
			}
			b.says = append(b.says, name+" moved since the last git fetch: it was fetched for this comparison")
		default:
			b.says = append(b.says, fmt.Sprintf("warning: %s is another commit, %.12s: --against %s compares with that", name, newer.commit, name))
		}
	}
	return b, nil
}

// fetched is a branch of a remote repository.
type fetched struct {
	store  *repo.Store
	commit repo.Hash
}

// moved asks a remote for a branch; nil where it is at the commit still.
func moved(ctx context.Context, r repo.Remote, branch string, have repo.Hash) (*fetched, error) {
	ctx, cancel := context.WithTimeout(ctx, remotePatience)
	defer cancel()
	store, err := repo.Open(repo.Config{URL: r.URL, Auth: gitAuth(), Depth: 1})
	if err != nil {
		return nil, err
	}
	at, err := store.Ask(ctx, branch)
	if err != nil || at == have {
		return nil, err
	}
	if at.IsZero() {
		return nil, errors.New("it has no such branch any more")
	}
	if err := store.Sync(ctx, branch); err != nil {
		return nil, err
	}
	at, err = store.Head(branch)
	return &fetched{store, at}, err
}

// elsewhere looks for a branch that the repository lacks in those that it was cloned
// from, as a shallow clone or one of a single branch lacks it.
func elsewhere(ctx context.Context, store *repo.Store, in baselineInput, missing error) (baseline, error) {
	names, err := store.Names()
	if err != nil {
		return baseline{}, err
	}
	remotes, err := store.Remotes()
	if err != nil {
		return baseline{}, err
	}
	var unreached []error
	var asked []string
	for _, r := range remotes {
		branch := strings.TrimPrefix(in.against, r.Name+"/")
		remote, err := repo.Open(repo.Config{URL: r.URL, Auth: gitAuth(), Depth: 1})
		if err == nil {
			err = remote.Sync(ctx, branch)
		}
		if err != nil {
			unreached = append(unreached, fmt.Errorf("%w (git fetch %s %s:refs/remotes/%s/%s brings it here)", err, r.Name, branch, r.Name, branch))
			continue
		}
		if head, err := remote.Head(branch); err == nil {
			b, err := readCommit(remote, r.Name+"/"+branch, head)
			b.says = append(b.says, r.Name+"/"+branch+" is not in this clone: it was fetched for this comparison")
			return b, err
		}
		asked = append(asked, r.Name)
		there, err := remote.Names()
		if err != nil {
			return baseline{}, err
		}
		for _, name := range there {
			names = append(names, r.Name+"/"+name)
		}
	}
	if len(unreached) > 0 {
		return baseline{}, fmt.Errorf("%w, and not every remote could be asked for it: %w", missing, errors.Join(unreached...))
	}
	if in.asked {
		return baseline{}, fmt.Errorf("%w (there %s; --against %s compares with nothing)", missing, listed(names, "are the branches", "is no branch at all"), againstNone)
	}
	where := ""
	if len(asked) > 0 {
		where = ", nor of " + strings.Join(asked, ", ")
	}
	return baseline{Baseline: plan.Baseline{Name: againstNone}, says: []string{fmt.Sprintf(
		"nothing is published on branch %s of %s%s: everything is new (if it is published elsewhere, name it with --against or --repo)",
		in.against, store.Name(), where)}}, nil
}

// listed writes names behind what they are, each once, or what to say when there is none.
func listed(names []string, what, none string) string {
	seen, out := map[string]bool{}, []string{}
	for _, name := range names {
		if !seen[name] {
			seen[name], out = true, append(out, name)
		}
	}
	const most = 12
	if len(out) == 0 {
		return none
	}
	more := ""
	if len(out) > most {
		more = fmt.Sprintf(" and %d more", len(out)-most)
	}
	return what + " " + strings.Join(out[:min(len(out), most)], ", ") + more
}

func readCommit(store *repo.Store, name string, commit repo.Hash) (baseline, error) {
	b := baseline{Baseline: plan.Baseline{Name: name, Commit: commit.String()}}
	at, err := store.When(commit)
	if err != nil {
		return b, err
	}
	if b.tree, err = store.Tree(commit); err != nil {
		return b, err
	}
	b.Time = at.UTC().Format(time.RFC3339)
	b.says = []string{fmt.Sprintf("compared with %s %.12s, published %s", name, commit, ago(time.Since(at)))}
	return b, b.check()
}

// check refuses what holds no rendered tree: compared with that everything would be new.
func (b *baseline) check() error {
	if _, err := render.FabricOf(b.tree); errors.Is(err, render.ErrNoFabric) {
		what := b.Name
		if b.Commit != "" {
			what = fmt.Sprintf("%s (%.12s)", b.Name, b.Commit)
		}
		return fmt.Errorf("%s holds no rendered tree: there is no base/fabric.yaml (--against names a branch that hawser reconcile publishes, "+
			"or a folder that hawser render wrote)", what)
	} else if err != nil {
		return fmt.Errorf("read %s: %w", b.Name, err)
	}
	return nil
}

// ago writes how long something is past, in its largest unit.
func ago(d time.Duration) string {
	for _, unit := range []struct {
		name string
		size time.Duration
	}{{"day", 24 * time.Hour}, {"hour", time.Hour}, {"minute", time.Minute}} {
		if d >= unit.size {
			return counted(int(d/unit.size), unit.name) + " ago"
		}
	}
	return counted(max(int(d/time.Second), 0), "second") + " ago"
}
