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

	mu       sync.Mutex
	listener *nftables.Listener // nil if not subscribed
	upto     uint32             // generation of the latest event
	touched  uint32             // latest generation in which another program changed our table
	within   bool               // the events of the current transaction include our table
	own      map[uint32]bool    // generations of commitOwn whose events were not read yet
}

// commitOwn runs a transaction that requires generation upon (0 = any). If transact returns
// true, it records the next generation as ours. It holds the lock meanwhile, so the
// transaction's events are read only afterwards.
func (t *nftChangeTracker) commitOwn(upon uint32, transact func() (taken bool)) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if transact() && upon != 0 && t.listener != nil {
		t.own[upon+1] = true
	}
}

// poll returns the current generation, and the latest generation that changed our table. If
// events are not available, both are the current generation.
func (t *nftChangeTracker) poll(conn *nftables.Conn) (current, touched uint32, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	lost := t.subscribe()
	if current, err = conn.Generation(); err != nil {
		return 0, 0, err
	}
	if lost == nil {
		lost = t.drain()
	}
	// If events up to current are missing, our table may have changed. upto may be newer than
	// current: other transactions may have completed since.
	if lost != nil || int32(t.upto-current) < 0 {
		return current, current, nil
	}
	return t.upto, t.touched, nil
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
	var begin uint32
	err = conn.use(func(c *nftables.Conn) (err error) {
		begin, err = c.Generation()
		return err
	})
	if err = errors.Join(err, conn.close()); err != nil {
		return errors.Join(err, listener.Close())
	}
	t.listener, t.own, t.within, t.upto, t.touched = listener, map[uint32]bool{}, false, begin, begin
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
		t.within = t.within || e.Malformed || e.Table == nftTable()
		return
	}
	if t.within && !t.own[e.Generation] {
		t.touched = e.Generation
		t.changed.Fire()
	}
	delete(t.own, e.Generation)
	t.upto, t.within = e.Generation, false
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

// drainAfter drains the listener after a Wait that returned waited. It returns waited if that is
// an error, and ErrInterrupted if poll closed the listener because events were lost.
func (t *nftChangeTracker) drainAfter(listener *nftables.Listener, waited error) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.listener != listener {
		return nftables.ErrInterrupted
	}
	if waited != nil {
		return waited
	}
	return t.drain()
}
