package observe

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"hawser.dev/hawser/internal/checkout"
	"hawser.dev/hawser/internal/cli"
	"hawser.dev/hawser/internal/cli/agentquery"
	"hawser.dev/hawser/internal/cli/pagedata"
	"hawser.dev/hawser/internal/cli/topofile"
	"hawser.dev/hawser/schema/load"
	"hawser.dev/hawser/view/ui"
)

type reportFlags struct {
	agentquery.Targets // the agents to query; File is the topology
	live               bool
	verify             bool
}

func NewReportCommand(env *cli.Env) *cobra.Command {
	var f reportFlags
	cmd := &cobra.Command{
		Use:   "report [FILE|DIR|-]",
		Short: "Write an HTML report of the clusterset",
		Long: `Write the page of hawser ui with a snapshot embedded: the map, which cluster reaches which
export and the line of the topology that allows it, findings, and versions. The file makes
no requests and needs no server. Printed on paper, it has all views.

The command reads the topology and its lock. --live queries the agents too and adds the
state of links and exports, and the agents' findings. --verify has every agent connect to
every export, as hawser verify does, and adds the results.

-o takes a format, which is printed, or a file name that ends in .html, .json or .yaml.

Exit codes: 0 no finding is an error; 1 a finding is an error; 2 no report was written.`,
		Example: `  hawser report -o report.html
  hawser report --live --context fra,ams -o report.html
  hawser report --verify -o report.json`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error { return runReport(cmd.Context(), env, args, f) },
	}
	f.AddFlags(cmd, false)
	cmd.Flags().Lookup("file").Usage = "topology: a file, a directory, or - for stdin; the same as the argument"
	cmd.Flags().BoolVar(&f.live, "live", false, "query the agents and add their state and findings")
	cmd.Flags().BoolVar(&f.verify, "verify", false, "have the agents connect to every export")
	cli.OutputFlag(cmd, false, &f.Output, "html", "json", "yaml")
	output := cmd.Flags().Lookup("output")
	output.Usage += "; or a file to write that ends in .html, .json or .yaml"
	output.Annotations = nil // reportPage also accepts file names
	return cmd
}

func runReport(ctx context.Context, env *cli.Env, args []string, f reportFlags) error {
	file, format := "", f.Output
	if ext := strings.TrimPrefix(filepath.Ext(f.Output), "."); slices.Contains([]string{"html", "json", "yaml"}, ext) && !strings.HasPrefix(f.Output, cli.JSONPathPrefix) {
		file, format = f.Output, ext
	}
	if err := cli.CheckFormat(format, []string{"html", "json", "yaml"}); err != nil {
		return fmt.Errorf("%w, or a file that ends in .html, .json or .yaml", err)
	}
	f.live = f.live || f.verify
	switch {
	case !f.live && (len(f.Sockets) > 0 || f.Lab != "" || f.OfClusters()):
		return errors.New("--socket, --lab, --context, --kubeconfig and --cluster require --live")
	case file == "" && format == "html" && cli.IsTerminal(env.Out):
		return errors.New("a page is not for a terminal: hawser report -o report.html")
	}
	// Clear File: -f selects the topology here, and not the agents.
	if f.File != "" {
		args, f.File = append(args, f.File), ""
	}
	if len(args) > 1 {
		return fmt.Errorf("%s and -f %s: name one topology", args[0], args[1])
	}
	t, err := topofile.Read(env, args)
	if err != nil {
		return err
	}
	set, source, warnings := load.Topology(t.Path, t.Raw)
	if warnings.HasErrors() {
		return cli.FindingsError{List: warnings, Files: t.Texts()}
	}
	c, err := topofile.CompileLoaded(env, t, set, source)
	if err != nil {
		return err
	}
	in := ui.Input{At: time.Now(), Version: env.Version, HiddenViews: reportHides(), Clusterset: &ui.Clusterset{Fabric: c.Fabric, PositionOf: c.PositionOf, File: t.Path,
		Sources: pagedata.Describe(ctx, t.Path, "", ""), Findings: pagedata.Findings(warnings)}}
	if f.live {
		agents, silent, err := agentquery.QueryStatus(ctx, env, f.For(c.Fabric))
		if err != nil {
			return err
		}
		agentquery.WarnUnreachable(env, silent)
		in.Reports = ui.Reports{HasAgents: true, From: f.Text(), Agents: agents, Unreachable: silent}
	}
	if f.verify {
		startedAt := time.Now()
		v, err := verifyFlags{Targets: f.For(c.Fabric), timeout: verifyTimeout, from: []string{fromNodes}}.verify(ctx, env)
		if err != nil {
			return err
		}
		agentquery.WarnUnreachable(env, v.Unreachable)
		if len(v.Nodes) == 0 {
			return errors.New("no agent answered (see hawser-agent status on the node)")
		}
		if in.Verification, err = ui.NewVerification(startedAt, time.Now(), v.Nodes, v.Unreachable); err != nil {
			return err
		}
	}
	r := ui.NewSnapshot(in)
	if err := writeReport(env, r, file, format); err != nil {
		return err
	}
	if r.HasErrors() {
		return cli.ExitError{}
	}
	return nil
}

// writeReport prints a report, or writes it to a file.
func writeReport(env *cli.Env, r *ui.Snapshot, file, format string) error {
	if file == "" {
		if format != "html" {
			return env.Encode(format, r)
		}
		html, err := r.HTML()
		if err == nil {
			_, err = env.Out.Write(html)
		}
		if err != nil {
			return fmt.Errorf("write the report: %w", err)
		}
		return nil
	}
	var out strings.Builder
	if err := writeReport((&cli.Env{Out: &out}), r, "", format); err != nil {
		return err
	}
	if err := checkout.Replace(file, []byte(out.String()), 0o644); err != nil {
		return fmt.Errorf("write the report: %w", err)
	}
	_, _ = fmt.Fprintf(env.Err, "written to %s\n", file)
	return nil
}

// reportHides returns the parts of the page that a file cannot have, because they need git or
// agents.
func reportHides() []string { return []string{"change", "trace", "explain", "follow"} }

// addReport adds the page of the clusterset, from the fabric of a cluster or from the topology of
// the lab. Without either it adds nothing.
func (g *collector) addReport() error {
	in := ui.Input{At: g.at, Version: g.version, HiddenViews: reportHides(), Reports: ui.Reports{HasAgents: true, Agents: agentquery.Sort(g.agents)}}
	switch {
	case g.fabric != nil:
		in.Clusterset = &ui.Clusterset{Fabric: g.fabric, PositionOf: topofile.Compiled{}.PositionOf, Sources: []string{"fabric of a cluster"}}
	case g.topology != "":
		t, err := topofile.Open(g.topology)
		if err != nil {
			return err
		}
		t.Path, t.LockPath = filepath.Base(t.Path), filepath.Base(t.LockPath) // the path is meaningless on other machines
		silentEnv := &cli.Env{Out: io.Discard, Err: io.Discard, Color: "never"}
		set, source, err := topofile.Load(silentEnv, t)
		if err != nil {
			return err
		}
		c, err := topofile.CompileLoaded(silentEnv, t, set, source)
		if err != nil {
			return err
		}
		in.Clusterset = &ui.Clusterset{Fabric: c.Fabric, PositionOf: c.PositionOf, File: t.Path, Sources: []string{t.Path}}
	default:
		return nil
	}
	html, err := ui.NewSnapshot(in).HTML()
	if err != nil {
		return err
	}
	g.Add("report.html", html)
	return nil
}
