package edit

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"hawser.dev/hawser/discover"
	"hawser.dev/hawser/internal/checkout"
	"hawser.dev/hawser/internal/cli"
	"hawser.dev/hawser/internal/cli/baseline"
	"hawser.dev/hawser/internal/cli/clusterselect"
	"hawser.dev/hawser/internal/cli/topofile"
	"hawser.dev/hawser/kubeclient"
	"hawser.dev/hawser/reconciler"
	"hawser.dev/hawser/render"
	"hawser.dev/hawser/schema/fabric"
	"hawser.dev/hawser/schema/load"
)

// initializeFrom writes a topology, keys and the lock for running clusters. It reports problems of
// the clusters before it writes anything.
func initializeFrom(ctx context.Context, env *cli.Env, dir string, f initFlags) error {
	path := filepath.Join(dir, reconciler.TopologyFile)
	if _, err := os.Stat(path); err == nil {
		return fmt.Errorf("%s exists already: hawser join --context CONTEXT adds a cluster to it, or choose another directory",
			path)
	}
	if !fabric.IsLabel(f.name) {
		return fmt.Errorf("--name %q: use lower-case letters, digits and hyphens, with no hyphen at either end", f.name)
	}
	clusters, err := f.access.FromContexts()
	if err != nil {
		return err
	}
	list, errs := discoverAll(ctx, env, clusters)
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("nothing was written: %w", err)
	}
	if f.secrets {
		if err := withoutIdentity(ctx, clusters); err != nil {
			return err
		}
	}
	if err := showFound(env, list); err != nil {
		return err
	}
	if f.keys == "" {
		f.keys = filepath.Join(dir, "keys")
	}
	f.clusters = nil
	for _, c := range clusters {
		f.clusters = append(f.clusters, c.Name)
	}
	if err := checkout.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	recipients, err := initialKeys(env, f)
	if err != nil {
		return err
	}
	if err := ignoreKeys(dir, f.keys); err != nil {
		return err
	}
	text := discover.Topology(f.name, list, recipients)
	if err := writeTopology(path, text, f.schema); err != nil {
		return err
	}
	if _, err := fmt.Fprintf(env.Out, "wrote %s\n", path); err != nil {
		return err
	}
	if f.secrets {
		if err := createIdentitySecrets(ctx, env, clusters, f.keys); err != nil {
			return err
		}
	}
	t, err := topofile.Read(env, []string{path})
	if err != nil {
		return err
	}
	if err := firstLock(ctx, env, t); err != nil {
		return err
	}
	command := "hawser bootstrap"
	if filepath.Clean(f.keys) != filepath.Join(dir, "keys") {
		command += " --root-key " + cli.ShellQuote(filepath.Join(f.keys, "root.key")) + " --with-keys " + cli.ShellQuote(f.keys)
	}
	command += clusterselect.ContextFlagsText(clusters, f.access)
	if dir != "." {
		command += " " + cli.ShellQuote(dir)
	}
	_, err = fmt.Fprintf(env.Out, "next: check the topology, then\n  git add -A && git commit -m 'the clusterset' && git push\n  %s\n", command)
	return err
}

// firstLock writes the lock of a new topology, or prints which values to complete first.
func firstLock(ctx context.Context, env *cli.Env, t topofile.File) error {
	set, _, list := load.Topology(t.Path, t.Raw)
	env.Findings(list, t.Texts())
	if list.HasErrors() {
		return cli.ExitError{Msg: fmt.Sprintf("correct these lines of %s (those that need a value are marked %s), then run hawser "+
			"validate and hawser allocate", t.Path, discover.Todo)}
	}
	raw, err := baseline.NewLock(env, t, set, baseline.PublishedLock{Outside: true}, baseline.LockOptions{}) // a new clusterset has no published lock
	if err != nil {
		return err
	}
	if err := checkout.Replace(t.LockPath, raw, 0o644); err != nil {
		return err
	}
	_, err = fmt.Fprintf(env.Out, "wrote %s\n", t.LockPath)
	return err
}

// withoutIdentity returns an error if a cluster already has an identity, which could not decrypt
// keys for a new recipient.
func withoutIdentity(ctx context.Context, clusters []*kubeclient.Client) error {
	for _, c := range clusters {
		has, err := c.HasIdentity(ctx)
		if err != nil {
			return fmt.Errorf("--secrets: cluster %s: %w", c.Name, err)
		}
		if has {
			return fmt.Errorf("--secrets: cluster %s has the Secret %s/%s already, and it is not overwritten: delete it, "+
				"or leave --secrets out",
				c.Name, render.Namespace, kubeclient.IdentitySecret)
		}
	}
	return nil
}

// createIdentitySecrets creates the Secret of each cluster's identity after confirmation.
func createIdentitySecrets(ctx context.Context, env *cli.Env, clusters []*kubeclient.Client, keys string) error {
	in := bufio.NewReader(env.In)
	for _, c := range clusters {
		_, _ = fmt.Fprintf(env.Err, "create Secret %s/%s in cluster %s (context %s)? [y/N] ", render.Namespace,
			kubeclient.IdentitySecret, c.Name, c.Context)
		line, _ := in.ReadString('\n') // no at the end of the input
		if yes := strings.ToLower(strings.TrimSpace(line)); yes != "y" && yes != "yes" {
			if _, err := fmt.Fprintf(env.Out, "cluster %s: Secret not created: hawser bootstrap creates it\n", c.Name); err != nil {
				return err
			}
			continue
		}
		raw, err := checkout.ReadFile(filepath.Join(keys, c.Name+".identity"))
		if err != nil {
			return fmt.Errorf("read identity: %w", err)
		}
		if err := c.PutIdentity(ctx, string(raw)); err != nil {
			return fmt.Errorf("cluster %s: %w", c.Name, err)
		}
		if _, err = fmt.Fprintf(env.Out, "created Secret %s/%s in cluster %s\n", render.Namespace, kubeclient.IdentitySecret, c.Name); err != nil {
			return err
		}
	}
	return nil
}
