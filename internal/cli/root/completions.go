package root

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"hawser.dev/hawser/install/apply"
	"hawser.dev/hawser/internal/cli"
	"hawser.dev/hawser/internal/cli/baseline"
	"hawser.dev/hawser/internal/cli/topofile"
	"hawser.dev/hawser/kubeclient"
	"hawser.dev/hawser/reconciler"
	"hawser.dev/hawser/reconciler/gitrepo"
	"hawser.dev/hawser/schema"
	"hawser.dev/hawser/schema/load"
)

// completionPatience is how long a remote repository may take to say which branches it
// has while somebody waits for the shell.
const completionPatience = 2 * time.Second

// valueCompletions say what a shell offers for a flag, by its name, or by the names of a
// command and the flag where a command differs. A flag that is not here takes a file.
func valueCompletions() map[string]cobra.CompletionFunc {
	out := map[string]cobra.CompletionFunc{
		"color":      cobra.FixedCompletions([]string{"auto", "always", "never"}, cobra.ShellCompDirectiveNoFileComp),
		"log-format": cobra.FixedCompletions([]string{"text", "json"}, cobra.ShellCompDirectiveNoFileComp),

		"cluster":              cli.CompleteList(clusterNames),
		"keys signers cluster": cli.Complete(clusterNames),
		"export":               cli.CompleteList(exportNames),
		"gateway":              cli.CompleteList(gatewayNames),
		"context":              cli.CompleteList(clusterContexts),
		"discover context":     cli.CompleteList(contextNames),
		"init context":         cli.CompleteList(contextNames),
		"join context":         cli.CompleteList(contextNames),

		"against":        refsOrFolder,
		"diff":           refsOrFolder,
		"focus":          cli.Complete(clusterNames),
		"branch":         cli.Complete(branchNames),
		"ref":            cli.Complete(branchNames),
		"publish-branch": cli.Complete(branchNames),

		"file": topologyFiles,
	}
	for _, name := range []string{"repo", "publish-repo", "tree", "out", "with-keys", "cache", "lab", "dir", "workloads", "fabric", "state"} {
		out[name] = cli.Folders
	}
	out["gather out"] = cobra.FixedCompletions(nil, cobra.ShellCompDirectiveDefault)
	out["signers"] = cobra.FixedCompletions(nil, cobra.ShellCompDirectiveDefault)
	// Nothing can be offered for these, and files least of all.
	for _, name := range []string{
		"accept-commit", "address", "author-email", "author-name", "clusters", "drop-before", "follow", "for", "from", "git-username", "host", "ignore", "image",
		"interval", "listen", "move", "name", "number", "path", "port", "recipient", "since", "streams", "timeout", "workers",
	} {
		out[name] = cobra.NoFileCompletions
	}
	return out
}

// addCompletions lets shells complete the values of flags and the arguments of all
// commands that do not say themselves what they take.
func addCompletions(root *cobra.Command) {
	values := valueCompletions()
	arguments := map[string]cobra.CompletionFunc{
		"init":          cli.FirstArgument(cli.Folders),
		"uninstall":     installed,
		"leave":         cli.FirstArgument(cli.Complete(clusterNames)),
		"rollback":      cli.FirstArgument(cli.Complete(publishedCommits)),
		"explain":       fromAndTo,
		"benchmark":     twoClusters,
		"keys root":     cli.FirstArgument(nil),
		"keys identity": cli.FirstArgument(nil),
	}
	var walk func(cmd *cobra.Command)
	walk = func(cmd *cobra.Command) {
		path := strings.TrimPrefix(cmd.CommandPath(), "hawser ")
		flag := func(f *pflag.Flag) {
			complete := values[path+" "+f.Name]
			if complete == nil {
				complete = values[f.Name]
			}
			if _, has := cmd.GetFlagCompletionFunc(f.Name); !has && complete != nil {
				_ = cmd.RegisterFlagCompletionFunc(f.Name, complete) // the flag exists, and has none
			}
		}
		cmd.Flags().VisitAll(flag)
		cmd.PersistentFlags().VisitAll(flag)
		switch {
		case cmd.ValidArgsFunction != nil || cmd.DisableFlagParsing:
		case arguments[path] != nil:
			cmd.ValidArgsFunction = arguments[path]
		case strings.Contains(cmd.Use, "[FILE|DIR"):
			cmd.ValidArgsFunction = cli.FirstArgument(topologyFiles)
		default:
			cmd.ValidArgsFunction = cobra.NoFileCompletions
		}
		for _, below := range cmd.Commands() {
			walk(below)
		}
	}
	walk(root)
}

// twoClusters completes two different clusters.
func twoClusters(cmd *cobra.Command, args []string, word string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 1 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	left := slices.DeleteFunc(clusterNames(cmd, nil, word), func(name string) bool { return slices.Contains(args, name) })
	return left, cobra.ShellCompDirectiveNoFileComp
}

func topologyFiles(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
	return []string{"yaml", "yml"}, cobra.ShellCompDirectiveFilterFileExt
}

// topologyFor gives the path of the topology that a command line names, or the one here.
// It is empty for stdin, which is not the shell's to read.
func topologyFor(cmd *cobra.Command, args []string) string {
	file := ""
	if f := cmd.Flag("file"); f != nil {
		file = f.Value.String()
	}
	if len(args) > 0 && strings.Contains(cmd.Use, "[FILE|DIR") {
		file = args[0]
	}
	switch file {
	case "-":
		return ""
	case "":
		return reconciler.TopologyFile
	}
	return file
}

