package observe

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"hawser.dev/hawser/health"
	"hawser.dev/hawser/internal/cli"
	"hawser.dev/hawser/internal/cli/agentquery"
	"hawser.dev/hawser/internal/diag"
	"hawser.dev/hawser/internal/humanize"
	"hawser.dev/hawser/internal/supportbundle"
	"hawser.dev/hawser/kubeclient"
	"hawser.dev/hawser/nodeagent/status"
	"hawser.dev/hawser/schema/fabric"
)

type gatherFlags struct {
	agentquery.Targets
	out   string
	since time.Duration
}

func NewGatherCommand(env *cli.Env) *cobra.Command {
	var f gatherFlags
	cmd := &cobra.Command{
		Use:   "gather",
		Short: "Collect a redacted support bundle",
		Long: `Write one .tar.gz with the state of agents, of their nodes' kernels and of the clusters'
APIs: status, plans, metrics, links, routes, nftables, WireGuard peers, logs, and Hawser's
objects. The command changes nothing, reads no Secret and includes no private key. The
file contains names, addresses and logs of your clusters.

By default it reads the agents of the running lab or of this host, else the clusters of
the topology in the current directory. --file, --context and --cluster select Kubernetes
clusters. This needs the rights to read Hawser's objects, to exec in the agents' pods and
to read their logs. summary.txt and errors.txt list missing data.

Exit codes: 0 complete; 2 the file is incomplete, or there is no file.`,
		Example: `  hawser gather
  hawser gather --cluster fra,sin
  hawser gather --context fra=admin@fra --since 2h --out fra.tar.gz`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return runGather(cmd.Context(), env, f) },
	}
	flags := cmd.Flags()
	flags.StringVar(&f.out, "out", "", "file to write, or - for stdout (default: hawser-gather-TIME.tar.gz here)")
	flags.DurationVar(&f.since, "since", 24*time.Hour, "maximum age of cluster logs; 0 = no limit")
	f.AddFlags(cmd, false)
	return cmd
}

// collector collects the gathered files.
type collector struct {
	*supportbundle.Bundle
	version string // version of hawser
	at      time.Time

	mu        sync.Mutex
	fileCount int // number of files from agents and APIs
	agents    []status.Status
	states    []health.State
	apis      []string // versions of the clusters' APIs
	notes     []string // further facts for the head of the summary
	// fabric comes from a cluster, topology comes from the lab.
	fabric   *fabric.Fabric
	topology string
}

func runGather(ctx context.Context, env *cli.Env, f gatherFlags) (err error) {
	at := time.Now().UTC()
	name := "hawser-gather-" + at.Format("20060102T150405Z")
	out := cmp.Or(f.out, name+".tar.gz")
	if f.since < 0 {
		return fmt.Errorf("--since %s: a time of the past is written without a sign, such as 1h", f.since)
	}
	if out != "-" {
		if err := supportbundle.CheckNew(out); err != nil {
			return err
		}
	}
	collect, what, err := f.sources()
	if err != nil {
		return err
	}
	b, err := supportbundle.New()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, b.Close()) }()
	g := &collector{Bundle: b, version: env.Version, at: at}
	done := env.Progress("gathering from " + what)
	collect(ctx, g)
	done()
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return finish(env, g, what, name, out)
}

// finish writes the bundle, and prints its summary and the missing data.
func finish(env *cli.Env, g *collector, what, name, out string) error {
	missing := g.Failures()
	for _, text := range missing {
		_, _ = fmt.Fprintf(env.Err, "warning: %s\n", text)
	}
	if g.fileCount == 0 {
		return errors.New("nothing could be gathered, so no file was written")
	}
	summary := g.summary(what, missing)
	g.Add(supportbundle.Summary, []byte(summary))
	if len(missing) > 0 {
		g.Add(supportbundle.Errors, []byte(strings.Join(missing, "\n")+"\n"))
	}
	if len(g.states) > 0 {
		g.Add("status.txt", []byte(statusText(g.states, health.Assess(g.states), true)))
	}
	if len(g.agents) > 0 {
		g.Add("show.txt", []byte(tables(showAll, agentquery.Sort(g.agents), true)))
	}
	if err := g.addReport(); err != nil {
		_, _ = fmt.Fprintf(env.Err, "warning: there is no report.html: %s\n", diag.Line(err.Error()))
	}
	write := func(w io.Writer) error { return g.Write(w, name, g.at) }
	messages := env.Out
	if out == "-" {
		messages = env.Err
		if err := write(env.Out); err != nil {
			return err
		}
	} else if err := supportbundle.Create(out, write); err != nil {
		return err
	}
	if _, err := io.WriteString(messages, summary); err != nil {
		return err
	}
	if out != "-" {
		_, _ = fmt.Fprintf(env.Out, "\nwritten to %s\n", out)
	}
	if len(missing) > 0 {
		return fmt.Errorf("the file is incomplete: %s lists what could not be read", supportbundle.Errors)
	}
	return nil
}

// sources returns the function that collects from the sources that the flags select, and their
// description.
func (f gatherFlags) sources() (collect func(context.Context, *collector), what string, err error) {
	targets, sockets, err := f.Resolve()
	if err != nil {
		return nil, "", err
	}
	if len(sockets) > 0 {
		at, err := agentquery.LabDir(f.Lab)
		if len(f.Sockets) > 0 || slices.Equal(sockets, []string{agentquery.HostSocket}) {
			at = "" // the sockets belong to no lab
		}
		return func(ctx context.Context, g *collector) { g.host(ctx, sockets, at) }, humanize.Plural(len(sockets), "agent") + " on this machine", err
	}
	clusters, err := targets.Clients()
	if err != nil {
		return nil, "", err
	}
	var names []string
	for _, c := range clusters {
		names = append(names, fmt.Sprintf("%s (context %s)", c.Name, c.Context))
	}
	return func(ctx context.Context, g *collector) { g.clusters(ctx, clusters, f.since) }, strings.Join(names, ", "), nil
}

// put adds a file, or records why it is missing, or both.
func (g *collector) put(file string, text []byte, err error) {
	if err != nil {
		g.Fail(file, errors.New(kubeclient.ErrorText(err)))
	}
	if err != nil && len(text) == 0 {
		return
	}
	var lines bytes.Buffer
	if path.Ext(file) == ".json" && json.Indent(&lines, text, "", "  ") == nil {
		text = lines.Bytes() // for human readers
	}
	g.mu.Lock()
	g.fileCount++
	g.mu.Unlock()
	g.Add(file, text)
}

// addNote adds a line to the summary.
func (g *collector) addNote(format string, args ...any) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.notes = append(g.notes, fmt.Sprintf(format, args...))
}

// topic is a request to every agent, and the file of its response.
type topic struct {
	dir, ext string
	agentquery.Request
}

func topics() []topic {
	return []topic{
		{"status", ".json", agentquery.Request{Path: "/status", Args: []string{"status", "-o", "json"}}},
		{"plan", ".txt", agentquery.Request{Path: "/plan", Args: []string{"plan", "--running"}}},
		{"kernel", ".json", agentquery.Request{Path: "/kernel", Args: []string{"kernel", "-o", "json"}}},
		{"metrics", ".txt", agentquery.Request{Path: "/metrics", Args: []string{"metrics"}}},
	}
}

// safeFileName replaces the characters of a name that are not safe in a file name.
func safeFileName(name string) string {
	name = strings.NewReplacer("/", "_", "\\", "_", "\x00", "_").Replace(name)
	if strings.Trim(name, ".") == "" {
		return "_" + name
	}
	return name
}
