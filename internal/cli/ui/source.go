package ui

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"hawser.dev/hawser/access"
	"hawser.dev/hawser/health"
	"hawser.dev/hawser/internal/cli"
	"hawser.dev/hawser/internal/cli/agentquery"
	"hawser.dev/hawser/internal/cli/baseline"
	"hawser.dev/hawser/internal/cli/explainview"
	"hawser.dev/hawser/internal/cli/pagedata"
	"hawser.dev/hawser/internal/cli/topofile"
	"hawser.dev/hawser/internal/diag"
	"hawser.dev/hawser/internal/svg"
	"hawser.dev/hawser/nodeagent/status"
	"hawser.dev/hawser/reconciler"
	"hawser.dev/hawser/reconciler/gitrepo"
	"hawser.dev/hawser/render"
	"hawser.dev/hawser/render/plan"
	"hawser.dev/hawser/schema/fabric"
	"hawser.dev/hawser/schema/load"
	"hawser.dev/hawser/view/packettrace"
	"hawser.dev/hawser/view/swimlane"
	"hawser.dev/hawser/view/ui"
)

// uiSource is the data source of the page. It has the same sources as the other commands.
type uiSource struct {
	env   *cli.Env
	flags uiFlags
	args  []string // arguments that select the topology
	live  bool     // whether to query agents

	poller agentquery.Poller

	mu          sync.Mutex
	stamp       string    // stamp of the read files
	describedAt time.Time // time of the last description of the sources
	compiled    topofile.Compiled
	read        *ui.Clusterset
	readErr     error

	fetching sync.Mutex
	branch   *publishedBranch

	historyMu sync.Mutex // separate, because other data of the page must not wait for git
	historyOf string     // head of the branch and its verifiers at the last read
	history   []baseline.Publication

	planMu sync.Mutex // one comparison at a time: each reads two trees
	plans  []planned  // newest last
}

// planned is a cached plan with its inputs.
type planned struct {
	of   string
	plan *plan.Plan
}

// maxPlans is the number of cached plans. A plan for a thousand clusters has 1 MB.
const maxPlans = 16

// Clusterset returns the topology. It reads topology and lock again if a file changed.
func (s *uiSource) Clusterset(ctx context.Context) (*ui.Clusterset, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.clusterset(ctx)
}

// clusterset implements Clusterset. The caller holds the lock.
func (s *uiSource) clusterset(ctx context.Context) (*ui.Clusterset, error) {
	file := reconciler.TopologyFile
	if len(s.args) > 0 {
		file = s.args[0]
	}
	if info, err := os.Stat(file); err == nil && info.IsDir() {
		file = filepath.Join(file, reconciler.TopologyFile)
	}
	stamp := stampOf(file) + stampOf(filepath.Join(filepath.Dir(file), reconciler.LockFile))
	if stamp == s.stamp && (s.read != nil || s.readErr != nil) {
		if s.read != nil && time.Since(s.describedAt) > describeInterval { // a new commit may leave the files unchanged
			s.describedAt = time.Now()
			go s.updateSources(ctx, file)
		}
		return s.read, s.readErr
	}
	s.stamp, s.describedAt = stamp, time.Now()
	c, warnings, err := s.compile(file)
	if s.readErr = err; err == nil {
		s.compiled = c
		s.read = &ui.Clusterset{Fabric: c.Fabric, PositionOf: c.PositionOf, File: file, Sources: s.describe(ctx, file), Findings: pagedata.Findings(warnings)}
	}
	return s.read, s.readErr
}

// fetchTimeout bounds the description of the sources, which may read a remote repository.
const fetchTimeout = 30 * time.Second

// describeInterval is the time between two checks for a new commit of unchanged files.
const describeInterval = 5 * time.Second

