package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"hawser.dev/hawser/access"
	"hawser.dev/hawser/internal/checkout"
	"hawser.dev/hawser/internal/diag"
	"hawser.dev/hawser/nodeagent/observe/verify"
	"hawser.dev/hawser/nodeagent/peer/health"
	"hawser.dev/hawser/nodeagent/status"
	"hawser.dev/hawser/schema/fabric"
	"hawser.dev/hawser/schema/load"
	"hawser.dev/hawser/view/ui"
)

type reportFlags struct {
	showFlags // of the agents to ask; file is the topology
	live      bool
	verify    bool
}

func newReportCommand(a *app) *cobra.Command {
	var f reportFlags
	cmd := &cobra.Command{
		Use:   "report [FILE|DIR|-]",
		Short: "Write one page about the clusterset: map, who reaches what, findings, versions",
		Long: `Write the page of hawser ui with a snapshot embedded: the map, which cluster reaches which
export and by which line of the topology, findings, versions, and what was verified. It is
one file that makes no request and needs no server. Printed, it has all views.

It reads the topology and its lock. With --live it asks the agents, too: the map shows
what is up, the matrix what is ready and arrives, and findings are those of agents. With
--verify every agent connects to every export, as hawser verify has it, and the page holds
what they answered, and when.

-o takes a file to write, whose name ends in .html, .json or .yaml, or the format alone,
which is printed.

Exit codes: 0 no finding is an error, 1 one is, 2 there is no report.`,
		Example: `  hawser report -o report.html
  hawser report --live --context fra,ams -o report.html
  hawser report --verify -o report.json`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error { return a.reportPage(cmd.Context(), args, f) },
	}
	f.addAgents(cmd, false)
	cmd.Flags().Lookup("file").Usage = "topology: a file, a folder, or - for stdin; the same as the argument"
	cmd.Flags().BoolVar(&f.live, "live", false, "ask the agents what is up, ready and wrong")
	cmd.Flags().BoolVar(&f.verify, "verify", false, "have the agents connect to every export, too")
	outputFlag(cmd, false, &f.output, "html", "json", "yaml")
	output := cmd.Flags().Lookup("output")
	output.Usage += "; or a file to write that ends in .html, .json or .yaml"
	output.Annotations = nil // reportPage takes files, too
	return cmd
}

func (a *app) reportPage(ctx context.Context, args []string, f reportFlags) error {
	file, format := "", f.output
	if ext := strings.TrimPrefix(filepath.Ext(f.output), "."); slices.Contains([]string{"html", "json", "yaml"}, ext) && !strings.HasPrefix(f.output, asPath) {
		file, format = f.output, ext
	}
	if err := checkFormat(format, []string{"html", "json", "yaml"}); err != nil {
		return fmt.Errorf("%w, or a file that ends in .html, .json or .yaml", err)
	}
	f.live = f.live || f.verify
	switch {
	case !f.live && (len(f.sockets) > 0 || f.lab != "" || f.ofClusters()):
		return errors.New("--socket, --lab, --context, --kubeconfig and --cluster say whom to ask: add --live")
	case file == "" && format == "html" && isTerminal(a.out):
		return errors.New("a page is not for a terminal: hawser report -o report.html")
	}
	// The topology is read as the argument, so that -f does not name whom to ask, too.
	if f.file != "" {
		args, f.file = append(args, f.file), ""
	}
	if len(args) > 1 {
		return fmt.Errorf("%s and -f %s: name one topology", args[0], args[1])
	}
	t, err := a.readTopology(args)
	if err != nil {
		return err
	}
	set, source, warnings := load.Topology(t.file, t.raw)
	if warnings.HasErrors() {
		return found{list: warnings, sources: t.files()}
	}
	c, err := a.compileFrom(t, set, source)
	if err != nil {
		return err
	}
	in := ui.Input{At: time.Now(), Version: version, HiddenViews: reportHides(), Clusterset: &ui.Clusterset{Fabric: c.fabric, Place: c.place, File: t.file,
		Sources: describeTopology(ctx, t.file, "", ""), Findings: validationFindings(warnings)}}
	if f.live {
		agents, silent, err := a.askAll(ctx, f.askedFor(c.fabric))
		if err != nil {
			return err
		}
		a.warnUnreachable(silent)
		in.Reports = ui.Reports{Asked: true, From: f.askedText(), Agents: agents, Unreachable: silent}
	}
	if f.verify {
		began := time.Now()
		nodes, silent, err := a.verifications(ctx, verifyFlags{showFlags: f.askedFor(c.fabric), timeout: verifyPatience})
		if err != nil {
			return err
		}
		if in.Verification, err = ui.NewVerification(began, time.Now(), nodes, silent); err != nil {
			return err
		}
	}
	r := ui.NewSnapshot(in)
	if err := a.writeReport(r, file, format); err != nil {
		return err
	}
	if r.HasErrors() {
		return answer{}
	}
	return nil
}

