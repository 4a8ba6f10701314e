package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/spf13/cobra"

	"hawser.dev/hawser/nodeagent/status"
)

func recentCommand() *cobra.Command {
	var socket, output string
	cmd := &cobra.Command{
		Use:   "recent",
		Short: "Print what this node was like in the last hour, and what changed on it",
		Long: `Prints what the running agent remembers: a sample of its links, traffic and connections
for every ten seconds of the last hour, how each kind of object is that it keeps, and
the last 64 changes that it made on this node. It is gone when the agent ends; metrics
(docs/metrics.md) are for what should be kept. hawser ui draws it.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if output != "text" && output != "json" {
				return fmt.Errorf("--output %s: use text or json", output)
			}
			raw, err := ask(cmd.Context(), socket, http.MethodGet, "/recent")
			if err != nil {
				return err
			}
			if output == "json" {
				_, err := cmd.OutOrStdout().Write(raw)
				return err
			}
			var r status.Recent
			if err := json.Unmarshal(raw, &r); err != nil {
				return fmt.Errorf("read the agent's answer: %w", err)
			}
			return printRecent(cmd.OutOrStdout(), r)
		},
	}
	cmd.Flags().StringVar(&socket, "socket", defaultSocket, "unix socket of the agent")
	cmd.Flags().StringVarP(&output, "output", "o", "text", "text or json")
	return cmd
}

// printRecent prints a line for each minute: its last sample.
func printRecent(w io.Writer, r status.Recent) error {
	p := &printer{w: w}
	p.line("TIME      READY  LINKS  RTT(MS)  LOSS  RX(B/S)     TX(B/S)     CONNECTIONS  DRIFT")
	for i, s := range r.Samples {
		if i+1 < len(r.Samples) && r.Samples[i+1].At.Truncate(time.Minute).Equal(s.At.Truncate(time.Minute)) {
			continue
		}
		ready := "no"
		if s.Ready {
			ready = "yes"
		}
		p.line("%s  %-5s  %-5s  %-7.1f  %-4s  %-10d  %-10d  %-11d  %d", s.At.UTC().Format("15:04:05"), ready, fmt.Sprintf("%d/%d", s.Up, s.Links),
			float64(s.RTTMicros)/1000, fmt.Sprintf("%.0f%%", s.Loss*100), s.RxRate, s.TxRate, s.Connections, s.Drift)
	}
	for _, k := range r.Kinds {
		if k.Why != "" {
			p.line("%s: %s: %s", k.Name, k.State, k.Why)
		}
	}
	for _, c := range r.Changes {
		p.line("%s  %s", c.At.UTC().Format("15:04:05"), c.Text)
	}
	return p.err
}