// updateSources describes the sources again. The page does not wait for it, because a remote
// repository may be slow.
func (s *uiSource) updateSources(ctx context.Context, file string) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), fetchTimeout) // the first request must not cancel it
	defer cancel()
	sources := s.describe(ctx, file)
	if ctx.Err() != nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.read != nil && s.read.File == file && !slices.Equal(sources, s.read.Sources) {
		read := *s.read
		read.Sources, s.read = sources, &read
	}
}

func (s *uiSource) describe(ctx context.Context, file string) []string {
	return pagedata.Describe(ctx, file, s.flags.repo, s.flags.branch)
}

// compile returns the compiled topology and its warnings. Errors are in the form that the page
// shows.
func (s *uiSource) compile(file string) (topofile.Compiled, diag.List, error) {
	t, err := topofile.Open(file)
	if err != nil {
		return topofile.Compiled{}, nil, err
	}
	set, source, list := load.Topology(t.Path, t.Raw)
	var c topofile.Compiled
	if !list.HasErrors() {
		c, err = topofile.CompileLoaded(s.env, t, set, source)
	} else {
		err = cli.FindingsError{List: list, Files: t.Texts()}
	}
	var findings cli.FindingsError
	if errors.As(err, &findings) && s.read != nil {
		first := findings.List[slices.IndexFunc(findings.List, cli.IsError)].Clipped()
		return c, nil, fmt.Errorf("%s: %s (shown is what the topology was before)", first.Pos, first.Summary)
	}
	return c, list, err
}

// stampOf returns a stamp that changes with the file; empty if the file does not exist.
func stampOf(file string) string {
	info, err := os.Stat(file)
	if err != nil {
		return ""
	}
	return fmt.Sprintf("%s %d %d;", file, info.Size(), info.ModTime().UnixNano())
}

// targets returns the agents to query. If the flags name only contexts, these are the agents of all
// clusters of the topology.
func (s *uiSource) targets() agentquery.Targets {
	f := s.flags.Targets
	if f.OfClusters() && len(f.Clusters) == 0 {
		if set, err := s.Clusterset(context.Background()); err == nil {
			for i := range set.Fabric.Clusters {
				f.Clusters = append(f.Clusters, set.Fabric.Clusters[i].Name)
			}
		}
	}
	return f
}

// Agents queries the agents. It waits for a silent agent for a second at most.
func (s *uiSource) Agents(ctx context.Context) (ui.Reports, error) {
	if !s.live {
		return ui.Reports{}, nil
	}
	got, err := s.poller.Poll(ctx)
	if err != nil {
		return ui.Reports{HasAgents: true}, err
	}
	out := ui.Reports{HasAgents: true, From: s.targets().Text(), Agents: got.Agents, Unreachable: got.Silent, Old: got.Old, Problems: health.Assess(got.States)}
	if set, _ := s.Clusterset(ctx); set != nil { // the page shows errors of the files
		out.Unreachable = append(out.Unreachable, missingGateways(set.Fabric, got)...)
	}
	return out, nil
}

// missingGateways returns the gateways without an agent, in the clusters whose pods are known.
func missingGateways(f *fabric.Fabric, got agentquery.PolledReports) []status.Unreachable {
	running := map[string]bool{} // running agents, by cluster/node and cluster:gateway
	for _, list := range [][]status.Status{got.Agents, got.Old} {
		for i := range list {
			running[list[i].Cluster+"/"+list[i].Node], running[list[i].Cluster+":"+list[i].Gateway] = true, true
		}
	}
	for _, u := range got.Silent {
		running[u.Cluster+"/"+u.Node] = true
	}
	var out []status.Unreachable
	for _, name := range got.Listed {
		c := f.Cluster(name)
		for i := 0; c != nil && i < len(c.Gateways); i++ {
			if g := &c.Gateways[i]; !running[name+"/"+g.Node] && !running[name+":"+g.Name] {
				out = append(out, status.Unreachable{Agent: name + "/" + cmp.Or(g.Node, g.Name), Cluster: name, Node: g.Node, Error: "no agent runs for gateway " + g.Name})
			}
		}
	}
	return out
}

