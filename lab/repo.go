package lab

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/go-git/go-git/v5"
	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/object"

	"hawser.dev/hawser/internal/checkout"
	"hawser.dev/hawser/internal/diag"
	"hawser.dev/hawser/lab/netnsexec"
	"hawser.dev/hawser/schema/load"
)

// InvalidError is returned for a topology with findings. Up returns it before it creates anything.
type InvalidError struct {
	File string
	Raw  []byte
	List diag.List
}

// Error lists the findings, one per line.
func (e *InvalidError) Error() string { return e.List.Err().Error() }

// hasRepo reports whether the repository exists with its first commit.
func (l Layout) hasRepo() bool {
	repo, err := git.PlainOpen(l.Repo())
	if err != nil {
		return false
	}
	_, err = repo.Head()
	return err == nil
}

// makeRepo creates the topology's repository with the given file and the recipients of the lab. If
// a lock file is next to the given file, it copies that file too.
func (l Layout) makeRepo(file string) error {
	raw, err := checkout.ReadNamed(file)
	if err != nil {
		return fmt.Errorf("read topology: %w", err)
	}
	t, err := parseTopology(raw)
	if err != nil {
		return invalid(file, raw, err)
	}
	recipients := map[string]string{}
	for _, c := range t.clusters {
		if recipients[c.name], err = recipientOf(l, c.name); err != nil {
			return err
		}
	}
	edited, err := setRecipients(raw, recipients)
	if err != nil {
		return invalid(file, raw, err)
	}
	if err := validate(file, edited); err != nil {
		return err
	}
	files := map[string][]byte{topologyFile: edited}
	lock, err := checkout.ReadFile(filepath.Join(filepath.Dir(file), lockFile))
	if err == nil {
		files[lockFile] = lock
	} else if !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("read lock: %w", err)
	}
	return l.firstCommit(files)
}

func validate(file string, raw []byte) error {
	_, _, list := load.Topology(file, raw)
	if list.HasErrors() {
		return &InvalidError{File: file, Raw: raw, List: list}
	}
	return nil
}

// invalid returns the schema's findings, which have positions; without findings it returns err.
func invalid(file string, raw []byte, err error) error {
	if found := validate(file, raw); found != nil {
		return found
	}
	return fmt.Errorf("%s: %w", file, err)
}

func (l Layout) firstCommit(files map[string][]byte) error {
	if err := os.RemoveAll(l.Repo()); err != nil {
		return fmt.Errorf("make repository of the lab: %w", err)
	}
	repo, err := git.PlainInitWithOptions(l.Repo(), &git.PlainInitOptions{
		InitOptions: git.InitOptions{DefaultBranch: plumbing.NewBranchReferenceName("main")},
	})
	if err != nil {
		return fmt.Errorf("make repository of the lab: %w", err)
	}
	// `git commit` must also work there on a machine without a git identity.
	config, err := repo.Config()
	if err != nil {
		return fmt.Errorf("configure repository of the lab: %w", err)
	}
	config.User.Name, config.User.Email = "hawser lab", "lab@hawser.invalid"
	if err := repo.SetConfig(config); err != nil {
		return fmt.Errorf("configure repository of the lab: %w", err)
	}
	tree, err := repo.Worktree()
	if err != nil {
		return fmt.Errorf("commit topology: %w", err)
	}
	for name, raw := range files {
		if err := os.WriteFile(filepath.Join(l.Repo(), name), raw, 0o644); err != nil {
			return fmt.Errorf("commit topology: %w", err)
		}
		if _, err := tree.Add(name); err != nil {
			return fmt.Errorf("commit topology: %w", err)
		}
	}
	author := &object.Signature{Name: config.User.Name, Email: config.User.Email, When: time.Now()}
	if _, err := tree.Commit("topology of the lab\n", &git.CommitOptions{Author: author}); err != nil {
		return fmt.Errorf("commit topology: %w", err)
	}
	return nil
}

// makeRootKey creates the lab's root key.
func (l Layout) makeRootKey(ctx context.Context, c Config) error {
	if _, err := os.Stat(l.RootKey()); err == nil || c.NoHawser {
		return nil
	}
	cmd := exec.CommandContext(ctx, c.Hawser, "keys", "root", l.RootKey())
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("make root key: %w: %s", err, bytes.TrimSpace(out))
	}
	return nil
}

// reconcilerListen is the reconciler's HTTP address, in its own namespace.
const reconcilerListen = "127.0.0.1:8473"

// startReconciler starts the reconciler of the lab's repository. The caller holds d.mu.
func (d *daemon) startReconciler() {
	argv := []string{
		d.config.Hawser, "reconcile", "--repo", d.layout.Repo(), "--publish-branch", publishBranch,
		"--root-key", d.layout.RootKey(), "--listen", reconcilerListen, "--interval", "5s", "--state", d.layout.reconcilerState(),
	}
	e := netnsexec.Exec{Net: d.reconcilerNS.path, Argv: argv}
	d.reconciler = startChild(d.inNamespace("reconciler", d.layout.reconcilerLog(), e), d.log)
}

// Recipient returns the age recipient of a cluster for the commit that adds the cluster to the
// topology. The first call creates the cluster's identity.
func (l Layout) Recipient(cluster string) (string, error) {
	if _, err := readConfig(l); err != nil {
		return "", err
	}
	return recipientOf(l, cluster)
}
