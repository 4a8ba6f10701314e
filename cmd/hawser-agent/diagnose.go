package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"time"

	"github.com/spf13/cobra"

	"hawser.dev/hawser/nodeagent/status"
)

func diagnoseCommand() *cobra.Command {
	var socket, output string
	var duration time.Duration
	var addresses, exports []string
	cmd := &cobra.Command{
		Use:   "diagnose",
		Short: "Trace packets on this node and name the rule that drops them",
		Long: `Trace packets of the clusterset on this node (at most 40 per second) through all rules of
nftables, iptables-nft included, and report which rule of which table drops one: of a
NetworkPolicy, a firewall, or Hawser. hawser diagnose traces on all nodes at once.

Run it on the nodes of the client, the gateways and the server, and make the failing request
meanwhile. Where there is much traffic, select it with --export or --address. The command
marks packets for tracing (meta nftrace) in a table of its own, and deletes that table at
the end.

It cannot name drops outside nftables, such as in eBPF programs of a CNI or in rules of
iptables-legacy. Such packets are reported as not seen again.

Exit codes: 0 all followed packets passed; 1 some did not; 2 error.`,
		Example: `  hawser-agent diagnose --for 30s`,
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			query := url.Values{"for": {duration.String()}, "address": addresses, "export": exports}
			raw, err := request(cmd.Context(), duration+statusTimeout, socket, http.MethodGet, "/diagnose?"+query.Encode())
			if err != nil {
				return err
			}
			var d status.Diagnosis
			if err := json.Unmarshal(raw, &d); err != nil {
				return fmt.Errorf("read the agent's answer: %w", err)
			}
			if err := printDiagnosis(cmd.OutOrStdout(), d, raw, output); err != nil {
				return err
			}
			if len(d.Findings) > 0 {
				return errNegative
			}
			return nil
		},
	}
	cmd.Flags().StringVar(&socket, "socket", defaultSocket, "unix socket of the agent")
	cmd.Flags().DurationVar(&duration, "for", 10*time.Second, "how long to trace, from 2s to 5m")
	cmd.Flags().StringSliceVar(&exports, "export", nil, "follow only packets from or to this export, NAMESPACE/NAME; may be repeated")
	cmd.Flags().StringSliceVar(&addresses, "address", nil, "follow only packets from or to this address or prefix, such as a client's; may be repeated")
	cmd.Flags().StringVarP(&output, "output", "o", "text", "text or json")
	return cmd
}

func printDiagnosis(w io.Writer, d status.Diagnosis, raw []byte, output string) error {
	switch output {
	case "json":
		_, err := w.Write(raw)
		return err
	case "text":
	default:
		return fmt.Errorf("--output %s: use text or json", output)
	}
	p := &printer{w: w}
	if d.Packets == 0 {
		p.line("no packet of the clusterset in %.0f s: make a request meanwhile, or look on another node on its path", d.Seconds)
		for _, text := range d.Problems {
			p.line("%s", text)
		}
		return p.err
	}
	p.line("%d packets of the clusterset followed in %.0f s, %d got through", d.Packets, d.Seconds, d.Passed)
	for _, text := range d.Problems {
		p.line("%s", text)
	}
	if d.ReversePathDrops > 0 {
		p.line("%s", status.FilteredText(d.ReversePathDrops))
	}
	for _, f := range d.Findings {
		p.line("%d ended at %s", f.Packets, f.Location)
		p.line("  %s", f.Text)
		for _, flow := range f.Flows {
			p.line("  packet: %s", flow)
		}
		p.line("  to do: %s", f.Next)
	}
	return p.err
}
