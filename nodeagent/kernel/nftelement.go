package kernel

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"hawser.dev/hawser/internal/diff"
	"hawser.dev/hawser/nodeagent/converge"
	"hawser.dev/hawser/nodeagent/desired"
	"hawser.dev/hawser/nodeagent/kernel/nftables"
)

// Limits of one write. A transaction is one datagram.
const (
	nftPerTransaction = 1 << 14
	nftPerBatch       = 512
	nftMaxRefusals    = 64 // refused transactions of one Apply that are repeated without the refused elements
	nftMaxConflicts   = 5  // consecutive transactions that fail because of a concurrent change
)

// Elements is the kind of the elements of all sets of table inet hawser. Every element there is
// ours.
type Elements struct {
	conn nftConn
	sets map[string]nftSet

	tracker    *nftChangeTracker
	touched    uint32 // of the latest poll of tracker
	generation uint32 // of that poll, or of the latest own write; 0 = unknown
}

var (
	_ converge.Kind[desired.Element]    = (*Elements)(nil)
	_ converge.Versioned                = (*Elements)(nil)
	_ converge.Batcher[desired.Element] = (*Elements)(nil)
)

// NewElements returns the kind of the elements of table inet hawser.
func NewElements(opts NFTOptions) *Elements {
	k := &Elements{conn: nftConn{opts: opts}, sets: map[string]nftSet{}, tracker: &nftChangeTracker{opts: opts}}
	for _, s := range nftSets() {
		k.sets[s.Name] = s
	}
	return k
}

// Name returns "nft element".
func (k *Elements) Name() string { return "nft element" }

// Version returns the generation of the ruleset in this network namespace that last changed our
// table, except the changes by this kind.
func (k *Elements) Version(context.Context) (string, error) {
	var err error
	k.generation, k.touched, err = k.conn.poll(k.tracker)
	return nftVersion(k.touched, err)
}

