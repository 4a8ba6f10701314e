package edit

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/rogpeppe/go-internal/diff"
	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"hawser.dev/hawser/discover"
	"hawser.dev/hawser/internal/checkout"
	"hawser.dev/hawser/internal/cli"
	"hawser.dev/hawser/internal/cli/baseline"
	"hawser.dev/hawser/internal/cli/clusterselect"
	"hawser.dev/hawser/internal/cli/planview"
	"hawser.dev/hawser/internal/cli/topofile"
	"hawser.dev/hawser/kubeclient"
	"hawser.dev/hawser/reconciler"
	"hawser.dev/hawser/schema"
	"hawser.dev/hawser/schema/load"
)

type exportFlags struct {
	clusterselect.Flags
	allow  []string
	ports  []string
	dryRun bool
}

func NewExportCommand(env *cli.Env) *cobra.Command {
	var f exportFlags
	cmd := &cobra.Command{
		Use:   "export NAMESPACE/NAME --cluster CLUSTER",
		Short: "Add an export to the topology",
		Long: `Add the export of a Service to the topology, or add clusters to an export. Type and
ports come from the Service in the first cluster of --cluster, or from --port. The
rest of the file does not change. The command writes the lock too, and prints the
plan. Nothing changes in any cluster before the commit is published.

Exit codes: 0 done, or nothing to add; 1 the topology has or would have errors, or
with --dry-run: the files would change; 2 error.`,
		Example: `  hawser export shop/web --cluster fra
  hawser export shop/web --cluster fra,sin --allow nyc
  hawser export shop/dns --cluster fra --port dns=53/UDP --dry-run`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error { return runExport(cmd.Context(), env, args[0], f) },
	}
	topofile.AddFileFlag(cmd, false, &env.File, "topology: a file or a directory")
	f.Add(cmd, false)
	cmd.Flag("cluster").Usage = "clusters that export the Service"
	flags := cmd.Flags()
	flags.StringSliceVar(&f.allow, "allow", nil, "clusters that may reach the export (default: all)")
	cli.CompleteFlag(cmd, "allow", cli.CompleteList(clusterselect.CompletionNames))
	flags.StringSliceVar(&f.ports, "port", nil, "port, as [NAME=]PORT[/UDP] (default: the ports of the Service)")
	flags.BoolVar(&f.dryRun, "dry-run", false, "change nothing, print what would change in the files")
	return cmd
}

func NewUnexportCommand(env *cli.Env) *cobra.Command {
	var clusters []string
	var dryRun bool
	cmd := &cobra.Command{
		Use:   "unexport NAMESPACE/NAME",
		Short: "Remove an export from the topology",
		Long: `Remove an export from the topology, or with --cluster only clusters from it. The rest
of the file does not change. The command writes the lock too, where the addresses of
the export stay reserved, and prints the plan. Nothing changes in any cluster before
the commit is published.

Exit codes: 0 done; 1 the topology has or would have errors, or with --dry-run: the
files would change; 2 error.`,
		Example: `  hawser unexport shop/web
  hawser unexport shop/web --cluster sin`,
		ValidArgsFunction: cli.FirstArgument(cli.Complete(topofile.ExportNames)),
		Args:              cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return runUnexport(cmd.Context(), env, args[0], clusters, dryRun)
		},
	}
	topofile.AddFileFlag(cmd, false, &env.File, "topology: a file or a directory")
	cmd.Flags().StringSliceVar(&clusters, "cluster", nil, "only these clusters")
	cli.CompleteFlag(cmd, "cluster", cli.CompleteList(clusterselect.CompletionNames))
	cmd.Flags().BoolVar(&dryRun, "dry-run", false, "change nothing, print what would change in the files")
	return cmd
}

func runExport(ctx context.Context, env *cli.Env, id string, f exportFlags) error {
	t, set, err := readForEdit(env, nil)
	if err != nil {
		return err
	}
	if len(f.Clusters) == 0 {
		return fmt.Errorf("name the clusters that export %s with --cluster (%s)", id, strings.Join(set.ClusterNames(), ", "))
	}
	clusters, err := f.Names(set.ClusterNames())
	if err != nil {
		return err
	}
	for _, name := range f.allow {
		if set.Cluster(name) == nil {
			return fmt.Errorf("--allow %s: there is no such cluster, only %s", name, strings.Join(set.ClusterNames(), ", "))
		}
	}
	after := t
	i := slices.IndexFunc(set.Spec.Exports, func(e schema.Export) bool { return e.ID() == id })
	if i >= 0 {
		have := set.Spec.Exports[i]
		if len(f.ports) > 0 {
			return fmt.Errorf("export %s exists already: change its ports in %s", id, t.Path)
		}
		clusters = slices.DeleteFunc(clusters, func(name string) bool { return slices.Contains(have.Clusters, name) })
		allow := slices.DeleteFunc(slices.Clone(f.allow), func(name string) bool {
			return have.Allow != nil && slices.Contains(have.Allow.Clusters, name)
		})
		if len(clusters)+len(allow) == 0 {
			_, err := fmt.Fprintf(env.Err, "%s has the export %s already: nothing to add\n", t.Path, id)
			return err
		}
		after.Raw, err = discover.AddExportClusters(t.Raw, id, clusters, allow)
	} else {
		var e schema.Export
		if e, err = newExport(ctx, env, id, clusters, f, set); err == nil {
			after.Raw, err = discover.AddExport(t.Raw, discover.ExportYAML(e))
		}
	}
	if err != nil {
		return fmt.Errorf("add export %s to %s: %w", id, t.Path, err)
	}
	return finishExport(ctx, env, editedExport{before: t, after: after, set: set, id: id, action: "export " + id + " from " + strings.Join(f.Clusters, ", ")}, f.dryRun)
}

