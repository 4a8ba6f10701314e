// Package baseline reads the publish branch: the tree to compare with, the published lock and the
// history.
package baseline

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/go-git/go-git/v5/plumbing"

	"hawser.dev/hawser/internal/cli"
	"hawser.dev/hawser/internal/cli/topofile"
	"hawser.dev/hawser/internal/humanize"
	"hawser.dev/hawser/reconciler"
	"hawser.dev/hawser/reconciler/gitrepo"
	"hawser.dev/hawser/render"
	"hawser.dev/hawser/render/plan"
)

// None compares with an empty tree.
const None = "none"

// remoteTimeout bounds the request to a remote repository if the clone has the branch.
const remoteTimeout = 10 * time.Second

// Published is the content of a publish branch or a directory. It is empty, with the name None, if
// no commit was published.
type Published struct {
	Tree  render.Tree
	Store *gitrepo.Store // has the commit; nil without one
	Head  gitrepo.Hash   // newest commit of the branch, which may have no valid signature
	plan.Baseline
	Missing     string // why it is empty; empty if the user asked for None
	description string // description for the user
	Notes       []string
}

// Options selects the publish branch or directory to read.
type Options struct {
	File, Address string // the topology; the repository, empty for the topology's
	Branch        string
	Flag          string // flag that names Branch; empty = the command has none
	UserSet       bool   // the user named Branch
	Compare       bool   // print the source of the comparison
	History       bool   // also read the older commits
	// Verify are the verifiers that must accept a commit. If empty, unverified commits count,
	// and Notice prints a warning.
	Verify []Verifier
	Notice bool
	// Rendered skips commits without a rendered tree. It does not check signatures.
	Rendered bool
}

// Read returns the published content and prints its source. It is empty if no reachable repository
// has the branch. A missing branch or directory that the user named is an error.
func Read(ctx context.Context, env *cli.Env, in Options) (Published, error) {
	p, err := in.Load(ctx)
	if err != nil {
		return p, err
	}
	if in.Compare {
		_, _ = fmt.Fprintln(env.Err, p.description)
	}
	for _, text := range p.Notes {
		_, _ = fmt.Fprintln(env.Err, text)
	}
	return p, nil
}

// Load reads the publish branch without printing notes.
func (in Options) Load(ctx context.Context) (Published, error) {
	if in.Branch == None && !in.History {
		return Published{Baseline: plan.Baseline{Name: None}, description: "compared with nothing (" + in.Flag + " none): everything is new"}, nil
	}
	if _, err := os.Stat(filepath.Join(in.Branch, "base")); err == nil && in.UserSet {
		dir, err := topofile.ReadRendered(in.Branch)
		if err != nil {
			return Published{}, err
		}
		p := Published{Tree: dir.Tree, Baseline: plan.Baseline{Name: in.Branch}, description: "compared with the directory " + in.Branch}
		return p, p.check(in.Flag)
	}
	store, err := gitrepo.Open(RepoOf(in.Address, in.File))
	if err != nil {
		return Published{}, err
	}
	if err := store.Fetch(ctx, in.Branch); err != nil {
		if in.Compare {
			err = fmt.Errorf("%w (hawser diff --against DIR compares with a directory)", err)
		}
		return Published{}, err
	}
	found, err := store.Resolve(in.Branch)
	if err == nil {
		return in.current(ctx, store, found)
	}
	if !errors.Is(err, gitrepo.ErrNoBranch) {
		return Published{}, fmt.Errorf("read published branch: %w", err)
	}
	return in.fetchFromOrigin(ctx, store, err)
}

// current reads the resolved branch, or the newer commit of its remote.
func (in Options) current(ctx context.Context, store *gitrepo.Store, found gitrepo.Resolved) (Published, error) {
	p, err := in.commit(store, in.Branch, found.Commit)
	if err != nil {
		return p, err
	}
	remotes, err := store.Remotes()
	if err != nil {
		return p, err
	}
	for _, r := range remotes {
		branch, tracked := strings.CutPrefix(found.Ref, "refs/remotes/"+r.Name+"/")
		if !tracked {
			// A local branch that also exists at the remote is often outdated.
			if branch = strings.TrimPrefix(found.Ref, "refs/heads/"); branch == found.Ref {
				continue
			}
			if _, err := store.Resolve(r.Name + "/" + branch); err != nil {
				continue
			}
		}
		newer, at, err := in.fetchIfMoved(ctx, r, branch, found.Commit)
		name := r.Name + "/" + branch
		switch {
		case err != nil:
			p.Notes = append(p.Notes, fmt.Sprintf("warning: cannot read branch %s of %s, so this is the copy of the last git fetch: %v", branch, r.Name, err))
		case newer == nil:
		case tracked:
			fetched, err := in.commit(newer, name, at)
			if err != nil {
				return p, err
			}
			if fetched.Revision < p.Revision {
				p.Notes = append(p.Notes, fmt.Sprintf("WARNING: %s went back from revision %d to %d since the last git fetch: the branch was reset, and the commit of that fetch counts",
					name, p.Revision, fetched.Revision))
				continue
			}
			p = fetched
			p.Notes = append(p.Notes, name+" moved since the last git fetch: fetched now")
		default:
			hint := in.Flag + " " + name + " compares with that"
			if !in.Compare {
				hint = "git branch -D " + branch + ", if the one here is an old copy"
			}
			p.Notes = append(p.Notes, fmt.Sprintf("warning: %s is another commit, %.12s: %s", name, at, hint))
		}
	}
	return p, nil
}