// historyLength is the number of publications on the page. History reads one more, to compare with
// the oldest one.
const historyLength = 30

// fetchInterval is the time between two reads of a remote publish branch.
const fetchInterval = 10 * time.Second

// publishedBranch is the publish branch at the last read.
type publishedBranch struct {
	baseline.Published
	verify []baseline.Verifier
	clone  *gitrepo.Store // may have the commits of the topology
	readAt time.Time
}

// published returns the publish branch. It reads the remote again after fetchInterval.
func (s *uiSource) published(ctx context.Context) (*publishedBranch, error) {
	file := ""
	if s.flags.repo == "" {
		set, err := s.Clusterset(ctx)
		if set == nil {
			return nil, err
		}
		file = set.File
	}
	s.fetching.Lock()
	defer s.fetching.Unlock()
	if s.branch != nil && time.Since(s.branch.readAt) < fetchInterval {
		return s.branch, nil
	}
	out := &publishedBranch{readAt: time.Now()}
	var err error
	if out.verify, err = baseline.Verifiers(s.flags.signers, file, topofile.BuildFlags{}); err != nil {
		return nil, err
	}
	in := baseline.Options{File: file, Address: s.flags.repo, Branch: s.flags.branch, Flag: "--branch", History: true, Rendered: true}
	if out.Published, err = in.Load(ctx); err != nil {
		return nil, fmt.Errorf("read published branch: %w", err)
	}
	if out.Missing != "" {
		return nil, ui.UserError(out.Missing)
	}
	if out.clone, err = baseline.OpenRepo(ctx, baseline.RepoOf(s.flags.repo, file)); err != nil {
		return nil, err
	}
	s.branch = out
	return out, nil
}

// History returns the newest publications.
func (s *uiSource) History(ctx context.Context) (any, error) {
	p, err := s.published(ctx)
	if err != nil {
		return nil, err
	}
	list, err := s.publications(ctx, p)
	if err != nil {
		return nil, err
	}
	warnings := append([]string{}, p.Notes...)
	if len(p.verify) == 0 {
		warnings = append(warnings, baseline.NotVerifiedNote)
	} else if _, skipped, err := baseline.NewestVerified(p.Store, p.verify, p.Head); err != nil {
		warnings = append(warnings, fmt.Sprintf("WARNING: no commit of %s counts: %v", s.flags.branch, err))
	} else {
		warnings = append(warnings, baseline.SkippedLines(s.flags.branch, skipped)...)
	}
	return map[string]any{"branch": s.flags.branch, "listed": historyLength, "publications": list, "warnings": warnings}, nil
}

func (s *uiSource) publications(ctx context.Context, p *publishedBranch) ([]baseline.Publication, error) {
	s.historyMu.Lock()
	defer s.historyMu.Unlock()
	of := fmt.Sprint(p.Head, p.verify)
	if s.history != nil && s.historyOf == of {
		return s.history, nil
	}
	list, err := baseline.History(ctx, p.Store, p.Head, historyLength+1, p.verify, p.clone)
	if err != nil {
		return nil, err
	}
	s.historyOf, s.history = of, list
	return list, nil
}

