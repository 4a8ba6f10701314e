// Package edit has the commands that write the topology and its lock: init, discover, join, leave,
// validate, fmt and allocate.
package edit

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"hawser.dev/hawser"
	"hawser.dev/hawser/discover"
	"hawser.dev/hawser/internal/checkout"
	"hawser.dev/hawser/internal/cli"
	"hawser.dev/hawser/internal/cli/clusterselect"
	"hawser.dev/hawser/internal/cli/keyfile"
	"hawser.dev/hawser/kubeclient"
	"hawser.dev/hawser/reconciler"
	"hawser.dev/hawser/render"
	"hawser.dev/hawser/schema/load"
)

type initFlags struct {
	name     string
	clusters []string
	keys     string
	access   kubeclient.Kubeconfig
	secrets  bool
	schema   bool
}

func NewInitCommand(env *cli.Env) *cobra.Command {
	var f initFlags
	cmd := &cobra.Command{
		Use:   "init [DIR]",
		Short: "Write a topology file to start from",
		Long: `Write a commented clusterset.yaml to start from, and a .gitignore that keeps
private keys out of git. Nothing that exists is overwritten. The JSON Schema of the
file is written to the same directory, for editors, unless --schema=false is given.

With --with-keys it also makes a root key and an identity for each cluster, in
a directory of their own, and puts the identities' recipients into the topology.

With --context the topology holds what hawser discover finds in these clusters,
with the source of each value. Keys are made too (in DIR/keys unless --with-keys
names a directory), and the lock is written. What could not be found is marked
TODO(hawser). Clusters are named after their contexts, or as in NAME=CONTEXT.
Nothing in the clusters changes, except with --secrets: it creates the Secret
with each cluster's identity, after asking.

Exit codes: 0 done, 1 marked lines have to be completed, 2 error.`,
		Example: `  hawser init --clusters fra,sin
  hawser init infra/ --clusters fra,sin --with-keys keys/
  hawser init --schema=false`,
		ValidArgsFunction: cli.FirstArgument(cli.CompleteDirs),
		Args:              cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			dir := "."
			if len(args) == 1 {
				dir = args[0]
			}
			if len(f.access.Contexts) > 0 {
				return initializeFrom(cmd.Context(), env, dir, f)
			}
			if f.secrets {
				return errors.New("--secrets needs --context, which names the clusters")
			}
			return writeScaffold(env, dir, f)
		},
	}
	cmd.Flags().StringVar(&f.name, "name", "demo", "name of the clusterset")
	cmd.Flags().StringSliceVar(&f.clusters, "clusters", []string{"g1", "g2"}, "names of the clusters")
	cmd.Flags().StringVar(&f.keys, "with-keys", "", "directory in which to make a root key and identities")
	clusterselect.AddContextFlags(cmd, &f.access)
	cmd.Flags().BoolVar(&f.secrets, "secrets", false,
		"with --context: create the Secret with each cluster's identity there, after asking")
	cmd.Flags().BoolVar(&f.schema, "schema", true, "write "+schemaFile+" next to the topology, so that editors complete it")
	cmd.MarkFlagsMutuallyExclusive("clusters", "context")
	return cmd
}

func writeScaffold(env *cli.Env, dir string, f initFlags) error {
	path := filepath.Join(dir, reconciler.TopologyFile)
	if _, err := os.Stat(path); err == nil {
		return fmt.Errorf("%s exists already: edit it, or choose another directory", path)
	}
	if err := checkout.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	recipients := map[string]string{}
	if f.keys != "" {
		var err error
		if recipients, err = initialKeys(env, f); err != nil {
			return err
		}
	}
	if err := ignoreKeys(dir, f.keys); err != nil {
		return err
	}
	if err := writeTopology(path, startingPoint(f, env.Version, recipients), f.schema); err != nil {
		return err
	}
	_, err := fmt.Fprintf(env.Out, "wrote %s: write your clusters' CIDRs and gateways into it, then run hawser validate and hawser allocate, commit, and run hawser bootstrap\n", path)
	return err
}

