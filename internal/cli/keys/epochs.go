package keys

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"hawser.dev/hawser/internal/cli"
	"hawser.dev/hawser/internal/cli/agentquery"
	"hawser.dev/hawser/nodeagent/status"
	"hawser.dev/hawser/schema/fabric"
)

// rotation is the state of a key rotation as the gateways report it.
type rotation struct {
	Links      []epochLink `json:"links"`             // twice if both ends report it
	Old        int         `json:"old"`               // the oldest current epoch of any gateway
	New        int         `json:"new"`               // the newest epoch
	OnOldEpoch int         `json:"onOldEpoch"`        // links of which an end does not use New
	Waiting    []string    `json:"waiting,omitempty"` // gateways without New, and unreachable agents
	Next       string      `json:"next"`              // next step
}

// epochLink is a link as one of its ends reports it.
type epochLink struct {
	Gateway string `json:"gateway"` // CLUSTER/GATEWAY
	Remote  string `json:"remote"`
	Driver  string `json:"driver"`
	Epoch   int    `json:"epoch"` // 0 = the driver has no keys
	Reason  string `json:"reason,omitempty"`
}

func newKeysEpochsCommand(env *cli.Env) *cobra.Command {
	var f agentquery.Targets
	cmd := &cobra.Command{
		Use:   "epochs",
		Short: "Show the key epoch of each link, and the next step",
		Long: `Show the key epoch of each link, and the next step of a rotation.

A rotation takes two commits. keys: {epochs: [1, 2]} adds new keys; each link changes to
them as soon as both ends have them. keys: {epochs: [2]} drops the old keys. This command
reports when the second commit is safe. It queries agents as hawser show does.`,
		Example: `  hawser keys epochs --cluster fra,sin`,
		Args:    cobra.NoArgs,
		RunE:    func(cmd *cobra.Command, _ []string) error { return showEpochs(cmd.Context(), env, f) },
	}
	flags := cmd.Flags()
	cli.OutputFlag(cmd, false, &f.Output, "text", "json", "yaml")
	flags.StringArrayVar(&f.Sockets, "socket", nil, "unix socket of an agent, or a glob pattern; may be repeated")
	flags.StringVar(&f.Lab, "lab", "", "directory of the lab to query")
	f.Add(cmd, true)
	return cmd
}

func showEpochs(ctx context.Context, env *cli.Env, f agentquery.Targets) error {
	agents, silent, err := agentquery.QueryStatus(ctx, env, f)
	if err != nil {
		return err
	}
	if len(agents) == 0 {
		return errors.New("no agent answered (see hawser-agent status on the node)")
	}
	r := rotationOf(agents, silent)
	if f.Output != "text" {
		return env.Encode(f.Output, r)
	}
	_, err = env.Out.Write([]byte(r.String()))
	return err
}

func rotationOf(agents []status.Status, silent []status.Unreachable) rotation {
	var r rotation
	for _, s := range agents {
		for _, epoch := range s.Epochs {
			r.New, r.Old = max(r.New, epoch), min(cmp.Or(r.Old, epoch), epoch)
		}
	}
	all, old := map[[2]string]bool{}, map[[2]string]bool{}
	for _, s := range agents {
		name := s.Cluster + "/" + s.Gateway
		if s.Gateway != "" && !slices.Contains(s.Epochs, r.New) {
			r.Waiting = append(r.Waiting, fmt.Sprintf("%s does not have epoch %d yet", name, r.New))
		}
		for _, c := range s.Connections {
			l := epochLink{Gateway: name, Remote: c.RemoteCluster + "/" + c.RemoteGateway, Driver: c.Driver, Epoch: c.Epoch}
			if c.Migration != nil {
				l.Reason = "changes to " + c.Migration.To + ": " + c.Migration.Reason
			}
			pair := fabric.SortedPair(l.Gateway, l.Remote)
			all[pair] = true
			if c.Epoch != 0 && c.Epoch != r.New {
				old[pair] = true
			}
			r.Links = append(r.Links, l)
		}
	}
	for _, u := range silent {
		r.Waiting = append(r.Waiting, fmt.Sprintf("the agent at %s does not answer: %s", u.Agent, u.Error))
	}
	r.OnOldEpoch = len(old)
	r.Next = r.next(len(all))
	return r
}

// next returns the next step. links is the number of links. Unreachable agents may still use the old epoch.
func (r *rotation) next(links int) string {
	switch {
	case r.New == 0:
		return "no gateway has keys"
	case r.OnOldEpoch > 0:
		return fmt.Sprintf("%d of %d links without epoch %d: wait", r.OnOldEpoch, links, r.New)
	case len(r.Waiting) > 0:
		return fmt.Sprintf("some gateways may not have epoch %d yet: wait", r.New)
	case r.Old != r.New:
		return fmt.Sprintf("epoch %d is unused: set keys: {epochs: [%d]}", r.Old, r.New)
	}
	return fmt.Sprintf("every link that has keys uses epoch %d; to rotate write keys: {epochs: [%d, %d]}", r.New, r.New, r.New+1)
}

func (r *rotation) String() string {
	t := cli.Table{Title: "Links", Head: []string{"GATEWAY", "REMOTE GATEWAY", "DRIVER", "EPOCH", "REASON"}}
	for _, l := range r.Links {
		t.Rows = append(t.Rows, []string{l.Gateway, l.Remote, l.Driver, cli.Number(l.Epoch), l.Reason})
	}
	return strings.Join(append([]string{t.String()}, append(r.Waiting, r.Next)...), "\n") + "\n"
}
