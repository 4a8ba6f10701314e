// Package keys has the commands of hawser keys: gateway keys, identities, root keys and signers.
package keys

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"hawser.dev/hawser/internal/cli"
	"hawser.dev/hawser/internal/cli/keyfile"
	"hawser.dev/hawser/internal/cli/topofile"
	"hawser.dev/hawser/reconciler"
	"hawser.dev/hawser/render/keys"
	"hawser.dev/hawser/schema"
)

// gatewayKey is the public key of one gateway in one epoch.
type gatewayKey struct {
	Cluster      string `json:"cluster"`
	Gateway      string `json:"gateway"`
	Epoch        int    `json:"epoch"`
	Public       string `json:"public"`
	UserProvided bool   `json:"userProvided,omitempty"` // from the topology, not derived
	// Root is the first epoch of the root key from which the key is derived; 0 = there is only
	// one root key.
	Root int `json:"root,omitempty"`
}

type keysShowFlags struct{ root, identity, output string }

func NewKeysCommand(env *cli.Env) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "keys",
		Short: "Create keys and show public keys",
		Args:  cli.NoVerb,
		RunE: func(*cobra.Command, []string) error {
			return errors.New("say what to do: hawser keys root FILE, identity FILE, show, epochs or signers")
		},
	}
	cmd.AddCommand(
		newKeysRootCommand(env),
		newKeysIdentityCommand(env),
		newKeysShowCommand(env),
		newKeysEpochsCommand(env),
		newKeysSignersCommand(env),
	)
	return cmd
}

func newKeysShowCommand(env *cli.Env) *cobra.Command {
	var f keysShowFlags
	cmd := &cobra.Command{
		Use:     "show [FILE|DIR]",
		Short:   "Show the public key of every gateway",
		Example: `  hawser keys show --root-key root.key`,
		Args:    cobra.MaximumNArgs(1),
		RunE:    func(_ *cobra.Command, args []string) error { return showKeys(env, args, f) },
	}
	topofile.AddFlag(env, cmd)
	cmd.Flags().StringVar(&f.root, "root-key", os.Getenv("HAWSER_ROOT_KEY"), topofile.RootKeyHelp)
	cmd.Flags().StringVar(&f.identity, "root-identity", "", "age identity that opens an encrypted root key")
	cli.OutputFlag(cmd, false, &f.output, "text", "json", "yaml")
	return cmd
}

func newKeysIdentityCommand(env *cli.Env) *cobra.Command {
	var hybrid bool
	cmd := &cobra.Command{
		Use:               "identity FILE",
		ValidArgsFunction: cli.FirstArgument(nil),
		Short:             "Create an age identity for a cluster, print its recipient",
		Long: `Create an age identity for a cluster and print its recipient, for clusters[].recipient.

The history of the publish branch keeps all keys encrypted to that recipient. With
--post-quantum (X25519 and ML-KEM-768 together), quantum computers cannot decrypt them
either. Such a recipient has about 2000 characters.`,
		Example: `  hawser keys identity fra.identity`,
		Args:    cobra.ExactArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			recipient, err := keyfile.WriteIdentity(args[0], hybrid)
			if err != nil {
				return err
			}
			_, err = fmt.Fprintln(env.Out, recipient)
			return err
		},
	}
	cmd.Flags().BoolVar(&hybrid, "post-quantum", false, "create an identity that resists quantum computers")
	return cmd
}

func showKeys(env *cli.Env, args []string, f keysShowFlags) error {
	t, err := topofile.Read(env, args)
	if err != nil {
		return err
	}
	set, _, err := topofile.Load(env, t)
	if err != nil {
		return err
	}
	if f.root == "" {
		return topofile.ErrNoRootKey()
	}
	root, err := reconciler.ReadRootKey(f.root, f.identity)
	if err != nil {
		return err
	}
	list, err := gatewayKeys(set, root)
	if err != nil {
		return err
	}
	if f.output != "text" {
		return env.Encode(f.output, list)
	}
	t2 := cli.Table{Title: "Clusterset " + set.Metadata.Name, Head: []string{"CLUSTER", "GATEWAY", "EPOCH", "PUBLIC KEY", "FROM"}}
	for _, k := range list {
		t2.Rows = append(t2.Rows, []string{k.Cluster, k.Gateway, fmt.Sprint(k.Epoch), k.Public, k.from()})
	}
	_, err = env.Out.Write([]byte(t2.String()))
	return err
}

// from returns the origin of a key.
func (k *gatewayKey) from() string {
	switch {
	case k.UserProvided:
		return "topology"
	case k.Root > 0:
		return fmt.Sprintf("root key from epoch %d on", k.Root)
	}
	return "root key"
}

func gatewayKeys(set *schema.ClusterSet, root *keys.Root) ([]gatewayKey, error) {
	list := []gatewayKey{}
	for _, c := range set.Spec.Clusters {
		for _, g := range c.AllGateways() {
			for _, epoch := range set.Spec.Keys.Epochs {
				key, err := keyOf(set.Metadata.Name, c.Name, &g, root, epoch)
				if err != nil {
					return nil, err
				}
				list = append(list, key)
			}
		}
	}
	return list, nil
}

func keyOf(set, cluster string, g *schema.Gateway, root *keys.Root, epoch int) (gatewayKey, error) {
	out := gatewayKey{Cluster: cluster, Gateway: g.Name, Epoch: epoch, Public: strings.TrimSpace(g.PublicKey)}
	if out.Public != "" {
		out.UserProvided = true
		return out, nil
	}
	public, err := root.Public(set, cluster, g.Name, epoch)
	if err != nil {
		return out, err
	}
	out.Public = public.Public
	if len(root.Epochs()) > 1 {
		out.Root, err = root.EpochRoot(epoch)
	}
	return out, err
}
