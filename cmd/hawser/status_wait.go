package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"hawser.dev/hawser/reconciler"
	"hawser.dev/hawser/reconciler/repo"
	"hawser.dev/hawser/render"
	"hawser.dev/hawser/schema"
)

// askAgain is how long status waits between two looks at the clusters.
const askAgain = time.Second

// watch shows what clusters say each time that it is something else: on a terminal in
// place of what was there, elsewhere below it.
func (a *app) watch(ctx context.Context, look func() overview) error {
	before := ""
	for {
		o := look()
		if text := statusTables(o.states, o.trouble); text != before && ctx.Err() == nil {
			if before != "" && !terminal(a.out) {
				text = "\n" + text
			} else if terminal(a.out) {
				text = "\x1b[H\x1b[2J" + text // to the first line, and all gone
			}
			if _, err := a.out.Write([]byte(text)); err != nil {
				return err
			}
			before = statusTables(o.states, o.trouble)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(askAgain):
		}
	}
}

// await looks until nothing is left to be said, and prints what clusters say then, or at
// the end of the time.
func (a *app) await(ctx context.Context, args []string, f statusFlags, look func() overview) error {
	end := time.Now().Add(f.timeout)
	var said []string
	for {
		o := look()
		o.trouble = append(o.trouble, a.behind(ctx, args, f, o)...)
		if len(o.trouble) == 0 {
			return a.answer(f.output, o)
		}
		for _, text := range o.trouble {
			if !slices.Contains(said, text) {
				_, _ = fmt.Fprintln(a.err, "waiting:", text)
			}
		}
		said = o.trouble
		left := time.Until(end)
		if left <= 0 {
			if err := a.answer(f.output, o); !errors.Is(err, answer{}) {
				return err
			}
			return answer{fmt.Sprintf("not all is well after %s", f.timeout)}
		}
		select {
		case <-ctx.Done():
			return answer{"interrupted before all was well"}
		case <-time.After(min(askAgain, left)):
		}
	}
}

// behind says which agents do not follow what is published for the topology, and whether
// it is published. Without a topology, or where it is in no repository, the clusters alone
// say what is in force.
func (a *app) behind(ctx context.Context, args []string, f statusFlags, o overview) []string {
	if len(args)+present(a.file)+present(f.repo) == 0 && missingFile(reconciler.TopologyFile) {
		return nil
	}
	t, err := a.readTopology(args)
	if err != nil {
		return []string{err.Error()}
	}
	p, err := publishedInput{file: t.file, address: f.repo, branch: f.branch, flag: "--branch"}.read(ctx)
	switch {
	case f.repo == "" && errors.Is(err, repo.ErrNoRepository) && !errors.Is(err, repo.ErrNoBranch):
		return nil
	case err != nil:
		return []string{"what is published is not known: " + err.Error()}
	case p.none != "":
		return []string{p.none}
	}
	set, _, list := schema.Load(t.file, t.raw)
	if list.HasErrors() {
		return []string{t.file + " has errors: run hawser validate"}
	}
	want, err := render.Topology(set)
	if err != nil {
		return []string{err.Error()}
	}
	if string(p.tree[render.TopologyText]) != string(want) {
		return []string{fmt.Sprintf("what is published on %s is not what %s says: commit and push it, and see what the reconciler says of it", p.Name, t.file)}
	}
	digest, err := render.FabricDigest(p.tree)
	if err != nil {
		return []string{err.Error()}
	}
	var out []string
	for _, s := range o.states {
		var late []string
		for _, n := range s.Nodes {
			if n.Fabric != digest {
				late = append(late, n.Name)
			}
		}
		if len(late) > 0 {
			out = append(out, fmt.Sprintf("%s: %s not at the published fabric %s yet", s.Cluster, strings.Join(late, ", "), digest))
		}
	}
	return out
}
