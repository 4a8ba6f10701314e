package observe

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"hawser.dev/hawser/internal/cli"
	"hawser.dev/hawser/internal/cli/agentquery"
	"hawser.dev/hawser/internal/cli/topofile"
	"hawser.dev/hawser/internal/humanize"
	"hawser.dev/hawser/nodeagent/status"
)

// verifyPatience is how long a lookup or a connection may take where nobody says.
const verifyPatience = 3 * time.Second

type verifyFlags struct {
	agentquery.Targets
	timeout time.Duration
	exports []string
}

// verification is the JSON form of `hawser verify`.
type verification struct {
	Nodes       []status.Verification `json:"nodes"`
	Unreachable []status.Unreachable  `json:"unreachable,omitempty"`
}

func NewVerifyCommand(env *cli.Env) *cobra.Command {
	var f verifyFlags
	cmd := &cobra.Command{
		Use:   "verify",
		Short: "Test every export from every node",
		Long: `Has every agent look up the names of all exports that its cluster may reach, that of
each service and that of each cluster's part of it, and open a TCP connection to each
address, as a process of its node would. Nothing is deployed and nothing is sent;
servers see connections that close at once.

Without flags it asks the agents of the running lab, or the agent of this host. With
--context or --cluster it asks those of Kubernetes clusters, in their pods (this needs
the right to exec there).

Exit codes: 0 everything answered, 1 something did not, 2 error.`,
		Example: `  hawser verify
  hawser verify --cluster fra,sin
  hawser verify --cluster fra --export shop/web --timeout 1s`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return runVerify(cmd.Context(), env, f) },
	}
	flags := cmd.Flags()
	cli.OutputFlag(cmd, false, &f.Output, "text", "json", "yaml")
	flags.DurationVar(&f.timeout, "timeout", verifyPatience, "how long a lookup or a connection may take, from 100ms to 30s")
	flags.StringSliceVar(&f.exports, "export", nil, "only this export, NAMESPACE/NAME; may be repeated")
	cli.CompleteFlag(cmd, "export", cli.CompleteList(topofile.ExportNames))
	f.AddFlags(cmd, false)
	return cmd
}

func runVerify(ctx context.Context, env *cli.Env, f verifyFlags) error {
	nodes, silent, err := verifications(ctx, env, f)
	if err != nil {
		return err
	}
	v := verification{Nodes: nodes, Unreachable: silent}
	text, failed := verifiedText(v.Nodes)
	if f.Output == "text" {
		_, err = env.Out.Write([]byte(text))
	} else {
		err = env.Encode(f.Output, v)
	}
	if err == nil && (failed || len(silent) > 0) {
		return cli.ExitError{}
	}
	return err
}

// verifiedText gives the text form of `hawser verify`, and whether something failed. What
// fails or is skipped in the same way on several nodes is reported once.
func verifiedText(nodes []status.Verification) (text string, failed bool) {
	var out strings.Builder
	var order []string
	where := map[string][]string{}
	tell := func(what, node string) {
		if where[what] == nil {
			order = append(order, what)
		}
		where[what] = append(where[what], node)
	}
	exports := map[string]bool{}
	for _, n := range nodes {
		reached, all := 0, 0
		for _, r := range n.Results {
			what := fmt.Sprintf("%s (%s)", r.Name, r.Export)
			switch {
			case r.Skipped != "":
				tell(what+": not tried: "+r.Skipped, n.Cluster+"/"+n.Node)
				continue
			case r.Error != "":
				tell(what+": "+r.Error, n.Cluster+"/"+n.Node)
				failed, exports[r.Export] = true, true
			default:
				reached++
			}
			all++
		}
		_, _ = fmt.Fprintf(&out, "%s/%s: %d of %s answered\n", n.Cluster, n.Node, reached, humanize.Plural(all, "name"))
	}
	for _, what := range order {
		_, _ = fmt.Fprintf(&out, "\n%s\n  from %s\n", what, strings.Join(where[what], ", "))
	}
	if failed {
		var flags []string
		for e := range exports {
			flags = append(flags, "--export "+e)
		}
		slices.Sort(flags)
		_, _ = fmt.Fprintf(&out, "\nto do: run hawser diagnose %s, and meanwhile hawser verify again: it shows where the packets end\n", strings.Join(flags, " "))
	}
	return out.String(), failed
}
