package main

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net"
	"net/netip"
	"time"

	"github.com/spf13/cobra"

	"hawser.dev/hawser/nodeagent/benchmark"
	"hawser.dev/hawser/nodeagent/kernel"
	"hawser.dev/hawser/nodeagent/portcheck"
)

func portcheckCommand() *cobra.Command {
	config := portcheck.Config{Every: 500 * time.Millisecond}
	var key string
	var duration time.Duration
	cmd := &cobra.Command{
		Use:    "portcheck",
		Short:  "Ask whether ports of other gateways are reached (started by hawser preflight --pods)",
		Hidden: true,
		Args:   cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			var err error
			if config.Key, err = hex.DecodeString(key); err != nil {
				return fmt.Errorf("--key: %w", err)
			}
			allAddrs := []netip.Prefix{netip.PrefixFrom(netip.IPv4Unspecified(), 0), netip.PrefixFrom(netip.IPv6Unspecified(), 0)}
			if config.Networks, err = kernel.Networks(allAddrs); err != nil {
				fmt.Fprintf(cmd.ErrOrStderr(), "networks of the node not read: %v\n", err)
			}
			check, err := portcheck.New(config)
			if err != nil {
				return err
			}
			ctx, cancel := context.WithTimeout(cmd.Context(), duration)
			defer cancel()
			ended := make(chan struct{})
			go func() { defer close(ended); check.Run(ctx) }()
			out := json.NewEncoder(cmd.OutOrStdout())
			for { // only the last line counts
				select {
				case <-ended:
					return out.Encode(check.Report())
				case <-time.After(time.Second):
				}
				if err := out.Encode(check.Report()); err != nil {
					return err
				}
			}
		},
	}
	flags := cmd.Flags()
	flags.IntSliceVar(&config.Ports, "listen", nil, "UDP ports of this gateway")
	flags.StringSliceVar(&config.Targets, "to", nil, "host:port of other gateways")
	flags.StringVar(&key, "key", "", "what all gateways of this check know, in hex")
	flags.DurationVar(&duration, "for", 2*time.Minute, "time to send and answer probes")
	return cmd
}

func benchmarkCommand() *cobra.Command {
	var c benchmark.Config
	var key, listen string
	cmd := &cobra.Command{
		Use:    "benchmark",
		Short:  "Serve or measure (started by hawser benchmark)",
		Hidden: true,
		Args:   cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			var err error
			if c.Key, err = hex.DecodeString(key); err != nil {
				return fmt.Errorf("--key: %w", err)
			}
			if c.Target != "" {
				return json.NewEncoder(cmd.OutOrStdout()).Encode(benchmark.Measure(cmd.Context(), c))
			}
			var config net.ListenConfig
			listener, err := config.Listen(cmd.Context(), "tcp", listen)
			if err != nil {
				return fmt.Errorf("serve: %w", err)
			}
			return benchmark.Serve(cmd.Context(), listener, c.Key)
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&listen, "listen", "", "host:port to serve at")
	flags.StringVar(&c.Target, "to", "", "host:port of the server, to measure")
	flags.StringVar(&key, "key", "", "what server and client know, 16 bytes in hex")
	flags.DurationVar(&c.For, "for", 5*time.Second, "how long each measurement takes")
	flags.IntVar(&c.Streams, "streams", 4, "streams, and connections, at once")
	flags.DurationVar(&c.Wait, "wait", time.Minute, "how long to wait for the server's first answer")
	return cmd
}
