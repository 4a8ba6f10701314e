// Command chaos breaks a lab of three clusters in seeded ways, several faults at
// a time, under traffic of every kind, and checks all the while what must hold.
//
//	chaos -seed 7 -faults 200          # rounds of 25 faults
//	chaos -seed 7 -round 3             # the third of them alone
//	chaos -shape hub -family dual      # another sort of clusterset
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

// options is what a run is made of; the schedule depends on seed, faults and
// perRound alone.
type options struct {
	seed     uint64
	faults   int
	perRound int
	round    int     // only this one; 0 = all
	variant  variant // of the clusterset
	slow     float64 // what times to wait are multiplied with
	bin      string  // folder of the programs
	root     string  // of the repository
	evidence string  // folder for what a violation leaves behind
	keep     bool    // leave the lab when something was violated
	record   string  // folder for recordings of what agents see; empty = nothing is recorded
	nodes    string  // whose agents are recorded: names, separated by commas
}

func main() {
	// The lab ends the processes of a node that loses power by the namespace of
	// their first thread: ours stays where it is.
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
	flags.Uint64Var(&o.seed, "seed", 1, "what the schedule is drawn from")
	flags.IntVar(&o.faults, "faults", 200, "how many faults")
	flags.IntVar(&o.perRound, "per-round", 25, "faults in a round; after each, all is healed and checked")
	flags.IntVar(&o.round, "round", 0, "run this round alone [0 = all]")
	flags.StringVar(&o.variant.shape, "shape", usual.shape, "mesh, hub or links")
	flags.StringVar(&o.variant.family, "family", usual.family, "of the addresses: 4, 6 or dual")
	flags.Float64Var(&o.slow, "slow", 1, "multiplies the time that traffic may take to come back")
	flags.StringVar(&o.bin, "bin", "bin", "folder of the programs")
	flags.StringVar(&o.root, "root", ".", "root of the repository")
	flags.StringVar(&o.evidence, "evidence", os.TempDir(), "folder for what a violation leaves behind")
	flags.BoolVar(&o.keep, "keep", false, "leave the lab running when something was violated")
	flags.StringVar(&o.record, "record", "", "folder for recordings of what agents see")
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

// rounds is how many rounds the faults make.
func (o options) rounds() int { return (o.faults + o.perRound - 1) / o.perRound }

// size is how many faults a round has: the last one has the rest.
func (o options) size(round int) int { return min(o.perRound, o.faults-(round-1)*o.perRound) }