// Observe returns the elements of all sets. It returns none if the table does not exist. A
// range that is not a prefix, which only another program can have written, has the key
// first-last.
func (k *Elements) Observe(ctx context.Context) ([]desired.Element, error) {
	var have []desired.Element
	err := k.conn.retryInterrupted(ctx, func(conn *nftables.Conn) (err error) {
		have, err = nftObserveElements(conn)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("table inet %s: %w", desired.TableName, err)
	}
	return have, nil
}

// Batches splits and orders many changes. Thousands of slots may change when the second backend of
// a Service appears or disappears. The first batch has all elements but slots, and the first slot
// of each Service. New slots follow, then the Services that use many slots, then the other slots.
// So a Service uses many slots only after they exist. While it uses the first slot only, that slot
// is correct.
func (k *Elements) Batches(changes []diff.Change[desired.Element]) [][]diff.Change[desired.Element] {
	if len(changes) <= nftPerBatch {
		return [][]diff.Change[desired.Element]{changes}
	}
	var parts [4][]diff.Change[desired.Element]
	const first, created, manySlots, slots = 0, 1, 2, 3
	for _, c := range changes {
		e, part := c.Want, first
		if c.Op == diff.Delete {
			e = c.Have
		}
		switch {
		case e.Set == desired.SetServices && !strings.HasPrefix(e.Value, desired.PickChain(desired.SlotsOne, false)):
			part = manySlots
		case e.Set != desired.SetSlots || strings.HasSuffix(e.ID, nftConcatSeparator+"0"):
		case c.Op == diff.Create:
			part = created
		default:
			part = slots
		}
		parts[part] = append(parts[part], c)
	}
	var batches [][]diff.Change[desired.Element]
	for part, all := range parts {
		size := nftPerBatch
		if part == first || part == manySlots {
			size = max(len(all), 1)
		}
		batches = slices.AppendSeq(batches, slices.Chunk(all, size))
	}
	return batches
}

// Apply makes all changes in as few transactions as possible. An update takes effect at one
// instant. It skips a change with an invalid text, or that the kernel refuses, and reports its key;
// the other changes are made. The kernel refuses an interval that overlaps an existing one, because
// a packet would match both. Without the table, changes wait for it.
func (k *Elements) Apply(ctx context.Context, changes []diff.Change[desired.Element]) error {
	writes, errs := k.encode(changes)
	err := k.conn.use(func(conn *nftables.Conn) error {
		for len(writes) > 0 {
			if err := ctx.Err(); err != nil {
				return err
			}
			n := min(len(writes), nftPerTransaction)
			refused, err := k.write(conn, writes[:n])
			if err != nil {
				return err
			}
			errs = append(errs, refused...)
			writes = writes[n:]
		}
		return nil
	})
	if errors.Is(err, errNftNoTable) {
		err = converge.ErrBlocked{On: nftTableObject}
		if nftDeletesOnly(changes) {
			err = nil
		}
	}
	return errors.Join(append(errs, err)...)
}

func nftDeletesOnly(changes []diff.Change[desired.Element]) bool {
	for _, c := range changes {
		if c.Op != diff.Delete {
			return false
		}
	}
	return true
}

// nftElementWrite is one change as kernel operations: remove, add or both.
type nftElementWrite struct {
	key               string
	set               nftSet
	removal, addition *nftElement
}

func (k *Elements) encode(changes []diff.Change[desired.Element]) (writes []*nftElementWrite, errs []error) {
	for _, c := range changes {
		w, err := k.encodeChange(c)
		if err != nil {
			errs = append(errs, converge.KeyError{Key: c.Key, Err: err})
			continue
		}
		writes = append(writes, w)
	}
	return writes, errs
}

func (k *Elements) encodeChange(c diff.Change[desired.Element]) (*nftElementWrite, error) {
	e := c.Want
	if c.Op == diff.Delete {
		e = c.Have
	}
	set, ok := k.sets[e.Set+strconv.Itoa(e.Family)]
	if !ok || set.Family != e.Family {
		return nil, fmt.Errorf("no set %s for IPv%d", e.Set, e.Family)
	}
	w := &nftElementWrite{key: c.Key, set: set}
	if c.Op != diff.Delete {
		add, err := set.encode(e)
		if err != nil {
			return nil, fmt.Errorf("set %s: %w", set.Name, err)
		}
		w.addition = &add
	}
	if c.Op != diff.Create {
		remove, err := set.encodeKey(e.ID)
		if err != nil {
			return nil, fmt.Errorf("set %s: key %q: %w", set.Name, e.ID, err)
		}
		w.removal = &remove
	}
	return w, nil
}

// write makes the writes in one transaction. It is bound to the last observed generation while
// no other program has changed our table since. Every such write changes something, so its
// generation is the next one.
func (k *Elements) write(conn *nftables.Conn, writes []*nftElementWrite) (refused []error, err error) {
	for attempt := 1; ; attempt++ {
		k.tracker.commitOwn(k.generation, func() bool {
			refused, err = nftWriteElements(conn, writes, k.generation)
			return err == nil && len(refused) == 0
		})
		var refusal *nftables.RefusedError
		if !errors.As(err, &refusal) || !refusal.Stale() {
			break
		}
		before := k.touched
		k.generation, k.touched, err = k.tracker.poll(conn)
		if err != nil || k.touched != before || attempt == nftMaxConflicts {
			k.generation = 0 // any generation; the elements are read again
		}
	}
	if k.generation == 0 || err != nil || len(refused) > 0 {
		k.generation = 0
		return refused, err
	}
	k.generation++
	return nil, nil
}

// nftWriteElements makes the writes in one transaction on top of a generation. Refused writes
// are removed and the rest is retried.
func nftWriteElements(conn *nftables.Conn, writes []*nftElementWrite, generation uint32) (errs []error, err error) {
	for range nftMaxRefusals {
		batch, origins := nftElementBatch(writes, generation)
		err := conn.Commit(batch)
		var refused *nftables.RefusedError
		if err == nil || !errors.As(err, &refused) {
			return errs, err
		}
		causes, err := nftFailedWrites(refused, origins)
		if err != nil {
			return errs, err
		}
		remaining := make([]*nftElementWrite, 0, len(writes))
		for _, w := range writes {
			if cause, failed := causes[w]; failed {
				errs = append(errs, converge.KeyError{Key: w.key, Err: nftWriteError(w, cause)})
			} else {
				remaining = append(remaining, w)
			}
		}
		writes = remaining
	}
	return errs, fmt.Errorf("the kernel refused elements %d times, %d changes are left", nftMaxRefusals, len(writes))
}

// nftFailedWrites returns the writes that caused a refusal. The removal of a missing element is no
// cause: that write only drops its removal.
func nftFailedWrites(refused *nftables.RefusedError, origins nftOrigins) (map[*nftElementWrite]error, error) {
	removals, additions := map[*nftElementWrite]error{}, map[*nftElementWrite]error{}
	for _, f := range refused.Faults {
		origin, known := origins[f.Position]
		switch {
		case !known && errors.Is(f.Err, unix.ENOENT):
			return nil, errNftNoTable
		case !known:
			return nil, refused
		case origin.removing:
			removals[origin.write] = f.Err
		default:
			additions[origin.write] = f.Err
		}
	}
	// The kernel did not try the removals after a refused one in the same message. The
	// additions may have failed only because of these.
	if len(removals) == 0 {
		return additions, nil
	}
	for w, cause := range removals {
		if errors.Is(cause, unix.ENOENT) {
			w.removal = nil
			delete(removals, w)
		}
	}
	return removals, nil
}

func nftWriteError(w *nftElementWrite, cause error) error {
	if w.set.Interval && (errors.Is(cause, unix.EEXIST) || errors.Is(cause, unix.ENOTEMPTY)) {
		return fmt.Errorf("overlaps another element of %s: %w", w.set.Name, cause)
	}
	return fmt.Errorf("write to %s: %w", w.set.Name, cause)
}
