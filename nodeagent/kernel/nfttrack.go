package kernel

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"hawser.dev/hawser/internal/trigger"
	"hawser.dev/hawser/nodeagent/kernel/nftables"
)

// nftChangeTracker tracks which ruleset generations changed our table. kube-proxy changes
// its own tables with every Service. Such a change must not cause another read of our table.
// The kernel sends a transaction's events before its commit returns, so only the events of
// recent transactions can be missing.
type nftChangeTracker struct {
	opts    NFTOptions
	changed trigger.Trigger // fires if another program changed our table, or may have

	mu             sync.Mutex
	listener       *nftables.Listener // nil if not subscribed
	lastGeneration uint32             // generation of the latest event
	touched        uint32             // latest generation with a change of our table by another program
	touchesTable   bool               // the events of the current transaction include our table
	ownGenerations map[uint32]bool    // generations of commitOwn whose events were not read yet
}

// commitOwn runs a transaction that requires generation base (0 = any). If transact returns true,
// it records the next generation as ours. The tracker is locked meanwhile, so the transaction's
// events are read only afterwards.
func (t *nftChangeTracker) commitOwn(base uint32, transact func() (committed bool)) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if transact() && base != 0 && t.listener != nil {
		t.ownGenerations[base+1] = true
	}
}

// poll returns the current generation, and the latest generation that changed our table. If
// events are not available, both are the current generation.
func (t *nftChangeTracker) poll(conn *nftables.Conn) (current, touched uint32, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	lostErr := t.subscribe()
	if current, err = conn.Generation(); err != nil {
		return 0, 0, err
	}
	if lostErr == nil {
		lostErr = t.drain()
	}
	// If events up to current are missing, our table may have changed. lastGeneration may be
	// newer than current: other transactions may have completed since.
	if lostErr != nil || int32(t.lastGeneration-current) < 0 {
		return current, current, nil
	}
	return t.lastGeneration, t.touched, nil
}

// subscribe subscribes to events, unless it already has. All earlier changes count as changes of
// our table.
func (t *nftChangeTracker) subscribe() error {
	if t.listener != nil {
		return nil
	}
	listener, err := nftables.Listen(t.opts.NetNS)
	if err != nil {
		return err
	}
	conn := nftConn{opts: t.opts}
	var generation uint32
	err = conn.use(func(c *nftables.Conn) (err error) {
		generation, err = c.Generation()
		return err
	})
	if err = errors.Join(err, conn.close()); err != nil {
		return errors.Join(err, listener.Close())
	}
	t.listener, t.ownGenerations, t.touchesTable, t.lastGeneration, t.touched = listener, map[uint32]bool{}, false, generation, generation
	return nil
}

// drain handles all received events. After an error, the next poll subscribes again.
func (t *nftChangeTracker) drain() error {
	err := t.listener.Poll(t.handle)
	if err != nil {
		err = errors.Join(err, t.listener.Close())
		t.listener = nil
		t.changed.Fire()
	}
	return err
}

// handle handles one event. A malformed event counts as a change of our table.
func (t *nftChangeTracker) handle(e nftables.Event) {
	if e.Generation == 0 {
		t.touchesTable = t.touchesTable || e.Malformed || e.Table == nftTable()
		return
	}
	if t.touchesTable && !t.ownGenerations[e.Generation] {
		t.touched = e.Generation
		t.changed.Fire()
	}
	delete(t.ownGenerations, e.Generation)
	t.lastGeneration, t.touchesTable = e.Generation, false
}

// wait handles events as they arrive, until ctx is done or events are lost.
func (t *nftChangeTracker) wait(ctx context.Context) error {
	t.mu.Lock()
	err := t.subscribe()
	listener := t.listener
	t.mu.Unlock()
	for err == nil {
		err = t.drainAfter(listener, listener.Wait(ctx))
	}
	return fmt.Errorf("read nf_tables events: %w", err)
}

// drainAfter drains the listener after a Wait that returned waitErr. It returns waitErr if that is
// not nil, and ErrInterrupted if poll closed the listener because events were lost.
func (t *nftChangeTracker) drainAfter(listener *nftables.Listener, waitErr error) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.listener != listener {
		return nftables.ErrInterrupted
	}
	if waitErr != nil {
		return waitErr
	}
	return t.drain()
}
