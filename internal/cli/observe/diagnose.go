package observe

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"time"

	"github.com/spf13/cobra"

	"hawser.dev/hawser/internal/cli"
	"hawser.dev/hawser/internal/cli/agentquery"
	"hawser.dev/hawser/internal/cli/topofile"
	"hawser.dev/hawser/view/packettrace"
	"hawser.dev/hawser/view/ui"
)

type diagnoseFlags struct {
	agentquery.Targets
	long      time.Duration
	addresses []string
	exports   []string
	verify    bool
}

func NewDiagnoseCommand(env *cli.Env) *cobra.Command {
	var f diagnoseFlags
	cmd := &cobra.Command{
		Use:   "diagnose",
		Short: "Trace packets through all clusters",
		Long: `Trace packets on all nodes at once (at most 40 per second and node) and show where each
connection ends: at a rule on a node, between two nodes, or at a server that does not
answer. Make the failing request while the command runs. With --verify the command makes
it itself: it tests all exports, or only --export, as hawser verify does, from nodes and
from pods.

Each connection has one of these results:
- arrived, answered: it reached the server or the node; a reply came back
- dropped: a node dropped it, at a rule of Hawser or of other software
- lost: the next node did not receive it, as behind a firewall
- looped: a node received it twice
- asymmetric: the reply did not pass the node that translated the request
- unanswered: it reached the server, and no TCP reply came back
- unclear: the next node did not answer, or does not follow all packets

With -o html it writes the page of hawser ui with the traces embedded: one swimlane for
each node, with the rule where packets ended in red. The file makes no request.

Without flags it queries the agents of the running lab, or the agent of this host. With
--context or --cluster it queries agents in their pods (this needs the right to exec
there), and names the NetworkPolicies that select the pods where packets ended, if the
user may list pods and policies. If there is much traffic, select it with --export or
--address. Client ports are not shown.

Exit codes: 0 all followed packets arrived, 1 some did not, 2 unknown: no packet
was seen, or the command failed.`,
		Example: `  hawser diagnose --cluster fra,sin --export shop/web
  hawser diagnose --cluster fra,sin --export shop/web --verify
  hawser diagnose --address 10.7.2.5
  hawser diagnose --export shop/web -o html`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return runDiagnose(cmd.Context(), env, f) },
	}
	flags := cmd.Flags()
	cli.OutputFlag(cmd, false, &f.Output, "text", "html\ta page with the paths as pictures", "json", "yaml")
	flags.DurationVar(&f.long, "for", 10*time.Second, "how long to look, from 2s to 5m")
	flags.StringSliceVar(&f.exports, "export", nil, "follow only packets from or to this export, NAMESPACE/NAME; may be repeated")
	cli.CompleteFlag(cmd, "export", cli.CompleteList(topofile.ExportNames))
	flags.StringSliceVar(&f.addresses, "address", nil, "follow only packets from or to this address or prefix, such as a client's; may be repeated")
	flags.BoolVar(&f.verify, "verify", false, "make the requests: test all exports, or only --export, as hawser verify does")
	f.AddFlags(cmd, false)
	return cmd
}

func runDiagnose(ctx context.Context, env *cli.Env, f diagnoseFlags) error {
	q := agentquery.NewRequest("diagnose", url.Values{"for": {f.long.String()}, "export": f.exports, "address": f.addresses}, f.long)
	q.OnStart = func() {
		_, _ = fmt.Fprintf(env.Err, "following packets of the clusterset for %s: make the request that does not work now\n", f.long)
	}
	var verify *pendingVerify
	if f.verify {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		q.OnStart = func() {
			_, _ = fmt.Fprintf(env.Err, "following packets of the clusterset for %s, and testing the exports as hawser verify does\n", f.long)
			verify = startVerify(ctx, env, f)
		}
	}
	r, err := agentquery.TracePackets(ctx, f.Targets, q)
	if err != nil {
		return err
	}
	agentquery.WarnUnreachable(env, r.Unreachable)
	if len(r.Nodes) == 0 {
		return errors.New("no agent answered (see hawser-agent diagnose on the node)")
	}
	switch f.Output {
	case "text":
		_, err = env.Out.Write([]byte(r.Text()))
	case "html":
		err = writeDiagnosisPage(env, r)
	default:
		err = env.Encode(f.Output, r)
	}
	switch {
	case err != nil:
		return err
	case verify != nil:
		if err := verify.wait(env); err != nil {
			return err
		}
	}
	switch {
	case r.Failed():
		return cli.ExitError{}
	case r.Packets() == 0:
		return errors.New("no packet was seen, so nothing is known: make the request meanwhile, or use --verify")
	}
	return nil
}

// pendingVerify is a concurrent run of hawser verify.
type pendingVerify struct {
	done   chan struct{}
	result verification
	err    error
}

// startVerify tests the exports like hawser verify.
func startVerify(ctx context.Context, env *cli.Env, f diagnoseFlags) *pendingVerify {
	v := &pendingVerify{done: make(chan struct{})}
	go func() {
		defer close(v.done)
		v.result, v.err = verifyFlags{Targets: f.Targets, timeout: verifyTimeout, exports: f.exports}.verify(ctx, env)
	}()
	return v
}

// wait prints the failed requests and returns an error if the test could not run.
func (v *pendingVerify) wait(env *cli.Env) error {
	<-v.done
	if v.err != nil {
		return fmt.Errorf("--verify: %w", v.err)
	}
	_, err := env.Err.Write([]byte(v.result.text()))
	return err
}

// writeDiagnosisPage writes a page that has only traces.
func writeDiagnosisPage(env *cli.Env, r *packettrace.Report) error {
	html, err := ui.NewSnapshot(ui.Input{Traces: r, Version: env.Version, At: time.Now(), Reports: ui.Reports{Unreachable: r.Unreachable},
		HiddenViews: []string{"map", "matrix", "findings", "change", "node", "explain", "follow"}}).HTML()
	if err == nil {
		_, err = env.Out.Write(html)
	}
	return err
}
