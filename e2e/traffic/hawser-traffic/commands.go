package main

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"time"

	"github.com/spf13/cobra"

	"hawser.dev/hawser/e2e/traffic"
)

func newServeCommand() *cobra.Command {
	var ports []int
	var name string
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Answer every kind of traffic on some ports, TCP and UDP",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			host, err := os.Hostname()
			if err != nil {
				return fmt.Errorf("find host name: %w", err)
			}
			if err := traffic.RaiseFiles(1<<16, 1024); err != nil {
				return err
			}
			server, err := traffic.Serve(traffic.Socket{}, cmp.Or(name, host), nil, ports...)
			if err != nil {
				return err
			}
			<-cmd.Context().Done()
			return server.Close()
		},
	}
	cmd.Flags().IntSliceVar(&ports, "port", []int{7000}, "ports to serve")
	cmd.Flags().StringVar(&name, "name", "", "name of the server in its answers [host name]")
	return cmd
}

func newUDPCommand() *cobra.Command {
	var s span
	var u traffic.UDP
	var control string
	var margin int
	cmd := &cobra.Command{
		Use:   "udp HOST:PORT",
		Short: "Send numbered datagrams and count the answers",
		Long: `Send numbered datagrams to a server that echoes them. A datagram without an
answer --grace after the end is lost. In the report, silence is the longest time
without any answer, outage the longest run of lost datagrams, and pause the
longest time in which this program itself did not send (a busy machine).

With --control, a second flow to another server runs at the same time. The report
then has both. The exit code is 1 if the first flow lost more than --margin
datagrams beyond the second: a busy machine drops datagrams of both.`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			var err error
			if u.Target, err = resolveOne(cmd.Context(), args[0]); err != nil {
				return err
			}
			ctx, cancel := s.context(cmd.Context())
			defer cancel()
			if control != "" {
				b := traffic.Paired{Changed: u, Control: u, Margin: margin, Ready: s.markReady}
				var err error
				if b.Control.Target, err = resolveOne(ctx, control); err != nil {
					return err
				}
				report, err := b.Run(ctx)
				if err := print(cmd, report, err); err != nil {
					return err
				}
				return report.Err()
			}
			u.Ready = s.markReady
			report, err := u.Run(ctx)
			return print(cmd, report, err)
		},
	}
	s.flags(cmd)
	flags := cmd.Flags()
	flags.IntVar(&u.Rate, "rate", 1000, "datagrams a second")
	flags.IntVar(&u.Size, "size", 64, "bytes of payload, from 37")
	flags.IntVar(&u.Count, "count", 0, "number of datagrams; 0 = no limit")
	flags.DurationVar(&u.Threshold, "threshold", 100*time.Millisecond, "list silences of at least this time")
	flags.DurationVar(&u.Grace, "grace", traffic.Grace, "time to wait for late answers at the end")
	flags.StringVar(&control, "control", "", "HOST:PORT of the control flow, through an unchanged path")
	flags.IntVar(&margin, "margin", 0, "datagrams that may be lost beyond the losses of the control flow")
	return cmd
}

// resolveOne resolves a target that must have exactly one address.
func resolveOne(ctx context.Context, target string) (string, error) {
	targets, err := traffic.Resolve(ctx, []string{target})
	if err != nil {
		return "", err
	}
	if len(targets) != 1 {
		return "", fmt.Errorf("target %s has %d addresses: give one of them", target, len(targets))
	}
	return targets[0], nil
}

func newTCPCommand() *cobra.Command {
	var s span
	var t traffic.TCP
	var kinds string
	cmd := &cobra.Command{
		Use:   "tcp HOST:PORT...",
		Short: "Hold TCP connections open and test each at the end",
		Long: `Open connections, hold them open, and test each at the end. They use all
addresses of all targets, and all kinds, in rotation:

  idle         silent until one exchange at the end
  busy         the client sends every interval, the server answers
  client-push  the client sends every interval, the server reports the count at the end
  server-push  the server sends every interval, the client never sends again

All must open within --open. The exit code does not depend on the survivors: see
the report.`,
		Args: cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			if t.Targets, err = traffic.Resolve(cmd.Context(), args); err != nil {
				return err
			}
			if t.Kinds, err = traffic.ParseKinds(kinds); err != nil {
				return err
			}
			ctx, cancel := s.context(cmd.Context())
			defer cancel()
			t.Ready = s.markReady
			report, err := t.Run(ctx)
			return print(cmd, report, err)
		},
	}
	s.flags(cmd)
	flags := cmd.Flags()
	flags.IntVar(&t.Count, "count", 1000, "number of connections")
	flags.StringVar(&kinds, "kinds", "all", "kinds, separated by commas")
	flags.DurationVar(&t.Interval, "interval", 200*time.Millisecond, "time between two messages of a connection that is not idle")
	flags.IntVar(&t.Line, "line", 0, "minimum bytes of a message of busy connections")
	flags.DurationVar(&t.Patience, "patience", 20*time.Second, "a connection without progress for this time is dead")
	flags.DurationVar(&t.Open, "open", 20*time.Second, "time in which all must open")
	return cmd
}

func newNewCommand() *cobra.Command {
	var s span
	var c traffic.Calls
	var log string
	cmd := &cobra.Command{
		Use:   "new HOST:PORT",
		Short: "Open new TCP connections at a rate, each answered and closed",
		Args:  cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			var err error
			if c.Target, err = resolveOne(cmd.Context(), args[0]); err != nil {
				return err
			}
			if log != "" {
				file, err := os.Create(log)
				if err != nil {
					return fmt.Errorf("log attempts: %w", err)
				}
				defer file.Close()
				encoder := json.NewEncoder(file)
				c.OnAttempt = func(a traffic.Attempt) error { return encoder.Encode(a) }
			}
			ctx, cancel := s.context(cmd.Context())
			defer cancel()
			c.Ready = s.markReady
			report, err := c.Run(ctx)
			return print(cmd, report, err)
		},
	}
	s.flags(cmd)
	flags := cmd.Flags()
	flags.IntVar(&c.Rate, "rate", 50, "connections a second")
	flags.IntVar(&c.Count, "count", 0, "number of connections; 0 = no limit")
	flags.DurationVar(&c.Timeout, "timeout", 3*time.Second, "timeout of one connection")
	flags.DurationVar(&c.Slow, "slow", 200*time.Millisecond, "duration from which a connection counts as slow")
	flags.StringVar(&log, "log", "", "file for one line of JSON per attempt")
	return cmd
}
