package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"hawser.dev/hawser/access"
	"hawser.dev/hawser/schema/fabric"
	"hawser.dev/hawser/view/swimlane"
)

type explainFlags struct {
	showFlags // of the agents to ask; file is the topology, and names nobody to ask
	live      bool
}

func newExplainCommand(a *app) *cobra.Command {
	var f explainFlags
	cmd := &cobra.Command{
		Use:   "explain FROM TO",
		Short: "Say whether a pod of one cluster reaches something in another one, and why",
		Long: `Say whether a pod of one cluster reaches something in another one: by which lines of
the topology, over which links, and which addresses each side sees. It reads the
topology and its lock alone, and takes for granted that links are alive and backends
are ready.

With --live it asks the agents of the clusters on the way, too: which links are alive,
which of them are in use, which backends are ready, and what is missing. It says no when
the topology allows it but nothing would arrive. The agents are those of the running
lab, or of this host; with --context, --kubeconfig or --cluster, or where there are none,
those in the pods of the clusters (this needs the right to exec there). What could not
be had is said by name, and makes no yes.

FROM is a pod (g1/shop/client), any pod of a cluster (g1), a pod's address (g1/10.7.2.5,
or 10.7.2.5 where one cluster has it), or a process on a node (g1/node).
With -o svg the way is drawn, one lane for each cluster and gateway, with the place where
it ends in red.

TO is a name (web.shop, g2.web.shop, with or without .svc.clusterset.local), an export
(shop/web), or an address (243.0.0.1, g2/10.8.1.9), with a port (:80, :http, :53/udp).

Exit codes: 0 yes, 1 no, 2 error, or not known to arrive.`,
		Example: `  hawser explain g1/shop/client web.shop:80
  hawser explain g1/shop/client web.shop:80 --live --context g1=admin@g1
  hawser explain g1 10.8.2.5:443 -o svg`,
		Args: cobra.RangeArgs(1, 3),
		RunE: func(cmd *cobra.Command, args []string) error { return a.explain(cmd.Context(), args, f) },
	}
	f.addAgents(cmd, false)
	cmd.Flags().Lookup("file").Usage = "topology file, folder, or - (default: clusterset.yaml here)"
	cmd.Flags().BoolVar(&f.live, "live", false, "ask the agents what is alive, in use and ready")
	outputFlag(cmd, false, &f.output, "text", "svg\tthe path as a picture", "json", "yaml")
	return cmd
}

func (a *app) explain(ctx context.Context, args []string, f explainFlags) error {
	if !f.live && (len(f.sockets) > 0 || f.lab != "" || f.ofClusters()) {
		return errors.New("--socket, --lab, --context, --kubeconfig and --cluster say whom to ask: add --live")
	}
	var file []string
	if f.file != "" {
		file = []string{f.file}
	}
	c, err := a.compile(file)
	if err != nil {
		return err
	}
	result, err := a.explainArgs(ctx, c, args, f)
	if err != nil {
		return err
	}
	switch f.output {
	case "text":
		_, err = a.out.Write([]byte(explainText(result)))
	case "svg":
		_, err = a.out.Write([]byte(swimlane.Draw(result.Reason(), explainSwimlanes(result, c.place)).String()))
	default:
		err = a.encode(f.output, result)
	}
	switch {
	case err != nil || result.Yes():
		return err
	case result.Live != nil && result.Live.Verdict == access.Unknown:
		return errors.New("it is not known whether it arrives")
	}
	return answer{}
}

// explainArgs explains how the source in the arguments reaches their target.
func (a *app) explainArgs(ctx context.Context, c compiled, args []string, f explainFlags) (*access.Answer, error) {
	ends := strings.Fields(strings.ReplaceAll(strings.Join(args, " "), "->", " "))
	if len(ends) != 2 || ends[1] == "-" {
		return nil, errors.New("say from where to what: hawser explain g1/shop/client web.shop:80 (an arrow between them needs quotes in a shell)")
	}
	from, err := explainFrom(c.fabric, ends[0])
	if err != nil {
		return nil, err
	}
	to, err := explainTo(c.fabric, ends[1])
	if err != nil {
		return nil, err
	}
	set := access.New(c.fabric, access.Options{PreferredLink: preferredLinks(c.fabric), Position: c.place})
	answer, err := set.Explain(from, to)
	if err != nil || !f.live || !answer.Allowed {
		return answer, err
	}
	reports, err := a.queryAgents(ctx, f.showFlags, c.fabric, answer)
	if err != nil {
		return nil, err
	}
	return set.WithReports(reports).Explain(from, to)
}

// explainFrom parses the source.
func explainFrom(f *fabric.Fabric, text string) (access.Source, error) {
	parts := strings.Split(text, "/")
	if a, err := netip.ParseAddr(text); err == nil {
		var owners []string
		for _, c := range f.Clusters {
			if slices.ContainsFunc(c.PodCIDRs, func(p netip.Prefix) bool { return p.Contains(a) }) {
				owners = append(owners, c.Name)
			}
		}
		switch len(owners) {
		case 0:
			return access.Source{}, fmt.Errorf("%s is in podCIDRs of no cluster: write whose address it is, as in g1/%s", a, a)
		case 1:
			return access.Source{Cluster: owners[0], Addr: a}, nil
		}
		return access.Source{}, fmt.Errorf("%s is in podCIDRs of %s: write whose address it is, as in %s/%s", a,
			strings.Join(owners, ", "), owners[0], a)
	}
	from := access.Source{Cluster: parts[0]}
	switch {
	case len(parts) == 1:
	case len(parts) == 2 && parts[1] == "node":
		from.Node = true
	case len(parts) == 2:
		a, err := netip.ParseAddr(parts[1])
		if err != nil {
			return from, fmt.Errorf("%s: a pod is written as cluster/namespace/pod, or cluster/address", text)
		}
		from.Addr = a
	case len(parts) == 3:
		from.Namespace, from.Pod = parts[1], parts[2]
	default:
		return from, fmt.Errorf("%s: a pod is written as cluster/namespace/pod, or cluster/address", text)
	}
	if f.Cluster(from.Cluster) == nil {
		return from, fmt.Errorf("%s: there is no cluster %s in the topology", text, from.Cluster)
	}
	return from, nil
}