// initialKeys writes a root key and one identity per cluster, and returns the recipients.
func initialKeys(env *cli.Env, f initFlags) (map[string]string, error) {
	if err := checkout.MkdirAll(f.keys, 0o700); err != nil {
		return nil, err
	}
	root := filepath.Join(f.keys, "root.key")
	if err := keyfile.WriteRoot(root); err != nil {
		return nil, err
	}
	recipients := map[string]string{}
	for _, cluster := range f.clusters {
		recipient, err := keyfile.WriteIdentity(filepath.Join(f.keys, cluster+".identity"), false)
		if err != nil {
			return nil, err
		}
		recipients[cluster] = recipient
	}
	identities := "identities"
	if len(f.clusters) == 1 {
		identities = "identity"
	}
	_, err := fmt.Fprintf(env.Out, "wrote %s and %d %s: keep the root key with the reconciler, and copy to each cluster only its own identity\n",
		root, len(f.clusters), identities)
	return recipients, err
}

// ignoreKeys adds the missing patterns for keys to .gitignore.
func ignoreKeys(dir, keys string) error {
	path := filepath.Join(dir, ".gitignore")
	have, err := checkout.ReadFile(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("read .gitignore: %w", err)
	}
	want := []string{"*.key", "*.identity"}
	if rel, err := filepath.Rel(dir, keys); keys != "" && err == nil && filepath.IsLocal(rel) && rel != "." {
		want = append(want, "/"+filepath.ToSlash(rel)+"/")
	}
	lines := strings.Split(string(have), "\n")
	var add strings.Builder
	if len(have) > 0 && !strings.HasSuffix(string(have), "\n") {
		add.WriteString("\n")
	}
	for _, line := range want {
		if !slices.Contains(lines, line) {
			add.WriteString(line + "\n")
		}
	}
	return checkout.Replace(path, append(have, add.String()...), 0o644)
}

// schemaFile is the name of the JSON Schema next to a topology.
const schemaFile = "clusterset.schema.json"

// writeTopology writes a new topology. withSchema also writes the schema of this version next to
// it, and adds a reference to it that editors understand.
func writeTopology(path, text string, withSchema bool) error {
	if formatted, list := load.Format(path, []byte(text)); !list.HasErrors() { // placeholders are errors
		text = string(formatted)
	}
	if !withSchema {
		return cli.WriteNew(path, []byte(text), 0o644)
	}
	if err := cli.WriteNew(path, []byte("# yaml-language-server: $schema="+schemaFile+"\n"+text), 0o644); err != nil {
		return err
	}
	schemaPath := filepath.Join(filepath.Dir(path), schemaFile)
	if !cli.IsMissing(schemaPath) {
		return nil
	}
	return cli.WriteNew(schemaPath, hawser.Schema, 0o644)
}

// startingPoint returns the text of a topology with the named clusters. All of them have the same
// CIDRs, as is common: they reach each other through global addresses.
func startingPoint(f initFlags, version string, recipients map[string]string) string {
	var out strings.Builder
	_, _ = fmt.Fprintf(&out, `# The whole clusterset: every cluster, every gateway, every exported service.
# Check it with "hawser validate", see what a change does with "hawser diff".
apiVersion: hawser.dev/v1alpha1
kind: ClusterSet
metadata:
  name: %s
spec:
  # What the nodes run in Kubernetes: your registry's copy, or what make image builds.
  # Nobody replaces it but a commit of this line.
  agent:
    image: %s
  # Clusters with the same CIDRs reach each other through global addresses,
  # which are taken from this pool.
  globalnet:
    cidr: 242.0.0.0/8
  clusters:
`, f.name, render.DefaultImage(version))
	for i, cluster := range f.clusters {
		_, _ = fmt.Fprintf(&out, `  - name: %s
    podCIDRs: [10.42.0.0/16]      # as the cluster has them
    serviceCIDRs: [10.43.0.0/16]
`, cluster)
		if recipient := recipients[cluster]; recipient != "" {
			_, _ = fmt.Fprintf(&out, "    recipient: %s\n", recipient)
		} else {
			_, _ = out.WriteString("    # recipient: age1...          # from: hawser keys identity FILE\n")
		}
		_, _ = fmt.Fprintf(&out, `    gateways:
    - name: %[1]s-a
      node: %[1]s-a                 # the Kubernetes node that holds the tunnels
      endpoints: [203.0.113.%[2]d]   # where other clusters reach it (UDP 51820)
`, cluster, 11+i)
	}
	if len(f.clusters) > 0 {
		_, _ = out.WriteString(discover.ExportHint(f.clusters[len(f.clusters)-1]))
	}
	return out.String()
}
