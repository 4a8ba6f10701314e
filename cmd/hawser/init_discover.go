package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"hawser.dev/hawser/discover"
	"hawser.dev/hawser/internal/checkout"
	"hawser.dev/hawser/kubeclient"
	"hawser.dev/hawser/reconciler"
	"hawser.dev/hawser/render"
	"hawser.dev/hawser/schema/fabric"
	"hawser.dev/hawser/schema/load"
)

// initializeFrom writes a topology, keys and the lock from what clusters say. What is
// wrong with the clusters is found before anything is written.
func (a *app) initializeFrom(ctx context.Context, dir string, f initFlags) error {
	path := filepath.Join(dir, reconciler.TopologyFile)
	if _, err := os.Stat(path); err == nil {
		return fmt.Errorf("%s exists already: hawser join --context CONTEXT adds a cluster to it, or choose another folder",
			path)
	}
	if !fabric.IsLabel(f.name) {
		return fmt.Errorf("--name %q: use lower-case letters, digits and hyphens, with no hyphen at either end", f.name)
	}
	clusters, err := f.access.FromContexts()
	if err != nil {
		return err
	}
	list, errs := a.discoverAll(ctx, clusters)
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("nothing was written: %w", err)
	}
	if f.secrets {
		if err := withoutIdentity(ctx, clusters); err != nil {
			return err
		}
	}
	if err := a.showFound(list); err != nil {
		return err
	}
	if f.keys == "" {
		f.keys = filepath.Join(dir, "keys")
	}
	f.clusters = nil
	for _, c := range clusters {
		f.clusters = append(f.clusters, c.Name)
	}
	if err := checkout.MakeFolder(dir, 0o755); err != nil {
		return err
	}
	recipients, err := a.initialKeys(f)
	if err != nil {
		return err
	}
	if err := ignoreKeys(dir, f.keys); err != nil {
		return err
	}
	if err := writeStart(path, discover.Topology(f.name, list, recipients), f.schema); err != nil {
		return err
	}
	if _, err := fmt.Fprintf(a.out, "wrote %s\n", path); err != nil {
		return err
	}
	if f.secrets {
		if err := a.createIdentitySecrets(ctx, clusters, f.keys); err != nil {
			return err
		}
	}
	t, err := a.readTopology([]string{path})
	if err != nil {
		return err
	}
	if err := a.firstLock(ctx, t); err != nil {
		return err
	}
	command := "hawser bootstrap --dry-run"
	if filepath.Clean(f.keys) != filepath.Join(dir, "keys") {
		command += " --root-key " + shellQuote(filepath.Join(f.keys, "root.key")) + " --with-keys " + shellQuote(f.keys)
	}
	command += contextFlagsText(clusters, f.access)
	if dir != "." {
		command += " " + shellQuote(dir)
	}
	_, err = fmt.Fprintf(a.out, "commit and push both, and see what Hawser would do in the clusters:\n  %s\n", command)
	return err
}

// firstLock writes the lock of a topology that was just written, or says what has to be
// completed before.
func (a *app) firstLock(ctx context.Context, t topology) error {
	set, _, list := load.Topology(t.file, t.raw)
	a.printFindings(list, t.files())
	if list.HasErrors() {
		return answer{fmt.Sprintf("correct these lines of %s (those that need a value are marked %s), then run hawser "+
			"validate and hawser allocate", t.file, discover.Todo)}
	}
	raw, err := a.newLock(t, set, publishedLock{outside: true}, allocateFlags{}) // of a new clusterset nothing is published
	if err != nil {
		return err
	}
	if err := checkout.Replace(t.lockFile, raw, 0o644); err != nil {
		return err
	}
	_, err = fmt.Fprintf(a.out, "wrote %s\n", t.lockFile)
	return err
}

// withoutIdentity refuses clusters that have an identity already: it would not open what
// is encrypted to a new recipient.
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

// createIdentitySecrets creates the Secret of each cluster's identity, after asking.
func (a *app) createIdentitySecrets(ctx context.Context, clusters []*kubeclient.Client, keys string) error {
	in := bufio.NewReader(a.in)
	for _, c := range clusters {
		_, _ = fmt.Fprintf(a.err, "create Secret %s/%s in cluster %s (context %s)? [y/N] ", render.Namespace,
			kubeclient.IdentitySecret, c.Name, c.Context)
		line, _ := in.ReadString('\n') // at the end of the input the answer is no
		if yes := strings.ToLower(strings.TrimSpace(line)); yes != "y" && yes != "yes" {
			continue
		}
		raw, err := checkout.ReadFile(filepath.Join(keys, c.Name+".identity"))
		if err != nil {
			return fmt.Errorf("read identity: %w", err)
		}
		if err := c.PutIdentity(ctx, string(raw)); err != nil {
			return fmt.Errorf("cluster %s: %w", c.Name, err)
		}
		if _, err = fmt.Fprintf(a.out, "created Secret %s/%s in cluster %s\n", render.Namespace, kubeclient.IdentitySecret, c.Name); err != nil {
			return err
		}
	}
	return nil
}

// contextFlagsText gives the flags of a command line by which clusters are found again.
func contextFlagsText(clusters []*kubeclient.Client, access kubeclient.Kubeconfig) string {
	words := ""
	for _, c := range clusters {
		if c.Name != c.Context {
			words += " --context " + shellQuote(c.Name+"="+c.Context)
		}
	}
	for _, file := range access.Kubeconfigs {
		words += " --kubeconfig " + shellQuote(file)
	}
	return words
}

// shellQuote gives a text as one word of a shell's command line.
func shellQuote(text string) string {
	if regexp.MustCompile(`^[A-Za-z0-9_./:=@%+,-]+$`).MatchString(text) {
		return text
	}
	return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'"
}
