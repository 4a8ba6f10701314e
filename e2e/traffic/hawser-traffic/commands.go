package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
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
	cmd.Flags().StringVar(&name, "name", "", "what the server says of itself [host name]")
	return cmd
}

func newUDPCommand() *cobra.Command {
	var s span
	var u traffic.UDP
	var control string
	var margin int
	cmd := &cobra.Command{
		Use:   "udp HOST:PORT",
		Short: "Send numbered datagrams and count what comes back",
		Long: `Send numbered datagrams to a server that sends them back. What is not back
--grace after the end is lost. silence is the longest time without any answer, as
the client sees it; outage the longest row of lost datagrams; pause the longest
time in which this program itself did not send (a busy machine).

With --control a second flow goes to another server at the same time. The report
then has both, and the exit code is 1 when the first lost more than --margin
datagrams beyond the second: what a busy machine loses, it loses of both.`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			var err error
			if u.Target, err = resolveOne(cmd.Context(), args[0]); err != nil {
				return err
			}
			ctx, cancel := s.context(cmd.Context())
			defer cancel()
			if control != "" {
				b := traffic.Paired{Changed: u, Control: u, Margin: margin, Ready: s.tell}
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
			u.Ready = s.tell
			report, err := u.Run(ctx)
			return print(cmd, report, err)
		},
	}
	s.flags(cmd)
	flags := cmd.Flags()
	flags.IntVar(&u.Rate, "rate", 1000, "datagrams a second")
	flags.IntVar(&u.Size, "size", 64, "bytes of payload, from 37")
	flags.IntVar(&u.Count, "count", 0, "end after so many")
	flags.DurationVar(&u.Threshold, "threshold", 100*time.Millisecond, "list silences from here on")
	flags.DurationVar(&u.Grace, "grace", traffic.Grace, "how long the next answer is waited for in the end")
	flags.StringVar(&control, "control", "", "HOST:PORT of a flow that nothing is done to")
	flags.IntVar(&margin, "margin", 0, "datagrams that may be lost beyond what the control flow loses")
	return cmd
}

// resolveOne finds the only address of a measurement that has no use for more.
func resolveOne(ctx context.Context, target string) (string, error) {
	targets, err := traffic.Resolve(ctx, []string{target})
	if err != nil {
		return "", err
	}
	if len(targets) != 1 {
		return "", errors.New("the target has several addresses: name one")
	}
	return targets[0], nil
}

func newTCPCommand() *cobra.Command {
	var s span
	var t traffic.TCP
	var kinds string
	cmd := &cobra.Command{
		Use:   "tcp HOST:PORT...",
		Short: "Keep TCP connections and prove in the end that each still lives",
		Long: `Open connections, to all addresses of all targets in turn and of all kinds in
turn, keep them, and prove in the end that each one lives:

  idle         carries nothing at all until one exchange in the end
  busy         the client asks every interval, the server answers
  client-push  the client sends every interval, the server is silent and tells in the end what it got
  server-push  the server sends every interval, the client never sends again

All must open within --open; afterwards the exit code says nothing of the
survivors, the report does.`,
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
			t.Ready = s.tell
			report, err := t.Run(ctx)
			return print(cmd, report, err)
		},
	}
	s.flags(cmd)
	flags := cmd.Flags()
	flags.IntVar(&t.Count, "count", 1000, "connections in all")
	flags.StringVar(&kinds, "kinds", "all", "kinds, separated by commas")
	flags.DurationVar(&t.Interval, "interval", 200*time.Millisecond, "between two messages of a connection that speaks")
	flags.IntVar(&t.Line, "line", 0, "bytes of a message of busy connections, at least")
	flags.DurationVar(&t.Patience, "patience", 20*time.Second, "a connection that carries nothing for so long is dead")
	flags.DurationVar(&t.Open, "open", 20*time.Second, "in which all must be open")
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
				c.Note = func(a traffic.Attempt) error { return encoder.Encode(a) }
			}
			ctx, cancel := s.context(cmd.Context())
			defer cancel()
			c.Ready = s.tell
			report, err := c.Run(ctx)
			return print(cmd, report, err)
		},
	}
	s.flags(cmd)
	flags := cmd.Flags()
	flags.IntVar(&c.Rate, "rate", 50, "connections a second")
	flags.IntVar(&c.Count, "count", 0, "end after so many")
	flags.DurationVar(&c.Timeout, "timeout", 3*time.Second, "of one connection")
	flags.DurationVar(&c.Slow, "slow", 200*time.Millisecond, "from here on a connection counts as slow")
	flags.StringVar(&log, "log", "", "file for every attempt, a line of JSON each")
	return cmd
}