// explainTo parses the target.
func explainTo(f *fabric.Fabric, text string) (access.Target, error) {
	var to access.Target
	rest := text
	for _, protocol := range []string{"tcp", "udp"} {
		if cut, ok := strings.CutSuffix(rest, "/"+protocol); ok {
			rest, to.Protocol = cut, protocol
		}
	}
	if cluster, after, ok := strings.Cut(rest, "/"); ok && isAddress(after) {
		to.Cluster, rest = cluster, after
		if f.Cluster(cluster) == nil {
			return to, fmt.Errorf("%s: there is no cluster %s in the topology", text, cluster)
		}
	}
	if isAddress(rest) {
		at, err := netip.ParseAddrPort(rest)
		if err != nil {
			return to, fmt.Errorf("%s: give a port, as in 243.0.0.1:80 or [fd00::1]:80", text)
		}
		to.Addr, to.Port = at.Addr(), fmt.Sprint(at.Port())
		if to.Protocol == "" {
			to.Protocol = "tcp"
		}
		return to, nil
	}
	rest, to.Port, _ = strings.Cut(rest, ":")
	if to.Protocol == "" && to.Port != "" {
		to.Protocol = "tcp"
	}
	if strings.Contains(rest, "/") {
		to.Export = rest
		return to, nil
	}
	rest = strings.TrimSuffix(rest, ".")
	for _, domain := range append([]string{f.Domain}, f.ExtraDomains...) {
		rest = strings.TrimSuffix(rest, "."+domain)
	}
	labels := strings.Split(strings.TrimSuffix(rest, ".svc"), ".")
	switch n := len(labels); {
	case n < 2 || n > 4:
		return to, fmt.Errorf("%s: a service is written as name.namespace, cluster.name.namespace or namespace/name", text)
	case n > 2:
		to.Cluster = labels[n-3]
		if f.Cluster(to.Cluster) == nil {
			return to, fmt.Errorf("%s: there is no cluster %s in the topology (names end with .svc.%s)", text,
				to.Cluster, f.Domain)
		}
		fallthrough
	default:
		to.Export = labels[n-1] + "/" + labels[n-2]
	}
	return to, nil
}

// isAddress reports whether a text is an address, with a port or without.
func isAddress(text string) bool {
	_, err := netip.ParseAddr(text)
	_, err2 := netip.ParseAddrPort(text)
	return err == nil || err2 == nil
}

// explainText formats an answer.
func explainText(a *access.Answer) string {
	var out strings.Builder
	put := func(format string, args ...any) { _, _ = fmt.Fprintf(&out, format+"\n", args...) }
	verdict := "no: "
	switch {
	case a.Yes():
		verdict = "yes: "
	case a.Live != nil && a.Live.Verdict == access.Unknown:
		verdict = "" // its reason begins with what is known
	}
	put("%s%s", verdict, a.Reason())
	for i := range a.Destinations {
		t := &a.Destinations[i]
		out.WriteString("\n")
		if !t.Allowed {
			put("in %s: no, %s", t.Cluster, t.Why)
			continue
		}
		put("in %s: yes", t.Cluster)
		if len(t.Requested) > 0 {
			requested := addrsText(t.Requested)
			if a.Name != "" {
				requested = a.Name + ", " + requested
			}
			put("  the client asks for    %s", requested)
		}
		if t.Cluster == a.From.Cluster {
			put("  it stays in the cluster")
			continue
		}
		for _, l := range t.Links {
			put("  over the link          %s - %s (%s)", l.From, l.To, l.Driver)
			for _, name := range slices.Sorted(maps.Keys(l.NodeSelectors)) {
				put("  %-22s is held by a node %s", name, l.NodeSelectors[name])
			}
		}
		if len(t.Translated) > 0 {
			put("  %-22s %s", t.Cluster+" is asked for", addrsText(t.Translated))
		}
		if a.To.Export == "" || len(t.Translated) > 0 {
			sources := "the client's own address"
			if len(t.Sources) > 0 {
				sources = strings.Join(t.Sources, ", ")
			}
			put("  it sees the client as  %s", sources)
		}
		put("  and hands it to        %s", t.Backend)
	}
	if a.Live != nil {
		out.WriteString(liveText(a))
	}
	if len(a.Lines) > 0 {
		t := table{title: "\nBecause of", head: []string{"LINE", "PATH", "SAYS"}}
		for _, l := range a.Lines {
			t.rows = append(t.rows, []string{l.Source, l.Path, l.Text})
		}
		out.WriteString(t.String())
	}
	return out.String()
}

func addrsText(list []netip.Addr) string { return strings.Join(fabric.Ranges(list), ", ") }
