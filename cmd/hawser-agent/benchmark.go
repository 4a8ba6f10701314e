package main

import (
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net"
	"time"

	"github.com/spf13/cobra"

	"hawser.dev/hawser/nodeagent/benchmark"
)

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
