package keys

import (
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"sigs.k8s.io/yaml"

	"hawser.dev/hawser/install/apply"
	"hawser.dev/hawser/install/delivery"
	"hawser.dev/hawser/internal/cli"
	"hawser.dev/hawser/internal/cli/clusterselect"
	"hawser.dev/hawser/internal/cli/topofile"
	"hawser.dev/hawser/render"
	"hawser.dev/hawser/schema"
	"hawser.dev/hawser/schema/fabric/trust"
)

type keysSignersFlags struct {
	topofile.BuildFlags
	cluster, output string
}

func newKeysSignersCommand(env *cli.Env) *cobra.Command {
	var f keysSignersFlags
	cmd := &cobra.Command{
		Use:   "signers [FILE|DIR] --cluster NAME",
		Short: "Show the signers of a clusterset",
		Long: `Print the public keys that sign the fabric and the sealed keys, one for each root key in
use, as lines of an OpenSSH allowed_signers file: CLUSTERSET/CLUSTER KEYTYPE KEY. Agents
that find them in the Secret ` + render.TrustSecret + ` (key ` + render.TrustKey + `), or in the file
of --trust, act only on documents with a signature of these keys.

    hawser keys signers --cluster g1 -o secret | kubectl --context g1 apply -f -

The same keys sign published commits. Flux 2.9 or later verifies them with the Secret
` + delivery.FluxSigners + ` of -o flux; name it in spec.verify of the GitRepository.`,
		Example: `  hawser keys signers --cluster fra --root-key root.key`,
		Args:    cobra.MaximumNArgs(1),
		RunE:    func(_ *cobra.Command, args []string) error { return showSigners(env, args, f) },
	}
	topofile.AddFlag(env, cmd)
	cmd.Flags().StringVar(&f.Root, "root-key", os.Getenv("HAWSER_ROOT_KEY"), topofile.RootKeyHelp)
	cmd.Flags().StringVar(&f.Identity, "root-identity", "", "age identity that opens an encrypted root key")
	cmd.Flags().StringVar(&f.cluster, "cluster", "*", "cluster of the topology; * = all of them")
	cli.CompleteFlag(cmd, "cluster", cli.Complete(clusterselect.CompletionNames))
	cli.OutputFlag(cmd, false, &f.output, "text", "secret", "flux", "json", "yaml")
	return cmd
}

func showSigners(env *cli.Env, args []string, f keysSignersFlags) error {
	t, err := topofile.Read(env, args)
	if err != nil {
		return err
	}
	set, _, err := topofile.Load(env, t)
	if err != nil {
		return err
	}
	known := slices.ContainsFunc(set.Spec.Clusters, func(c schema.Cluster) bool { return c.Name == f.cluster })
	if f.cluster != "*" && !known {
		return fmt.Errorf("--cluster %s: the topology has no such cluster", f.cluster)
	}
	if f.Root == "" {
		return topofile.ErrNoRootKey()
	}
	keys, err := topofile.Signers(set, f.BuildFlags)
	if err != nil {
		return err
	}
	switch pins := trust.PinFile(set.Metadata.Name, f.cluster, keys); f.output {
	case "text":
		_, err = env.Out.Write([]byte(pins))
		return err
	case "secret":
		return writeSecret(env, apply.PinSecret(pins).Object)
	case "flux":
		return writeSecret(env, map[string]any{
			"apiVersion": "v1", "kind": "Secret", "type": "Opaque",
			"metadata":   map[string]any{"name": delivery.FluxSigners, "namespace": "flux-system"},
			"stringData": map[string]any{delivery.FluxSignersKey: strings.Join(keys, "\n") + "\n"},
		})
	}
	return env.Encode(f.output, keys)
}

func writeSecret(env *cli.Env, object map[string]any) error {
	raw, err := yaml.Marshal(object)
	if err != nil {
		return fmt.Errorf("write Secret: %w", err)
	}
	_, err = env.Out.Write(raw)
	return err
}
