package kernel

import (
	"context"
	"errors"
	"testing"
	"time"

	"hawser.dev/hawser/internal/diff"
	"hawser.dev/hawser/nodeagent/desired"
)

const nftEventTimeout = 10 * time.Second

func nftAwait(t *testing.T, trigger <-chan struct{}, what string) {
	t.Helper()
	select {
	case <-trigger:
	case <-time.After(nftEventTimeout):
		t.Fatalf("no trigger after %s", what)
	}
}

func TestNftMonitor(t *testing.T) {
	t.Parallel()
	ns := nftNewNS(t)
	ctx, cancel := context.WithCancel(t.Context())
	trigger, ended := make(chan struct{}, 1), make(chan error, 1)
	ruleset := NewRuleset(ns.opts(), trigger)
	go func() { ended <- ruleset.Monitor(ctx) }()
	// The subscription works once the first change fires the trigger.
	for seen := false; !seen; {
		nftApplyTable(t, ns)
		nftApplyTable(t, ns, nftSampleTable())
		select {
		case <-trigger:
			seen = true
		case <-time.After(20 * time.Millisecond):
		}
	}
	// Our own last event follows all earlier events.
	drain := func() {
		for {
			select {
			case <-trigger:
			case <-time.After(50 * time.Millisecond):
				return
			}
		}
	}
	drain()
	nftMustConverge(t, ns, nftSampleElements())
	nftAwait(t, trigger, "adding elements")
	drain()
	ns.nft("add table ip foo; add chain ip foo bar")
	ns.nft("add table ip hawser; add chain ip hawser bar")
	select {
	case <-trigger:
		t.Error("a trigger after changes of foreign tables")
	case <-time.After(100 * time.Millisecond):
	}
	_, own := ruleset.Kinds()
	if _, err := own.Version(t.Context()); err != nil {
		t.Fatal(err)
	}
	var create []diff.Change[desired.Element]
	for _, e := range nftManySlots(desired.SlotsMany + 1000)[desired.SlotsMany:] {
		create = append(create, diff.Change[desired.Element]{Op: diff.Create, Key: e.Key(), Want: e})
	}
	for range 20 {
		for _, changes := range [][]diff.Change[desired.Element]{create, inverse(create)} {
			if err := own.Apply(t.Context(), changes); err != nil {
				t.Fatal(err)
			}
		}
	}
	select {
	case <-trigger:
		t.Error("a trigger after a change of our own")
	case <-time.After(100 * time.Millisecond):
	}
	ns.nft("delete element inet hawser tunnels4 { 241.0.0.1 }")
	nftAwait(t, trigger, "deleting an element")
	ns.nft("insert rule inet hawser forward accept")
	nftAwait(t, trigger, "adding a rule")
	ns.nft("flush ruleset")
	nftAwait(t, trigger, "flushing the ruleset")
	if have, err := NewTables(ns.opts()).Observe(t.Context()); err != nil || len(have) != 0 {
		t.Errorf("tables %v, error %v after the flush of %s", have, err, desired.TableName)
	}
	cancel()
	select {
	case err := <-ended:
		if !errors.Is(err, context.Canceled) {
			t.Errorf("ended with %v", err)
		}
	case <-time.After(nftEventTimeout):
		t.Fatal("did not end with its context")
	}
}
