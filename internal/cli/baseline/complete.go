package baseline

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"hawser.dev/hawser/internal/cli/topofile"
	"hawser.dev/hawser/reconciler/gitrepo"
)

// completionTimeout limits how long completion waits for the remote repository.
const completionTimeout = 2 * time.Second

// BranchNames returns the branches of the repository that --repo selects, or of the repository
// with the topology.
func BranchNames(cmd *cobra.Command, args []string, _ string) []string {
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

// references returns the branches of a repository, including remote-tracking branches.
func references(cmd *cobra.Command, args []string) (*gitrepo.Store, []string) {
	file, address := topofile.CompletionPath(cmd, args), ""
	if f := cmd.Flag("file"); f != nil && f.Value.String() == "." {
		file = ""
	}
	for _, name := range []string{"repo", "publish-repo"} {
		if f := cmd.Flag(name); f != nil && f.Value.String() != "" {
			address = f.Value.String()
		}
	}
	s, err := gitrepo.Open(RepoOf(address, file))
	if err != nil {
		return nil, nil
	}
	ctx, cancel := context.WithTimeout(cmd.Context(), completionTimeout)
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

// CompleteRefOrDir completes a branch or a directory for a comparison.
func CompleteRefOrDir(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	_, out := references(cmd, args)
	return append(out, None+"\tcompare with nothing"), cobra.ShellCompDirectiveDefault
}

// PublishedCommits returns the commits that hawser rollback accepts, with their time and subject.
func PublishedCommits(cmd *cobra.Command, args []string, _ string) []string {
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
	const maxCommits = 20
	for at := head.Commit; !at.IsZero() && len(out) < maxCommits; {
		p, err := OriginOf(s, at)
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
