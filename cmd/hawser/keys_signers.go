package main

import (
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"sigs.k8s.io/yaml"

	"hawser.dev/hawser/install/apply"
	"hawser.dev/hawser/install/delivery"
	"hawser.dev/hawser/render"
	"hawser.dev/hawser/schema"
	"hawser.dev/hawser/schema/fabric/trust"
)

type keysSignersFlags struct {
	buildFlags
	cluster, output string
}

func newKeysSignersCommand(a *app) *cobra.Command {
	var f keysSignersFlags
	cmd := &cobra.Command{
		Use:   "signers [FILE|DIR] --cluster NAME",
		Short: "Show whose signatures the agents of a cluster are to trust",
		Long: `Print the public keys that sign the fabric and the sealed keys, one for each root
key of an epoch in force, as lines of an OpenSSH allowed_signers file:
CLUSTERSET/CLUSTER KEYTYPE KEY. Agents of the cluster that find them in the Secret
` + render.TrustSecret + ` (key ` + render.TrustKey + `), or in the file of --trust, act only on
documents with a signature of these keys.

    hawser keys signers --cluster g1 -o secret | kubectl --context g1 apply -f -

They sign published commits, too. Flux (2.9 or newer) verifies these with the Secret
` + delivery.FluxSigners + ` that -o flux prints, which spec.verify of its GitRepository names.`,
		Example: `  hawser keys signers --cluster fra --root-key root.key`,
		Args:    cobra.MaximumNArgs(1),
		RunE:    func(_ *cobra.Command, args []string) error { return a.showSigners(args, f) },
	}
	a.topologyFlag(cmd)
	cmd.Flags().StringVar(&f.root, "root-key", os.Getenv("HAWSER_ROOT_KEY"), rootKeyHelp)
	cmd.Flags().StringVar(&f.identity, "root-identity", "", "age identity that opens an encrypted root key")
	cmd.Flags().StringVar(&f.cluster, "cluster", "*", "cluster of the topology; * = all of them")
	outputFlag(cmd, false, &f.output, "text", "secret", "flux", "json", "yaml")
	return cmd
}

func (a *app) showSigners(args []string, f keysSignersFlags) error {
	t, err := a.readTopology(args)
	if err != nil {
		return err
	}
	set, _, err := a.load(t)
	if err != nil {
		return err
	}
	known := slices.ContainsFunc(set.Spec.Clusters, func(c schema.Cluster) bool { return c.Name == f.cluster })
	if f.cluster != "*" && !known {
		return fmt.Errorf("--cluster %s: the topology has no such cluster", f.cluster)
	}
	if f.root == "" {
		return errNoRootKey()
	}
	keys, err := signers(set, f.buildFlags)
	if err != nil {
		return err
	}
	switch pins := trust.PinFile(set.Metadata.Name, f.cluster, keys); f.output {
	case "text":
		_, err = a.out.Write([]byte(pins))
		return err
	case "secret":
		return a.writeSecret(apply.PinSecret(pins).Object)
	case "flux":
		return a.writeSecret(map[string]any{
			"apiVersion": "v1", "kind": "Secret", "type": "Opaque",
			"metadata":   map[string]any{"name": delivery.FluxSigners, "namespace": "flux-system"},
			"stringData": map[string]any{delivery.FluxSignersKey: strings.Join(keys, "\n") + "\n"},
		})
	}
	return a.encode(f.output, keys)
}

func (a *app) writeSecret(object map[string]any) error {
	raw, err := yaml.Marshal(object)
	if err != nil {
		return fmt.Errorf("write Secret: %w", err)
	}
	_, err = a.out.Write(raw)
	return err
}

// signers gives the public halves of the keys that sign for a clusterset; none
// without a root key.
func signers(set *schema.ClusterSet, f buildFlags) ([]string, error) {
	root, err := f.rootKey()
	if err != nil || root == nil {
		return nil, err
	}
	today, _, err := root.Signers(set.Metadata.Name, set.Spec.Keys.Epochs)
	if err != nil {
		return nil, err
	}
	out := []string{}
	for _, s := range today {
		out = append(out, trust.Line(s.PublicKey()))
	}
	return out, nil
}
