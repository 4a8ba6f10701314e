// Command bench measures Hawser's performance and writes the figures to docs/benchmarks.md. Every
// figure has a ratio to a reference, measured alternately in the same run. hack/bench.sh runs it;
// it needs root.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"hawser.dev/hawser/nodeagent/kernel/userspacewg"
)

// config holds the command line.
type config struct {
	out  string // page to write; empty: standard output only
	bin  string // directory of hawser and hawser-agent
	root string // root of the repository
	save string // directory for raw measurements and logs; empty: none are saved
	only []string
}

// group is one section of the page.
type group struct {
	name    string
	measure func(context.Context, config) (section, error)
}

func groups() []group {
	p := profiles()
	return []group{
		{"converge", measureConverge},
		{"tunnel", measureTunnel},
		{"hops", measureHops},
		{"stall", measureStall(p[0])},
		{"stall-fast", measureStall(p[1])},
		{"survive", measureSurvive},
		{"move", measureMove},
		{"scale", measureScale},
	}
}

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// run runs a benchmark, or one part of a measurement. Some measurements start this program again
// for a part, as the agent does for a tunnel.
func run(args []string) error {
	ctx := context.Background()
	if part, ok := parts()[first(args)]; ok {
		if len(args)-1 != part.args {
			return fmt.Errorf("%s: %d arguments, want %d", args[0], len(args)-1, part.args)
		}
		return part.run(ctx, args[1:])
	}
	c, err := parse(args)
	if err != nil {
		return err
	}
	// After a signal the program first removes everything that the measurement created.
	ctx, stop := untilSignal(ctx)
	defer stop()
	if os.Geteuid() != 0 {
		return errors.New("needs root, for network namespaces")
	}
	var errs []error
	for _, g := range groups() { // a failure does not stop the others
		if !slices.Contains(c.only, g.name) || ctx.Err() != nil {
			continue
		}
		fmt.Fprintf(os.Stderr, "bench: %s\n", g.name)
		s, err := g.measure(ctx, c)
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", g.name, err))
			continue
		}
		s.name = g.name
		fmt.Println(s)
		if c.out != "" {
			errs = append(errs, update(c.out, s))
		}
	}
	return errors.Join(append(errs, ctx.Err())...)
}

// part is a subcommand for one part of a measurement.
type part struct {
	args int
	run  func(ctx context.Context, args []string) error
}

func untilSignal(ctx context.Context) (context.Context, context.CancelFunc) {
	return signal.NotifyContext(ctx, syscall.SIGINT, syscall.SIGTERM)
}

func parts() map[string]part {
	return map[string]part{
		"wireguard": {1, func(ctx context.Context, args []string) error {
			ctx, stop := untilSignal(ctx)
			defer stop()
			return userspacewg.Serve(ctx, args[0], userspacewg.DefaultMTU, slog.New(slog.NewTextHandler(os.Stderr, nil)))
		}},
		"echo":         {1, func(_ context.Context, args []string) error { return echo(args[0]) }},
		"accept":       {1, func(_ context.Context, args []string) error { return acceptAll(args[0]) }},
		"connect":      {2, func(_ context.Context, args []string) error { return connectAll(args[0], args[1]) }},
		"requests":     {2, func(_ context.Context, args []string) error { return measureRequests(args[0], args[1]) }},
		"scale-others": {0, func(ctx context.Context, _ []string) error { return scaleStandIns(ctx, os.Stdin) }},
	}
}

func first(args []string) string {
	if len(args) == 0 {
		return ""
	}
	return args[0]
}

func parse(args []string) (config, error) {
	var c config
	var names []string
	for _, g := range groups() {
		names = append(names, g.name)
	}
	flags := flag.NewFlagSet("bench", flag.ContinueOnError)
	flags.StringVar(&c.out, "out", "", "page whose sections are replaced")
	flags.StringVar(&c.bin, "bin", "bin", "directory of hawser and hawser-agent")
	flags.StringVar(&c.root, "root", ".", "root of the repository")
	flags.StringVar(&c.save, "keep", "", "directory for raw measurements and logs")
	flags.Usage = func() {
		fmt.Fprintf(flags.Output(), "usage: bench [flags] [%s]...\n", strings.Join(names, "|"))
		flags.PrintDefaults()
	}
	if err := flags.Parse(args); err != nil {
		return c, err
	}
	if c.only = flags.Args(); len(c.only) == 0 {
		c.only = names
	}
	for _, name := range c.only {
		if !slices.Contains(names, name) {
			return c, fmt.Errorf("benchmark %q not found (benchmarks: %s)", name, strings.Join(names, ", "))
		}
	}
	var err error
	if c.bin, err = filepath.Abs(c.bin); err != nil {
		return c, err
	}
	c.root, err = filepath.Abs(c.root)
	return c, err
}
