package main

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"filippo.io/age"
	"github.com/spf13/cobra"

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
	UserProvided bool   `json:"brought,omitempty"` // from the topology, not derived
	// Root is the first epoch of the root key that it is derived from; 0 = there is only one.
	Root int `json:"root,omitempty"`
}

type keysShowFlags struct{ root, identity, output string }

func newKeysCommand(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "keys",
		Short: "Make keys and show public ones",
		Args:  noVerb,
		RunE: func(*cobra.Command, []string) error {
			return errors.New("say what to do: hawser keys root FILE, identity FILE, show, epochs or signers")
		},
	}
	cmd.AddCommand(
		newKeysRootCommand(a),
		newKeysIdentityCommand(a),
		newKeysShowCommand(a),
		newKeysEpochsCommand(a),
		newKeysSignersCommand(a),
	)
	return cmd
}

func newKeysShowCommand(a *app) *cobra.Command {
	var f keysShowFlags
	cmd := &cobra.Command{
		Use:     "show [FILE|DIR]",
		Short:   "Show the public key of every gateway",
		Example: `  hawser keys show --root-key root.key`,
		Args:    cobra.MaximumNArgs(1),
		RunE:    func(_ *cobra.Command, args []string) error { return a.showKeys(args, f) },
	}
	a.topologyFlag(cmd)
	cmd.Flags().StringVar(&f.root, "root-key", os.Getenv("HAWSER_ROOT_KEY"), rootKeyHelp)
	cmd.Flags().StringVar(&f.identity, "root-identity", "", "age identity that opens an encrypted root key")
	outputFlag(cmd, false, &f.output, "text", "json", "yaml")
	return cmd
}

func newKeysIdentityCommand(a *app) *cobra.Command {
	var hybrid bool
	cmd := &cobra.Command{
		Use:   "identity FILE",
		Short: "Make an age identity for a cluster and print its recipient",
		Long: `Make an age identity for a cluster and print its recipient, which goes into
clusters[].recipient. The history of the published branch holds what is encrypted
to it for ever: with --post-quantum (X25519 and ML-KEM-768 together) quantum
computers will not open it either. Such a recipient has 2000 characters.`,
		Example: `  hawser keys identity fra.identity`,
		Args:    cobra.ExactArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			recipient, err := writeIdentity(args[0], hybrid)
			if err != nil {
				return err
			}
			_, err = fmt.Fprintln(a.out, recipient)
			return err
		},
	}
	cmd.Flags().BoolVar(&hybrid, "post-quantum", false, "make one that quantum computers do not break either")
	return cmd
}

// writeIdentity makes an identity in the form of age-keygen(1) and gives its
// recipient.
func writeIdentity(path string, hybrid bool) (recipient string, err error) {
	text, recipient, err := newIdentity(hybrid)
	if err != nil {
		return "", err
	}
	return recipient, writeNew(path, []byte(text), 0o600)
}

// newIdentity gives the text of a new identity, and its recipient.
func newIdentity(hybrid bool) (text, recipient string, err error) {
	var identity fmt.Stringer
	if hybrid {
		var made *age.HybridIdentity
		if made, err = age.GenerateHybridIdentity(); err == nil {
			identity, recipient = made, made.Recipient().String()
		}
	} else {
		var made *age.X25519Identity
		if made, err = age.GenerateX25519Identity(); err == nil {
			identity, recipient = made, made.Recipient().String()
		}
	}
	if err != nil {
		return "", "", fmt.Errorf("make identity: %w", err)
	}
	return "# public key: " + recipient + "\n" + identity.String() + "\n", recipient, nil
}

func (a *app) showKeys(args []string, f keysShowFlags) error {
	t, err := a.readTopology(args)
	if err != nil {
		return err
	}
	set, _, err := a.load(t)
	if err != nil {
		return err
	}
	if f.root == "" {
		return errNoRootKey()
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
		return a.encode(f.output, list)
	}
	t2 := table{title: "Clusterset " + set.Metadata.Name, head: []string{"CLUSTER", "GATEWAY", "EPOCH", "PUBLIC KEY", "FROM"}}
	for _, k := range list {
		t2.rows = append(t2.rows, []string{k.Cluster, k.Gateway, fmt.Sprint(k.Epoch), k.Public, k.from()})
	}
	_, err = a.out.Write([]byte(t2.String()))
	return err
}

func errNoRootKey() error {
	return errors.New("no root key: name it with --root-key or HAWSER_ROOT_KEY (hawser keys root FILE makes one)")
}

// from says where a key comes from.
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