func runUnexport(ctx context.Context, env *cli.Env, id string, clusters []string, dryRun bool) error {
	t, set, err := readForEdit(env, nil)
	if err != nil {
		return err
	}
	i := slices.IndexFunc(set.Spec.Exports, func(e schema.Export) bool { return e.ID() == id })
	if i < 0 {
		var names []string
		for _, e := range set.Spec.Exports {
			names = append(names, e.ID())
		}
		return fmt.Errorf("there is no export %s in %s (%s)", id, t.Path, baseline.Listed(names, "exports are", "it has no exports"))
	}
	for _, name := range clusters {
		if have := set.Spec.Exports[i].Clusters; !slices.Contains(have, name) {
			return fmt.Errorf("--cluster %s: it does not export %s, only %s", name, id, strings.Join(have, ", "))
		}
	}
	after := t
	if after.Raw, _, err = discover.RemoveExport(t.Raw, id, clusters); err != nil {
		return fmt.Errorf("remove export %s from %s: %w", id, t.Path, err)
	}
	action := "unexport " + id
	if len(clusters) > 0 {
		action += " from " + strings.Join(clusters, ", ")
	}
	return finishExport(ctx, env, editedExport{before: t, after: after, set: set, id: id, action: action}, dryRun)
}

// readForEdit reads a topology file to edit it.
func readForEdit(env *cli.Env, args []string) (topofile.File, *schema.ClusterSet, error) {
	t, err := topofile.Read(env, args)
	if err != nil {
		return t, nil, err
	}
	if t.LockPath == "" {
		return t, nil, errors.New("the topology came from stdin, and there is no file to change: name one")
	}
	set, _, list := load.Topology(t.Path, t.Raw) // warnings are printed for the result
	if list.HasErrors() {
		return t, nil, cli.FindingsError{List: list, Files: t.Texts()}
	}
	return t, set, nil
}

// newExport returns a new export. Its ports come from --port, or type and ports come from the
// Service in the first cluster.
func newExport(ctx context.Context, env *cli.Env, id string, clusters []string, f exportFlags, set *schema.ClusterSet) (schema.Export, error) {
	namespace, name, ok := strings.Cut(id, "/")
	if !ok || namespace == "" || name == "" || strings.Contains(name, "/") {
		return schema.Export{}, fmt.Errorf("%q is not of the form NAMESPACE/NAME", id)
	}
	e := schema.Export{Namespace: namespace, Name: name, Clusters: clusters}
	if len(f.allow) > 0 {
		e.Allow = &schema.Allow{Clusters: f.allow}
	}
	if len(f.ports) > 0 {
		for _, text := range f.ports {
			p, err := parsePort(text)
			if err != nil {
				return e, err
			}
			e.Ports = append(e.Ports, p)
		}
		return e, nil
	}
	opened, err := f.Access.Clusters(clusters[:1], set.ClusterNames())
	if err != nil {
		return e, fmt.Errorf("%w (or name the ports with --port)", err)
	}
	defer env.Progress("reading Service " + id + " of cluster " + clusters[0])()
	object, err := opened[0].Get(ctx, kubeclient.ID{Version: "v1", Kind: "Service", Namespace: namespace, Name: name})
	switch {
	case err != nil:
		return e, fmt.Errorf("%w (or name the ports with --port)", err)
	case object == nil:
		return e, fmt.Errorf("cluster %s has no Service %s: create it first, or name the ports with --port", clusters[0], id)
	}
	var service corev1.Service
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, &service); err != nil {
		return e, fmt.Errorf("read Service %s of cluster %s: %w", id, clusters[0], err)
	}
	if service.Spec.Type == corev1.ServiceTypeExternalName {
		return e, fmt.Errorf("the Service %s of cluster %s has type ExternalName, which cannot be exported", id, clusters[0])
	}
	if service.Spec.ClusterIP == corev1.ClusterIPNone {
		e.Type = "Headless"
	}
	for _, p := range service.Spec.Ports {
		port := schema.Port{Name: p.Name, Port: int(p.Port)}
		switch p.Protocol {
		case corev1.ProtocolTCP, "":
		case corev1.ProtocolUDP:
			port.Protocol = "UDP"
		default:
			_, _ = fmt.Fprintf(env.Err, "warning: port %d of Service %s is left out: protocol %s is not supported\n", p.Port, id, p.Protocol)
			continue
		}
		e.Ports = append(e.Ports, port)
	}
	if len(e.Ports) == 0 {
		return e, fmt.Errorf("the Service %s of cluster %s has no TCP or UDP port: name the ports with --port", id, clusters[0])
	}
	return e, nil
}

