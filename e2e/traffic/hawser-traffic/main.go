// Command hawser-traffic generates and measures traffic between pods of a lab or other
// hosts: see package traffic.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/spf13/cobra"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := newRootCommand().ExecuteContext(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(1)
	}
}

func newRootCommand() *cobra.Command {
	root := &cobra.Command{
		Use:   "hawser-traffic",
		Short: "Generate and measure traffic",
		Long: `Generate and measure traffic: numbered datagrams, long-lived TCP connections, new
connections at a rate. Every measurement ends with SIGINT or SIGTERM, after --for,
or when the file --until appears, and then prints its report as JSON. Run
hawser-traffic serve at the other end.`,
		SilenceUsage: true, SilenceErrors: true,
	}
	root.AddCommand(newServeCommand(), newUDPCommand(), newTCPCommand(), newNewCommand())
	return root
}

// span holds the start and end conditions of a measurement.
type span struct {
	ready string
	until string
	last  time.Duration
}

func (s *span) flags(cmd *cobra.Command) {
	cmd.Flags().StringVar(&s.ready, "ready", "", "file to create when traffic flows")
	cmd.Flags().StringVar(&s.until, "until", "", "end when this file appears")
	cmd.Flags().DurationVar(&s.last, "for", 0, "duration; 0 = until a signal or --until")
}

// context returns a context that is done at the end of the measurement.
func (s *span) context(ctx context.Context) (context.Context, context.CancelFunc) {
	cancel := context.CancelFunc(func() {})
	if s.last > 0 {
		ctx, cancel = context.WithTimeout(ctx, s.last)
	}
	if s.until == "" {
		return ctx, cancel
	}
	ctx, stop := context.WithCancel(ctx)
	go func() {
		tick := time.NewTicker(10 * time.Millisecond)
		defer tick.Stop()
		for {
			if _, err := os.Stat(s.until); err == nil {
				stop()
				return
			}
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
		}
	}()
	return ctx, func() { stop(); cancel() }
}

// markReady creates the --ready file.
func (s *span) markReady() {
	if s.ready == "" {
		return
	}
	if err := os.WriteFile(s.ready, nil, 0o644); err != nil {
		fmt.Fprintln(os.Stderr, "error: create the ready file:", err)
	}
}

func print(cmd *cobra.Command, report any, err error) error {
	if err != nil {
		return err
	}
	enc := json.NewEncoder(cmd.OutOrStdout())
	enc.SetIndent("", "  ")
	return enc.Encode(report)
}
