package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"hawser.dev/hawser/internal/trip"
	"hawser.dev/hawser/nodeagent/status"
	"hawser.dev/hawser/reconciler/apply"
)

type diagnoseFlags struct {
	showFlags
	long      time.Duration
	addresses []string
	exports   []string
}

// diagnosis is the JSON form of `hawser diagnose`.
type diagnosis struct {
	Trips       []trip.Trip        `json:"trips"`
	Nodes       []status.Diagnosis `json:"nodes"`
	Unreachable []unreachable      `json:"unreachable,omitempty"`
}

func newDiagnoseCommand(a *app) *cobra.Command {
	var f diagnoseFlags
	cmd := &cobra.Command{
		Use:   "diagnose",
		Short: "Follow packets from cluster to cluster and tell where they end",
		Long: `Follows some packets of the clusterset for a time on all nodes at once, at most forty a
second on each, joins what the nodes saw into the way of each connection from client
to server and back, and tells where it ends: at which rule of whom on which node,
between two nodes, or at a server that does not answer. Make the request that does not
work meanwhile. It is what hawser-agent diagnose does on one node.

Without flags it asks the agents of the running lab, or the agent of this host. With
--context or --cluster it asks those of Kubernetes clusters, in their pods (this needs
the right to exec there). Where there is much traffic, --export or --address leaves
out what else there is.

Exit codes: 0 everything that was followed got there, 1 something did not, 2 error.`,
		Example: `  hawser diagnose --cluster g1,g2 --export shop/web
  hawser diagnose --context g1=admin@berlin,g2 --address 10.7.2.5 --for 30s`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return a.diagnose(cmd.Context(), f) },
	}
	flags := cmd.Flags()
	outputFlag(cmd, false, &f.output, "text", "json", "yaml")
	flags.DurationVar(&f.long, "for", 10*time.Second, "how long to look, from 2s to 5m")
	flags.StringSliceVar(&f.exports, "export", nil, "follow only packets from or to this export, NAMESPACE/NAME; may be repeated")
	flags.StringSliceVar(&f.addresses, "address", nil, "follow only packets from or to this address or prefix, such as a client's; may be repeated")
	flags.StringArrayVar(&f.sockets, "socket", nil, "unix socket of an agent, or a pattern of several; may be repeated")
	flags.StringVar(&f.lab, "lab", "", "folder of a lab whose agents to ask")
	f.add(cmd, false)
	return cmd
}

func (a *app) diagnose(ctx context.Context, f diagnoseFlags) error {
	if err := checkOutput(f.output, "text", "json", "yaml"); err != nil {
		return err
	}
	ask, err := f.asker()
	if err != nil {
		return err
	}
	_, _ = fmt.Fprintf(a.err, "following packets of the clusterset for %s: make the request that does not work now\n", f.long)
	seen, silent := ask(ctx)
	for _, u := range silent {
		_, _ = fmt.Fprintf(a.err, "warning: the agent at %s does not answer: %s\n", u.Socket, u.Error)
	}
	if len(seen) == 0 {
		return errors.New("no agent answered (hawser-agent diagnose on the node tells more)")
	}
	slices.SortFunc(seen, func(a, b trip.Seen) int { return strings.Compare(a.Cluster+"/"+a.Node, b.Cluster+"/"+b.Node) })
	trips := trip.Join(seen, len(silent) == 0)
	if f.output == "text" {
		_, err = a.out.Write([]byte(tripText(trips, seen)))
	} else {
		d := diagnosis{Trips: trips, Unreachable: silent}
		for _, s := range seen {
			d.Nodes = append(d.Nodes, s.Diagnosis)
		}
		err = a.encode(f.output, d)
	}
	if err == nil && slices.ContainsFunc(trips, func(t trip.Trip) bool { return t.Outcome != trip.Arrived && t.Outcome != trip.Unclear }) {
		return answer{}
	}
	return err
}

// asker gives what asks the agents that the flags name: in clusters' pods, or at sockets.
func (f diagnoseFlags) asker() (func(context.Context) ([]trip.Seen, []unreachable), error) {
	if len(f.access.Contexts)+len(f.clusters) == 0 {
		sockets, err := agentSockets(f.sockets, f.lab)
		return func(ctx context.Context) ([]trip.Seen, []unreachable) { return f.atSockets(ctx, sockets) }, err
	}
	clusters, err := f.chosen()
	return func(ctx context.Context) ([]trip.Seen, []unreachable) { return f.inPods(ctx, clusters) }, err
}

// gathered is what agents answered so far.
type gathered struct {
	mu     sync.Mutex
	seen   []trip.Seen
	silent []unreachable
}

func (g *gathered) add(who string, d status.Diagnosis, at time.Time, err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if err == nil && d.Node == "" {
		err = errors.New("its answer lacks the ways of packets: the agent is older than this hawser")
	}
	if err != nil {
		g.silent = append(g.silent, unreachable{Socket: who, Error: apply.Reason(err)})
		return
	}
	g.seen = append(g.seen, trip.Seen{Diagnosis: d, Begun: at.Add(-time.Duration(d.Seconds * float64(time.Second)))})
}

func (g *gathered) all() ([]trip.Seen, []unreachable) {
	slices.SortFunc(g.silent, func(a, b unreachable) int { return strings.Compare(a.Socket, b.Socket) })
	return g.seen, g.silent
}

func (f diagnoseFlags) atSockets(ctx context.Context, sockets []string) ([]trip.Seen, []unreachable) {
	ctx, cancel := context.WithTimeout(ctx, f.long+2*agentTimeout)
	defer cancel()
	query := url.Values{"for": {f.long.String()}, "export": f.exports, "address": f.addresses}
	var answers gathered
	var group sync.WaitGroup
	for _, socket := range sockets {
		group.Go(func() {
			var d status.Diagnosis
			err := fetch(ctx, socket, "/diagnose?"+query.Encode(), &d)
			answers.add(socket, d, time.Now(), err)
		})
	}
	group.Wait()
	return answers.all()
}

func (f diagnoseFlags) inPods(ctx context.Context, clusters []*apply.Cluster) ([]trip.Seen, []unreachable) {
	args := []string{"diagnose", "-o", "json", "--for", f.long.String()}
	for _, e := range f.exports {
		args = append(args, "--export", e)
	}
	for _, p := range f.addresses {
		args = append(args, "--address", p)
	}
	var answers gathered
	apply.Each(clusters, func(_ int, c *apply.Cluster) {
		pods, err := c.Ask(ctx, apply.Question{Args: args, Takes: f.long})
		if err != nil {
			answers.add(c.Name, status.Diagnosis{}, time.Time{}, err)
		}
		for _, pod := range pods {
			var d status.Diagnosis
			if pod.Err == nil {
				pod.Err = json.Unmarshal(pod.Text, &d)
			}
			answers.add(c.Name+"/"+pod.Pod, d, pod.At, pod.Err)
		}
	})
	return answers.all()
}