// depth returns the depth of a fetch: a verifier may need older commits.
func (in Options) depth() int {
	if in.History || len(in.Verify) > 0 {
		return 0
	}
	return 1
}

// fetchIfMoved returns the remote's store and commit of a branch; nil if the branch is unchanged.
func (in Options) fetchIfMoved(ctx context.Context, r gitrepo.Remote, branch string, have gitrepo.Hash) (store *gitrepo.Store, at gitrepo.Hash, err error) {
	ctx, cancel := context.WithTimeout(ctx, remoteTimeout)
	defer cancel()
	if store, err = gitrepo.Open(gitrepo.Config{URL: r.URL, ExplicitURL: true, Auth: Auth(), Depth: in.depth()}); err != nil {
		return nil, at, err
	}
	if at, err = store.RemoteHead(ctx, branch); err != nil || at == have {
		return nil, at, err
	}
	if at.IsZero() {
		return nil, at, errors.New("the branch was deleted")
	}
	if err := store.Fetch(ctx, branch); err != nil {
		return nil, at, err
	}
	at, err = store.Head(branch)
	return store, at, err
}

// fetchFromOrigin fetches a missing branch from the remotes. Shallow clones and clones of a single
// branch lack it.
func (in Options) fetchFromOrigin(ctx context.Context, store *gitrepo.Store, missing error) (Published, error) {
	names, err := store.Names()
	if err != nil {
		return Published{}, err
	}
	remotes, err := store.Remotes()
	if err != nil {
		return Published{}, err
	}
	var remoteErr error
	var queried []string
	for _, r := range remotes {
		branch := strings.TrimPrefix(in.Branch, r.Name+"/")
		remote, err := OpenRepo(ctx, gitrepo.Config{URL: r.URL, ExplicitURL: true, Auth: Auth(), Depth: in.depth()}, branch)
		if err != nil {
			if remoteErr != nil {
				err = fmt.Errorf("%w; %w", remoteErr, err)
			}
			remoteErr = fmt.Errorf("%w (git fetch %s %s:refs/remotes/%s/%s brings it here)", err, r.Name, branch, r.Name, branch)
			continue
		}
		if head, err := remote.Head(branch); err == nil {
			p, err := in.commit(remote, r.Name+"/"+branch, head)
			p.Notes = append(p.Notes, r.Name+"/"+branch+" is not in this clone: fetched now")
			return p, err
		}
		queried = append(queried, r.Name)
		branchNames, err := remote.Names()
		if err != nil {
			return Published{}, err
		}
		for _, name := range branchNames {
			names = append(names, r.Name+"/"+name)
		}
	}
	if remoteErr != nil {
		return Published{}, fmt.Errorf("%w, and not every remote could be asked for it: %w", missing, remoteErr)
	}
	if in.UserSet {
		hint := ""
		if !in.History {
			hint = fmt.Sprintf("; %s %s compares with nothing", in.Flag, None)
		}
		return Published{}, fmt.Errorf("%w (there %s%s)", missing, Listed(names, "are the branches", "is no branch at all"), hint)
	}
	elsewhere := ""
	if len(queried) > 0 {
		elsewhere = ", nor of " + strings.Join(queried, ", ")
	}
	summary, hint := fmt.Sprintf("nothing is published on branch %s of %s%s", in.Branch, store.Name(), elsewhere), ""
	if in.Flag != "" {
		hint = fmt.Sprintf(" (%s or --repo names another branch or repository)", in.Flag)
	}
	return Published{Baseline: plan.Baseline{Name: None}, Missing: summary + hint, description: summary + ": everything is new" + hint}, nil
}

// Listed returns the text intro with the distinct names, or the text ifEmpty if there are no names.
func Listed(names []string, intro, ifEmpty string) string {
	seen, out := map[string]bool{}, []string{}
	for _, name := range names {
		if !seen[name] {
			seen[name], out = true, append(out, name)
		}
	}
	const maxShown = 12
	if len(out) == 0 {
		return ifEmpty
	}
	return intro + " " + humanize.FirstN(out, maxShown)
}

