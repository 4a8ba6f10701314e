package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"hawser.dev/hawser/internal/diff"
	"hawser.dev/hawser/internal/humanize"
	"hawser.dev/hawser/reconciler"
	"hawser.dev/hawser/reconciler/gitrepo"
	"hawser.dev/hawser/render"
	"hawser.dev/hawser/render/plan"
)

type historyFlags struct {
	repo, branch, output string
	signers              string
	number               int
}

// publication is one commit of the publish branch.
type publication struct {
	Commit string `json:"commit"`
	Time   string `json:"time"` // RFC 3339 in UTC
	// Source is the commit of the topology, Author who made it, and Subject its first line;
	// where the repository does not hold it, these are of the published commit.
	Source  string       `json:"source,omitempty"`
	Author  string       `json:"author"`
	Subject string       `json:"subject"`
	Summary plan.Summary `json:"summary"`
	Changes string       `json:"changes"` // in one line
	// Verified reports that a signer signed the commit as published, Refused why it does not
	// count. Both are empty if the command has no signers.
	Verified bool   `json:"verified"`
	Refused  string `json:"refused,omitempty"`
}

func newHistoryCommand(a *app) *cobra.Command {
	var f historyFlags
	cmd := &cobra.Command{
		Use:   "history [FILE|DIR]",
		Short: "Show what was published when, by whom, and what it changed",
		Long: `Show the commits of the publish branch, the newest first: when each was published,
from which commit of the topology and whose, and how much of each kind it changed.
The repository is the one that holds the topology, or --repo.

The column SIGNED says whether a signer of the clusterset (--signers FILE, or
` + publishedSigners + ` next to the topology) signed the commit as published. A warning
names each commit that does not count. Without signers a warning says so.

Exit codes: 0 done, 2 error.`,
		Example: `  hawser history
  hawser history -n 3 --repo https://git.example.com/infra.git -o json`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error { return a.history(cmd.Context(), args, f) },
	}
	a.topologyFlag(cmd)
	cmd.Flags().StringVar(&f.repo, "repo", "", "path or URL of the repository with the branch (default: the one that holds the file)")
	cmd.Flags().StringVar(&f.branch, "branch", reconciler.DefaultPublishBranch, "branch that is published")
	cmd.Flags().StringVar(&f.signers, "signers", "", signersHelp)
	cmd.Flags().IntVarP(&f.number, "number", "n", 10, "how many commits to show; 0 = all")
	outputFlag(cmd, false, &f.output, "text", "json", "yaml")
	return cmd
}

func (a *app) history(ctx context.Context, args []string, f historyFlags) error {
	if f.number < 0 {
		return fmt.Errorf("-n %d: it is a number of commits, or 0 for all", f.number)
	}
	file := ""
	if f.repo == "" {
		t, err := a.readTopology(args)
		if err != nil {
			return err
		}
		file = t.file
	}
	verify, err := verifiers(f.signers, file, buildFlags{})
	if err != nil {
		return err
	}
	defer a.progress("reading branch " + f.branch)()
	store, err := openRepo(ctx, repoOf(f.repo, file), f.branch)
	if err != nil {
		return err
	}
	head, err := store.Resolve(f.branch)
	if err != nil {
		return fmt.Errorf("read published branch: %w", err)
	}
	list, err := a.publications(ctx, store, head.Commit, f.number, verify)
	if err != nil {
		return err
	}
	if len(verify) == 0 {
		_, _ = fmt.Fprintln(a.err, notVerified)
	}
	for _, p := range list {
		if p.Refused != "" {
			_, _ = fmt.Fprintf(a.err, "WARNING: commit %.12s of %s does not count: %s\n", p.Commit, f.branch, p.Refused)
		}
	}
	if f.output != "text" {
		return a.encode(f.output, map[string]any{"branch": f.branch, "publications": list})
	}
	t := table{title: "Published on " + f.branch, head: []string{"TIME", "COMMIT", "SOURCE", "AUTHOR", "SIGNED", "CHANGES", "SUBJECT"}}
	for _, p := range list {
		t.rows = append(t.rows, []string{p.Time, fmt.Sprintf("%.12s", p.Commit), fmt.Sprintf("%.12s", p.Source), p.Author, p.signed(), p.Changes, p.Subject})
	}
	_, err = a.out.Write([]byte(t.String()))
	return err
}