// topologySet reads the topology that a command line names, as far as it can be read:
// whoever types a command may be in the middle of an edit.
func topologySet(cmd *cobra.Command, args []string) *schema.ClusterSet {
	t, err := topofile.Open(topologyFor(cmd, args))
	if err != nil {
		return &schema.ClusterSet{}
	}
	set, _, _ := load.Decode(t.Path, t.Raw)
	return set
}

// clusterNames gives the clusters of the topology or of --tree; without either, those that
// contexts are named like.
func clusterNames(cmd *cobra.Command, args []string, word string) []string {
	if f := cmd.Flag("tree"); f != nil && f.Value.String() != "" {
		dir, err := topofile.ReadRendered(f.Value.String())
		if err != nil {
			return nil
		}
		return apply.Clusters(dir.Tree)
	}
	out := topologySet(cmd, args).ClusterNames()
	if len(out) == 0 && cmd.Flag("context") != nil {
		return contextNames(cmd, args, word)
	}
	return out
}

func exportNames(cmd *cobra.Command, args []string, _ string) []string {
	var out []string
	for _, e := range topologySet(cmd, args).Spec.Exports {
		if !slices.Contains(out, e.ID()) {
			out = append(out, e.ID())
		}
	}
	return out
}

func gatewayNames(cmd *cobra.Command, args []string, _ string) []string {
	var out []string
	for _, c := range topologySet(cmd, args).Spec.Clusters {
		for _, g := range c.AllGateways() {
			out = append(out, c.Name+"/"+g.Name)
		}
	}
	return out
}

// contextNames gives the contexts of the kubeconfig, behind NAME= too.
func contextNames(cmd *cobra.Command, _ []string, word string) []string {
	var access kubeclient.Kubeconfig
	access.Kubeconfigs, _ = cmd.Flags().GetStringArray("kubeconfig") // whoever has no such flag has the default
	known, err := access.Known()
	if err != nil {
		return nil
	}
	cluster, _, named := strings.Cut(word, "=")
	if !named {
		return known
	}
	for i := range known {
		known[i] = cluster + "=" + known[i]
	}
	return known
}

// clusterContexts gives clusters with =, and behind it the contexts.
func clusterContexts(cmd *cobra.Command, args []string, word string) []string {
	if strings.Contains(word, "=") {
		return contextNames(cmd, args, word)
	}
	out := clusterNames(cmd, args, word)
	for i := range out {
		out[i] += "="
	}
	return out
}

// branchNames gives the branches of the repository that a command line names, or of the
// one that holds the topology.
func branchNames(cmd *cobra.Command, args []string, _ string) []string {
	s, all := references(cmd, args)
	if s == nil {
		return nil
	}
	remotes, err := s.Remotes()
	if err != nil {
		return nil
	}
	return slices.DeleteFunc(all, func(name string) bool {
		return slices.ContainsFunc(remotes, func(r gitrepo.Remote) bool { return strings.HasPrefix(name, r.Name+"/") })
	})
}

// references gives the branches of a repository, with those that it knows of remotes.
func references(cmd *cobra.Command, args []string) (*gitrepo.Store, []string) {
	file, address := topologyFor(cmd, args), ""
	if f := cmd.Flag("file"); f != nil && f.Value.String() == "." {
		file = ""
	}
	for _, name := range []string{"repo", "publish-repo"} {
		if f := cmd.Flag(name); f != nil && f.Value.String() != "" {
			address = f.Value.String()
		}
	}
	s, err := gitrepo.Open(baseline.RepoOf(address, file))
	if err != nil {
		return nil, nil
	}
	ctx, cancel := context.WithTimeout(cmd.Context(), completionPatience)
	defer cancel()
	if err := s.Fetch(ctx); err != nil {
		return nil, nil
	}
	out, err := s.Names()
	if err != nil {
		return nil, nil
	}
	return s, out
}

// refsOrFolder completes what diff compares with: a branch, or a folder.
func refsOrFolder(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	_, out := references(cmd, args)
	return append(out, baseline.None+"\tcompare with nothing"), cobra.ShellCompDirectiveDefault
}

// publishedCommits gives what can be brought back, with when it was published and what for.
func publishedCommits(cmd *cobra.Command, args []string, _ string) []string {
	s, _ := references(cmd, args)
	if s == nil {
		return nil
	}
	branch, _ := cmd.Flags().GetString("branch")
	head, err := s.Resolve(branch)
	if err != nil {
		return nil
	}
	var out []string
	const most = 20
	for at := head.Commit; !at.IsZero() && len(out) < most; {
		p, err := baseline.PublicationOf(s, at)
		if err != nil {
			break
		}
		out = append(out, fmt.Sprintf("%.12s\t%s %s", p.Commit, p.Time, p.Subject))
		if _, _, at, err = s.Signature(at); err != nil {
			break
		}
	}
	return out
}

// installed completes clusters to take Hawser out of: the topology need not have them any
// more.
func installed(cmd *cobra.Command, args []string, word string) ([]string, cobra.ShellCompDirective) {
	var out []string
	for _, name := range append(clusterNames(cmd, nil, word), contextNames(cmd, nil, "")...) {
		if !slices.Contains(out, name) && !slices.Contains(args, name) {
			out = append(out, name)
		}
	}
	return out, cobra.ShellCompDirectiveNoFileComp
}

// fromAndTo completes who asks, a cluster, and what for, an export's name.
func fromAndTo(cmd *cobra.Command, args []string, word string) ([]string, cobra.ShellCompDirective) {
	switch len(args) {
	case 0:
		return clusterNames(cmd, nil, word), cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveNoSpace
	case 1:
		var out []string
		for _, id := range exportNames(cmd, nil, word) {
			namespace, name, _ := strings.Cut(id, "/")
			out = append(out, name+"."+namespace)
		}
		return out, cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveNoSpace
	}
	return nil, cobra.ShellCompDirectiveNoFileComp
}