func (in Options) commit(store *gitrepo.Store, name string, commit gitrepo.Hash) (Published, error) {
	p := Published{Store: store, Head: commit, Baseline: plan.Baseline{Name: name}}
	switch {
	case len(in.Verify) > 0:
		found, skipped, err := NewestVerified(store, in.Verify, commit)
		if errors.Is(err, reconciler.ErrNotPublished) {
			var from []string
			for _, v := range in.Verify {
				from = append(from, v.from)
			}
			return p, fmt.Errorf("no commit of %s has a signature of %s: %w (if the clone is shallow: git fetch --unshallow)", name, strings.Join(from, " and "), err)
		}
		if err != nil {
			return p, err
		}
		commit, p.Revision, p.Verified, p.Skipped = found.Commit, found.Revision, true, skipped
		p.Notes = append(p.Notes, SkippedLines(name, skipped)...)
	case in.Notice:
		p.Notes = append(p.Notes, NotVerifiedNote)
	}
	p.Commit = commit.String()
	at, err := store.When(commit)
	if err != nil {
		return p, err
	}
	if p.Tree, err = store.Tree(commit); err != nil {
		return p, err
	}
	if in.Rendered {
		_, noFabric := render.FabricOf(p.Tree)
		if _, _, parent, err := store.Signature(commit); errors.Is(noFabric, render.ErrNoFabric) && err == nil && !parent.IsZero() {
			older, err := in.commit(store, name, parent)
			older.Head = p.Head
			return older, err
		}
	}
	p.Time = at.UTC().Format(time.RFC3339)
	p.description = fmt.Sprintf("compared with %s %.12s, published %s", name, commit, formatAge(time.Since(at)))
	return p, p.check(in.Flag)
}

// check returns an error if there is no rendered tree: a comparison would show every object as new.
func (p *Published) check(flag string) error {
	if _, err := render.FabricOf(p.Tree); errors.Is(err, render.ErrNoFabric) {
		name := p.Name
		if p.Commit != "" {
			name = fmt.Sprintf("%s (%.12s)", p.Name, p.Commit)
		}
		hint := ""
		if flag != "" {
			hint = " (" + flag + " names a branch that hawser bootstrap or hawser reconcile publishes, or a directory that hawser render wrote)"
		}
		return fmt.Errorf("%s contains no rendered tree: there is no base/fabric.yaml%s", name, hint)
	} else if err != nil {
		return fmt.Errorf("read %s: %w", p.Name, err)
	}
	return nil
}

// formatAge formats an age in its largest unit.
func formatAge(d time.Duration) string {
	for _, unit := range []struct {
		name string
		size time.Duration
	}{{"day", 24 * time.Hour}, {"hour", time.Hour}, {"minute", time.Minute}} {
		if d >= unit.size {
			return humanize.Plural(int(d/unit.size), unit.name) + " ago"
		}
	}
	if d < 10*time.Second {
		return "just now"
	}
	return humanize.Plural(int(d/time.Second), "second") + " ago"
}

// OpenRepo opens a repository and fetches the branches.
func OpenRepo(ctx context.Context, c gitrepo.Config, branches ...string) (*gitrepo.Store, error) {
	store, err := gitrepo.Open(c)
	if err == nil {
		err = store.Fetch(ctx, branches...)
	}
	return store, err
}

// RepoOf returns the repository that a user named, or else the repository of a file.
func RepoOf(address, file string) gitrepo.Config {
	if address == "" {
		return gitrepo.Config{URL: filepath.Dir(file), Auth: Auth()}
	}
	return gitrepo.Config{URL: address, ExplicitURL: true, Auth: AuthFor(address)}
}

// AuthFor returns the credentials of the environment for the repositories that a user named. They
// are for one host: HAWSER_GIT_HOST, or else the host of the first address on a server.
func AuthFor(addresses ...string) gitrepo.Auth {
	auth := Auth()
	for _, address := range addresses {
		if auth.Host == "" {
			auth.Host = gitrepo.HostOf(address)
		}
	}
	return auth
}

// Auth returns the credentials of the environment, which are for HAWSER_GIT_HOST only. The remotes
// of a clone come from its config.
func Auth() gitrepo.Auth {
	return gitrepo.Auth{
		Host:     os.Getenv("HAWSER_GIT_HOST"),
		Username: os.Getenv("HAWSER_GIT_USERNAME"), Password: os.Getenv("HAWSER_GIT_TOKEN"),
		SSHKeyPassword: os.Getenv("HAWSER_SSH_KEY_PASSWORD"),
	}
}

// Verify refuses a commit that the pins of a cluster do not accept. The plan of each cluster calls
// it, so it also checks clusters that were unreachable before.
func (p *Published) Verify(cluster string, pins []byte) error {
	v, err := NewVerifier("Secret "+render.TrustSecret, pins)
	if err != nil {
		return err
	}
	reason, err := v.RefusalReason(p.Store, plumbing.NewHash(p.Commit))
	if err == nil && reason != "" {
		err = fmt.Errorf("commit %.12s is not a published commit for cluster %s: %s", p.Commit, cluster, reason)
	}
	return err
}
