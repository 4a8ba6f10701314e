// Command chaos injects faults into a lab of three clusters, several at a time, under traffic
// of every kind. A seed selects the faults. It checks the invariants all the time.
//
//	chaos -seed 7 -faults 200          # rounds of 25 faults
//	chaos -seed 7 -round 3             # only the third round
//	chaos -shape hub -family dual      # another variant of the clusterset
//
// docs/testing.md lists the faults and the invariants.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"syscall"
)

// options holds the parameters of a run. The schedule depends only on seed, faults and
// perRound.
type options struct {
	seed     uint64
	faults   int
	perRound int
	round    int     // only this round; 0: all
	variant  variant // variant of the clusterset
	slow     float64 // factor for the allowed recovery times
	bin      string  // directory of the programs
	root     string  // root of the repository
	evidence string  // directory for the evidence of a violation
	keepLab  bool    // keep the lab running after a violation
	record   string  // directory for recordings of the agents' input; empty: no recording
	nodes    string  // nodes whose agents are recorded, separated by commas
}

func main() {
	// On power loss the lab kills the processes whose first thread is in the node's namespace.
	// The lock keeps the first thread of this process in its own namespace.
	runtime.LockOSThread()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	err := command(ctx, os.Args[1:], os.Stdout)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "chaos:", err)
		os.Exit(1)
	}
}

func command(ctx context.Context, args []string, out io.Writer) error {
	var o options
	flags := flag.NewFlagSet("chaos", flag.ContinueOnError)
	flags.Uint64Var(&o.seed, "seed", 1, "seed of the schedule")
	flags.IntVar(&o.faults, "faults", 200, "number of faults")
	flags.IntVar(&o.perRound, "per-round", 25, "faults in a round; each round ends with healing and checks")
	flags.IntVar(&o.round, "round", 0, "run only this round [0 = all]")
	flags.StringVar(&o.variant.shape, "shape", usual.shape, "mesh, hub or links")
	flags.StringVar(&o.variant.family, "family", usual.family, "address family: 4, 6 or dual")
	flags.Float64Var(&o.slow, "slow", 1, "factor for the time that traffic may take to recover")
	flags.StringVar(&o.bin, "bin", "bin", "directory of the programs")
	flags.StringVar(&o.root, "root", ".", "root of the repository")
	flags.StringVar(&o.evidence, "evidence", os.TempDir(), "directory for the evidence of a violation")
	flags.BoolVar(&o.keepLab, "keep", false, "keep the lab running after a violation")
	flags.StringVar(&o.record, "record", "", "directory for recordings of the agents' input")
	flags.StringVar(&o.nodes, "nodes", "g1-a,g2-b,g3-w1", "with -record: nodes whose agents are recorded")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if o.faults < 1 || o.perRound < 1 || o.round < 0 || o.round > o.rounds() || o.slow < 1 {
		return errors.New("-faults and -per-round are at least 1, -round is one of the rounds, -slow is at least 1")
	}
	err := o.variant.check()
	if err != nil {
		return err
	}
	if o.bin, err = filepath.Abs(o.bin); err != nil {
		return err
	}
	return run(ctx, o, out)
}

// rounds returns the number of rounds.
func (o options) rounds() int { return (o.faults + o.perRound - 1) / o.perRound }

// size returns the number of faults of a round; the last round has the rest.
func (o options) size(round int) int { return min(o.perRound, o.faults-(round-1)*o.perRound) }
