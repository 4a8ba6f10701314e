package offline

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"hawser.dev/hawser/internal/cli"
	"hawser.dev/hawser/internal/cli/clusterselect"
	"hawser.dev/hawser/internal/cli/topofile"
	"hawser.dev/hawser/schema/fabric"
	"hawser.dev/hawser/schema/fabric/firewall"
)

// Formats of `hawser firewall` in addition to json and yaml.
const (
	firewallTable  = "table"
	firewallAWS    = "terraform-aws"
	firewallGoogle = "terraform-google"
	firewallAzure  = "terraform-azure"
	firewallNft    = "nftables"
)

type firewallFlags struct {
	output   string
	clusters []string
	gateways []string
}

func NewFirewallCommand(env *cli.Env) *cobra.Command {
	var f firewallFlags
	cmd := &cobra.Command{
		Use:   "firewall [FILE|DIR|-]",
		Short: "Print the firewall ports of gateways",
		Long: `Print the ports that firewalls in front of gateways must open now, with sources and
purpose: links (links), secondary tunnels during a port change (migration), and traffic between
nodes of a cluster (nodes). The command reads only the topology and its lock.

A link uses one port per key epoch and gateway, counted from tunnel.port up; migrations use
the other end of the range. To never change a firewall again, open the whole range once:
tunnel.port to tunnel.port+63 for WireGuard (51820-51883 by default), and 2 ports more for
VXLAN (51884-51885). It covers all key epochs, rotations and new gateways.

Firewalls must allow outgoing packets and their replies. All other traffic is inside the
tunnels. A gateway without endpoints only dials out and needs no open port.

terraform-aws, terraform-google and terraform-azure print security group rules, with
variables for values that Hawser does not know. nftables prints a chain for each gateway;
jump to it from a chain of your own.

Exit codes: 0 done; 1 the topology has errors; 2 error.`,
		Example: `  hawser firewall
  hawser firewall -o terraform-aws
  hawser firewall --gateway fra/a -o nftables`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(_ *cobra.Command, args []string) error { return runFirewall(env, args, f) },
	}
	cli.OutputFlag(cmd, false, &f.output, firewallTable, "json", "yaml", firewallAWS, firewallGoogle, firewallAzure,
		firewallNft)
	cmd.Flags().StringSliceVar(&f.clusters, "cluster", nil, "clusters to print, such as g1,g2 (default: all)")
	cmd.Flags().StringSliceVar(&f.gateways, "gateway", nil, "gateways to print, such as g1/a (default: all)")
	cli.CompleteFlag(cmd, "cluster", cli.CompleteList(clusterselect.CompletionNames))
	cli.CompleteFlag(cmd, "gateway", cli.CompleteList(topofile.GatewayNames))
	return cmd
}

func runFirewall(env *cli.Env, args []string, f firewallFlags) error {
	c, err := topofile.Compile(env, args)
	if err != nil {
		return err
	}
	list, err := f.openings(c.Fabric)
	if err != nil {
		return err
	}
	switch f.output {
	case firewallTable:
		_, err = env.Out.Write([]byte(firewallText(c.Fabric, list, f)))
	case firewallNft:
		_, err = env.Out.Write([]byte(nftText(c.Fabric.Name, list)))
	case firewallAWS, firewallGoogle, firewallAzure:
		_, err = env.Out.Write([]byte(terraform(f.output, c.Fabric.Name, list)))
	default:
		err = env.Encode(f.output, struct {
			Openings []firewall.Rule `json:"openings"`
		}{list})
	}
	return err
}

// openings returns the rules of the gateways and clusters that the flags select.
func (f firewallFlags) openings(fab *fabric.Fabric) ([]firewall.Rule, error) {
	set := firewall.New(fab)
	out := []firewall.Rule{}
	for _, name := range f.clusters {
		if fab.Cluster(name) == nil {
			return nil, fmt.Errorf("--cluster %s: the topology has no such cluster", name)
		}
	}
	for _, name := range f.gateways {
		cluster, gateway, _ := strings.Cut(name, "/")
		if fab.Cluster(cluster).Gateway(gateway) == nil {
			return nil, fmt.Errorf("--gateway %s: the topology has no such gateway (they are written as cluster/gateway)", name)
		}
	}
	for i := range fab.Clusters {
		name := fab.Clusters[i].Name
		if len(f.clusters) > 0 && !slices.Contains(f.clusters, name) {
			continue
		}
		for _, o := range set.RulesFor(name) {
			if len(f.gateways) == 0 || slices.Contains(f.gateways, name+"/"+o.Gateway) {
				out = append(out, o)
			}
		}
	}
	if len(out) == 0 {
		return nil, errors.New("no port has to be open for these gateways: they only dial out")
	}
	return out, nil
}

// firewallText returns the rules as a table.
func firewallText(f *fabric.Fabric, list []firewall.Rule, flags firewallFlags) string {
	t := cli.Table{Title: "Ports to let in", Head: []string{"GATEWAY", "NODE", "PROTOCOL", "PORTS", "AT", "FROM",
		"ADDRESSES", "FOR"}}
	for i := range list {
		o := &list[i]
		gateway, node, from, addresses := o.Cluster+"/"+o.Gateway, o.Node, strings.Join(o.From, ","),
			cmp.Or(strings.Join(prefixTexts(o.Sources, true), ","), "any")
		purpose := strings.TrimSpace(o.Driver + " " + o.Purpose)
		if g := f.Cluster(o.Cluster).Gateway(o.Gateway); g != nil {
			node = g.NodeText()
		}
		if o.Purpose == firewall.PurposeNodes {
			gateway, node, from, addresses = o.Cluster, "every node", "nodes of "+o.Cluster, "nodes"
		}
		var at []string
		for _, p := range o.Destinations {
			text := p.Host
			if p.First != 0 {
				text = fmt.Sprintf("%s from port %d", p.Host, p.First)
			}
			at = append(at, text)
		}
		t.Rows = append(t.Rows, []string{gateway, node, o.Protocol, o.Ports(), strings.Join(at, ","), from,
			addresses, purpose})
	}
	text := t.String()
	for i := range f.Clusters {
		c := &f.Clusters[i]
		for _, g := range c.Gateways {
			name := c.Name + "/" + g.Name
			named := (len(flags.clusters) == 0 || slices.Contains(flags.clusters, c.Name)) &&
				(len(flags.gateways) == 0 || slices.Contains(flags.gateways, name))
			if named && len(g.Endpoints) == 0 {
				text += name + " has no endpoints: it dials out, and needs no port\n"
			}
		}
	}
	return text
}

// origins are the sources of a rule of one address family.
type origins struct {
	six  bool
	list []netip.Prefix
}

// short returns the family as in rule names and Terraform fields.
func (s origins) short() string {
	if s.six {
		return "v6"
	}
	return "v4"
}

// families returns the sources of a rule by address family, IPv4 first.
func families(o *firewall.Rule) []origins {
	if len(o.Sources) == 0 {
		return []origins{
			{false, []netip.Prefix{netip.PrefixFrom(netip.IPv4Unspecified(), 0)}},
			{true, []netip.Prefix{netip.PrefixFrom(netip.IPv6Unspecified(), 0)}},
		}
	}
	var out []origins
	for _, six := range []bool{false, true} {
		s := origins{six: six}
		for _, p := range o.Sources {
			if p.Addr().Is6() == six {
				s.list = append(s.list, p)
			}
		}
		if len(s.list) > 0 {
			out = append(out, s)
		}
	}
	return out
}