// parsePort parses [NAME=]PORT[/PROTOCOL].
func parsePort(text string) (schema.Port, error) {
	name, rest, named := strings.Cut(text, "=")
	if !named {
		name, rest = "", text
	}
	number, protocol, _ := strings.Cut(rest, "/")
	n, err := strconv.ParseUint(number, 10, 16)
	protocol = strings.ToUpper(protocol)
	if err != nil || n == 0 || named && name == "" || !slices.Contains([]string{"", "TCP", "UDP"}, protocol) {
		return schema.Port{}, fmt.Errorf("--port %s: it is not of the form [NAME=]PORT[/UDP]", text)
	}
	if protocol == "TCP" {
		protocol = ""
	}
	return schema.Port{Name: name, Port: int(n), Protocol: protocol}, nil
}

// editedExport is a topology before and after the change of one export.
type editedExport struct {
	before, after topofile.File
	set           *schema.ClusterSet // before the change
	id, action    string
}

// finishExport checks that only the export changed, allocates addresses, writes both files and
// prints the plan.
func finishExport(ctx context.Context, env *cli.Env, e editedExport, dryRun bool) error {
	now, _, list := load.Topology(e.after.Path, e.after.Raw)
	if list.HasErrors() {
		env.Findings(list, e.after.Texts())
		return cli.ExitError{Msg: fmt.Sprintf("error: nothing was changed: after %q the topology has errors (line numbers are those that it would have)", e.action)}
	}
	others := func(set *schema.ClusterSet) schema.ClusterSet {
		out := *set
		out.Spec.Exports = slices.DeleteFunc(slices.Clone(set.Spec.Exports), func(x schema.Export) bool { return x.ID() == e.id })
		if len(out.Spec.Exports) == 0 {
			out.Spec.Exports = nil
		}
		return out
	}
	if !reflect.DeepEqual(others(e.set), others(now)) {
		return fmt.Errorf("%s: the edit would change something else in %s: change the export by hand", e.action, e.after.Path)
	}
	env.Findings(list, e.after.Texts())
	f := baseline.LockOptions{Branch: reconciler.DefaultPublishBranch}
	published, err := baseline.ReadLock(ctx, env, e.after, f)
	if err != nil {
		return err
	}
	lock, err := baseline.NewLock(env, e.after, now, published, f)
	if err != nil {
		return err
	}
	if dryRun {
		text := append(diff.Diff(e.before.Path, e.before.Raw, e.after.Path, e.after.Raw), diff.Diff(e.before.LockPath, e.before.Lock, e.before.LockPath, lock)...)
		if _, err := env.Out.Write(text); err != nil {
			return err
		}
		return cli.ExitError{}
	}
	if err := checkout.Rewrite(e.after.Path, e.after.Raw); err != nil {
		return err
	}
	if !bytes.Equal(lock, e.before.Lock) {
		if err := checkout.Replace(e.after.LockPath, lock, 0o644); err != nil {
			return err
		}
	}
	e.after.Lock = lock
	if published.Known {
		if err := printPlan(ctx, env, e.after); err != nil {
			return err
		}
	}
	_, err = fmt.Fprintf(env.Err, "changed %s and its lock\nnext: git commit -m %s %s %s && git push\n      hawser bootstrap, unless a reconciler runs\n", e.after.Path,
		cli.ShellQuote(e.action), cli.ShellQuote(e.after.Path), cli.ShellQuote(filepath.Clean(e.after.LockPath)))
	return err
}

// printPlan prints the plan between the published tree and the topology.
func printPlan(ctx context.Context, env *cli.Env, t topofile.File) error {
	verify, err := baseline.Verifiers("", t.Path, topofile.BuildFlags{})
	if err != nil {
		return err
	}
	have, err := baseline.Options{File: t.Path, Branch: reconciler.DefaultPublishBranch, Verify: verify}.Load(ctx)
	if err != nil {
		return err
	}
	build, err := topofile.BuildInput(env, t, have.Tree, topofile.BuildFlags{})
	if err != nil {
		return err
	}
	build.Preview = true
	built, list := reconciler.Build(build)
	if list.HasErrors() {
		return cli.FindingsError{List: list, Files: t.Texts()}
	}
	return planview.Print(env, planview.Input{Want: built.Tree, Have: have.Tree, Source: built.Source, Output: "text", Baseline: &have.Baseline})
}