// Plan compares two publications of the history. If from is empty, it compares with the newest
// publication; baseline.None is an empty tree. If to is empty, it compares with the topology on
// disk. The page cannot read other commits; hawser diff compares any two.
func (s *uiSource) Plan(ctx context.Context, from, to string) (any, error) {
	p, err := s.published(ctx)
	if err != nil {
		return nil, err
	}
	list, err := s.publications(ctx, p)
	if err != nil {
		return nil, err
	}
	newest, _, err := baseline.NewestVerified(p.Store, p.verify, p.Head)
	if err != nil {
		return nil, err
	}
	store, head := p.Store, newest.Commit
	for i, name := range []string{from, to} {
		known := name == "" || i == 0 && name == baseline.None || slices.ContainsFunc(list, func(p baseline.Publication) bool { return p.Commit == name })
		if !known {
			return nil, ui.UserError(fmt.Sprintf("%q is not among the last %d publications (hawser diff compares any two commits)", name, len(list)))
		}
	}
	s.planMu.Lock()
	defer s.planMu.Unlock()
	if err := ctx.Err(); err != nil {
		return nil, err // the client disconnected
	}
	if to == "" { // the files may have changed
		return s.compare(ctx, store, head, from, to)
	}
	of := strings.Join([]string{head.String(), from, to}, " ")
	if i := slices.IndexFunc(s.plans, func(p planned) bool { return p.of == of }); i >= 0 {
		return s.plans[i].plan, nil
	}
	result, err := s.compare(ctx, store, head, from, to)
	if err != nil {
		return nil, err
	}
	if s.plans = append(s.plans, planned{of, result}); len(s.plans) > maxPlans {
		s.plans = s.plans[1:]
	}
	return result, nil
}

// compare returns the plan from one publication to another, or to the topology.
func (s *uiSource) compare(ctx context.Context, store *gitrepo.Store, head gitrepo.Hash, from, to string) (*plan.Plan, error) {
	tree := func(name string) (render.Tree, error) {
		switch name {
		case "":
			return baseline.TreeOf(store, head)
		case baseline.None:
			return render.Tree{}, nil
		}
		at, err := store.Resolve(name)
		if err != nil {
			return nil, err
		}
		return store.Tree(at.Commit)
	}
	have, err := tree(from)
	if err != nil {
		return nil, err
	}
	if to != "" {
		want, err := tree(to)
		if err != nil {
			return nil, err
		}
		return plan.Compute(want, have)
	}
	set, err := s.Clusterset(ctx)
	if err != nil {
		return nil, err
	}
	t, err := topofile.Open(set.File)
	if err != nil {
		return nil, err
	}
	in, err := topofile.BuildInput(s.env, t, have, topofile.BuildFlags{})
	if err != nil {
		return nil, err
	}
	in.Preview = true
	built, list := reconciler.Build(in)
	if list.HasErrors() {
		first := list[slices.IndexFunc(list, cli.IsError)]
		return nil, fmt.Errorf("%s: %s", first.Pos, first.Summary)
	}
	result, err := plan.Compute(built.Tree, have)
	if err != nil {
		return nil, err
	}
	result.Locate(func(path string) string { return topofile.Compiled{Source: built.Source}.PositionOf(path) })
	return result, nil
}

// Explain implements hawser explain, with --live if the page queries agents.
func (s *uiSource) Explain(ctx context.Context, from, to string) (any, error) {
	s.mu.Lock()
	_, err := s.clusterset(ctx)
	c := s.compiled
	s.mu.Unlock()
	if c.Fabric == nil {
		return nil, err
	}
	answer, err := explainview.Explain(ctx, s.env, c, []string{from, to}, explainview.Flags{Targets: s.targets(), Live: s.live})
	if err != nil {
		return nil, ui.UserError(err.Error())
	}
	return explanation{answer, swimlane.Draw("", explainview.Swimlanes(answer, c.PositionOf))}, nil
}

// explanation is the answer of hawser explain with its drawing.
type explanation struct {
	*access.Answer
	Drawing *svg.Drawing `json:"drawing"`
}

// Diagnose traces packets like hawser diagnose.
func (s *uiSource) Diagnose(ctx context.Context, long time.Duration, addresses, exports []string) (*packettrace.Report, error) {
	if !s.live {
		return nil, ui.UserError("no agents are asked: start hawser ui with --live, --lab, --socket or --context")
	}
	return agentquery.TracePackets(ctx, s.targets(), agentquery.NewRequest("diagnose", url.Values{"for": {long.String()}, "export": exports, "address": addresses}, long))
}