// writeReport prints a report, or writes it to a file.
func (a *app) writeReport(r *ui.Snapshot, file, format string) error {
	if file == "" {
		if format != "html" {
			return a.encode(format, r)
		}
		html, err := r.HTML()
		if err == nil {
			_, err = a.out.Write(html)
		}
		if err != nil {
			return fmt.Errorf("write the report: %w", err)
		}
		return nil
	}
	var out strings.Builder
	if err := (&app{out: &out}).writeReport(r, "", format); err != nil {
		return err
	}
	if err := checkout.Replace(file, []byte(out.String()), 0o644); err != nil {
		return fmt.Errorf("write the report: %w", err)
	}
	_, _ = fmt.Fprintf(a.err, "written to %s\n", file)
	return nil
}

// reportHides returns the parts of the page that a file cannot show: they need git or agents.
func reportHides() []string { return []string{"change", "trace", "explain", "follow"} }

// validationFindings converts findings of validation for the page.
func validationFindings(list diag.List) []ui.Finding {
	var out []ui.Finding
	for _, d := range list {
		d = d.Clipped()
		out = append(out, ui.Finding{By: "validate", Severity: string(d.Severity), Place: cmp.Or(d.Pos.String(), d.Path), Text: d.Summary, Hint: d.Hint})
	}
	return out
}

// preferredLinks returns the gateways of the link that each pair of clusters prefers.
func preferredLinks(f *fabric.Fabric) access.PreferredLink {
	t := health.NewTable(f, nil)
	return func(a, b string) (string, string, bool) {
		p, ok := t.First(a, b)
		return p.Local, p.Remote, ok
	}
}

// verifications has agents connect to every export, as hawser verify prints it.
func (a *app) verifications(ctx context.Context, f verifyFlags) ([]status.Verification, []status.Unreachable, error) {
	done := a.progress("connecting to every export from every node")
	q := questionOf("verify", url.Values{"timeout": {f.timeout.String()}, "export": f.exports}, verify.MaxDuration)
	got, silent, err := ask[status.Verification](ctx, f.showFlags, q)
	done()
	if err != nil {
		return nil, nil, err
	}
	a.warnUnreachable(silent)
	if len(got) == 0 {
		return nil, silent, errors.New("no agent answered (see hawser-agent status on the node)")
	}
	var nodes []status.Verification
	for _, r := range got {
		nodes = append(nodes, r.value)
	}
	slices.SortFunc(nodes, func(a, b status.Verification) int {
		return cmp.Or(cmp.Compare(a.Cluster, b.Cluster), cmp.Compare(a.Node, b.Node))
	})
	return nodes, silent, nil
}

// addReport adds the page about the clusterset, of the fabric that a cluster has, or of the
// topology of the lab. Without either it adds none.
func (g *collector) addReport() error {
	in := ui.Input{At: g.at, Version: version, HiddenViews: reportHides(), Reports: ui.Reports{Asked: true, Agents: ordered(g.agents)}}
	switch {
	case g.fabric != nil:
		in.Clusterset = &ui.Clusterset{Fabric: g.fabric, Place: compiled{}.place, Sources: []string{"fabric of a cluster"}}
	case g.topology != "":
		t, err := openTopology(g.topology)
		if err != nil {
			return err
		}
		t.file, t.lockFile = filepath.Base(t.file), filepath.Base(t.lockFile) // the folder means nothing elsewhere
		quiet := &app{out: io.Discard, err: io.Discard, color: "never"}
		set, source, err := quiet.load(t)
		if err != nil {
			return err
		}
		c, err := quiet.compileFrom(t, set, source)
		if err != nil {
			return err
		}
		in.Clusterset = &ui.Clusterset{Fabric: c.fabric, Place: c.place, File: t.file, Sources: []string{t.file}}
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