// signed returns whether a publication is verified, for the table.
func (p publication) signed() string {
	switch {
	case p.Verified:
		return "yes"
	case p.Refused != "":
		return "NO"
	}
	return "not verified"
}

// publications walks a branch back along first parents.
func (a *app) publications(ctx context.Context, store *gitrepo.Store, at gitrepo.Hash, most int, verify []verifier) ([]publication, error) {
	list := []publication{}
	tree, err := treeOf(store, at)
	for err == nil && !at.IsZero() && (most == 0 || len(list) < most) && ctx.Err() == nil {
		var parent gitrepo.Hash
		var before render.Tree
		var p publication
		if _, _, parent, err = store.Signature(at); err != nil {
			break
		}
		before, err = treeOf(store, parent)
		cut := errors.Is(err, gitrepo.ErrNoCommit)
		if err != nil && !cut {
			break
		}
		if p, err = publicationOf(store, at); err != nil {
			break
		}
		for _, v := range verify {
			if p.Refused, err = v.why(store, at); err != nil {
				return list, err
			}
			p.Verified = p.Refused == ""
		}
		if cut {
			p.Changes = "unknown: the clone ends here"
		} else if err = p.count(tree, before); err != nil {
			return nil, fmt.Errorf("compare commit %s with the one before: %w", at, err)
		}
		if list = append(list, p); cut {
			return list, nil
		}
		at, tree = parent, before
	}
	return list, errors.Join(err, ctx.Err())
}

// treeOf reads what a commit published; nothing of the zero hash, and ErrNoCommit where a
// clone does not go back so far.
func treeOf(store *gitrepo.Store, commit gitrepo.Hash) (render.Tree, error) {
	if commit.IsZero() {
		return render.Tree{}, nil
	}
	return store.Tree(commit)
}

func publicationOf(store *gitrepo.Store, commit gitrepo.Hash) (publication, error) {
	p := publication{Commit: commit.String()}
	when, err := store.When(commit)
	if err != nil {
		return p, err
	}
	p.Time = when.UTC().Format(time.RFC3339)
	if p.Source, err = store.Trailer(commit, reconciler.TrailerSource); err != nil {
		return p, err
	}
	tell := commit
	if source, err := store.Resolve(p.Source); err == nil {
		tell = source.Commit
	}
	if p.Author, err = store.Author(tell); err != nil {
		return p, err
	}
	p.Subject, err = store.Subject(tell)
	return p, err
}

// count fills in what changed between two trees. One without a fabric, as the first
// commit of a branch may be, published nothing.
func (p *publication) count(want, have render.Tree) error {
	for _, tree := range []*render.Tree{&want, &have} {
		if _, err := render.FabricOf(*tree); errors.Is(err, render.ErrNoFabric) {
			*tree = render.Tree{}
		}
	}
	made, err := plan.Compute(want, have)
	if err != nil {
		return err
	}
	p.Summary = made.Summary
	type change struct {
		op   diff.Op
		kind string
	}
	var order []change
	counts := map[change]int{}
	for _, e := range made.Entries {
		c := change{e.Op, e.Kind}
		if counts[c]++; counts[c] == 1 {
			order = append(order, c)
		}
	}
	var parts []string
	for _, c := range order {
		parts = append(parts, fmt.Sprintf("%s%s", c.op, humanize.Plural(counts[c], strings.TrimSuffix(c.kind, "s"))))
	}
	if p.Changes = strings.Join(parts, ", "); p.Changes == "" {
		p.Changes = "nothing"
	}
	return nil
}
