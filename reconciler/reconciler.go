// Package reconciler publishes the topology of a clusterset. It watches the source branch, renders
// the manifests of each commit, and commits the rendered tree to the publish branch. A commit with
// errors changes nothing: the last good state stays published.
package reconciler

import (
	"errors"
	"fmt"
	"log/slog"
	"path"
	"time"

	"hawser.dev/hawser/reconciler/gitrepo"
)

// Names of the files in the source directory. The lock has the same name at the top of the publish
// branch.
const (
	TopologyFile = "clusterset.yaml"
	LockFile     = "clusterset.lock.yaml"
)

// DefaultPublishBranch is the default branch for the rendered tree.
const DefaultPublishBranch = "rendered"

// Config configures a reconciler.
type Config struct {
	Source        gitrepo.Config
	SourceBranch  string
	Path          string         // directory of the topology file; empty is the top
	Publish       gitrepo.Config // an empty URL means the source repository
	PublishBranch string

	RootKeyFile      string // root key or keys (keys.ReadRoot), plain or an age file
	RootIdentityFile string // age identities that decrypt the root key
	// OpenPGPKeyFile is an armored private key that signs published commits, for programs that
	// do not support SSH signatures. Empty = published commits have SSH signatures.
	OpenPGPKeyFile string
	Image          string // of the agent if the topology has none; empty = the published image
	Version        string

	Interval time.Duration // between two reads of the repositories
	// WriteLock commits newly allocated addresses to the source branch. Without
	// it a commit whose lock is stale is refused.
	WriteLock bool
	// AllowMassDelete lets a commit remove more than half of the clusters.
	AllowMassDelete bool
	// StateFile stores the anchor across restarts. Empty = the anchor is in memory only.
	StateFile string
	// AcceptCommit is the hash of a source commit that an operator accepts without a check of
	// its signature. The operator also accepts the current publish branch. Each value works
	// once. Commits after AcceptCommit are checked. Empty = none.
	AcceptCommit string
	// AllowOtherRoot lets a root key replace the root key of the published keys.
	AllowOtherRoot    bool
	WebhookSecretFile string // empty disables webhooks

	AuthorName, AuthorEmail string // of the reconciler's commits
	Log                     *slog.Logger
	Now                     func() time.Time
}

// Reconciler publishes one source branch.
type Reconciler struct {
	cfg         Config
	source      *gitrepo.Store
	publish     *gitrepo.Store // the same as source when both are one repository
	statusStore atomicStatus
	metrics     *metrics
	trigger     chan struct{}
	last        lastResult
	anchor      anchor
}

// New returns a reconciler. It accesses no repository before the first pass.
func New(cfg Config) (*Reconciler, error) {
	var err error
	if cfg.SourceBranch, err = gitrepo.ParseBranch(cfg.SourceBranch); err != nil {
		return nil, fmt.Errorf("source branch: %w", err)
	}
	if cfg.PublishBranch, err = gitrepo.ParseBranch(cfg.PublishBranch); err != nil {
		return nil, fmt.Errorf("publish branch: %w", err)
	}
	if c := cfg.AcceptCommit; c != "" && hash(c).String() != c {
		return nil, fmt.Errorf("--accept-commit %s: it is not the whole hash of a commit (git rev-parse prints it)", c)
	}
	cfg.Path = path.Clean("/" + cfg.Path)[1:]
	same := cfg.Publish.URL == "" || gitrepo.SameRepository(cfg.Publish.URL, cfg.Source.URL)
	if same && cfg.PublishBranch == cfg.SourceBranch {
		return nil, errors.New("the publish branch must not be the source branch: choose another --publish-branch")
	}
	r := &Reconciler{cfg: cfg, metrics: newMetrics(), trigger: make(chan struct{}, 1)}
	cfg.Source.ExplicitURL, cfg.Publish.ExplicitURL = true, true
	if r.source, err = gitrepo.Open(cfg.Source); err != nil {
		return nil, err
	}
	r.publish = r.source
	if !same {
		if r.publish, err = gitrepo.Open(cfg.Publish); err != nil {
			return nil, err
		}
	}
	r.statusStore.current.Store(&Status{
		Version: cfg.Version,
		Source:  BranchRef{Repo: r.source.Name(), Branch: cfg.SourceBranch, Path: cfg.Path},
		Publish: BranchRef{Repo: r.publish.Name(), Branch: cfg.PublishBranch},
	})
	return r, nil
}

// Status returns the status that /status serves.
func (r *Reconciler) Status() Status { return r.statusStore.load() }

// Trigger requests a pass. It never blocks. Several calls before the next pass cause one pass.
func (r *Reconciler) Trigger() {
	select {
	case r.trigger <- struct{}{}:
	default:
	}
}

// topologyPath returns the path of the topology file in the source.
func (r *Reconciler) topologyPath() string { return path.Join(r.cfg.Path, TopologyFile) }

func (r *Reconciler) lockPath() string { return path.Join(r.cfg.Path, LockFile) }
